"""From frames, questions and words to the next tokens of a conversation: embeddings, positions, and the state after.

Pure functions of the state that is given: `runtime.dialogue_memory` reads the tokens and takes over the state.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
import torch
from jaxtyping import Float, Int64, UInt8
from torch import Tensor

from longtake.language.dialogue_state import ClosedClip, DialogueState, OpenClip
from longtake.language.family import Family
from longtake.language.frames import FrameFit, pixel_rows
from longtake.language.load import LanguageModel
from longtake.language.network import Network
from longtake.language.positions import Picture, Piece, Text, VideoSpan
from longtake.memory.policy import Segment

Features = Float[Tensor, "1 tokens channels"]
"""What the vision tower makes of pictures or temporal grids, as wide as the embeddings of words."""
See = Callable[[Float[Tensor, "patches values"], tuple[int, int, int]], Features]
"""The vision tower, for temporal grids of so many rows and columns of patches."""


class StreamFormat(StrEnum):
    """How frames that come little by little become a conversation."""

    OPEN_CLIP = "open-clip"
    """One clip that is closed by a question: the prompt of a plain model for the video so far, in true time."""
    TURNS = "turns"
    """A user's turn with a clip of its own for all that came together; time between turns is lost."""
    TIMED_TURNS = "timed-turns"
    """The same, with the time as text before each clip."""


@dataclass(frozen=True, slots=True)
class TokenInputs:
    """Tokens on their way into the network, where they stand, and the state once they are in memory."""

    embedded: Float[Tensor, "1 tokens width"]
    rows: Int64[np.ndarray, "3 tokens"]
    """Positions: time, row and column."""
    state: DialogueState
    segments: tuple[Segment, ...] = ()
    """What of these tokens may be evicted later; counted from the first of them."""

    @property
    def num_tokens(self) -> int:
        return self.embedded.shape[1]


@dataclass(frozen=True, slots=True, eq=False)
class VisionInput:
    """A picture or a clip of a prompt: where its tokens stand, and what the vision tower made of it."""

    piece: Picture | VideoSpan
    features: Features


def grid_descriptors(features: Features, num_grids: int) -> Float[Tensor, "grids width"]:
    """What each pair of frames looks like as a whole: the mean of its tokens from the vision tower."""
    by_grid: Tensor = features[0].float().unflatten(0, (num_grids, -1))
    return by_grid.mean(dim=1)


class PromptBuilder:
    """Makes tokens in one format, with one system prompt."""

    def __init__(
        self,
        language: LanguageModel,
        network: Network,
        system: str,
        stream_format: StreamFormat,
        see: See | None = None,
    ) -> None:
        """`see` stands for the network's own, where that can be had faster."""
        self._network, self._format, self._family = network, stream_format, language.family
        self._faster_see = see
        self._tokenizer = language.required_tokenizer
        self._system = self._tokenizer.encode(system)

    def frame_features(
        self, frames: UInt8[Tensor, "frames 3 height width"], fit: FrameFit, *, pad: bool = False
    ) -> Features:
        """Frames of whole grids through the vision tower; with `pad` a last one without partners is repeated."""
        pixels = pixel_rows(frames, fit, pad=pad)
        return (self._faster_see or self._network.see)(pixels.values, pixels.grid)

    def frame_tokens(self, state: DialogueState, features: Features, times_s: Sequence[float]) -> TokenInputs:
        """Features of temporal grids, the first frames of which came at these times, as the next tokens."""
        if self._format is StreamFormat.OPEN_CLIP:
            return self._in_open_clip(state, features, times_s)
        return self._in_turn(state, features, times_s)

    def _in_turn(self, state: DialogueState, features: Features, times_s: Sequence[float]) -> TokenInputs:
        """A turn with a clip of its own, whose time begins anew; it is evicted as a whole."""
        assert state.fit is not None
        assert state.last_s is not None
        times = self._family.grid_times([time_s - times_s[0] for time_s in times_s])
        time: Sequence[int] = ()
        if self._format is StreamFormat.TIMED_TURNS:
            time = self._tokenizer.encode(time_text(times_s[0], state.last_s))
        span = VideoSpan(times, state.fit.rows, state.fit.columns)
        sink = self._family.system_turn(self._system) if state.next_position == 0 else []
        ids = [*sink, *self._family.vision_turn(span, time=time)]
        inputs = prompt_inputs(self._family, self._network, state, ids, [VisionInput(span, features)])
        means = _grid_means(features, len(times))
        turn = Segment(
            first=len(sink),
            num_tokens=len(ids) - len(sink),
            time_s=times_s[0],
            novelty=_novelty(means[0], state.last_grid_mean),
            extent=inputs.state.next_position - state.next_position - len(sink),
        )
        return replace(inputs, state=replace(inputs.state, last_grid_mean=means[-1]), segments=(turn,))

    def _in_open_clip(self, state: DialogueState, features: Features, times_s: Sequence[float]) -> TokenInputs:
        """More of the open clip, which is opened where there is none; each grid is evicted by itself."""
        assert state.fit is not None
        opening = [] if state.clip is not None else self._opening(state)
        base = state.next_position + len(opening)
        clip = state.clip or OpenClip(base=base, start_s=times_s[0], last_time=0)
        times = self._times(clip, times_s)
        rows, columns = state.fit.rows, state.fit.columns
        # further grids begin at the clip's own base again: rows and columns stay, only time goes on
        pieces: list[Piece] = [*([Text(len(opening))] if opening else []), VideoSpan(times, rows, columns)]
        place = self._family.positions(pieces, state.next_position if opening else clip.base)
        means = _grid_means(features, len(times_s))
        after = replace(
            state,
            clip=replace(clip, last_time=times[-1]),
            next_position=place.next_position,
            last_grid_mean=means[-1],
        )
        embedded = torch.cat([self._network.embed(opening), features], dim=1) if opening else features
        grids = _grids(means, state.last_grid_mean, times_s, first=len(opening), num_tokens=rows * columns)
        return TokenInputs(embedded, place.rows, after, grids)

    def _opening(self, state: DialogueState) -> list[int]:
        """What comes before a clip's first frame, and before the first clip the system's turn."""
        sink = self._family.system_turn(self._system) if state.next_position == 0 else []
        return [*sink, *self._family.clip_start()]

    def _times(self, clip: OpenClip, times_s: Sequence[float]) -> tuple[int, ...]:
        since = [time_s - clip.start_s for time_s in times_s]
        return tuple(max(clip.last_time, at) for at in self._family.grid_times(since))

    def question_tokens(self, state: DialogueState, question: Sequence[int], *, next_token: int) -> TokenInputs:
        """The question as the tokens of the conversation from `next_token` on, up to where its answer begins.

        A frame that waits for its partner is shown twice with it.
        """
        if not state.held:
            return self._asked(state, question, next_token)
        assert state.fit is not None
        features = self.frame_features(torch.stack(state.held), state.fit, pad=True)
        held = self.frame_tokens(replace(state, held=(), held_s=()), features, state.held_s[:1])
        coming = [replace(segment, first=segment.first + next_token) for segment in held.segments]
        state = replace(held.state, segments=(*state.segments, *coming))
        asked = self._asked(state, question, next_token + held.num_tokens)
        embedded = torch.cat([held.embedded, asked.embedded], dim=1)
        return TokenInputs(embedded, np.concatenate([held.rows, asked.rows], axis=1), asked.state)

    def _asked(self, state: DialogueState, question: Sequence[int], next_token: int) -> TokenInputs:
        if state.clip is not None:
            closed = ClosedClip(end=next_token, start_s=state.clip.start_s, last_time=state.clip.last_time)
            state = replace(state, clip=None, closed=(*state.closed, closed))
            return self.text_tokens(state, self._family.clip_question(question))
        sink = self._family.system_turn(self._system) if state.next_position == 0 else []
        return self.text_tokens(state, [*sink, *self._family.question_turn(question)])

    def text_tokens(self, state: DialogueState, ids: Sequence[int]) -> TokenInputs:
        """Tokens without vision, such as one of an answer."""
        place = self._family.positions([Text(len(ids))], state.next_position)
        return TokenInputs(self._network.embed(ids), place.rows, replace(state, next_position=place.next_position))

    def next_words(self, states: Sequence[DialogueState], ids: Sequence[int]) -> list[TokenInputs]:
        """One more token for each of several conversations."""
        embedded = self._network.embed(ids).split(1, dim=1)
        places = [self._family.positions([Text(1)], state.next_position) for state in states]
        return [
            TokenInputs(each, place.rows, replace(state, next_position=place.next_position))
            for each, place, state in zip(embedded, places, states, strict=True)
        ]

    def answer_end(self, state: DialogueState, pending: Sequence[int]) -> TokenInputs:
        """The end of an answer's turn, after those of its tokens that are not in memory yet."""
        end = self._family.turn_end()
        return self.text_tokens(state, [*(token for token in pending if token != end[0]), *end])


def prompt_inputs(
    family: Family, network: Network, state: DialogueState, ids: Sequence[int], visions: Sequence[VisionInput]
) -> TokenInputs:
    """Any tokens, pictures and clips in place of their pads, as the next of a conversation; none may be evicted."""
    place = family.positions(family.pieces(ids, [vision.piece for vision in visions]), state.next_position)
    embedded = network.embed(ids)
    for kind in (Picture, VideoSpan):
        features = [vision.features[0] for vision in visions if isinstance(vision.piece, kind)]
        if features:
            embedded[0, family.vision_mask(ids, kind)] = torch.cat(features)
    return TokenInputs(embedded, place.rows, replace(state, next_position=place.next_position))


def _grid_means(features: Features, num_grids: int) -> Float[Tensor, "grids channels"]:
    """The mean of each grid's tokens."""
    means: Tensor = features[0].unflatten(0, (num_grids, -1)).mean(dim=1).float().cpu()
    return means


def _novelty(mean: Float[Tensor, " channels"], before: Float[Tensor, " channels"] | None) -> float:
    """One minus the cosine between a grid's mean and that of the one before it."""
    if before is None:
        return math.inf
    return 1 - float(torch.cosine_similarity(mean, before, dim=0))


def _grids(
    means: Float[Tensor, "grids channels"],
    last: Float[Tensor, " channels"] | None,
    times_s: Sequence[float],
    *,
    first: int,
    num_tokens: int,
) -> tuple[Segment, ...]:
    """A segment for each grid, from the token `first` on."""
    befores = [last, *means[:-1]]
    return tuple(
        Segment(first=first + place * num_tokens, num_tokens=num_tokens, time_s=time_s, novelty=_novelty(mean, before))
        for place, (mean, before, time_s) in enumerate(zip(means, befores, times_s, strict=True))
    )


def time_text(start_s: float, end_s: float) -> str:
    """What stands before a clip in timed turns."""
    return f"Time={start_s:.1f}-{end_s:.1f}s"
