"""Cameras as COLMAP and nerfstudio write them; both measure from the picture's corner, half a pixel before ours."""

import math
import struct
from collections.abc import Sequence
from pathlib import Path

from longtake.errors import InputError
from longtake.exports.cameras import KnownCamera, parse_intrinsics
from longtake.takes.fields import JsonObject

_HALF = 0.5
_PINHOLES = ("SIMPLE_PINHOLE", "PINHOLE")
_NUM_PARAMETERS = {"SIMPLE_PINHOLE": 3, "PINHOLE": 4}
_BINARY_COUNT = struct.Struct("<Q")
_BINARY_CAMERA = struct.Struct("<iiQQ")
_NERFSTUDIO_PINHOLES = ("OPENCV", "PINHOLE", "SIMPLE_PINHOLE", "PERSPECTIVE")
_DISTORTIONS = ("k1", "k2", "k3", "k4", "p1", "p2")


def known_camera(text: str) -> KnownCamera:
    """From `fx,fy,cx,cy`, COLMAP's `cameras.txt` or `cameras.bin`, or nerfstudio's `transforms.json`."""
    readers = {".txt": _from_colmap_text, ".bin": _from_colmap_binary, ".json": _from_transforms}
    path = Path(text)
    reader = readers.get(path.suffix.lower())
    if reader is None:
        return parse_intrinsics(text)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(
            f"Expected a camera in {path}, but it cannot be read ({error.strerror}); check the path."
        ) from error
    return reader(content, path)


def _from_colmap_text(content: bytes, path: Path) -> KnownCamera:
    lines = content.decode("utf-8", errors="replace").splitlines()
    rows = [(number, line.split()) for number, line in enumerate(lines, start=1)]
    cameras = [(number, words) for number, words in rows if words and not words[0].startswith("#")]
    _require_one(len(cameras), path)
    number, words = cameras[0]
    where = f"{path} line {number}"
    try:
        _, model, width, height, *parameters = words
        numbers = [float(word) for word in parameters]
        size = int(width), int(height)
    except ValueError:
        raise InputError(f"Expected CAMERA_ID MODEL WIDTH HEIGHT PARAMS in {where}, but got another line.") from None
    return _from_colmap(model, size, numbers, where)


def _from_colmap_binary(content: bytes, path: Path) -> KnownCamera:
    try:
        _require_one(_BINARY_COUNT.unpack_from(content)[0], path)
        _, model, width, height = _BINARY_CAMERA.unpack_from(content, _BINARY_COUNT.size)
        name = _PINHOLES[model] if 0 <= model < len(_PINHOLES) else f"number {model}"
        rest = content[_BINARY_COUNT.size + _BINARY_CAMERA.size :]
        numbers = [value for (value,) in struct.iter_unpack("<d", rest)]
    except struct.error as error:
        raise InputError(f"Expected COLMAP's binary cameras in {path}, but it ends too early ({error}).") from error
    return _from_colmap(name, (width, height), numbers, str(path))


def _from_colmap(model: str, size: tuple[int, int], numbers: Sequence[float], where: str) -> KnownCamera:
    if model not in _PINHOLES:
        raise InputError(
            f"Expected a camera without distortion, {' or '.join(_PINHOLES)}, in {where}, but got model {model}; "
            "undistort the images first."
        )
    if len(numbers) != _NUM_PARAMETERS[model]:
        raise InputError(
            f"Expected {_NUM_PARAMETERS[model]} parameters of a {model} in {where}, but got {len(numbers)}."
        )
    return _from_corner(numbers[0], *numbers[-3:], size=size, where=where)


def _from_transforms(content: bytes, path: Path) -> KnownCamera:
    record = JsonObject.parse(content, str(path))
    model = record.fields.get("camera_model", "OPENCV")
    distorted = [name for name in _DISTORTIONS if record.fields.get(name)]
    if model not in _NERFSTUDIO_PINHOLES or distorted:
        raise InputError(
            f"Expected a camera without distortion in {path}, but got {model} with {', '.join(distorted) or 'its own'}"
            " distortion; undistort the images first."
        )
    if "fl_x" not in record.fields:
        raise InputError(f"Expected fl_x, cx, cy, w and h for all frames in {path}, but there is no fl_x.")
    try:
        focal_x, center_x, center_y = (float(record.fields[name]) for name in ("fl_x", "cx", "cy"))
        focal_y = float(record.fields.get("fl_y", focal_x))
        size = int(record.fields["w"]), int(record.fields["h"])
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise InputError(
            f"Expected numbers as fl_x, fl_y, cx, cy, w and h in {path}, but not all are ({error})."
        ) from None
    return _from_corner(focal_x, focal_y, center_x, center_y, size=size, where=str(path))


def _from_corner(
    focal_x: float, focal_y: float, center_x: float, center_y: float, *, size: tuple[int, int], where: str
) -> KnownCamera:
    """A camera whose first pixel reaches from 0 to 1."""
    numbers = (focal_x, focal_y, center_x, center_y)
    if not (all(map(math.isfinite, numbers)) and min(focal_x, focal_y) > 0 and min(size) > 0):
        raise InputError(
            f"Expected focal lengths and a size greater than 0 in {where}, but got {numbers} for {size[0]}x{size[1]}."
        )
    return KnownCamera(
        focal_x=focal_x, focal_y=focal_y, center_x=center_x - _HALF, center_y=center_y - _HALF, size=size
    )


def _require_one(num_cameras: int, path: Path) -> None:
    if num_cameras != 1:
        raise InputError(f"Expected one camera for the whole video in {path}, but it has {num_cameras}.")
