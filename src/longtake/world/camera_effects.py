"""What a real camera does to a picture: blur by motion, noise, drifting exposure, a vignette, and JPEG.

Pictures are frames of clips from 0 to 1, on any device; the same generator gives the same effects.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

Clips = Float[Tensor, "clips frames 3 height width"]
PerClip = Float[Tensor, "clips"]

_BLOCK = 8
# Tables K.1 and K.2 of the JPEG standard (ITU-T T.81), for a quality of 50.
_LUMINANCE_STEPS = (
    (16, 11, 10, 16, 24, 40, 51, 61),
    (12, 12, 14, 19, 26, 58, 60, 55),
    (14, 13, 16, 24, 40, 57, 69, 56),
    (14, 17, 22, 29, 51, 87, 80, 62),
    (18, 22, 37, 56, 68, 109, 103, 77),
    (24, 35, 55, 64, 81, 104, 113, 92),
    (49, 64, 78, 87, 103, 121, 120, 101),
    (72, 92, 95, 98, 112, 100, 103, 99),
)
_CHROMINANCE_STEPS = (
    (17, 18, 24, 47, 99, 99, 99, 99),
    (18, 21, 26, 66, 99, 99, 99, 99),
    (24, 26, 56, 99, 99, 99, 99, 99),
    (47, 66, 99, 99, 99, 99, 99, 99),
    *((99,) * 8,) * 4,
)
# Luminance and two differences of colour, as JFIF has them.
_YCC_FROM_RGB = ((0.299, 0.587, 0.114), (-0.168736, -0.331264, 0.5), (0.5, -0.418688, -0.081312))


def motion_blurred(subframes: Float[Tensor, "clips frames subframes 3 height width"]) -> Clips:
    """The mean of pictures that were taken while the shutter was open, in light and not in the numbers of a file."""
    return _encoded(_decoded(subframes).mean(dim=2))


def neighbour_blurred(clips: Clips, share: PerClip) -> Clips:
    """A cheap stand-in where no subframes are drawn: a share of the frame before is mixed in; the first stays."""
    light = _decoded(clips)
    before = torch.cat([light[:, :1], light[:, :-1]], dim=1)
    return _encoded(torch.lerp(light, before, _spread(share)))


def with_sensor_noise(clips: Clips, *, shot: PerClip, read: PerClip, generator: torch.Generator | None = None) -> Clips:
    """Noise that grows with the root of the light (`shot`), and noise always there (`read`); each frame's own."""
    light = _decoded(clips)
    spread = (_spread(shot).square() * light + _spread(read).square()).sqrt()
    noise = torch.randn(clips.shape, generator=generator, device=clips.device, dtype=clips.dtype)
    return _encoded((light + spread * noise).clamp(0, 1))


def with_drifting_exposure(
    clips: Clips, *, stops: PerClip, smoothness: float = 12.0, generator: torch.Generator | None = None
) -> Clips:
    """Light that rises and falls over the frames by about so many stops; changes take `smoothness` frames."""
    count, frames = clips.shape[:2]
    knots = max(2, math.ceil(frames / smoothness) + 1)
    drawn = torch.randn(count, 1, knots, generator=generator, device=clips.device, dtype=clips.dtype)
    drift = functional.interpolate(drawn, size=frames, mode="linear", align_corners=True)[:, 0]
    gain = torch.exp2(drift * stops[:, None])[..., None, None, None]
    return _encoded((_decoded(clips) * gain).clamp(0, 1))


def with_vignette(clips: Clips, strength: PerClip) -> Clips:
    """Darker towards the corners, by this share of their light."""
    height, width = clips.shape[-2:]
    y = torch.linspace(-1, 1, height, device=clips.device, dtype=clips.dtype)[:, None]
    x = torch.linspace(-1, 1, width, device=clips.device, dtype=clips.dtype)
    corner = ((x.square() * width**2 + y.square() * height**2) / (width**2 + height**2)).square()
    return _encoded(_decoded(clips) * (1 - _spread(strength) * corner))


def jpeg_compressed(clips: Clips, quality: PerClip) -> Clips:
    """As a JPEG of this quality (1 to 100) comes back, colours at half the resolution."""
    height, width = clips.shape[-2:]
    flat = clips.flatten(0, 1)
    quality = quality.repeat_interleave(clips.shape[1])
    matrix = torch.tensor(_YCC_FROM_RGB, device=clips.device, dtype=clips.dtype)
    levels = (flat.clamp(0, 1) * 255).round()
    padded = functional.pad(levels, (0, -width % (2 * _BLOCK), 0, -height % (2 * _BLOCK)), mode="replicate")
    luminance, *colour = torch.einsum("ij,njhw->inhw", matrix, padded)
    luminance = _quantised(luminance - 128, _steps(_LUMINANCE_STEPS, quality)) + 128
    small = [functional.avg_pool2d(plane[:, None], 2)[:, 0] for plane in colour]
    colour_steps = _steps(_CHROMINANCE_STEPS, quality)
    large = [_doubled(_quantised(plane, colour_steps)) for plane in small]
    back = torch.einsum("ij,jnhw->nihw", torch.linalg.inv(matrix), torch.stack([luminance, *large]))
    return (back[..., :height, :width].round().clamp(0, 255) / 255).view(clips.shape)


def _steps(table: tuple[tuple[int, ...], ...], quality: Float[Tensor, "pictures"]) -> Float[Tensor, "pictures 8 8"]:
    """The table for other qualities, as the Independent JPEG Group scales it."""
    scale = torch.where(quality < 50, 5000 / quality.clamp_min(1), 200 - 2 * quality)
    base = torch.tensor(table, device=quality.device, dtype=quality.dtype)
    return ((base * scale.floor()[:, None, None] + 50) / 100).floor().clamp(1, 255)


def _quantised(
    plane: Float[Tensor, "pictures height width"], steps: Float[Tensor, "pictures 8 8"]
) -> Float[Tensor, "pictures height width"]:
    """Cosine transforms of blocks of 8 x 8, rounded to steps, and back."""
    pictures, height, width = plane.shape
    blocks = plane.view(pictures, height // _BLOCK, _BLOCK, width // _BLOCK, _BLOCK).movedim(3, 2)
    cosines = _cosines(plane)
    steps = steps[:, None, None]
    waves = ((cosines @ blocks @ cosines.T) / steps).round() * steps
    return (cosines.T @ waves @ cosines).movedim(2, 3).reshape(pictures, height, width)


def _cosines(like: Tensor) -> Float[Tensor, "8 8"]:
    """Rows are the waves of the cosine transform, of length 1."""
    place = torch.arange(_BLOCK, device=like.device, dtype=like.dtype)
    waves = torch.cos(math.pi / _BLOCK * place[:, None] * (place + 0.5)) * math.sqrt(2 / _BLOCK)
    return torch.cat([waves[:1] / math.sqrt(2), waves[1:]])


def _doubled(plane: Float[Tensor, "pictures height width"]) -> Float[Tensor, "pictures height2 width2"]:
    """Twice as large, between neighbours, as decoders smooth colours."""
    return functional.interpolate(plane[:, None], scale_factor=2, mode="bilinear", align_corners=False)[:, 0]


def _spread(value: PerClip) -> Float[Tensor, "clips 1 1 1 1"]:
    return value[:, None, None, None, None]


def _decoded(picture: Tensor) -> Tensor:
    """Light from the numbers of a file, by a gamma of 2.2."""
    return picture.clamp_min(0) ** 2.2


def _encoded(light: Tensor) -> Tensor:
    # The root of 0 has no slope, which would make gradients NaN.
    return light.clamp_min(1e-6) ** (1 / 2.2)
