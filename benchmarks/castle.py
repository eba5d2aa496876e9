"""Castle-simu, 40 frames that the makers of ViSP rendered, as a take with truth.

Colour and depth come from two cameras, the second 5 cm to the right of the first. The take is that of the colour
camera; its depth is that of the other one's points, where it sees them. Files say camera_from_object, depth counts
2⁻¹⁵ m, and the principal point (320, 240) is measured from the corner of the first pixel.
"""

from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Float64, UInt8
from PIL import Image
from torch import Tensor

from longtake.errors import InputError
from longtake.spatial.pinhole import unproject
from longtake.spatial.pose import invert_rigid
from longtake.takes.depth_files import DepthFiles
from longtake.takes.frames import TakeFrame
from longtake.takes.header import Content, TakeHeader
from longtake.takes.images import ImageFiles
from longtake.takes.writer import TakeWriter

NUM_FRAMES = 40
_SIZE = (480, 640)
_STEP_M = 2.0**-15
_FOCAL_PX = 700.0
_RIGHT_OF_COLOUR_M = 0.05
_FPS = 30.0


def castle_intrinsics() -> Float64[Tensor, "3 3"]:
    """Of both cameras."""
    return torch.tensor([[_FOCAL_PX, 0, 319.5], [0, _FOCAL_PX, 239.5], [0, 0, 1]], dtype=torch.float64)


def write_castle(source: Path, out: Path) -> None:
    """The sequence in a folder as `make castle` fetches it, as a take in another."""
    if not source.is_dir():
        raise InputError(f"Expected the sequence Castle-simu in {source}, but there is none; run: make castle")
    height, width = _SIZE
    header = TakeHeader(
        content=Content.TRUTH, width=width, height=height, images=ImageFiles.PNG, depth=DepthFiles(_STEP_M), fps=_FPS
    )
    with TakeWriter(out, header) as writer:
        for index in range(NUM_FRAMES):
            frame = TakeFrame(
                index=index,
                timestamp_s=index / _FPS,
                world_from_camera=_world_from_colour(source, index),
                intrinsics=castle_intrinsics(),
                image=_image(source, index),
                depth=seen_from_colour(_depth_m(source, index)),
            )
            writer.write(frame)


def seen_from_colour(depth: Float64[np.ndarray, "height width"]) -> Float[np.ndarray, "height width"]:
    """Depth of the right camera as the left one sees it: the nearest of its points at each pixel, 0 where none is."""
    colour_from_depth = torch.eye(4, dtype=torch.float64)
    colour_from_depth[0, 3] = _RIGHT_OF_COLOUR_M
    points = unproject(torch.from_numpy(depth), castle_intrinsics(), colour_from_depth)[torch.from_numpy(depth > 0)]
    at = (castle_intrinsics() @ points.T).numpy()
    column, row = np.floor(at[:2] / at[2] + 0.5).astype(int)
    height, width = depth.shape
    inside = (column >= 0) & (column < width) & (row >= 0) & (row < height)
    nearest = np.full(depth.shape, np.inf)
    np.minimum.at(nearest, (row[inside], column[inside]), points[:, 2].numpy()[inside])
    return np.where(np.isfinite(nearest), nearest, 0).astype(np.float32)


def _depth_m(source: Path, index: int) -> Float64[np.ndarray, "height width"]:
    """Two 32-bit numbers, height and width, then 16-bit values row by row, all little-endian."""
    data = (source / "Depth" / f"Depth_{index + 1:04d}.bin").read_bytes()
    if tuple(np.frombuffer(data[:8], "<u4")) != _SIZE:
        raise InputError(f"Expected depth of 640x480 in {source}, but frame {index} has another size; fetch it again.")
    return np.frombuffer(data[8:], "<u2").reshape(_SIZE) * _STEP_M


def _image(source: Path, index: int) -> UInt8[np.ndarray, "height width 3"]:
    with Image.open(source / "Images" / f"Image_{index + 1:04d}.pgm") as image:
        return np.asarray(image)[..., None].repeat(3, axis=-1)


def _world_from_colour(source: Path, index: int) -> Float64[Tensor, "4 4"]:
    colour_from_object = np.loadtxt(source / "CameraPose" / f"Camera_{index + 1:03d}.txt")
    return invert_rigid(torch.from_numpy(colour_from_object))
