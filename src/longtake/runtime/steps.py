"""What every session of a video has in common: frames go in one by one, and a whole video is all its steps.

A step answers its frame at once. Where a later window may look at the frame again, the result is provisional: a step of
that window says what the frame became (`Geometry.moved`), and `num_final` how far nothing can change any more.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from longtake.errors import InputError
from longtake.geometry.config import CameraConfig
from longtake.geometry.model import Prediction
from longtake.memory.change import Part, change_together
from longtake.memory.saved import TensorFile
from longtake.spatial.pose import decode_pose, invert_encoding
from longtake.types import FrameKind, Geometry
from longtake.weights.familiarity import UNJUDGED, Judged

Frame = Shaped[Tensor, "..."]
"""Given by users, so checked in `step`: three channels of the session's size, as bytes or floats."""
_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_ROUNDING = 0.01


@dataclass(frozen=True, slots=True)
class Look:
    """What would become known of frames that were looked at; nothing has changed before `take`."""

    geometry: Geometry
    num_kept: int
    """Frames remembered once these are taken."""
    parts: tuple[Part, ...]
    """Of the change by which the session has seen them."""

    def take(self) -> None:
        """Let the session have seen them: all at once, and nothing after it can fail."""
        change_together(*self.parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopUse:
    """What a session that knows places again has found, and holds for it on the host."""

    num_loops: int
    """That were believed, those among them that were withdrawn later."""
    num_withdrawn: int
    num_sub_maps: int
    """One more whenever the camera was lost and goes on."""
    apart: tuple[int, ...]
    """Of them those that no loop joins to the first, by their numbers."""
    num_bytes: int
    """Of places, their small pictures and depth, and of where windows lie; beside keys and values."""
    most_bytes: int
    """With as many places as it ever keeps, and what it has come by now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a session has come."""

    size: tuple[int, int]
    """Height and width of its frames."""
    num_frames: int
    """Given to it, those among them that wait for an answer."""
    num_kept: int
    """Remembered in the current window."""
    capacity: int | None
    """Frames with which its memory is full; None where it grows until its budget is used up."""
    num_windows: int = 1
    first_frame: int = 0
    """Of the current window."""
    loops: LoopUse | None = None
    """None where places are not known again."""


class VideoSession(ABC):
    """Takes frames in order and answers each of them, in order.

    A frame that is refused or fails leaves the session as it was.
    """

    @abstractmethod
    def check(self, frame: Frame) -> None:
        """Refuse a frame that this session cannot take, in one sentence."""

    @abstractmethod
    def look(self, frame: Frame, timestamp_s: float | None = None) -> AbstractContextManager[Look]:
        """What a step would return, before the session has changed; leaving without `take` leaves no trace."""

    @abstractmethod
    def look_last(self, frame: Frame, timestamp_s: float | None = None) -> AbstractContextManager[Look]:
        """What a step would return if this were the last frame of its sequence, in the same way.

        All that waits is answered with it, and is final; with `take` all memory is cleared, and the next frame begins a
        sequence that knows nothing of this one, in a world of its own.
        """

    @abstractmethod
    def look_at_rest(self) -> AbstractContextManager[Look]:
        """What `finish` would return, in the same way."""

    def step(self, frame: Frame, timestamp_s: float | None = None) -> Geometry:
        """Take the next frame and return what became known: of no frame, of this one or of several.

        Pixels are 0 to 255 as bytes or 0 to 1 as floats. Without a timestamp a frame's index stands in for it.
        """
        with self.look(frame, timestamp_s) as look:
            look.take()
        return look.geometry

    def finish(self) -> Geometry:
        """What is still to be said when no more frames come."""
        with self.look_at_rest() as look:
            look.take()
        return look.geometry

    @property
    @abstractmethod
    def num_final(self) -> int:
        """How many frames of the video, from its first on, have results that will not change."""

    @property
    @abstractmethod
    def provisional(self) -> Geometry:
        """The results given so far that a later window may replace, as they are now."""

    @property
    @abstractmethod
    def progress(self) -> Progress:
        """How far it has come."""

    @property
    @abstractmethod
    def num_bytes(self) -> int:
        """Of all keys and values: declared once, never more."""

    @property
    @abstractmethod
    def live_bytes(self) -> int:
        """Of keys and values that are in use; on a GPU this waits for it."""

    @abstractmethod
    def fork(self) -> "VideoSession":
        """A session that goes on from here on its own; end it with `close`."""

    def hold(self) -> "VideoSession | None":
        """This session as it is now, for `as_file` alone, while it goes on; end it with `close`.

        None where all that it is made of has to be copied at once.
        """
        return None

    @abstractmethod
    def close(self) -> None:
        """End the session; a fork gives its slots back."""

    @abstractmethod
    def as_file(
        self, *, fit: str | None = None, source_size: tuple[int, int] | None = None, judged: Judged = UNJUDGED
    ) -> TensorFile:
        """All that is needed to go on in another process, to be saved or copied before the next step.

        `fit` says how pictures became the frames that this session was given, `source_size` which height and width
        they had, for whoever makes the next ones; `judged` by what the video was found like what the model knows.
        """

    def save(
        self,
        path: Path,
        *,
        fit: str | None = None,
        source_size: tuple[int, int] | None = None,
        judged: Judged = UNJUDGED,
    ) -> None:
        """Write all that is needed to go on in another process; the file is complete or absent."""
        self.as_file(fit=fit, source_size=source_size, judged=judged).save(path)

    def run(self, frames: Iterable[Frame]) -> Iterator[Geometry]:
        """Step through all frames and finish: final results only, each once, as soon as they are known to be final."""
        results = FinalResults(self.provisional)
        for frame in frames:
            if final := results.add(self.step(frame), self.num_final):
                yield Geometry.join(final)
        if final := results.add(self.finish(), self.num_final):
            yield Geometry.join(final)


class FinalResults:
    """Keeps the newest version of each result until it is final."""

    def __init__(self, provisional: Geometry) -> None:
        """Begins with results that were given before, and may still be replaced."""
        self._newest: dict[int, Geometry] = {}
        self._store(provisional)

    def add(self, geometry: Geometry, num_final: int) -> list[Geometry]:
        """Take what a step returned; gives results of single frames that are now final, in order."""
        self._store(geometry)
        if geometry.moved is not None:
            self._store(geometry.moved.geometry)
        final = [index for index in self._newest if index < num_final]
        return [replace(self._newest.pop(index), provisional=(False,)) for index in final]

    def _store(self, geometry: Geometry) -> None:
        for place, index in enumerate(geometry.frame_index):
            self._newest[index] = geometry.frames(place, place + 1)


def require_plain(frame: Tensor) -> None:
    """Refuse a tensor whose numbers do not lie in memory one by one, or that has none."""
    if frame.is_nested or frame.is_meta or frame.layout != torch.strided:
        layout = "nested" if frame.is_nested else str(frame.layout).removeprefix("torch.")
        got = "one of the meta device, which has no values" if frame.is_meta else f"a tensor that is {layout}"
        raise InputError(f"Expected pixels in a plain tensor, but got {got}; convert it to a dense one.")


def check_frame(frame: Frame, size: tuple[int, int]) -> None:
    """Refuse a frame that a session of this height and width cannot take, in one sentence."""
    require_plain(frame)
    expected = (3, *size)
    if tuple(frame.shape) != expected:
        raise InputError(
            f"Expected a frame of {_shape(expected)} as this session was opened for, but got "
            f"{_shape(tuple(frame.shape))}; resize it, or open a session of its size."
        )
    if frame.dtype == torch.uint8:
        return
    if frame.dtype not in _FLOATS:
        got = str(frame.dtype).removeprefix("torch.")  # it may have come as a numpy array
        raise InputError(f"Expected pixels as bytes or floats, but got {got}; convert them to uint8.")
    if not bool(torch.isfinite(frame).all()):
        raise InputError("Expected finite pixels, but some are NaN or infinite; leave the frame out or repair it.")
    low, high = float(frame.min()), float(frame.max())
    if low < -_ROUNDING or high > 1 + _ROUNDING:
        raise InputError(
            f"Expected float pixels from 0 to 1, but they run from {low:g} to {high:g}; divide by the largest "
            "value, or give bytes."
        )


def own_pixels(frame: Frame, device: torch.device) -> Float[Tensor, "3 height width"]:
    """A copy from 0 to 1: the same bits on whichever device and in whatever order of axes a frame was given.

    The caller may fill its buffer anew while frames wait.
    """
    if device.type == "cuda" and not frame.is_cuda:
        # a copy of our own, from which the GPU fetches without holding up the host
        frame = torch.empty(frame.shape, dtype=frame.dtype, pin_memory=True).copy_(frame)
    pixels = frame.to(device, torch.float32, non_blocking=True, copy=True, memory_format=torch.contiguous_format)
    return pixels / 255 if frame.dtype == torch.uint8 else pixels


def _shape(sizes: tuple[int, ...]) -> str:
    return " x ".join(map(str, sizes))


def describe(
    prediction: Prediction,
    camera: CameraConfig,
    *,
    frame_index: Sequence[int],
    timestamps_s: Sequence[float],
    kinds: Sequence[FrameKind],
) -> Geometry:
    """The frames of a clip, the only one in its batch; poses are `world_from_camera`, encoded or not."""
    pose_encoding = pose_in_world(prediction.pose_encoding.squeeze(0), camera)
    world_from_camera, intrinsics = decode_pose(pose_encoding, *prediction.depth.shape[-2:])
    return Geometry(
        frame_index=tuple(frame_index),
        timestamp_s=tuple(timestamps_s),
        kind=tuple(kinds),
        window=(0,) * len(frame_index),
        provisional=(False,) * len(frame_index),
        pose_encoding=pose_encoding,
        world_from_camera=world_from_camera,
        intrinsics=intrinsics,
        depth=prediction.depth.squeeze(0),
        depth_confidence=prediction.depth_confidence.squeeze(0),
        points=_first(prediction.points),
        points_confidence=_first(prediction.points_confidence),
        camera_points=_first(prediction.camera_points),
        camera_points_confidence=_first(prediction.camera_points_confidence),
        descriptor=_first(prediction.descriptor),
    )


def pose_in_world(said: Float[Tensor, "*batch 9"], camera: CameraConfig) -> Float[Tensor, "*batch 9"]:
    """What a network said of its cameras, as `world_from_camera` whichever way it speaks."""
    return invert_encoding(said) if camera.camera_from_world else said


def _first(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.squeeze(0)
