"""Where a source's pixels lie in the network's, and the way back."""

from dataclasses import dataclass, replace


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
