"""One frame as its own window knows it: all that a loop is verified by."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from longtake.errors import InputError
from longtake.types import Geometry


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyView:
    """A picture with depth; lengths are in whatever unit its window has.

    Every frame's intrinsics are a guess of their own, and two guesses about one camera that differ by 4 % move it by
    a hand: of frames of one video give all the same, `shared_intrinsics`.
    """

    frame_index: int
    image: Shaped[Tensor, "..."]
    """3 x height x width, as bytes or as floats from 0 to 1; checked here, as all that follows."""
    depth: Float[Tensor, "..."]
    """Height x width; what is not finite and above 0 is left out."""
    depth_confidence: Float[Tensor, "..."]
    """Likewise."""
    intrinsics: Float[Tensor, "..."]
    """3 x 3."""

    def __post_init__(self) -> None:
        """Refuse what cannot be one frame, in one sentence."""
        size = tuple(self.depth.shape)
        shapes = (tuple(self.image.shape), tuple(self.depth_confidence.shape), tuple(self.intrinsics.shape))
        if len(size) != 2 or shapes != ((3, *size), size, (3, 3)):
            raise InputError(
                f"Expected a picture, depth and confidence of one size and intrinsics of 3 x 3, but got {shapes[0]}, "
                f"{size}, {shapes[1]} and {shapes[2]}; give what is known of one frame."
            )
        focal = self.intrinsics[[0, 1], [0, 1]]
        if not bool(self.intrinsics.isfinite().all() and (focal > 0).all()):
            raise InputError(
                f"Expected intrinsics with positive focal lengths, but got {self.intrinsics.tolist()}; "
                "leave the frame out."
            )

    @classmethod
    def of(
        cls, geometry: Geometry, place: int, image: Shaped[Tensor, "3 height width"], intrinsics: Float[Tensor, "3 3"]
    ) -> "KeyView":
        """One of the frames of a geometry."""
        return cls(
            frame_index=geometry.frame_index[place],
            image=image,
            depth=geometry.depth[place],
            depth_confidence=geometry.depth_confidence[place],
            intrinsics=intrinsics,
        )


def shared_intrinsics(guesses: Sequence[Float[Tensor, "3 3"]] | Float[Tensor, "frames 3 3"]) -> Float[Tensor, "3 3"]:
    """Of a camera that every frame guesses anew: the lower median of each number."""
    if len(guesses) == 0:
        raise InputError("Expected the intrinsics of one frame at least, but got none; wait for the first result.")
    stacked = torch.stack(list(guesses))
    middle: Tensor = stacked.median(dim=0).values
    return middle
