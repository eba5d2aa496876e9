"""A frame's line comes back, and a camera that cannot be is refused."""

import json
import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from longtake.errors import InputError
from longtake.spatial.placement import Placement
from longtake.takes.frames import FrameRecord, TakeFrame, Visible

INTRINSICS = torch.tensor([[500.5, 0, 320.25], [0, 499, 239.5], [0, 0, 1]], dtype=torch.float64)
FRAME = TakeFrame(
    index=4,
    timestamp_s=0.1,
    world_from_camera=torch.eye(4),
    intrinsics=INTRINSICS,
    room="red",
    visible=(Visible("blue ball", 120, 0.25), Visible("red chair", 7, 0.9)),
    status="ok",
    keyframe=True,
    window=2,
    source=Placement(640, 480, 0.5, 0.75, 1.0, 2.0),
    source_name="garden_17",
)
numbers = st.floats(allow_nan=False, allow_infinity=False)


def test_line_says_what_the_format_promises() -> None:
    assert json.loads(FrameRecord.of(FRAME).line()) == {
        "index": 4,
        "timestamp_s": 0.1,
        "intrinsics": [500.5, 499.0, 320.25, 239.5],
        "room": "red",
        "visible": [
            {"thing": "blue ball", "pixels": 120, "column": 0.25},
            {"thing": "red chair", "pixels": 7, "column": 0.9},
        ],
        "status": "ok",
        "keyframe": True,
        "window": 2,
        "source": {"width": 640, "height": 480, "scale": [0.5, 0.75], "offset": [1.0, 2.0]},
        "source_name": "garden_17",
    }


def test_line_leaves_out_what_is_not_known() -> None:
    bare = TakeFrame(index=0, timestamp_s=0.0, world_from_camera=torch.eye(4), intrinsics=INTRINSICS)
    assert set(json.loads(FrameRecord.of(bare).line())) == {"index", "timestamp_s", "intrinsics"}


def test_nothing_visible_is_not_the_same_as_not_known() -> None:
    record = FrameRecord.of(replace(FRAME, visible=()))
    assert FrameRecord.parse(record.line().encode(), "here").visible == ()


@settings(deadline=None, max_examples=100)
@given(
    index=st.integers(0, 10**9),
    time_s=numbers,
    intrinsics=st.tuples(numbers, numbers, numbers, numbers),
    room=st.none() | st.text(),
    visible=st.none() | st.lists(st.builds(Visible, st.text(), st.integers(0, 10**6), numbers)).map(tuple),
    keyframe=st.none() | st.booleans(),
    window=st.none() | st.integers(0, 10**6),
    source=st.none()
    | st.builds(Placement, st.just(640), st.just(480), st.floats(1e-3, 1e3), st.floats(1e-3, 1e3), numbers, numbers),
    source_name=st.none() | st.text() | st.just("torn\udcff"),
)
def test_every_line_comes_back_to_the_last_bit(
    index: int,
    time_s: float,
    intrinsics: tuple[float, ...],
    room: str | None,
    visible: tuple[Visible, ...] | None,
    keyframe: bool | None,
    window: int | None,
    source: Placement | None,
    source_name: str | None,
) -> None:
    record = FrameRecord(
        index=index,
        timestamp_s=time_s,
        intrinsics=intrinsics,
        room=room,
        visible=visible,
        keyframe=keyframe,
        window=window,
        source=source,
        source_name=source_name,
    )
    line = record.line().encode()
    assert b"\n" not in line
    assert FrameRecord.parse(line, "here") == record


def test_intrinsics_come_back_as_a_matrix() -> None:
    torch.testing.assert_close(FrameRecord.of(FRAME).intrinsics_matrix(), INTRINSICS, rtol=0, atol=0)


def test_unknown_fields_of_a_line_are_ignored() -> None:
    line = json.dumps({**json.loads(FrameRecord.of(FRAME).line()), "weather": "fine"}).encode()
    assert FrameRecord.parse(line, "here") == FrameRecord.of(FRAME)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("index", -1),
        ("index", None),
        ("timestamp_s", "0.1"),
        ("timestamp_s", None),
        ("intrinsics", [1, 2, 3]),
        ("intrinsics", None),
        ("room", 3),
        ("visible", "ball"),
        ("status", 1),
        ("keyframe", 1),
        ("window", 0.5),
        ("source", 3),
        ("source_name", 17),
    ],
)
def test_wrong_field_of_a_line_is_one_sentence(name: str, value: object) -> None:
    line = json.dumps({**json.loads(FrameRecord.of(FRAME).line()), name: value}).encode()
    with pytest.raises(InputError, match=rf"as '{name}' in walk/frames\.jsonl line 9, but"):
        FrameRecord.parse(line, "walk/frames.jsonl line 9")


def changed(matrix: torch.Tensor, place: tuple[int, int], value: float) -> torch.Tensor:
    copy = matrix.clone()
    copy[place] = value
    return copy


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"index": -1}, "an index and a time, but got -1"),
        ({"timestamp_s": math.nan}, "an index and a time, but got 4 at nan"),
        ({"world_from_camera": 2 * torch.eye(4)}, "pose of frame 4"),
        ({"world_from_camera": torch.diag(torch.tensor([1.0, 1, -1, 1]))}, "pose of frame 4"),
        ({"world_from_camera": torch.diag(torch.tensor([1.0, 1, 1.1, 1]))}, "pose of frame 4"),
        ({"world_from_camera": changed(torch.eye(4), (0, 3), math.nan)}, "pose of frame 4"),
        ({"world_from_camera": changed(torch.eye(4), (3, 0), 1.0)}, "pose of frame 4"),
        ({"intrinsics": changed(INTRINSICS, (0, 1), 0.1)}, "no skew for frame 4"),
        ({"intrinsics": changed(INTRINSICS, (0, 0), 0.0)}, "focal lengths greater than 0"),
        ({"intrinsics": changed(INTRINSICS, (1, 1), -5.0)}, "focal lengths greater than 0"),
        ({"intrinsics": changed(INTRINSICS, (0, 2), math.inf)}, "focal lengths greater than 0"),
        ({"intrinsics": changed(INTRINSICS, (2, 2), 2.0)}, "focal lengths greater than 0"),
    ],
)
def test_camera_that_cannot_be_is_refused(changes: dict[str, Any], sentence: str) -> None:
    FRAME.require_camera()
    with pytest.raises(InputError, match=sentence):
        replace(FRAME, **changes).require_camera()


def test_visible_thing_has_a_column() -> None:
    with pytest.raises(InputError, match="a column where blue ball is visible, but got nan"):
        Visible("blue ball", 3, math.nan)
