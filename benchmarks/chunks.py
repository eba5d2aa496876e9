"""What frames cost when so many are looked at together: seconds, tokens, grids, padding, and how long each waits.

All sessions watch side by side, each looks when its chunk is whole, and another one begins with each frame, so that
whatever else the machine does slows all of them alike.
"""

import math
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import UInt8
from torch import Tensor

from longtake.bench.machine import synchronize
from longtake.errors import SettingError
from longtake.language.load import LanguageModel
from longtake.language.prompt_builder import StreamFormat
from longtake.language.sampling import TextSampling
from longtake.memory.policies.lockstep import KeepAll
from longtake.pipeline.adaptive_chunking import keeping_up
from longtake.runtime.dialogue import DialogueSession

CHUNKS = (2, 3, 4, 6, 8)
ROUND = math.lcm(*CHUNKS)
"""Frames after which no chunk and no grid is begun."""
_QUESTION = "w80 w81 w82 w83"
_ANSWER = TextSampling(max_new_tokens=4)
_RESERVE = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkFigures:
    """One size of chunks in one format; seconds are those of a typical round, each call of it the median of all."""

    chunk: int
    stream_format: StreamFormat
    """The open clip, or turns with a clip for each chunk, whose odd frame is shown twice."""
    num_frames: int
    num_grids: int
    num_padded: int
    """Frames that were shown twice."""
    num_tokens: int
    """Remembered, with the words around the frames."""
    num_wasted: int
    """Of these, what padding takes: tokens that as many frames without it would not need."""
    chunk_s: float
    frame_s: float
    load: float
    """Time to be seen over time to come."""
    wait_s: float | None
    """From a frame's coming until it is in memory, mean of the round; None where ever more frames wait."""
    worst_wait_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkStudy:
    """All sizes in both formats, on the same frames."""

    num_parameters: int
    threads: int
    device: str
    frame: tuple[int, int]
    """Height and width in pixels."""
    tokens_per_grid: int
    fps: float
    figures: tuple[ChunkFigures, ...]
    agrees: bool
    """Whether all sizes of the open clip lead to the same answer."""

    @property
    def quickest(self) -> int:
        """The size with the most frames a second in the open clip."""
        return min(self._open, key=lambda figures: figures.frame_s).chunk

    @property
    def keeping_up(self) -> int:
        """What `--chunk auto` comes to for a camera of this rate."""
        return keeping_up({figures.chunk: figures.load for figures in self._open})

    @property
    def _open(self) -> list[ChunkFigures]:
        return [figures for figures in self.figures if figures.stream_format is StreamFormat.OPEN_CLIP]


@torch.no_grad()
def measure_chunks(language: LanguageModel, frame: tuple[int, int], *, rounds: int, fps: float) -> ChunkStudy:
    """Watch random frames of this height and width; the first round warms up and is not timed."""
    if rounds < 2 or not 0 < fps < math.inf:
        raise SettingError(f"Expected 2 rounds and more than 0 frames a second, but got {rounds} and {fps:g}.")
    formats = (StreamFormat.OPEN_CLIP, StreamFormat.TURNS)
    watchers = [_Watcher(language, chunk, each, frame, rounds, fps) for each in formats for chunk in CHUNKS]
    generator = torch.Generator().manual_seed(1)
    for number in range(rounds):
        frames = torch.randint(0, 256, (ROUND, 3, *frame), dtype=torch.uint8, generator=generator)
        for end in range(1, ROUND + 1):
            first = (number + end) % len(watchers)
            for watcher in watchers[first:] + watchers[:first]:
                watcher.watch(frames[:end])
    answers = {watcher.answer() for watcher in watchers if not watcher.pads}
    study = ChunkStudy(
        num_parameters=sum(weight.numel() for weight in language.model.parameters()),
        threads=torch.get_num_threads(),
        device=str(language.network.device),
        frame=frame,
        tokens_per_grid=watchers[0].tokens_per_grid,
        fps=fps,
        figures=tuple(watcher.figures() for watcher in watchers),
        agrees=len(answers) == 1,
    )
    for watcher in watchers:
        watcher.close()
    return study


def waits(chunk: int, seeing_s: Sequence[float], *, fps: float, pads: bool) -> list[float]:
    """For each frame the seconds from its coming until it is in memory, where chunks take so long to be seen.

        chunks of 3      0 1 2 | 3 4 5 | 6 ...
        with padding     0 1 2   3 4 5           in memory once the last of its chunk has come and the chunk is seen
        without          0 1     2 3 4 5         an odd one in the chunk after it, with its partner

    A chunk is looked at when it is whole and the one before it is seen.
    """
    ended_s, free_s = [], 0.0
    for call, took_s in enumerate(seeing_s):
        whole_s = ((call + 1) * chunk - 1) / fps
        free_s = max(free_s, whole_s) + took_s
        ended_s.append(free_s)
    last_of = [place if pads else place | 1 for place in range(chunk * len(seeing_s))]
    return [ended_s[last // chunk] - place / fps for place, last in enumerate(last_of)]


class _Watcher:
    """A session that looks at so many frames together, and its stopwatch."""

    def __init__(
        self,
        language: LanguageModel,
        chunk: int,
        stream_format: StreamFormat,
        frame: tuple[int, int],
        rounds: int,
        fps: float,
    ) -> None:
        fit = language.picture_format.fit(*frame)
        self.tokens_per_grid = fit.rows * fit.columns
        self._device, self._chunk, self._format, self._fps = language.network.device, chunk, stream_format, fps
        self._question = _QUESTION if language.known is None else language.known.examples[0]
        self._num_frames = 0
        self._took_s: list[float] = []
        # a grid for every frame is more than any padding takes, and 16 tokens more than the words of any turn
        num_tokens = 128 + rounds * ROUND * (self.tokens_per_grid + 16) + _RESERVE
        self._session = DialogueSession(
            language,
            budget_bytes=num_tokens * language.network.layout().bytes_per_slot * 5 // 4,
            stream_format=stream_format,
            retaining=KeepAll(),
            answer_tokens=_RESERVE,
        )

    @property
    def pads(self) -> bool:
        return self._format is StreamFormat.TURNS

    def watch(self, frames: UInt8[Tensor, "frames 3 height width"]) -> None:
        """Told of the frames of a round so far, once for each of them."""
        if len(frames) % self._chunk == 0:
            self._took_s.append(self._look(frames[-self._chunk :]))

    def answer(self) -> tuple[int, ...]:
        return self._session.ask(self._question, _ANSWER).ids

    def figures(self) -> ChunkFigures:
        num_calls = ROUND // self._chunk
        timed_s = self._took_s[num_calls:]
        seeing_s = [statistics.median(timed_s[call::num_calls]) for call in range(num_calls)]
        waited_s, took_s = waits(self._chunk, seeing_s, fps=self._fps, pads=self.pads), sum(seeing_s)
        load = took_s * self._fps / ROUND
        info = self._session.info
        num_padded = info.num_frames - self._num_frames
        return ChunkFigures(
            chunk=self._chunk,
            stream_format=self._format,
            num_frames=self._num_frames,
            num_grids=info.num_frames // 2,
            num_padded=num_padded,
            num_tokens=info.num_tokens,
            num_wasted=num_padded * self.tokens_per_grid // 2,
            chunk_s=took_s / len(seeing_s),
            frame_s=took_s / ROUND,
            load=load,
            wait_s=statistics.fmean(waited_s) if load <= 1 else None,
            worst_wait_s=max(waited_s) if load <= 1 else None,
        )

    def close(self) -> None:
        self._session.close()

    def _look(self, frames: UInt8[Tensor, "frames 3 height width"]) -> float:
        times_s = [(self._num_frames + place) / self._fps for place in range(len(frames))]
        self._num_frames += len(frames)
        started = time.perf_counter()
        if self.pads and len(frames) % 2:
            frames, times_s = torch.cat([frames, frames[-1:]]), [*times_s, times_s[-1] + 0.5 / self._fps]
        self._session.see(frames, times_s)
        synchronize(self._device)
        return time.perf_counter() - started
