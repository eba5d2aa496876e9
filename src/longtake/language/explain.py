"""Where a stream's tokens stand in each format, side by side: how each format expresses time, and for how long.

Numbers are those of the published Qwen2.5-VL unless others are given; no model is needed.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Int64

from longtake.errors import SettingError
from longtake.language.frames import FrameFit, PictureFormat
from longtake.language.model_config import SpecialIds
from longtake.language.positions import VideoSpan, append_grids, grid_times, library_positions, positions, uniform_times
from longtake.language.qwen2_5_vl import first_chunk, next_chunk, open_clip, pieces_of, system_turn

QWEN2_5 = SpecialIds(
    im_start=151644,
    im_end=151645,
    vision_start=151652,
    vision_end=151653,
    image_pad=151655,
    video_pad=151656,
    newline=198,
    system=(8948,),
    user=(872,),
    assistant=(77091,),
)
RANGES = (32_768, 128_000)
"""Positions of a common and of the published range."""
_SYSTEM = (2610, 525, 264, 10950, 17847, 13)
_MOST_TOKENS = 4_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """Frames that come at an even rate, so many at a time."""

    fps: float
    num_chunks: int
    chunk_frames: int = 2
    tokens_per_second: float = 2.0
    fit: FrameFit

    def __post_init__(self) -> None:
        for name, value in (("frames", self.fps), ("positions", self.tokens_per_second)):
            if not (math.isfinite(value) and value > 0):
                raise SettingError(f"Expected a number of {name} a second above 0, but got {value}; 2 is usual.")
        if self.num_chunks < 1 or self.chunk_frames < 1:
            raise SettingError(
                f"Expected one chunk of one frame at least, but got {self.num_chunks} of {self.chunk_frames}."
            )
        if (num_tokens := self.num_chunks * self._own_grids * self.tokens_per_grid) > _MOST_TOKENS:
            raise SettingError(
                f"Expected a table of at most {_MOST_TOKENS:,} tokens, but these chunks have {num_tokens:,}; ask for "
                "fewer or smaller ones."
            )

    @property
    def tokens_per_grid(self) -> int:
        return self.fit.rows * self.fit.columns

    @property
    def chunk_s(self) -> float:
        return self.chunk_frames / self.fps

    @property
    def second_per_grid(self) -> float:
        return self._pair / self.fps

    @property
    def _pair(self) -> int:
        return self.fit.picture_format.temporal_patch

    @property
    def _own_grids(self) -> int:
        """Of a chunk by itself, an odd frame padded."""
        return math.ceil(self.chunk_frames / self._pair)

    def grids_of(self, chunk: int) -> tuple[int, int]:
        """First and last grid of one clip that hold frames of this chunk; chunks of odd frames share one."""
        first_frame = chunk * self.chunk_frames
        return first_frame // self._pair, (first_frame + self.chunk_frames - 1) // self._pair

    def whole_span(self) -> VideoSpan:
        """All chunks as one clip, as the published prompts have it."""
        num_grids = self.grids_of(self.num_chunks - 1)[1] + 1
        return self._span(uniform_times(num_grids, self.second_per_grid, self.tokens_per_second))

    def chunk_span(self) -> VideoSpan:
        """Any chunk as a clip of its own."""
        return self._span(uniform_times(self._own_grids, self.second_per_grid, self.tokens_per_second))

    def _span(self, times: tuple[int, ...]) -> VideoSpan:
        return VideoSpan(times, self.fit.rows, self.fit.columns)


@dataclass(frozen=True, slots=True)
class Place:
    """Where one token stands."""

    time: int
    row: int
    column: int

    def __str__(self) -> str:
        return f"{self.time}, {self.row}, {self.column}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkPlaces:
    """A chunk's first and last token, and the first of a question that comes right after it."""

    start_s: float
    end_s: float
    first: Place
    last: Place
    question: Place


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatPlaces:
    """One format of the same stream."""

    name: str
    chunks: tuple[ChunkPlaces, ...]
    position_s: float
    """Seconds of video that one position stands for, in the long run."""
    lasts_h: dict[int, float]
    """Hours of video until a position beyond the range would be needed, for each range."""
    question_behind_after_s: float | None
    """From this moment on a question stands at or before the last frames shown; None where it never does."""


def explain(stream: Stream) -> tuple[FormatPlaces, ...]:
    """The native prompt of one clip, turns, the open clip, and the native prompt as the library counts it."""
    return _native(stream), _turns(stream), _open_clip(stream), _library(stream)


def picture_format(max_tokens_per_frame: int | None) -> PictureFormat:
    """The published one, or one with a lower limit."""
    published = PictureFormat()
    if max_tokens_per_frame is None:
        return published
    most = max_tokens_per_frame * published.factor**2
    return replace(published, min_pixels=min(published.min_pixels, max(most, 1)), max_pixels=most)


def _native(stream: Stream) -> FormatPlaces:
    base, video_span = len(open_clip(QWEN2_5, _SYSTEM)), stream.whole_span()
    ids = [*open_clip(QWEN2_5, _SYSTEM), *QWEN2_5.video(video_span.num_tokens)]
    rows = positions(pieces_of(ids, QWEN2_5, video_spans=[video_span])).rows[:, base:]
    last_grids = [stream.grids_of(chunk)[1] for chunk in range(stream.num_chunks)]
    asked = [base + replace(video_span, times=(video_span.times[grid],)).extent for grid in last_grids]
    return _one_clip("native", stream, base, rows, asked)


def _library(stream: Stream) -> FormatPlaces:
    base, video_span = len(open_clip(QWEN2_5, _SYSTEM)), stream.whole_span()
    ids = [*open_clip(QWEN2_5, _SYSTEM), *QWEN2_5.video(video_span.num_tokens)]
    place = library_positions(pieces_of(ids, QWEN2_5, video_spans=[video_span]))
    report = _one_clip("library", stream, base, place.rows[:, base:], [place.next_position] * stream.num_chunks)
    return replace(report, question_behind_after_s=video_span.transformers_extent / stream.tokens_per_second)


def _open_clip(stream: Stream) -> FormatPlaces:
    base, held, asked = len(open_clip(QWEN2_5, _SYSTEM)), [np.empty((3, 0), dtype=np.int64)], []
    num_seen = 0
    for chunk in range(stream.num_chunks):
        last = stream.grids_of(chunk)[1]
        # a grid that a chunk shares with the one before was padded for that one's question alone
        shown = range(min(num_seen, last), last + 1)
        times = grid_times([grid * stream.second_per_grid for grid in shown], stream.tokens_per_second)
        place = append_grids(base, times, stream.fit.rows, stream.fit.columns)
        held.append(place.rows[:, (num_seen - shown.start) * stream.tokens_per_grid :])
        asked.append(place.next_position)
        num_seen = last + 1
    return _one_clip("open clip", stream, base, np.concatenate(held, axis=1), asked)


def _one_clip(
    name: str, stream: Stream, base: int, rows: Int64[np.ndarray, "3 tokens"], asked: list[int]
) -> FormatPlaces:
    chunks = []
    for chunk, question in enumerate(asked):
        first, last = stream.grids_of(chunk)
        span = rows[:, first * stream.tokens_per_grid : (last + 1) * stream.tokens_per_grid]
        chunks.append(_places(stream, chunk, span, question))
    return FormatPlaces(
        name=name,
        chunks=tuple(chunks),
        position_s=1 / stream.tokens_per_second,
        lasts_h={most: max(0, most - base) / stream.tokens_per_second / 3600 for most in RANGES},
        question_behind_after_s=None,
    )


def _turns(stream: Stream) -> FormatPlaces:
    video_span, next_position, chunks = stream.chunk_span(), 0, []
    for chunk in range(stream.num_chunks):
        ids = next_chunk(QWEN2_5, video_span.num_tokens)
        if chunk == 0:
            ids = first_chunk(QWEN2_5, video_span.num_tokens, system=_SYSTEM)
        place = positions(pieces_of(ids, QWEN2_5, video_spans=[video_span]), next_position)
        is_video = np.array(ids) == QWEN2_5.video_pad
        next_position = place.next_position
        chunks.append(_places(stream, chunk, place.rows[:, is_video], next_position))
    advance = video_span.extent + len(next_chunk(QWEN2_5, 0))
    before = len(system_turn(QWEN2_5, _SYSTEM))
    return FormatPlaces(
        name="turns",
        chunks=tuple(chunks),
        position_s=stream.chunk_s / advance,
        lasts_h={most: max(0, most - before) // advance * stream.chunk_s / 3600 for most in RANGES},
        question_behind_after_s=None,
    )


def _places(stream: Stream, chunk: int, rows: Int64[np.ndarray, "3 tokens"], question: int) -> ChunkPlaces:
    first, last = (Place(*map(int, rows[:, at])) for at in (0, -1))
    return ChunkPlaces(
        start_s=chunk * stream.chunk_s,
        end_s=(chunk + 1) * stream.chunk_s,
        first=first,
        last=last,
        question=Place(question, question, question),
    )
