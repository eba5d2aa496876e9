"""Frames as scripts have them, pictures or arrays, as one tensor of bytes."""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Shaped, UInt8
from PIL import Image
from torch import Tensor

from longtake.errors import InputError

Frame = Image.Image | Shaped[np.ndarray, "..."] | Shaped[Tensor, "..."]
"""A picture of any mode, an array of bytes, height x width x 3, or a tensor of them with channels first."""


def as_frames(images: Sequence[Frame]) -> UInt8[Tensor, "frames 3 height width"]:
    """All of one size."""
    frames = [_as_frame(image) for image in images]
    if not frames:
        raise InputError("Expected one frame at least, but got none.")
    if len(sizes := {tuple(frame.shape[1:]) for frame in frames}) > 1:
        named = ", ".join(f"{width}x{height}" for height, width in sorted(sizes))
        raise InputError(f"Expected frames of one size in a chunk, but got {named}; resize them.")
    return torch.stack(frames)


def _as_frame(image: Frame) -> UInt8[Tensor, "3 height width"]:
    if isinstance(image, Tensor):
        frame = image.cpu()
    else:
        array = np.array(image.convert("RGB")) if isinstance(image, Image.Image) else np.array(image)
        frame = torch.from_numpy(array).movedim(-1, 0) if array.ndim == 3 else torch.empty(0)
    if frame.dtype != torch.uint8 or frame.ndim != 3 or frame.shape[0] != 3:
        raise InputError(
            "Expected frames of bytes, height x width x 3, or tensors with channels first, but got "
            f"{frame.dtype} {list(frame.shape)}; give pictures or convert them."
        )
    return frame
