"""A video's frames to model pixels, all in the same way."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import UInt8
from PIL import Image

from longtake.video.resize import Fit, Resized, require_whole_patches, resize_image


@dataclass(frozen=True, slots=True, kw_only=True)
class Preprocessor:
    """Frames of one size give pixels of one size in one place; sources see to the first."""

    fit: Fit = Fit.CROP
    size: int = 518
    patch: int = 14

    def __post_init__(self) -> None:
        require_whole_patches(self.size, self.patch)

    def __call__(self, image: UInt8[np.ndarray, "height width 3"]) -> Resized:
        """What the network sees of a frame, and where it lies there."""
        return resize_image(Image.fromarray(image), self.fit, size=self.size, patch=self.patch)
