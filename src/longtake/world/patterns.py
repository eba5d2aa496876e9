"""Patterns on surfaces: cells, joints and grain, and what decorates them with a second colour.

All is a function of the place on the surface, from tables; what is finer than a pixel's footprint fades to its mean, as
it would in a camera.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from longtake.world.noise_textures import BANDS, NOISE_TEXELS, NUM_SHADES, TEXEL

PerRay = Float[Tensor, "views rays"]
_BLOT_TEXELS = 90.0
"""Texels of the noise in a blot: the middle of the coarse band."""
_INK = 0.09
"""Mean share of a written surface under ink."""
_TEXT_HEIGHT = 0.55
"""Share of a line that letters take; the rest is space between lines."""


@dataclass(frozen=True, slots=True)
class Tables:
    """Random numbers that patterns are drawn from."""

    noise: Float[Tensor, "texels 3"]
    shades: Float[Tensor, "shades"]


@dataclass(frozen=True, slots=True)
class Cells:
    """The cell of a pattern at each place: its row and column, the place in it, and its entry in the table."""

    row: PerRay
    column: PerRay
    to_joint: PerRay
    """Metres to the nearest edge."""
    entry: Int[Tensor, "views rays"]


def cells_at(chart: Float[Tensor, "views rays 2"], rows: Float[Tensor, "views rays numbers"]) -> Cells:
    """Rows of cells, each shifted against the last."""
    cell_u, cell_v, stagger = rows[..., 3:6].unbind(dim=-1)
    offset = rows[..., 14]
    v = chart[..., 1] / cell_v + offset
    row = v.floor()
    u = chart[..., 0] / cell_u + offset + stagger * row
    column = u.floor()
    entry = (row.long() * 57 + column.long() * 131 + (offset * 97).long()) % NUM_SHADES
    to_u, to_v = (0.5 - (u - column - 0.5).abs()) * cell_u, (0.5 - (v - row - 0.5).abs()) * cell_v
    return Cells(row, column, torch.minimum(to_u, to_v), entry)


def brightness(
    cells: Cells,
    chart: Float[Tensor, "views rays 2"],
    rows: Float[Tensor, "views rays numbers"],
    footprint: PerRay,
    tables: Tables,
) -> PerRay:
    """By cells, joints and grain, 1 on average."""
    cell_u, cell_v, _, _, joint_shade, contrast = rows[..., 3:9].unbind(dim=-1)
    shade = 1 + contrast * tables.shades[cells.entry] * _fade(footprint, torch.minimum(cell_u, cell_v))
    cover = _covered(cells, rows, footprint)
    return shade * (1 - (1 - joint_shade) * cover) * (1 + _grain(chart, rows, footprint, tables))


def _covered(cells: Cells, rows: Float[Tensor, "views rays numbers"], footprint: PerRay) -> PerRay:
    """How much of a pixel is joint."""
    joint = rows[..., 6]
    wide = torch.maximum(footprint, joint / 8).clamp_min(1e-6)
    return ((joint / 2 - cells.to_joint) / wide + 0.5).clamp(0, 1) * (joint / wide).clamp_max(1)


def _grain(chart: Tensor, rows: Tensor, footprint: PerRay, tables: Tables) -> PerRay:
    stretch, size, offset = rows[..., 12], rows[..., 13], rows[..., 14]
    texel = TEXEL * size
    u, v = chart[..., 0] / (texel * stretch) + offset * 613, chart[..., 1] / texel + offset * 271
    bands = sample_noise(tables.noise, u, v)
    strength = [rows[..., 9 + band] * _fade(footprint, texel * longest) for band, (_, longest) in enumerate(BANDS)]
    return (bands * torch.stack(strength, dim=-1)).sum(dim=-1)


def _fade(footprint: PerRay, wavelength: PerRay) -> PerRay:
    """What a pixel of this footprint leaves of detail of this wavelength: all when it is small, nothing beyond half."""
    return (2 - 4 * footprint / wavelength).clamp(0, 1)


def sample_noise(noise: Float[Tensor, "texels 3"], u: PerRay, v: PerRay) -> Float[Tensor, "views rays 3"]:
    """Between the four texels around, of a picture that repeats."""
    left, top = u.floor(), v.floor()
    right_share, low_share = (u - left)[..., None], (v - top)[..., None]
    columns = [(left.long() + i) % NOISE_TEXELS for i in (0, 1)]
    rows = [(top.long() + i) % NOISE_TEXELS * NOISE_TEXELS for i in (0, 1)]
    upper, lower = (torch.lerp(noise[row + columns[0]], noise[row + columns[1]], right_share) for row in rows)
    return torch.lerp(upper, lower, low_share)


@dataclass(frozen=True, slots=True)
class Decoration:
    """What a surface shows beyond its first colour."""

    cells: Cells
    second: PerRay
    """Share of the second colour, 0 to 1."""


def decorate(
    chart: Float[Tensor, "views rays 2"],
    rows: Float[Tensor, "views rays numbers"],
    footprint: PerRay,
    tables: Tables,
) -> Decoration:
    """Cells of random sizes with wandering lines, and the second colour's share in cells, stripes, blots and marks."""
    cell_mix, joint_mix, irregular, wavy, blot, mottle, sharpness = rows[..., 19:26].unbind(dim=-1)
    offset = rows[..., 14]
    texel = blot / _BLOT_TEXELS
    u, v = chart[..., 0] / texel + offset * 389, chart[..., 1] / texel + offset * 157
    blots = sample_noise(tables.noise, u, v)
    wander = torch.stack([blots[..., 2], 0.3 * blots[..., 1]], dim=-1) * (wavy * blot)[..., None]
    cells = cells_at(_resized(chart + wander, rows[..., 3:5], irregular, tables), rows)
    smallest = torch.minimum(rows[..., 3], rows[..., 4])
    is_second = _drawn(tables, cells.row, cells.column, offset) < cell_mix - 0.5
    in_cells = _faded(is_second.to(footprint), cell_mix, _fade(footprint, smallest))
    spread = [blots[..., 1] * _fade(footprint, 32 * texel) * 0.5, blots[..., 0] * _fade(footprint, 8 * texel) * 0.25]
    in_blots = mottle * (0.5 + sharpness * (blots[..., 2] + spread[0] + spread[1])).clamp(0, 1)
    in_lines = _either(_stripes(chart, rows, footprint), _marks(chart, rows, footprint, tables))
    second = _either(_either(in_cells, in_blots), in_lines)
    return Decoration(cells, torch.lerp(second, torch.ones_like(second), joint_mix * _covered(cells, rows, footprint)))


def _resized(
    chart: Float[Tensor, "views rays 2"],
    cell: Float[Tensor, "views rays 2"],
    irregular: PerRay,
    tables: Tables,
) -> Float[Tensor, "views rays 2"]:
    """Places moved so that lines between cells, evenly spaced, come to lie unevenly."""
    along = chart / cell
    start = along.floor()
    other = torch.tensor([0.0, 7.0], device=chart.device)
    before, after = (tables.shades[_hashed((start + step).long() + other.long())] for step in (0, 1))
    return cell * (along + irregular[..., None] * torch.lerp(before, after, along - start))


def _stripes(chart: Float[Tensor, "views rays 2"], rows: Tensor, footprint: PerRay) -> PerRay:
    strength, period, angle, share, softness = rows[..., 26:31].unbind(dim=-1)
    along = (chart[..., 0] * angle.cos() + chart[..., 1] * angle.sin()) / period + rows[..., 14]
    away = 2 * (along - along.floor() - 0.5).abs()
    soft = torch.maximum(softness, 2 * footprint / period).clamp_min(1e-4)
    covered = ((share - away) / soft + 0.5).clamp(0, 1)
    return strength * _faded(covered, share, _fade(footprint, period))


def _marks(chart: Float[Tensor, "views rays 2"], rows: Tensor, footprint: PerRay, tables: Tables) -> PerRay:
    """Paragraphs of words of letters of three by four strokes, each there or not."""
    strength, size = rows[..., 31:33].unbind(dim=-1)
    offset = rows[..., 14]
    u, v = chart[..., 0] / (0.8 * size), chart[..., 1] / (2 * size)
    letter, line = u.floor(), v.floor()
    column, height = ((u - letter) * 4).floor(), (v - line) / _TEXT_HEIGHT
    stroke = _drawn(tables, 5 * line + (4 * height).floor(), 4 * letter + column, offset)
    is_ink = (stroke > 0) & (column < 3) & (height < 1)
    is_letter = _drawn(tables, line, letter, offset + 1) > -0.3
    is_written = _drawn(tables, (line / 5).floor(), (letter / 14).floor(), offset + 2) > -0.05
    return strength * _faded((is_ink & is_letter & is_written).to(footprint), _INK, _fade(footprint, size))


def _drawn(tables: Tables, row: PerRay, column: PerRay, offset: PerRay) -> PerRay:
    """A random number from -0.5 to 0.5 for each cell."""
    return tables.shades[_hashed(row.long() * 7919 + column.long() * 104729 + (offset * 97).long())]


def _hashed(number: Int[Tensor, "*rays"]) -> Int[Tensor, "*rays"]:
    mixed = number * 73856093
    return (mixed ^ (mixed >> 13)) % NUM_SHADES


def _faded(pattern: PerRay, mean: PerRay | float, fade: PerRay) -> PerRay:
    return mean + fade * (pattern - mean)


def _either(one: PerRay, other: PerRay) -> PerRay:
    """The share where one or the other lies, but not both: marks on the second colour have the first."""
    return one + other - 2 * one * other
