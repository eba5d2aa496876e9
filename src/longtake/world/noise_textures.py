"""Noise textures that give surfaces their grain: constant random tables, the same in every house."""

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

NOISE_TEXELS = 256
TEXEL = 0.012
"""Metres of a noise texel for grain of size 1."""
BANDS = ((3.0, 8.0), (12.0, 32.0), (48.0, 128.0))
"""Wavelengths in texels of fine, middle and coarse grain."""
NUM_SHADES = 1024
"""Entries of the table from which cells of a pattern take their brightness."""


def noise() -> Float[Tensor, "texels 3"]:
    """A tileable noise image, row by row, in three bands of wavelength, each of standard deviation 1."""
    rng = np.random.default_rng(20)
    frequency = np.fft.fftfreq(NOISE_TEXELS)
    wavelength = 1 / np.maximum(np.hypot(frequency[:, None], frequency[None, :]), 1e-9)
    bands = []
    for shortest, longest in BANDS:
        spectrum = np.fft.fft2(rng.standard_normal((NOISE_TEXELS, NOISE_TEXELS)))
        band = np.fft.ifft2(spectrum * ((wavelength >= shortest) & (wavelength <= longest))).real
        bands.append(band / band.std())
    return torch.from_numpy(np.stack(bands, axis=-1).astype(np.float32)).view(-1, 3)


def shades() -> Float[Tensor, "shades"]:
    """Random brightness offsets from -0.5 to 0.5, one for each cell of a pattern."""
    values = np.random.default_rng(21).uniform(-0.5, 0.5, NUM_SHADES)
    return torch.from_numpy(values.astype(np.float32))
