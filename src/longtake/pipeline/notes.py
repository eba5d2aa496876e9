"""What to know of a video once its first frame is there, and is no result."""

from collections.abc import Iterator

from longtake.pipeline.events import Frame, Noted
from longtake.spatial.placement import Placement
from longtake.types import counted
from longtake.video.reading import Source

_LEAST_SEEN = 0.99
"""Share of a picture below which it is told that the rest is cut off."""


def notes_on(source: Source, first: Frame, advice: str) -> Iterator[Noted]:
    """On how the source is read, and on what the network does not see of it, with how to have it see all."""
    if source.note is not None:
        yield Noted(source.note)
    if first.mapped is not None:
        cut = cut_off(first.mapped.placement, first.mapped.depth.shape)
        if cut is not None:
            yield Noted(f"{cut}{advice}.")


def cut_off(placement: Placement, size: tuple[int, int]) -> str | None:
    """That the network sees less than the picture has, which a viewer of the files would miss; None if it sees all."""
    share = placement.seen_share(size)
    if share >= _LEAST_SEEN:
        return None
    sides = "left and right" if placement.offset_x < 0 else "above and below"
    return (
        f"The model sees the middle of each picture, {share:.0%} of it: of {placement.source_width}x"
        f"{placement.source_height} pixels those {sides} are cut off"
    )


def unreadable_note(num_frames: int, last: str | None) -> Iterator[str]:
    """Of frames that gave no picture, or that a video which is cut off does not have: why the last gave none.

    That is None where it was told before a run was broken off.
    """
    if num_frames == 1 and last is not None:
        yield last
    elif num_frames:
        why = "events.jsonl says which" if last is None else f"the last: {last.rstrip('.')}"
        yield f"{counted(num_frames, 'frame')} could not be read; {why}."
