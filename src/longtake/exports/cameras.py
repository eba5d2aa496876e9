"""A camera that is known beforehand, or shared by all frames, in place of the network's estimates.

COLMAP and nerfstudio, whose files may say it, measure from the picture's corner, half a pixel before ours.
"""

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from longtake.errors import InputError, SettingError
from longtake.exports.frame import MappedFrame
from longtake.exports.saved import source_placement
from longtake.takes.fields import JsonObject
from longtake.takes.take import Take

_LARGEST_STRETCH = 0.02
_HALF = 0.5
_PINHOLES = ("SIMPLE_PINHOLE", "PINHOLE")
_NUM_PARAMETERS = {"SIMPLE_PINHOLE": 3, "PINHOLE": 4}
_BINARY_COUNT = struct.Struct("<Q")
_BINARY_CAMERA = struct.Struct("<iiQQ")
_NERFSTUDIO_PINHOLES = ("OPENCV", "PINHOLE", "SIMPLE_PINHOLE", "PERSPECTIVE")
_DISTORTIONS = ("k1", "k2", "k3", "k4", "p1", "p2")


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownCamera:
    """A pinhole camera in the video's own pixels, the centre of the first at (0, 0)."""

    focal_x: float
    focal_y: float
    center_x: float
    center_y: float
    size: tuple[int, int] | None = None
    """(width, height) of the pictures it is for; a video of another resolution has it resized. None for any video."""

    def __post_init__(self) -> None:
        numbers = (self.focal_x, self.focal_y, self.center_x, self.center_y)
        if not (all(map(math.isfinite, numbers)) and self.focal_x > 0 and self.focal_y > 0):
            raise SettingError(
                f"Expected focal lengths greater than 0 and a principal point, but got {', '.join(map(str, numbers))}."
            )
        if self.size is not None and min(self.size) < 1:
            raise SettingError(f"Expected a camera for pictures of at least 1x1 pixels, not {self.size}.")

    def intrinsics(self, width: int, height: int) -> Float[Tensor, "3 3"]:
        """The intrinsics matrix for a video of this size, in float64."""
        stretch_x, stretch_y = self._stretch(width, height)
        return torch.tensor(
            [
                [self.focal_x * stretch_x, 0, (self.center_x + _HALF) * stretch_x - _HALF],
                [0, self.focal_y * stretch_y, (self.center_y + _HALF) * stretch_y - _HALF],
                [0, 0, 1],
            ],
            dtype=torch.float64,
        )

    def of(self, frame: MappedFrame) -> MappedFrame:
        """The frame with this camera's intrinsics."""
        placement = frame.placement
        intrinsics = self.intrinsics(placement.source_width, placement.source_height)
        return replace(frame, intrinsics=placement.intrinsics_to_model(intrinsics))

    def _stretch(self, width: int, height: int) -> tuple[float, float]:
        if self.size is None:
            return 1.0, 1.0
        stretch_x, stretch_y = width / self.size[0], height / self.size[1]
        if abs(stretch_x / stretch_y - 1) > _LARGEST_STRETCH:
            raise InputError(
                f"Expected a camera for pictures of the video's shape, {width}x{height}, but it is for "
                f"{self.size[0]}x{self.size[1]}; give the camera that filmed this video."
            )
        return stretch_x, stretch_y


def shared_camera(take: Take) -> KnownCamera:
    """One camera for all frames: the medians of their estimates, so that a few wrong ones do not count."""
    first = source_placement(take, 0)
    size = first.source_width, first.source_height
    cameras = torch.stack([_resized_to(size, take, position) for position in range(len(take))])
    focal_x, focal_y, center_x, center_y = cameras.quantile(0.5, dim=0).tolist()
    return KnownCamera(focal_x=focal_x, focal_y=focal_y, center_x=center_x, center_y=center_y, size=size)


def _resized_to(size: tuple[int, int], take: Take, position: int) -> Float[Tensor, "4"]:
    """A frame's estimate in the video's pixels, as if the video had this (width, height) there."""
    placement = source_placement(take, position)
    (focal_x, _, center_x), (_, focal_y, center_y), _ = placement.intrinsics_to_source(
        take.intrinsics[position]
    ).tolist()
    own_size = placement.source_width, placement.source_height
    own = KnownCamera(focal_x=focal_x, focal_y=focal_y, center_x=center_x, center_y=center_y, size=own_size)
    matrix = own.intrinsics(*size)
    return torch.stack([matrix[0, 0], matrix[1, 1], matrix[0, 2], matrix[1, 2]])


def known_camera(text: str) -> KnownCamera:
    """From `fx,fy,cx,cy`, COLMAP's `cameras.txt` or `cameras.bin`, or nerfstudio's `transforms.json`."""
    readers = {".txt": _from_colmap_text, ".bin": _from_colmap_binary, ".json": _from_transforms}
    path = Path(text)
    reader = readers.get(path.suffix.lower())
    if reader is None:
        return _from_numbers(text)
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


def _from_numbers(text: str) -> KnownCamera:
    """From `fx,fy,cx,cy`."""
    try:
        focal_x, focal_y, center_x, center_y = map(float, text.split(","))
    except ValueError:
        raise SettingError(
            f"Expected intrinsics as fx,fy,cx,cy in the video's pixels, or a file with a camera, but got '{text}'."
        ) from None
    return KnownCamera(focal_x=focal_x, focal_y=focal_y, center_x=center_x, center_y=center_y)
