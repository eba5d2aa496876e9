"""Pictures as programs have them: video frames, numpy and torch arrays, Pillow images; all become bytes in RGB."""

import math
import reprlib
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from jaxtyping import UInt8
from PIL import Image
from torch import Tensor

from longtake.errors import InputError
from longtake.runtime.steps import check_frame, require_plain
from longtake.takes.picture_files import reading_picture
from longtake.video.frame import VideoFrame
from longtake.video.resize import upright_rgb

Picture: TypeAlias = VideoFrame | np.ndarray | Image.Image | Tensor
"""A video frame; numpy height x width x 3; a Pillow image; torch 3 x height x width or height x width x 3.

Arrays hold 0 to 255 as bytes or 0 to 1 as floats, red first.
"""
_EXPECTED = (
    "a frame of open_video, a numpy array (height x width x 3), a Pillow image or a torch tensor (3 x height x width)"
)


def as_rgb(picture: object) -> UInt8[np.ndarray, "height width 3"]:
    """The picture as bytes; what is no picture is refused in one sentence."""
    if isinstance(picture, VideoFrame):
        if picture.image is None:
            raise InputError(f"The frame at {_seconds(picture.timestamp_s):.3f} s has no picture: {picture.problem}")
        picture = picture.image
    if isinstance(picture, Image.Image):
        with reading_picture("a Pillow image with its pixels", "open it again, from a file that is whole"):
            picture = np.asarray(upright_rgb(picture))
    if isinstance(picture, Tensor):
        require_plain(picture)
        return _as_bytes(_channels_first(picture.detach().cpu()))
    if isinstance(picture, np.ma.MaskedArray):
        raise InputError(
            "Expected a picture with all its pixels, but got a masked array; fill it, as picture.filled(0)."
        )
    if isinstance(picture, np.ndarray):
        _require_shape(picture.shape, is_picture=picture.shape[2:] == (3,), expected="height x width x 3")
        return _as_bytes(_as_tensor(picture).movedim(-1, 0))
    raise InputError(f"Expected a picture as {_EXPECTED}, but got {type(picture).__name__}.")


def as_pictures(pictures: Any) -> list[Any]:
    """One picture, a list of them, or an array of four axes, as a list of one at least; `as_rgb` checks each."""
    if isinstance(pictures, Tensor):
        require_plain(pictures)
    if isinstance(pictures, np.ndarray | Tensor):
        listed = list(pictures) if pictures.ndim == 4 else [pictures]
    else:
        listed = list(pictures) if isinstance(pictures, Iterable) else [pictures]
    if not listed:
        raise InputError("Expected one picture at least, but got none.")
    return listed


def time_of(picture: object, timestamp_s: Any) -> float | None:
    """When a picture was taken: the time given, else that of a video frame, else None."""
    if timestamp_s is not None:
        return _seconds(timestamp_s)
    return _seconds(picture.timestamp_s) if isinstance(picture, VideoFrame) else None


def missing_time(picture: object, example: str) -> InputError:
    """For a picture that has no time where one is needed; what is no picture is refused as that."""
    as_rgb(picture)
    return InputError(
        f"Expected a time for each picture, in seconds, as {example}: only frames of open_video know theirs."
    )


def _seconds(given: Any) -> float:
    """A finite number of any kind; a text is none, whatever it says, and neither is True."""
    try:
        time_s = math.nan if isinstance(given, str | bytes | bool | np.bool_) else float(given)
    except OverflowError:
        given = time_s = math.inf
    except (TypeError, ValueError, RuntimeError):  # the last one for tensors without a value
        time_s = math.nan
    if not math.isfinite(time_s):
        raise InputError(f"Expected a time in seconds, but got {reprlib.repr(given)}.")
    return time_s


def as_text(size: tuple[int, int]) -> str:
    """WIDTHxHEIGHT of an array's (height, width)."""
    height, width = size
    return f"{width}x{height}"


def _channels_first(tensor: Tensor) -> Tensor:
    is_last = tensor.ndim == 3 and tensor.shape[0] != 3 and tensor.shape[2] == 3
    is_picture = is_last or (tensor.ndim == 3 and tensor.shape[0] == 3)
    _require_shape(tensor.shape, is_picture=is_picture, expected="3 x height x width or height x width x 3")
    return tensor.movedim(-1, 0) if is_last else tensor


def _require_shape(shape: Sequence[int], *, is_picture: bool, expected: str) -> None:
    if not is_picture or 0 in shape:
        got = " x ".join(str(length) for length in shape) or "a single number"
        raise InputError(f"Expected a picture of {expected}, but got {got}; give pictures one by one, in RGB.")


def _as_tensor(array: np.ndarray) -> Tensor:
    try:
        # a copy in this machine's order of bytes: torch warns of arrays that cannot be written, as Pillow's
        return torch.from_numpy(array.astype(array.dtype.newbyteorder("="), order="C"))
    except TypeError as error:
        raise InputError(
            f"Expected pixels as bytes or floats, but got {array.dtype}; convert them to uint8."
        ) from error


def _as_bytes(tensor: Tensor) -> UInt8[np.ndarray, "height width 3"]:
    height, width = tensor.shape[1:]
    check_frame(tensor, (height, width))
    if tensor.dtype != torch.uint8:
        tensor = (tensor.float().clamp(0, 1) * 255).round().byte()
    return np.ascontiguousarray(tensor.movedim(0, -1).numpy())
