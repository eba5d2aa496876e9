"""A folder of Rerun recordings that its viewer shows as one: cameras, images and depth over time, and the points.

frames-000000.rrd ...   some frames each, named by the first
points.rrd              the cloud of the whole video
"""

import re
from io import BytesIO
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from PIL import Image

from longtake.exports.cloud import Cloud, CloudSettings, GrowingCloud
from longtake.exports.frame import MappedFrame
from longtake.exports.pixels import in_model_pixels
from longtake.exports.scene_folder import make_room
from longtake.exports.sink import Sink
from longtake.exports.source_cameras import CORNER
from longtake.extras import import_from_extra
from longtake.spatial.pose import quaternion_from_matrix
from longtake.takes.atomic_files import replace_file, writing
from longtake.takes.depth_files import valid_or_zero

POINTS_NAME = "points.rrd"
FRAMES_PER_FILE = 32

_FRAMES_NAME = "frames-{index:06d}.rrd"
_FRAMES_PATTERN = re.compile(r"frames-\d{6,}\.rrd")
_JPEG_QUALITY = 90


class RerunSink(Sink):
    """Frames are in a file when there are enough for one, the last ones when the sink is closed.

    Rerun numbers its pieces at random, so that no two files are equal byte by byte.
    """

    def __init__(self, folder: Path, settings: CloudSettings, *, overwrite: bool = False) -> None:
        """The folder must be new or empty, or such an export that may be overwritten."""
        self._rerun = require_rerun()
        make_room(folder, [POINTS_NAME], overwrite=overwrite)
        with writing(str(folder)):
            _delete_frames(folder)
        self._folder = folder
        self.cloud = GrowingCloud(settings)
        self._waiting: _Recording | None = None
        self._write_points()  # by which the folder is known as an export, also where it is broken off

    def write(self, frame: MappedFrame) -> None:
        if self._waiting is None:
            self._waiting = _Recording(self._rerun, name=_FRAMES_NAME.format(index=frame.index))
        self._waiting.add(frame)
        self.cloud.add(frame)
        if self._waiting.num_frames == FRAMES_PER_FILE:
            self._write_waiting()

    def close(self) -> None:
        self._write_waiting()
        self._write_points()

    def _write_waiting(self) -> None:
        if self._waiting is not None:
            replace_file(self._folder / self._waiting.name, self._waiting.content())
            self._waiting = None

    def _write_points(self) -> None:
        replace_file(self._folder / POINTS_NAME, _points_content(self._rerun, self.cloud.cloud()))


def require_rerun() -> ModuleType:
    """The package, or the sentence on how to install it."""
    return import_from_extra("rerun", "rerun", "Writing Rerun files")


class _Recording:
    """Some frames, in memory until they are a file."""

    def __init__(self, rerun: ModuleType, *, name: str) -> None:
        self.name = name
        self.num_frames = 0
        self._rerun = rerun
        self._stream = _new_stream(rerun)
        self._bytes = self._stream.binary_stream()
        self._content: bytes | None = None

    def add(self, frame: MappedFrame) -> None:
        rerun, stream = self._rerun, self._stream
        pixels = in_model_pixels(frame)
        height, width = pixels.depth.shape
        pose = frame.world_from_camera.double()
        quaternion = rerun.Quaternion(xyzw=quaternion_from_matrix(pose[:3, :3]).numpy())
        stream.set_time("frame", sequence=frame.index)
        stream.set_time("video", duration=frame.timestamp_s)
        stream.log("world/camera", rerun.Transform3D(translation=pose[:3, 3].numpy(), quaternion=quaternion))
        stream.log("world/camera", _pinhole(rerun, pixels.intrinsics.numpy(), width, height))
        stream.log("world/camera/image", rerun.EncodedImage(contents=_jpeg(pixels.image), media_type="image/jpeg"))
        stream.log("world/camera/depth", rerun.DepthImage(valid_or_zero(pixels.depth), meter=1.0))
        self.num_frames += 1

    def content(self) -> bytes:
        """The content of the file; no frame may be added afterwards."""
        if self._content is None:
            self._content = self._bytes.read(flush=True)
        assert self._content is not None
        return self._content


def _new_stream(rerun: ModuleType) -> Any:
    """All files name one recording; the time at which they were made is left out."""
    stream = rerun.RecordingStream("longtake", recording_id="map", send_properties=False)
    stream.set_log_time_enabled(False)
    stream.set_log_tick_enabled(False)
    return stream


def _points_content(rerun: ModuleType, cloud: Cloud) -> bytes:
    stream = _new_stream(rerun)
    collected = stream.binary_stream()
    stream.log("world", rerun.ViewCoordinates.RDF, static=True)
    stream.log("world/points", rerun.Points3D(cloud.points, colors=cloud.colours), static=True)
    content: bytes = collected.read(flush=True)
    return content


def _pinhole(rerun: ModuleType, intrinsics: np.ndarray, width: int, height: int) -> Any:
    """Rerun counts pixels from the image's corner."""
    from_corner = intrinsics + np.array([[0, 0, CORNER], [0, 0, CORNER], [0, 0, 0]])
    return rerun.Pinhole(
        image_from_camera=from_corner, width=width, height=height, camera_xyz=rerun.ViewCoordinates.RDF
    )


def _jpeg(image: np.ndarray) -> bytes:
    content = BytesIO()
    Image.fromarray(image).save(content, "JPEG", quality=_JPEG_QUALITY)
    return content.getvalue()


def _delete_frames(folder: Path) -> None:
    for path in folder.glob("*"):
        if _FRAMES_PATTERN.fullmatch(path.name):
            path.unlink()
