"""A take's header comes back from its file, newer ones and damaged ones are one sentence."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from longtake.errors import InputError, SettingError
from longtake.spatial.placement import Placement
from longtake.takes.depth_files import DepthFiles
from longtake.takes.header import Content, Network, TakeHeader, Unit, is_take, read_header
from longtake.takes.images import ImageFiles

FULL = TakeHeader(
    content=Content.RESULT,
    width=640,
    height=480,
    unit=Unit.MODEL,
    fps=29.97,
    images=ImageFiles.VIDEO,
    depth=DepthFiles(0.001),
    confidence=True,
    source=Placement(1920, 1440, 1 / 3, 0.25, 0.5, -3.0),
    descriptor_channels=144,
    world={"seed": 7, "rooms": ["red", "blue"]},
    made_by="someone 3",
)
BARE = TakeHeader(content=Content.TRUTH, width=1, height=1)


def put(folder: Path, header: TakeHeader, **changes: Any) -> None:
    fields = {**json.loads(header.to_json()), **changes}
    (folder / "take.json").write_text(json.dumps({name: value for name, value in fields.items() if value != "gone"}))


@pytest.mark.parametrize("header", [FULL, BARE])
def test_header_comes_back_from_its_file(tmp_path: Path, header: TakeHeader) -> None:
    (tmp_path / "take.json").write_text(header.to_json())
    assert read_header(tmp_path) == header
    assert is_take(tmp_path)


def test_file_says_what_the_format_promises() -> None:
    assert json.loads(FULL.to_json()) == {
        "format": "longtake-take",
        "version": 1,
        "made_by": "someone 3",
        "content": "result",
        "width": 640,
        "height": 480,
        "unit": "model",
        "fps": 29.97,
        "images": "video.mp4",
        "depth": {"files": "depth/{index:06d}.png", "step": 0.001, "invalid": 0},
        "confidence": {"files": "confidence/{index:06d}.npz"},
        "source": {"width": 1920, "height": 1440, "scale": [1 / 3, 0.25], "offset": [0.5, -3.0]},
        "descriptors": {"file": "descriptors.txt", "version": 1, "channels": 144},
        "world": {"seed": 7, "rooms": ["red", "blue"]},
    }


def test_what_made_a_result_is_said_where_it_is_known(tmp_path: Path) -> None:
    made = replace(FULL, network=Network("micro-map", "0123456789abcdef"))
    assert json.loads(made.to_json())["network"] == {"name": "micro-map", "fingerprint": "0123456789abcdef"}
    (tmp_path / "take.json").write_text(made.to_json())
    assert read_header(tmp_path) == made
    put(tmp_path, made, network={"name": "micro-map"})
    with pytest.raises(InputError, match="fingerprint"):
        read_header(tmp_path)


def test_unknown_fields_are_ignored_and_optional_ones_may_be_missing(tmp_path: Path) -> None:
    gone = dict.fromkeys(("fps", "images", "depth", "confidence", "source", "descriptors", "world"), "gone")
    put(tmp_path, BARE, weather="fine", **gone)
    assert read_header(tmp_path) == BARE


def test_descriptors_of_a_later_kind_are_passed_over_and_others_checked(tmp_path: Path) -> None:
    known = {"file": "descriptors.txt", "version": 1, "channels": 144}
    put(tmp_path, FULL, descriptors=known | {"version": 2, "file": "other"})
    assert read_header(tmp_path) == replace(FULL, descriptor_channels=None)
    for wrong in ({"channels": 0}, {"file": "../elsewhere"}, {"version": "one"}):
        put(tmp_path, FULL, descriptors=known | wrong)
        with pytest.raises(InputError):
            read_header(tmp_path)


def test_newer_version_is_one_sentence_that_names_its_maker(tmp_path: Path) -> None:
    put(tmp_path, FULL, version=2)
    with pytest.raises(InputError, match=r"version 1 or older in .*take\.json, but got version 2; .*someone 3"):
        read_header(tmp_path)
    assert is_take(tmp_path)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("format", "gone"),
        ("format", "coco"),
        ("version", "gone"),
        ("version", "1"),
        ("made_by", 3),
        ("content", "guess"),
        ("width", 0),
        ("width", 1.5),
        ("height", -4),
        ("height", "gone"),
        ("unit", "mile"),
        ("fps", 0),
        ("fps", "fast"),
        ("images", "images/{index}.tiff"),
        ("images", 3),
        ("depth", "depth"),
        ("confidence", True),
        ("source", [640, 480]),
        ("world", [1]),
    ],
)
def test_wrong_field_is_one_sentence(tmp_path: Path, name: str, value: object) -> None:
    put(tmp_path, FULL, **{name: value})
    with pytest.raises(InputError, match=rf"as '{name}' in .*take\.json, but"):
        read_header(tmp_path)


def test_confidence_elsewhere_is_one_sentence(tmp_path: Path) -> None:
    put(tmp_path, FULL, confidence={"files": "confidence/{index:06d}.png"})
    with pytest.raises(InputError, match=r"as 'files' in 'confidence' of .*take\.json"):
        read_header(tmp_path)


@pytest.mark.parametrize(
    ("name", "value"),
    [("width", 0), ("height", "480"), ("scale", 0.5), ("scale", [0.5, 0]), ("scale", [1]), ("offset", [0, "left"])],
)
def test_wrong_source_is_one_sentence(tmp_path: Path, name: str, value: object) -> None:
    put(tmp_path, FULL, source={**json.loads(FULL.to_json())["source"], name: value})
    with pytest.raises(InputError, match=rf"as '{name}' in 'source' of .*take\.json, but"):
        read_header(tmp_path)


@pytest.mark.parametrize("name", ["nowhere", "file"])
def test_what_is_no_take_is_one_sentence(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"Expected a take in .*, but its take\.json cannot be read"):
        read_header(tmp_path / name)
    assert not is_take(tmp_path / name)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": "coco"}'])
def test_folder_with_another_header_is_no_take(tmp_path: Path, text: str) -> None:
    (tmp_path / "take.json").write_text(text)
    assert not is_take(tmp_path)
    with pytest.raises(InputError, match=r"take\.json"):
        read_header(tmp_path)


def test_files_of_pixels_are_listed() -> None:
    assert FULL.patterns == ["video.mp4", "depth/{index:06d}.png", "confidence/{index:06d}.npz"]
    assert BARE.patterns == []


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"width": 0}, "at least 1x1 pixels, but got 0x4"),
        ({"height": -1}, "at least 1x1 pixels, but got 4x-1"),
        ({"fps": 0.0}, "more than 0 frames per second"),
        ({"fps": math.nan}, "more than 0 frames per second"),
    ],
)
def test_header_without_meaning_is_refused(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SettingError, match=sentence):
        TakeHeader(**{"content": Content.TRUTH, "width": 4, "height": 4, **changes})


@pytest.mark.parametrize("world", [{"x": math.nan}, {"x": object()}])
def test_world_that_json_cannot_hold_is_refused(world: dict[str, object]) -> None:
    with pytest.raises(SettingError, match="as a take's world"):
        TakeHeader(content=Content.TRUTH, width=4, height=4, world=world).to_json()
