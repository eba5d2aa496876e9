"""What a house holds by name: colours, kinds of things, rooms; and what of it was visible in a walk."""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from jaxtyping import Float, Int


class Colour(StrEnum):
    """Colours a person tells apart at a glance."""

    RED = "red"
    ORANGE = "orange"
    YELLOW = "yellow"
    GREEN = "green"
    CYAN = "cyan"
    BLUE = "blue"
    PURPLE = "purple"
    WHITE = "white"


class Kind(StrEnum):
    """Shapes a person tells apart at a glance."""

    BOX = "box"
    BALL = "ball"
    CYLINDER = "cylinder"
    CONE = "cone"
    TABLE = "table"
    CHAIR = "chair"
    SHELF = "shelf"
    LAMP = "lamp"


@dataclass(frozen=True, slots=True)
class Thing:
    """A thing that questions are asked about; no two in a house share colour and kind."""

    colour: Colour
    kind: Kind
    room: int
    """Which room it stands in, by index."""

    @property
    def name(self) -> str:
        return f"{self.colour} {self.kind}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sightings:
    """What was visible in the frames of a walk, from the first to the newest, counted by the renderer."""

    things: tuple[Thing, ...]
    rooms: tuple[Colour, ...]
    """The colour of each room's walls, by which the room is named; no two share one."""
    timestamp_s: Float[np.ndarray, "frames"]
    room: Int[np.ndarray, "frames"]
    """Which room the camera is in."""
    pixels: Int[np.ndarray, "frames things"]
    """How many pixels show each thing; hidden parts do not count."""
    column: Float[np.ndarray, "frames things"]
    """Mean column of those pixels over the image's width: 0 left edge, 1 right edge; NaN where there are none."""
    image_pixels: int
    """Pixels of a whole image."""

    def __len__(self) -> int:
        return len(self.timestamp_s)
