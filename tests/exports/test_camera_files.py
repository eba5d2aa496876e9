import json
import struct
from pathlib import Path

import pytest

from longtake.errors import InputError, SettingError
from longtake.exports.cameras import KnownCamera, known_camera

CORNER = "# a comment\n\n3 PINHOLE 640 480 500.5 501.5 320 240\n"
EXPECTED = KnownCamera(focal_x=500.5, focal_y=501.5, center_x=319.5, center_y=239.5, size=(640, 480))


def written(path: Path, content: str | bytes) -> str:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


def binary(model: int, *parameters: float, num_cameras: int = 1) -> bytes:
    head = struct.pack("<QiiQQ", num_cameras, 3, model, 640, 480)
    return head + struct.pack(f"<{len(parameters)}d", *parameters)


def transforms(**changes: object) -> str:
    fields = {"fl_x": 500.5, "fl_y": 501.5, "cx": 320, "cy": 240, "w": 640, "h": 480, "k1": 0.0} | changes
    return json.dumps({name: value for name, value in fields.items() if value is not None})


def test_numbers_are_taken_as_they_are() -> None:
    assert known_camera("500,501.5,320,240") == KnownCamera(
        focal_x=500.0, focal_y=501.5, center_x=320.0, center_y=240.0
    )


def test_files_measure_from_the_corner_half_a_pixel_before_the_first_centre(tmp_path: Path) -> None:
    assert known_camera(written(tmp_path / "cameras.txt", CORNER)) == EXPECTED
    assert known_camera(written(tmp_path / "cameras.bin", binary(1, 500.5, 501.5, 320, 240))) == EXPECTED
    assert known_camera(written(tmp_path / "transforms.json", transforms())) == EXPECTED


def test_a_simple_camera_has_one_focal_length(tmp_path: Path) -> None:
    simple = KnownCamera(focal_x=500.0, focal_y=500.0, center_x=319.5, center_y=239.5, size=(640, 480))
    assert known_camera(written(tmp_path / "cameras.txt", "1 SIMPLE_PINHOLE 640 480 500 320 240")) == simple
    assert known_camera(written(tmp_path / "cameras.bin", binary(0, 500, 320, 240))) == simple
    assert known_camera(written(tmp_path / "t.json", transforms(fl_x=500, fl_y=None))) == simple


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("cameras.txt", "1 OPENCV 640 480 1 1 1 1 0 0 0 0", "got model OPENCV"),
        ("cameras.txt", "1 PINHOLE 640 480 500 320 240", "Expected 4 parameters"),
        ("cameras.txt", "1 PINHOLE wide 480 1 1 1 1", "line 1"),
        ("cameras.txt", "# nothing", "it has 0"),
        ("cameras.txt", CORNER + CORNER, "it has 2"),
        ("cameras.txt", "1 PINHOLE 640 480 0 500 320 240", "greater than 0"),
        ("cameras.txt", "1 PINHOLE 640 480 nan 500 320 240", "greater than 0"),
        ("cameras.bin", binary(4, 1, 1, 1, 1, 0, 0, 0, 0), "got model number 4"),
        ("cameras.bin", binary(1, 1, 1, 1, 1, num_cameras=2), "it has 2"),
        ("cameras.bin", binary(1, 1, 1, 1, 1)[:-3], "ends too early"),
        ("cameras.bin", b"", "ends too early"),
        ("cameras.bin", binary(1, 1, 1, 1), "Expected 4 parameters"),
        ("t.json", transforms(k1=0.1), "k1"),
        ("t.json", transforms(camera_model="OPENCV_FISHEYE"), "OPENCV_FISHEYE"),
        ("t.json", transforms(fl_x=None), "no fl_x"),
        ("t.json", transforms(w=None), "'w'"),
        ("t.json", transforms(cx="left"), "Expected numbers"),
        ("t.json", transforms(h=0), "greater than 0"),
        ("t.json", "[1]", "JSON object"),
    ],
)
def test_any_other_camera_is_one_sentence(tmp_path: Path, name: str, content: str | bytes, said: str) -> None:
    with pytest.raises(InputError, match=said):
        known_camera(written(tmp_path / name, content))


@pytest.mark.parametrize("text", ["500,500,320", "a,b,c,d", "", "500,500,320,240,1"])
def test_other_words_are_refused(text: str) -> None:
    with pytest.raises(SettingError, match="fx,fy,cx,cy"):
        known_camera(text)


@pytest.mark.parametrize("text", ["0,500,320,240", "500,-1,320,240", "500,500,nan,240", "inf,500,320,240"])
def test_impossible_numbers_are_refused(text: str) -> None:
    with pytest.raises(SettingError, match="focal lengths greater than 0"):
        known_camera(text)


def test_a_missing_file_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="check the path"):
        known_camera(str(tmp_path / "cameras.txt"))
