"""What a way is looked for in, and by what: places with their pictures and cameras, wherever they are kept."""

from typing import Protocol, runtime_checkable

from jaxtyping import Float64
from torch import Tensor

from longtake.places.index import PlaceIndex
from longtake.places.key_view import KeyView


@runtime_checkable
class KnownWorld(Protocol):
    """Places are named by their frames, and lie in one world."""

    @property
    def index(self) -> PlaceIndex: ...

    def view(self, frame: int) -> KeyView:
        """A place as it is verified by, in the unit of the world."""
        ...

    def camera(self, frame: int) -> Float64[Tensor, "4 4"]:
        """`world_from_camera` of a place."""
        ...
