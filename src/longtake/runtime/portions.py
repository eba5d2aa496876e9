"""Frames that wait in a talk, cut into what is taken in together."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import torch
from jaxtyping import UInt8
from torch import Tensor

from longtake.language.prompt_builder import DialogueState


@dataclass(frozen=True, slots=True, eq=False)
class Portion:
    """Frames of whole grids, when each grid began, and the frames, known and held, once these are taken in."""

    frames: UInt8[Tensor, "frames 3 height width"]
    times_s: tuple[float, ...]
    coming: DialogueState

    def after(self, dialogue: DialogueState) -> DialogueState:
        """The talk with these frames on their way."""
        coming = self.coming
        return replace(
            dialogue,
            fit=coming.fit,
            held=coming.held,
            held_s=coming.held_s,
            num_frames=coming.num_frames,
            last_s=coming.last_s,
        )


def portions(dialogue: DialogueState, pair: int, *, most_grids: int, most_s: float) -> Iterator[Portion]:
    """All whole grids of `pair` frames that wait, in portions of so many at most that begin within such a span.

    What cannot be taken in is then not known to the talk either, and may be given again.
    """
    times_s = dialogue.held_s[: len(dialogue.held) // pair * pair : pair]
    starts: list[int] = []
    for grid, time_s in enumerate(times_s):
        if not starts or grid - starts[-1] >= most_grids or time_s - times_s[starts[-1]] > most_s:
            starts.append(grid)
    for start, stop in pairwise([*starts, len(times_s)]):
        frames = torch.stack(dialogue.held[start * pair : stop * pair])
        yield Portion(frames, times_s[start:stop], _up_to(dialogue, stop * pair, is_last=stop == len(times_s)))


def _up_to(dialogue: DialogueState, num_taken: int, *, is_last: bool) -> DialogueState:
    """The talk had no more come than this; after the last portion frames without partners are held."""
    if is_last:
        return replace(dialogue, held=dialogue.held[num_taken:], held_s=dialogue.held_s[num_taken:])
    num_later = len(dialogue.held) - num_taken
    return replace(
        dialogue, held=(), held_s=(), num_frames=dialogue.num_frames - num_later, last_s=dialogue.held_s[num_taken - 1]
    )
