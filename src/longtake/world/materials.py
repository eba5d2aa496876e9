"""What surfaces are made of: a colour, a pattern of cells, and grain from coarse to fine.

A pattern is a grid of cells, each a little lighter or darker than the next, with a dark joint between them; long
staggered cells are planks, square ones tiles, small staggered ones bricks, very long ones stripes. Grain is noise in
three bands of wavelength, stretched along one direction for wood. Beyond that, which is what houses have, a second
colour may take some cells, stripes, blots and marks like writing.
"""

from dataclasses import astuple, dataclass, replace

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
    """A surface in numbers; lengths in metres. Houses have none of what is given a value here."""

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
    second_red: float = 0.0
    second_green: float = 0.0
    second_blue: float = 0.0
    cell_mix: float = 0.0
    """Share of the cells that have the second colour."""
    joint_mix: float = 0.0
    """How much of the second colour joints have; wide ones make windows of the cells."""
    irregular: float = 0.0
    """How much cells differ in size, below 1."""
    wavy: float = 0.0
    """How far the lines between cells wander, in sizes of a blot."""
    blot: float = 1.0
    """Size of blots."""
    mottle: float = 0.0
    """How much of the second colour blots have."""
    mottle_sharpness: float = 1.0
    stripe: float = 0.0
    """How much of the second colour stripes have."""
    stripe_period: float = 1.0
    stripe_angle_rad: float = 0.0
    stripe_share: float = 0.5
    """Of the surface that they cover."""
    stripe_softness: float = 0.0
    """0 for edges, 1 for a gradient."""
    mark: float = 0.0
    """How much of the second colour marks have: rows of strokes, as writing looks from afar."""
    mark_size: float = 1.0
    """Height of a letter."""

    @property
    def is_decorated(self) -> bool:
        return any((self.cell_mix, self.joint_mix, self.irregular, self.wavy, self.mottle, self.stripe, self.mark))

    def row(self) -> tuple[float, ...]:
        return astuple(self)


NUM_PLAIN = 16
"""How many numbers describe a surface without decoration; they come first."""
_PLAIN = 50.0
"""A cell so large that no joint is seen."""
_BOUNDLESS = 1e5
"""The same where a place is larger than a house."""


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


def plain(
    tone: tuple[float, float, float],
    rng: np.random.Generator,
    *,
    grain: tuple[float, float, float] = (0.0, 0.0, 0.0),
    size: float = 1.0,
) -> Material:
    """One colour with grain."""
    return replace(_material(tone, rng, grain=grain, size=size), cell_u=_BOUNDLESS, cell_v=_BOUNDLESS)


def random_material(
    rng: np.random.Generator, scale: float = 1.0, tone: tuple[float, float, float] | None = None
) -> Material:
    """Anything at all: any colours, cells, stripes, blots, writing and grain, for solids of about `scale` metres."""
    first = random_tone(rng) if tone is None else tone
    second = _contrasting(first, rng)
    style = rng.random(6)
    cell_u, cell_v = (float(scale * value) for value in np.exp(rng.uniform(np.log(0.04), np.log(0.6), size=2)))
    has_cells = style[0] < 0.6
    has_joint = has_cells and style[1] < 0.5
    joint = min(cell_u, cell_v) * float(rng.uniform(0.03, 0.12))
    grain = rng.uniform(0, 0.12, size=3) * rng.uniform(0.2, 1)
    return Material(
        *first,
        *((cell_u, cell_v) if has_cells else (_BOUNDLESS, _BOUNDLESS)),
        stagger=float(rng.choice([0.0, 0.5, rng.uniform(0, 0.5)])),
        joint=joint if has_joint else 0.0,
        joint_shade=float(rng.uniform(0.3, 0.85)) if has_joint else 1.0,
        cell_contrast=float(rng.uniform(0, 0.5)) if has_cells else 0.0,
        grain_fine=float(grain[0]),
        grain_middle=float(grain[1]),
        grain_coarse=float(grain[2]),
        stretch_u=float(np.exp(rng.uniform(0, np.log(8)))) if style[2] < 0.3 else 1.0,
        size=float(scale * np.exp(rng.uniform(np.log(0.3), np.log(2)))),
        offset=float(rng.uniform(0, 10)),
        glow=0.0,
        second_red=second[0],
        second_green=second[1],
        second_blue=second[2],
        cell_mix=float(rng.uniform(0.1, 0.6)) if has_cells and style[3] < 0.6 else 0.0,
        joint_mix=float(rng.uniform(0.3, 1)) if has_joint and style[3] > 0.6 else 0.0,
        irregular=float(rng.uniform(0.2, 0.9)) if has_cells and style[1] < 0.4 else 0.0,
        wavy=float(rng.uniform(0.02, 0.12)) if has_cells and style[2] > 0.7 else 0.0,
        blot=float(scale * np.exp(rng.uniform(np.log(0.1), np.log(1.5)))),
        mottle=float(rng.uniform(0.2, 1)) if style[4] < 0.35 else 0.0,
        mottle_sharpness=float(np.exp(rng.uniform(np.log(0.3), np.log(8)))),
        stripe=float(rng.uniform(0.3, 1)) if style[4] > 0.7 else 0.0,
        stripe_period=float(scale * np.exp(rng.uniform(np.log(0.05), np.log(1.5)))),
        stripe_angle_rad=float(rng.choice([0.0, np.pi / 2, rng.uniform(0, np.pi)])),
        stripe_share=float(rng.uniform(0.2, 0.8)),
        stripe_softness=float(rng.choice([0.0, rng.uniform(0, 1)])),
        mark=float(rng.uniform(0.6, 1)) if style[5] < 0.15 else 0.0,
        mark_size=float(scale * np.exp(rng.uniform(np.log(0.02), np.log(0.12)))),
    )


def random_tone(rng: np.random.Generator) -> tuple[float, float, float]:
    """Grey, muted or bright; dark or light."""
    value, colourful = rng.uniform(0.05, 1) ** 0.6, rng.choice([0.0, 0.3, 0.9], p=[0.25, 0.45, 0.3])
    hue = rng.uniform(0, 1, size=3)
    mixed = value * (1 - colourful + colourful * hue / hue.max())
    return (float(mixed[0]), float(mixed[1]), float(mixed[2]))


def light_tone(rng: np.random.Generator) -> tuple[float, float, float]:
    """A tone as walls have, never dark."""
    red, green, blue = random_tone(rng)
    return (0.3 + 0.7 * red, 0.3 + 0.7 * green, 0.3 + 0.7 * blue)


def _contrasting(tone: tuple[float, float, float], rng: np.random.Generator) -> tuple[float, float, float]:
    """Another tone, clearly lighter or darker in most cases."""
    several = [random_tone(rng) for _ in range(3)]
    return max(several, key=lambda other: abs(sum(other) - sum(tone)))
