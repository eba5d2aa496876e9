"""The whole result as a take: poses, intrinsics, depth, confidence and images in our own schema."""

from contextlib import ExitStack
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

import numpy as np

from longtake.errors import InputError, SettingError
from longtake.exports.frame import MappedFrame
from longtake.exports.pixels import in_model_pixels, in_source_pixels
from longtake.exports.sink import PreparingSink, SinkState
from longtake.takes.atomic_files import changed_file, writing
from longtake.takes.depth_files import DepthFiles, step_for, valid_or_zero
from longtake.takes.fields import content_of
from longtake.takes.frames import TakeFrame
from longtake.takes.header import HEADER_NAME, Content, Network, TakeHeader, Unit, is_take, read_header
from longtake.takes.images import ImageFiles
from longtake.takes.writer import TakeWriter, make_room_for_take
from longtake.types import FrameKind

FARTHEST_IN_MEDIANS = 10
"""How far 16-bit depth reaches by default: so many times the median depth of the first frame."""

_STEP_WITHOUT_DEPTH = 0.001


class PixelGrid(StrEnum):
    """Whose pixels a take has."""

    MODEL = "model"
    """The network's: depth as it came."""
    SOURCE = "source"
    """The video's: depth of the nearest of the network's pixels, none where the network saw nothing."""


class DepthKind(StrEnum):
    """How depth is kept."""

    PNG = "png"
    """16 bits, in steps of a fixed length."""
    NPZ = "npz"
    """Exact."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeSettings:
    """What a take holds."""

    unit: Unit = Unit.MODEL
    fps: float | None = None
    pixels: PixelGrid = PixelGrid.MODEL
    images: ImageFiles | None = ImageFiles.JPEG
    depth: DepthKind | None = DepthKind.PNG
    depth_step: float | None = None
    """Length of a step of 16-bit depth; None for one that fits the first frame."""
    confidence: bool = True
    network: Network | None = None
    """What estimates the result, where it can be loaded again by its name."""

    def __post_init__(self) -> None:
        if self.images is ImageFiles.VIDEO:
            raise SettingError(
                "Expected the images of a result as PNG or JPEG, for a video cannot go on after a break."
            )
        if self.depth_step is not None and self.depth is not DepthKind.PNG:
            raise SettingError("Only 16-bit depth has a step; leave out the step, or write depth as PNG.")
        DepthFiles(self.depth_step)


@dataclass(frozen=True, slots=True)
class _WithPixels:
    """A frame whose pixels are written."""

    frame: TakeFrame
    num_pixels_too_far: int


class TakeSink(PreparingSink):
    """Each frame is in the take when `write` returns; the take begins with the first frame, which fixes its size."""

    def __init__(
        self, folder: Path, settings: TakeSettings, *, overwrite: bool = False, state: SinkState | None = None
    ) -> None:
        """The folder must be new or empty, or a take that may be overwritten; other sinks may use it from then on."""
        self._folder, self._settings = folder, settings
        self._opened = ExitStack()
        self._writer: TakeWriter | None = None
        self._num_frames: int = 0 if state is None else state.values["num_frames"]
        self._num_earlier_too_far: int = 0 if state is None else state.values["num_pixels_too_far"]
        if self._num_frames:
            assert state is not None
            _require_header(folder, state.values["header"])
            self._enter(TakeWriter.resume(folder, self._num_frames, state.values["digests"]))
        elif state is None:
            make_room_for_take(folder, overwrite=overwrite)
        else:
            _clear(folder)

    @property
    def num_pixels_too_far(self) -> int:
        """Depth so far that 16 bits could not hold it, written as invalid."""
        return self._num_earlier_too_far + (0 if self._writer is None else self._writer.num_pixels_too_far)

    def prepare(self, frame: MappedFrame) -> MappedFrame | _WithPixels:
        """Its pixels are on their way to the disk, unless it may be the first, which the take begins with."""
        return frame if self._writer is None else self._with_pixels(self._writer, frame)

    def append(self, prepared: MappedFrame | _WithPixels) -> None:
        writer = self._writer
        if isinstance(prepared, MappedFrame):
            writer = writer or self._enter(TakeWriter(self._folder, self._first_header(prepared), has_room=True))
            prepared = self._with_pixels(writer, prepared)
        assert writer is not None
        writer.write_lines(prepared.frame, prepared.num_pixels_too_far)
        self._num_frames += 1

    def _with_pixels(self, writer: TakeWriter, frame: MappedFrame) -> _WithPixels:
        take_frame = self._take_frame(frame, writer.header)
        return _WithPixels(take_frame, writer.write_pixels(take_frame))

    def checkpoint(self) -> SinkState:
        counts = {"num_frames": self._num_frames, "num_pixels_too_far": self.num_pixels_too_far}
        if self._writer is None:
            return SinkState(values=counts)
        self._writer.sync()
        return SinkState(values={**counts, "header": self._writer.header.to_json(), "digests": self._writer.digests})

    def close(self) -> None:
        self._opened.close()

    def _enter(self, writer: TakeWriter) -> TakeWriter:
        self._writer = self._opened.enter_context(writer)
        return writer

    def _first_header(self, frame: MappedFrame) -> TakeHeader:
        is_model = self._settings.pixels is PixelGrid.MODEL
        height, width = frame.depth.shape if is_model else frame.source_image.shape[:2]
        return TakeHeader(
            content=Content.RESULT,
            width=width,
            height=height,
            unit=self._settings.unit,
            fps=self._settings.fps,
            images=self._settings.images,
            depth=_depth_files(self._settings, frame),
            confidence=self._settings.confidence,
            source=frame.placement if is_model else None,
            descriptor_channels=None if frame.descriptor is None else len(frame.descriptor),
            network=self._settings.network,
        )

    def _take_frame(self, frame: MappedFrame, header: TakeHeader) -> TakeFrame:
        is_model = self._settings.pixels is PixelGrid.MODEL
        pixels = in_model_pixels(frame) if is_model else in_source_pixels(frame, header.size)
        return TakeFrame(
            index=frame.index,
            timestamp_s=frame.timestamp_s,
            world_from_camera=frame.world_from_camera,
            intrinsics=pixels.intrinsics,
            image=None if header.images is None else pixels.image,
            depth=None if header.depth is None else pixels.depth,
            confidence=pixels.confidence if header.confidence else None,
            status=frame.status.value,
            keyframe=frame.kind is not FrameKind.PASSING,
            window=frame.window,
            tracking=frame.tracking,
            source=frame.placement if is_model and frame.placement != header.source else None,
            source_name=frame.source_name,
            descriptor=None if frame.kind is FrameKind.PASSING else frame.descriptor,
        )


def _require_header(folder: Path, expected: str) -> None:
    """Refuse a header that is not to the last byte as the run wrote it, before or after it was closed."""
    path = folder / HEADER_NAME
    try:
        header = read_header(folder)
        is_written = content_of(path) == header.to_json().encode()
    except (OSError, InputError):
        is_written = False
    if not (is_written and replace(header, num_frames=None).to_json() == expected):
        raise changed_file(f"Expected {path} as the run wrote it, but it was changed or is gone")


def _depth_files(settings: TakeSettings, frame: MappedFrame) -> DepthFiles | None:
    if settings.depth is None:
        return None
    return DepthFiles(None if settings.depth is DepthKind.NPZ else settings.depth_step or _step_for(frame))


def _step_for(frame: MappedFrame) -> float:
    """A step with which 16 bits reach well beyond what a frame shows."""
    valid = valid_or_zero(frame.depth)
    known = valid[valid > 0]
    return step_for(FARTHEST_IN_MEDIANS * float(np.median(known))) if known.size else _STEP_WITHOUT_DEPTH


def _clear(folder: Path) -> None:
    """Delete the take of a run that was broken off before its first checkpoint with frames."""
    if is_take(folder):
        make_room_for_take(folder, overwrite=True)
    else:
        with writing(f"The take {folder}"):
            folder.mkdir(parents=True, exist_ok=True)
