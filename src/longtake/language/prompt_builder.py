"""From frames and words to the next tokens of a conversation: what they are, where they stand, what holds afterwards.

Nothing is remembered here: a talk's state comes in, and the state after the tokens goes out with them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float, Int64, UInt8
from torch import Tensor

from longtake.errors import InputError
from longtake.language.formats import (
    StreamFormat,
    clip_question,
    first_chunk,
    next_chunk,
    open_clip,
    pieces_of,
    reopen_clip,
    system_turn,
    time_text,
    turn_end,
    turn_question,
)
from longtake.language.frames import FrameFit, PictureFormat, pixel_rows
from longtake.language.load import LanguageModel
from longtake.language.network import Network
from longtake.language.positions import Piece, Text, VideoSpan, append_film, grid_times, positions
from longtake.language.rope_shift import ShiftedRun
from longtake.memory.policy import Segment


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenClip:
    """A clip that is still open."""

    base: int
    """Position of its first row and column, and of its first moment."""
    start_s: float
    last_time: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedClip:
    """A clip that a remembered question has closed, of which some grids are left."""

    end: int
    """Which token of the conversation comes after its grids."""
    start_s: float
    last_time: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DialogueState:
    """All that the next token depends on beside the memory; replaced as a whole."""

    next_position: int = 0
    clip: OpenClip | None = None
    closed: tuple[ClosedClip, ...] = ()
    """Those before it, oldest first."""
    fit: FrameFit | None = None
    held: tuple[UInt8[Tensor, "3 height width"], ...] = ()
    """Frames that wait for their partners."""
    held_s: tuple[float, ...] = ()
    num_frames: int = 0
    last_s: float | None = None
    last_look: Float[Tensor, " channels"] | None = None
    """The mean of the last grid's tokens."""
    segments: tuple[Segment, ...] = ()
    """All that may still leave, oldest first."""
    num_forgotten: int = 0
    """Those that have left."""
    moved: tuple[ShiftedRun, ...] = ()
    """How far tokens have moved since they were written."""


@dataclass(frozen=True, slots=True)
class TokenInputs:
    """Tokens on their way into the network: what they are, where they stand, and what holds afterwards."""

    embedded: Float[Tensor, "1 tokens width"]
    rows: Int64[np.ndarray, "3 tokens"]
    state: DialogueState
    segments: tuple[Segment, ...] = ()
    """Counted from the first of these tokens."""


class PromptBuilder:
    """Makes tokens in one format, with one system prompt."""

    def __init__(self, language: LanguageModel, network: Network, system: str, stream_format: StreamFormat) -> None:
        self._language, self._network, self._format = language, network, stream_format
        self._special = language.special_ids
        self._system = language.words.encode(system)

    def shown(
        self,
        state: DialogueState,
        frames: UInt8[Tensor, "frames 3 height width"],
        times_s: Sequence[float],
        *,
        pad: bool,
    ) -> TokenInputs:
        """Frames of whole grids, the first of each of which came at these times, as the next tokens."""
        if self._format is StreamFormat.OPEN_CLIP:
            return self._shown_in_clip(state, frames, times_s, pad=pad)
        return self._shown_in_turn(state, frames, times_s, pad=pad)

    def _shown_in_turn(
        self,
        state: DialogueState,
        frames: UInt8[Tensor, "frames 3 height width"],
        times_s: Sequence[float],
        *,
        pad: bool,
    ) -> TokenInputs:
        """A turn with a clip of its own, whose time begins anew."""
        assert state.fit is not None
        assert state.last_s is not None
        pixels = pixel_rows(frames, state.fit, pad=pad)
        features = self._network.see(pixels.values, pixels.grid)
        times = grid_times([time_s - times_s[0] for time_s in times_s], self._language.text.tokens_per_second)
        spoken: Sequence[int] = ()
        if self._format is StreamFormat.TIMED_TURNS:
            spoken = self._language.words.encode(time_text(times_s[0], state.last_s))
        if state.next_position == 0:
            ids = first_chunk(self._special, features.shape[1], system=self._system, time=spoken)
        else:
            ids = next_chunk(self._special, features.shape[1], time=spoken)
        film = VideoSpan(times, state.fit.rows, state.fit.columns)
        place = positions(pieces_of(ids, self._special, films=[film]), state.next_position)
        embedded = self._network.embed(ids)
        embedded[0, [token == self._special.video_pad for token in ids]] = features[0]
        start = len(system_turn(self._special, self._system)) if state.next_position == 0 else 0
        looks = _looks(features, len(times))
        whole = Segment(
            first=start,
            num_tokens=len(ids) - start,
            time_s=times_s[0],
            novelty=_novelty(looks[0], state.last_look),
            extent=place.next_position - state.next_position - start,
        )
        after = replace(state, next_position=place.next_position, last_look=looks[-1])
        return TokenInputs(embedded, place.rows, after, (whole,))

    def _shown_in_clip(
        self,
        state: DialogueState,
        frames: UInt8[Tensor, "frames 3 height width"],
        times_s: Sequence[float],
        *,
        pad: bool,
    ) -> TokenInputs:
        """More of the open clip, which is opened where there is none."""
        assert state.fit is not None
        last = state.last_look
        rows, columns = state.fit.rows, state.fit.columns
        pixels = pixel_rows(frames, state.fit, pad=pad)
        features = self._network.see(pixels.values, pixels.grid)
        looks = _looks(features, len(times_s))
        state = replace(state, last_look=looks[-1])
        grids = _grids(looks, last, times_s, rows * columns)
        if state.clip is not None:
            clip = state.clip
            times = self._times(clip, times_s)
            place = append_film(clip.base, times, rows, columns)
            after = replace(state, clip=replace(clip, last_time=times[-1]), next_position=place.next_position)
            return TokenInputs(features, place.rows, after, grids)
        opening = open_clip(self._special, self._system) if state.next_position == 0 else reopen_clip(self._special)
        base = state.next_position + len(opening)
        clip = OpenClip(base=base, start_s=times_s[0], last_time=0)
        times = self._times(clip, times_s)
        pieces: list[Piece] = [Text(len(opening)), VideoSpan(times, rows, columns)]
        place = positions(pieces, state.next_position)
        after = replace(state, clip=replace(clip, last_time=times[-1]), next_position=place.next_position)
        embedded = torch.cat([self._network.embed(opening), features], dim=1)
        return TokenInputs(
            embedded, place.rows, after, tuple(replace(grid, first=grid.first + len(opening)) for grid in grids)
        )

    def _times(self, clip: OpenClip, times_s: Sequence[float]) -> tuple[int, ...]:
        since = [time_s - clip.start_s for time_s in times_s]
        return tuple(max(clip.last_time, at) for at in grid_times(since, self._language.text.tokens_per_second))

    def questioned(self, state: DialogueState, question: Sequence[int], *, next_token: int) -> TokenInputs:
        """The question as the tokens of the conversation from `next_token` on.

        A frame that waits for its partner is shown twice, on this fork alone.
        """
        parts: list[TokenInputs] = []
        if state.held:
            waiting = replace(state, held=(), held_s=())
            parts.append(self.shown(waiting, torch.stack(state.held), state.held_s[:1], pad=True))
            coming = [replace(segment, first=segment.first + next_token) for segment in parts[0].segments]
            state = replace(parts[0].state, segments=(*state.segments, *coming))
            next_token += parts[0].embedded.shape[1]
        if state.clip is not None:
            closed = ClosedClip(end=next_token, start_s=state.clip.start_s, last_time=state.clip.last_time)
            state = replace(state, clip=None, closed=(*state.closed, closed))
            ids = clip_question(self._special, question)
        elif state.next_position == 0:
            ids = [
                *system_turn(self._special, self._system),
                *turn_question(self._special, question),
            ]
        else:
            ids = turn_question(self._special, question)
        place = positions([Text(len(ids))], state.next_position)
        parts.append(
            TokenInputs(self._network.embed(ids), place.rows, replace(state, next_position=place.next_position))
        )
        embedded = torch.cat([part.embedded for part in parts], dim=1)
        return TokenInputs(embedded, np.concatenate([part.rows for part in parts], axis=1), parts[-1].state)

    def word(self, token: int, state: DialogueState) -> TokenInputs:
        place = positions([Text(1)], state.next_position)
        return TokenInputs(self._network.embed([token]), place.rows, replace(state, next_position=place.next_position))

    def turn_closed(self, dialogue: DialogueState, unfed: Sequence[int]) -> TokenInputs:
        """The end of an answer, of which some tokens were not taken in yet."""
        ids = [token for token in unfed if token != self._special.im_end] + turn_end(self._special)
        place = positions([Text(len(ids))], dialogue.next_position)
        return TokenInputs(self._network.embed(ids), place.rows, replace(dialogue, next_position=place.next_position))


def with_frames(
    dialogue: DialogueState,
    frames: UInt8[Tensor, "frames 3 height width"],
    timestamps_s: Sequence[float],
    picture_format: PictureFormat,
) -> DialogueState:
    """The talk with these frames held, to be shown; refused if they do not go on where it is."""
    if len(frames) != len(timestamps_s):
        raise InputError(f"Expected a time for each of {len(frames)} frames, but got {len(timestamps_s)}.")
    if not len(frames):
        raise InputError("Expected one frame at least, but got none.")
    fit = dialogue.fit or picture_format.fit(*frames.shape[-2:])
    if tuple(frames.shape[-2:]) != (fit.source.height, fit.source.width):
        came = f"{frames.shape[-1]}x{frames.shape[-2]}"
        raise InputError(
            f"Every frame of a session must be {fit.source} as its first one, but one of {came} came; resize it, "
            "or reset the session."
        )
    before = [] if dialogue.last_s is None else [dialogue.last_s]
    for earlier, later in zip([*before, *timestamps_s], [*before, *timestamps_s][1:], strict=False):
        if not later > earlier:
            raise InputError(
                f"Times of frames must rise, but {later} s came after {earlier} s; give the frames in order, or "
                "reset the session."
            )
    return replace(
        dialogue,
        fit=fit,
        held=(*dialogue.held, *frames.clone()),
        held_s=(*dialogue.held_s, *map(float, timestamps_s)),
        num_frames=dialogue.num_frames + len(frames),
        last_s=float(timestamps_s[-1]),
    )


def _looks(features: Float[Tensor, "1 tokens width"], num_grids: int) -> Float[Tensor, "grids width"]:
    """The mean of each grid's tokens."""
    looks: Tensor = features[0].unflatten(0, (num_grids, -1)).mean(dim=1).float().cpu()
    return looks


def _novelty(look: Float[Tensor, " width"], before: Float[Tensor, " width"] | None) -> float:
    """One minus the cosine between two looks."""
    if before is None:
        return math.inf
    return 1 - float(torch.cosine_similarity(look, before, dim=0))


def _grids(
    looks: Float[Tensor, "grids width"], last: Float[Tensor, " width"] | None, times_s: Sequence[float], num_tokens: int
) -> tuple[Segment, ...]:
    befores = [last, *looks[:-1]]
    return tuple(
        Segment(first=place * num_tokens, num_tokens=num_tokens, time_s=time_s, novelty=_novelty(look, before))
        for place, (look, before, time_s) in enumerate(zip(looks, befores, times_s, strict=True))
    )
