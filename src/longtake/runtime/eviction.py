"""What a dialogue is once frames have left for want of room.

Pure functions on what the session knows; it forgets what they say, and takes over what they return.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Int64

from longtake.errors import InputError, MemoryFullError
from longtake.language.model_config import TextConfig
from longtake.language.positions import VideoSpan
from longtake.language.prompt_builder import ClosedClip, DialogueState, TokenInputs
from longtake.language.rope_shift import Gap, closed_up
from longtake.memory.policy import Segment, SegmentPolicy

Tokens = Int64[np.ndarray, " tokens"]


def leaving_for(segments: Sequence[Segment], num_missing: int, num_places: int, rule: SegmentPolicy) -> list[Segment]:
    """What leaves so that so many more tokens find room among `num_places`."""
    leaving = rule.leaving(segments, max(0, num_missing))
    if num_missing > sum(segment.num_tokens for segment in leaving):
        raise MemoryFullError(
            f"The memory has room for {num_places} tokens beside those for answers, and the next frames need "
            f"{num_missing} more than are left; give it a larger budget, smaller frames, or let old ones leave."
        )
    return leaving


def beside_questions(num_tokens: int, time_s: float, patience_s: float) -> MemoryFullError:
    """What to say when there is room but for what questions under way still see."""
    return MemoryFullError(
        f"Frames from {time_s:g} s on need {num_tokens} places, but those of frames that left are held for questions "
        f"under way, and {patience_s:g} s of patience were not enough; wait for the questions to end, or call `see` "
        "with a larger `patience_s`."
    )


def require_known(inputs: TokenInputs, text_config: TextConfig) -> None:
    """Refuse tokens that would stand where the network knows no position."""
    last = int(inputs.rows.max())
    if last >= text_config.max_positions:
        raise InputError(
            f"The model knows {text_config.max_positions} positions, but a token would stand at {last}; let frames "
            "leave the memory, let questions under way end so that the clip can be moved back, or reset the session."
        )


def tokens_of(segments: Sequence[Segment]) -> Tokens:
    """Which tokens of the conversation these are; there is one segment at least."""
    return np.concatenate([np.arange(segment.first, segment.first + segment.num_tokens) for segment in segments])


def without(dialogue: DialogueState, leaving: Sequence[Segment], staying: Tokens, *, next_token: int) -> DialogueState:
    """The talk once these have left: what stays, remembered words among it, closes up where turns or clips were."""
    gone = {segment.first for segment in leaving}
    segments = tuple(segment for segment in dialogue.segments if segment.first not in gone)
    left = by_clip(segments, dialogue.closed)
    empty = [
        Gap(clip.end - 1, extent(dialogue, clip))
        for clip, grids in zip(dialogue.closed, left, strict=False)
        if not grids
    ]
    after = replace(
        dialogue,
        segments=segments,
        num_forgotten=dialogue.num_forgotten + len(leaving),
        closed=tuple(clip for clip, grids in zip(dialogue.closed, left, strict=False) if grids),
    )
    return behind_moved(after, [*leaving, *empty], staying, next_token=next_token)


def behind_moved(
    dialogue: DialogueState, gaps: Sequence[Segment | Gap], staying: Tokens, *, next_token: int
) -> DialogueState:
    """The talk once all that stands behind each of these has moved back by its extent, as a whole."""
    back = sum(gap.extent for gap in gaps)
    return replace(
        dialogue,
        next_position=dialogue.next_position - back,
        clip=None if dialogue.clip is None else replace(dialogue.clip, base=dialogue.clip.base - back),
        moved=closed_up(dialogue.moved, gaps, staying, next_token=next_token),
    )


def by_clip(segments: Sequence[Segment], closed: Sequence[ClosedClip]) -> list[list[Segment]]:
    """The grids of each closed clip, and last those after all of them."""
    if not closed:
        return [list(segments)]
    ends = [clip.end for clip in closed]
    grids: list[list[Segment]] = [[] for _ in range(len(ends) + 1)]
    for segment in segments:
        grids[bisect_right(ends, segment.first)].append(segment)
    return grids


def extent(dialogue: DialogueState, clip: ClosedClip) -> int:
    """How many positions a clip takes up."""
    assert dialogue.fit is not None
    return VideoSpan((clip.last_time,), dialogue.fit.rows, dialogue.fit.columns).extent


def taken_up(inputs: TokenInputs, after: DialogueState, *, next_token: int) -> TokenInputs:
    """Tokens on their way in, now that what holds after them is `after`; their segments become the talk's."""
    back = inputs.state.next_position - after.next_position
    coming = [replace(segment, first=segment.first + next_token) for segment in inputs.segments]
    return replace(inputs, rows=inputs.rows - back, state=replace(after, segments=(*after.segments, *coming)))
