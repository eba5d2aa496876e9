"""What is noted with the first frame of a video."""

from collections.abc import Generator

import numpy as np
import pytest
import torch

from longtake.exports.frame import FrameStatus, MappedFrame
from longtake.pipeline.events import Frame
from longtake.pipeline.notes import notes_on
from longtake.spatial.placement import Placement
from longtake.types import FrameKind
from longtake.video.frame import PendingFrame
from longtake.video.reading import Source
from longtake.video.sampling import Extent


class Woven(Source):
    def __init__(self, note: str | None) -> None:
        super().__init__("woven.mp4")
        self.note = note

    @property
    def extent(self) -> Extent:
        return Extent()

    def all_frames(self) -> Generator[PendingFrame, None, None]:
        yield from ()


def mapped(placement: Placement) -> MappedFrame:
    depth = np.ones((4, 4), dtype=np.float32)
    picture = np.zeros((placement.source_height, placement.source_width, 3), dtype=np.uint8)
    return MappedFrame(
        index=0,
        timestamp_s=0.0,
        status=FrameStatus.OK,
        kind=FrameKind.SCALE,
        window=0,
        world_from_camera=torch.eye(4, dtype=torch.float64),
        provisional=False,
        intrinsics=torch.eye(3, dtype=torch.float64),
        depth=depth,
        confidence=depth,
        image=np.zeros((4, 4, 3), dtype=np.uint8),
        source_image=picture,
        placement=placement,
    )


@pytest.mark.parametrize(
    ("placement", "sides"),
    [
        (Placement(8, 4, 1.0, 1.0, offset_x=-2.0), "8x4 pixels those left and right"),
        (Placement(4, 8, 1.0, 1.0, offset_y=-2.0), "4x8 pixels those above and below"),
        (Placement(4, 4, 1.0, 1.0), None),
    ],
)
def test_sides_that_the_network_does_not_see_are_named(placement: Placement, sides: str | None) -> None:
    frame = Frame(index=0, timestamp_s=0.0, mapped=mapped(placement))
    said = [noted.text for noted in notes_on(Woven(None), frame, "")]
    whole = f"The model sees the middle of each picture, 50% of it: of {sides} are cut off."
    assert said == ([] if sides is None else [whole])
    assert all(noted.text.endswith("; pad it.") for noted in notes_on(Woven(None), frame, "; pad it"))


def test_what_a_source_says_of_itself_comes_first_and_without_a_map_alone() -> None:
    cut = Frame(index=0, timestamp_s=0.0, mapped=mapped(Placement(8, 4, 1.0, 1.0, offset_x=-2.0)))
    unmapped = Frame(index=0, timestamp_s=0.0, mapped=None)
    source = Woven("woven.mp4 is interlaced.")
    assert [noted.text for noted in notes_on(source, unmapped, "")] == ["woven.mp4 is interlaced."]
    first, second = [noted.text for noted in notes_on(source, cut, "")]
    assert first == "woven.mp4 is interlaced."
    assert "cut off" in second
