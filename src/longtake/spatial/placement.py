"""Where a source's pixels lie in the network's, and the way back.

Two ways to count meet here. `Placement` measures from the picture's edge: the first pixel reaches from 0 to 1. Cameras
count centres: the first pixel is at 0. A centre u of the source thus lies in the network's pixels at

    (u + 0.5) · scale + offset - 0.5
"""

from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

_HALF = 0.5


@dataclass(frozen=True, slots=True)
class Placement:
    """Where the source lies: on each axis `model = scale · source + offset` in pixels, their edges at integers."""

    source_width: int
    source_height: int
    scale_x: float
    scale_y: float
    offset_x: float = 0.0
    offset_y: float = 0.0

    def shifted(self, x: int, y: int) -> "Placement":
        return replace(self, offset_x=self.offset_x + x, offset_y=self.offset_y + y)

    def seen_share(self, size: tuple[int, int]) -> float:
        """How much of the source lies within the network's pixels, (height, width) of them; the rest is cut off."""
        height, width = size
        left, right = self.offset_x, self.offset_x + self.scale_x * self.source_width
        top, bottom = self.offset_y, self.offset_y + self.scale_y * self.source_height
        seen_width, seen_height = min(right, width) - max(left, 0), min(bottom, height) - max(top, 0)
        return seen_width * seen_height / ((right - left) * (bottom - top))

    def intrinsics_to_model(self, intrinsics: Float[Tensor, "*batch 3 3"]) -> Float[Tensor, "*batch 3 3"]:
        """Intrinsics of the source's pixels as those of the network's."""
        return self._model_from_source().to(intrinsics) @ intrinsics

    def intrinsics_to_source(self, intrinsics: Float[Tensor, "*batch 3 3"]) -> Float[Tensor, "*batch 3 3"]:
        """Intrinsics of the network's pixels as those of the source's."""
        return self._model_from_source().inverse().to(intrinsics) @ intrinsics

    def depth_to_source(
        self, depth: Float[np.ndarray, "height width"]
    ) -> Float[np.ndarray, "source_height source_width"]:
        """For each of the source's pixels the value where its centre lies; 0, unknown, where that was cut off."""
        height, width = depth.shape
        rows = _nearest(self.source_height, self.scale_y, self.offset_y)
        columns = _nearest(self.source_width, self.scale_x, self.offset_x)
        kept_rows, kept_columns = (rows >= 0) & (rows < height), (columns >= 0) & (columns < width)
        mapped = np.zeros((self.source_height, self.source_width), depth.dtype)
        mapped[np.ix_(kept_rows, kept_columns)] = depth[np.ix_(rows[kept_rows], columns[kept_columns])]
        return mapped

    def _model_from_source(self) -> Float[Tensor, "3 3"]:
        """Of pixel centres, in float64."""
        return torch.tensor(
            [
                [self.scale_x, 0.0, self.offset_x + _HALF * self.scale_x - _HALF],
                [0.0, self.scale_y, self.offset_y + _HALF * self.scale_y - _HALF],
                [0.0, 0.0, 1.0],
            ],
            dtype=torch.float64,
        )


def _nearest(source_length: int, scale: float, offset: float) -> Int[np.ndarray, " source_length"]:
    """The network's pixel that holds the centre of each of the source's, along one axis; it may lie outside."""
    nearest: Int[np.ndarray, ...] = np.floor((np.arange(source_length) + _HALF) * scale + offset).astype(np.int64)
    return nearest
