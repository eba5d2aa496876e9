"""All that the next token of a dialogue depends on beside its memory, and frames on their way into it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from longtake.errors import InputError
from longtake.language.frames import FrameFit, PictureFormat
from longtake.language.rope_shift import ShiftedRun
from longtake.memory.policy import Segment


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenClip:
    """The clip that frames are added to."""

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
    """Positions, clips, segments and waiting frames of one conversation; replaced as a whole."""

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
    last_grid_mean: Float[Tensor, " channels"] | None = None
    """The mean of the last grid's tokens."""
    segments: tuple[Segment, ...] = ()
    """All that may still be evicted, oldest first."""
    num_forgotten: int = 0
    """How many segments were evicted."""
    moved: tuple[ShiftedRun, ...] = ()
    """How far tokens have moved since they were written."""


@dataclass(frozen=True, slots=True, eq=False)
class Portion:
    """Frames of whole grids that enter the network together, and when each grid began."""

    frames: UInt8[Tensor, "frames 3 height width"]
    times_s: tuple[float, ...]
    coming: DialogueState
    """Frames counted and held as they are once these are in memory."""

    def after(self, state: DialogueState) -> DialogueState:
        """The state with these frames counted as seen."""
        coming = self.coming
        return replace(
            state,
            fit=coming.fit,
            held=coming.held,
            held_s=coming.held_s,
            num_frames=coming.num_frames,
            last_s=coming.last_s,
        )


def with_frames(
    state: DialogueState,
    frames: UInt8[Tensor, "frames 3 height width"],
    timestamps_s: Sequence[float],
    picture_format: PictureFormat,
) -> DialogueState:
    """The state with these frames held; refused if they are of another size than those before, or not later."""
    if len(frames) != len(timestamps_s):
        raise InputError(f"Expected a time for each of {len(frames)} frames, but got {len(timestamps_s)}.")
    if not len(frames):
        raise InputError("Expected one frame at least, but got none.")
    fit = state.fit or picture_format.fit(*frames.shape[-2:])
    if tuple(frames.shape[-2:]) != (fit.source.height, fit.source.width):
        came = f"{frames.shape[-1]}x{frames.shape[-2]}"
        raise InputError(
            f"Every frame of a session must be {fit.source} as its first one, but one of {came} came; resize it, "
            "or reset the session."
        )
    before = [] if state.last_s is None else [state.last_s]
    for earlier, later in pairwise([*before, *timestamps_s]):
        if not later > earlier:
            raise InputError(
                f"Times of frames must rise, but {later} s came after {earlier} s; give the frames in order, or "
                "reset the session."
            )
    return replace(
        state,
        fit=fit,
        held=(*state.held, *frames.clone()),
        held_s=(*state.held_s, *map(float, timestamps_s)),
        num_frames=state.num_frames + len(frames),
        last_s=float(timestamps_s[-1]),
    )


def portions(state: DialogueState, grid_frames: int, *, most_grids: int, most_s: float) -> Iterator[Portion]:
    """All whole grids of so many frames that are held, in portions of limited size that begin within a limited span.

    Frames of a portion that cannot be taken in are not counted as seen, and may be given again.
    """
    times_s = state.held_s[: len(state.held) // grid_frames * grid_frames : grid_frames]
    starts: list[int] = []
    for grid, time_s in enumerate(times_s):
        if not starts or grid - starts[-1] >= most_grids or time_s - times_s[starts[-1]] > most_s:
            starts.append(grid)
    for start, stop in pairwise([*starts, len(times_s)]):
        frames = torch.stack(state.held[start * grid_frames : stop * grid_frames])
        yield Portion(frames, times_s[start:stop], _up_to(state, stop * grid_frames, is_last=stop == len(times_s)))


def _up_to(state: DialogueState, num_taken: int, *, is_last: bool) -> DialogueState:
    """The state had no more frames come than this; after the last portion frames without partners are held."""
    if is_last:
        return replace(state, held=state.held[num_taken:], held_s=state.held_s[num_taken:])
    num_later = len(state.held) - num_taken
    return replace(
        state, held=(), held_s=(), num_frames=state.num_frames - num_later, last_s=state.held_s[num_taken - 1]
    )
