"""What surfaces are made of: a colour, a pattern of cells, and grain from coarse to fine.

A pattern is a grid of cells, each a little lighter or darker than the next, with a dark joint between them; long
staggered cells are planks, square ones tiles, small staggered ones bricks, very long ones stripes. Grain is noise in
three bands of wavelength, stretched along one direction for wood.
"""

from dataclasses import astuple, dataclass

import numpy as np

from longtake.world.things import Colour

PALETTE: dict[Colour, tuple[float, float, float]] = {
    Colour.RED: (0.86, 0.10, 0.10),
    Colour.ORANGE: (0.98, 0.50, 0.06),
    Colour.YELLOW: (0.95, 0.86, 0.12),
    Colour.GREEN: (0.12, 0.62, 0.18),
    Colour.CYAN: (0.10, 0.78, 0.82),
    Colour.BLUE: (0.12, 0.22, 0.85),
    Colour.PURPLE: (0.58, 0.14, 0.74),
    Colour.WHITE: (0.93, 0.93, 0.93),
}


@dataclass(frozen=True, slots=True)
class Material:
    """Sixteen numbers; lengths in metres."""

    red: float
    green: float
    blue: float
    cell_u: float
    cell_v: float
    stagger: float
    """How far each row of cells is shifted against the last, in cells."""
    joint: float
    """Width of the dark line between cells."""
    joint_shade: float
    """Brightness of that line, 1 for none."""
    cell_contrast: float
    """How much cells differ in brightness."""
    grain_fine: float
    grain_middle: float
    grain_coarse: float
    stretch_u: float
    """How much longer the grain is along u than along v."""
    size: float
    """Size of the grain, 1 for wavelengths of 4 cm to 1.5 m."""
    offset: float
    """Where in the noise this surface lies."""
    glow: float
    """How much it shines by itself, 0 to 1."""

    def row(self) -> tuple[float, ...]:
        return astuple(self)


_PLAIN = 50.0
"""A cell so large that no joint is seen."""


def paint(colour: Colour, rng: np.random.Generator) -> Material:
    """The plain coat of a thing: its colour is beyond doubt, its grain shows how it lies."""
    red, green, blue = np.clip(np.array(PALETTE[colour]) * rng.uniform(0.92, 1.05), 0, 1)
    return _material((red, green, blue), rng, grain=(0.04, 0.04, 0.03), size=0.5)


def wallpaper(colour: Colour, rng: np.random.Generator) -> Material:
    """A pale tone of the room's colour, plain, striped, tiled or of brick."""
    tone = _pale(colour, float(rng.uniform(0.42, 0.55)))
    style = int(rng.integers(4))
    grain = tuple(rng.uniform([0.03, 0.02, 0.015], [0.07, 0.05, 0.04]))
    if style == 0:
        return _material(tone, rng, grain=grain)
    if style == 1:
        return _material(tone, rng, cells=(float(rng.uniform(0.15, 0.4)), _PLAIN), contrast=0.16, grain=grain)
    if style == 2:
        side = float(rng.uniform(0.25, 0.5))
        return _material(tone, rng, cells=(side, side), contrast=0.1, joint=(0.012, 0.75), grain=grain)
    return _material(tone, rng, cells=(0.32, 0.14), stagger=0.5, contrast=0.2, joint=(0.014, 0.7), grain=grain)


def floor(rng: np.random.Generator) -> Material:
    """Planks or tiles of a quiet colour."""
    grain = tuple(rng.uniform([0.05, 0.04, 0.02], [0.11, 0.07, 0.04]))
    if rng.random() < 0.6:
        wood = np.array([0.62, 0.45, 0.30]) * rng.uniform(0.6, 1.2)
        return _material(
            wood,
            rng,
            cells=(float(rng.uniform(0.9, 1.6)), float(rng.uniform(0.1, 0.18))),
            stagger=0.37,
            contrast=0.28,
            joint=(0.006, 0.55),
            grain=grain,
            stretch=7.0,
        )
    stone = np.array([0.62, 0.61, 0.58]) * rng.uniform(0.6, 1.15)
    side = float(rng.uniform(0.28, 0.5))
    return _material(stone, rng, cells=(side, side), contrast=0.22, joint=(0.012, 0.6), grain=grain)


def ceiling(rng: np.random.Generator) -> Material:
    """Plaster."""
    return _material(np.array([0.88, 0.87, 0.84]) * rng.uniform(0.92, 1.03), rng, grain=(0.03, 0.025, 0.02))


def trim(rng: np.random.Generator) -> Material:
    """The wood of doors and windows, dark or light."""
    tone = np.array([0.5, 0.38, 0.27]) * rng.uniform(0.5, 1.5)
    return _material(tone, rng, grain=(0.05, 0.06, 0.03), stretch=5.0, size=0.4)


def woven(rng: np.random.Generator) -> Material:
    """Rugs and pictures: a busy pattern in a broken tone."""
    tone = rng.uniform(0.25, 0.7, size=3)
    cell_u, cell_v = (float(value) for value in rng.uniform(0.04, 0.25, size=2))
    return _material(
        tone, rng, cells=(cell_u, cell_v), stagger=float(rng.uniform(0, 0.5)), contrast=0.5, grain=(0.08, 0.06, 0.04)
    )


def glow(colour: tuple[float, float, float]) -> Material:
    """Lamps and window panes."""
    return Material(*colour, _PLAIN, _PLAIN, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 0.0, 1.0)


def _pale(colour: Colour, share: float) -> np.ndarray:
    return share * np.array(PALETTE[colour]) + (1 - share) * 0.85


def _material(
    tone: np.ndarray | tuple[float, ...],
    rng: np.random.Generator,
    *,
    cells: tuple[float, float] = (_PLAIN, _PLAIN),
    stagger: float = 0.0,
    contrast: float = 0.0,
    joint: tuple[float, float] = (0.0, 1.0),
    grain: tuple[float, ...] = (0.0, 0.0, 0.0),
    stretch: float = 1.0,
    size: float = 1.0,
) -> Material:
    red, green, blue = (float(value) for value in tone)
    fine, middle, coarse = (float(value) for value in grain)
    offset = float(rng.uniform(0, 10))
    return Material(
        red, green, blue, *cells, stagger, *joint, contrast, fine, middle, coarse, stretch, size, offset, 0.0
    )
