"""Films made on the spot: pictures that tell their number, in any codec, at any times, turned as a phone would."""

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest

Film = Callable[..., Path]
TIME_BASE = Fraction(1, 90_000)


def picture(number: int, height: int = 48, width: int = 64) -> np.ndarray:
    """Smooth and without symmetry; the blue is eight times the number."""
    v, u = np.mgrid[:height, :width]
    blue = np.full((height, width), 8 * number % 256)
    return np.stack([40 + 150 * u / width, 60 + 120 * v / height, blue], axis=-1).round().astype(np.uint8)


def number_of(image: np.ndarray) -> int:
    return round(float(image[..., 2].mean()) / 8)


def write_film(
    path: Path,
    pictures: Sequence[np.ndarray],
    *,
    times_s: Sequence[float] | None = None,
    codec: str = "libx264rgb",
    pixels: str = "rgb24",
    options: Mapping[str, str] | None = None,
    container: Mapping[str, str] | None = None,
    turn: tuple[int, bool] | None = None,
    pixel_aspect: Fraction | None = None,
    time_base: Fraction = TIME_BASE,
    file_format: str | None = None,
) -> Path:
    """A video of these pictures, lossless unless another codec is asked for; `turn` is degrees and a mirror."""
    height, width = pictures[0].shape[:2]
    with av.open(str(path), "w", format=file_format, options=dict(container or {})) as file:
        stream = file.add_stream(codec, rate=30, options=dict(options or {"qp": "0", "threads": "1"}))
        stream.width, stream.height, stream.pix_fmt = width, height, pixels
        stream.time_base = stream.codec_context.time_base = time_base
        if pixel_aspect is not None:
            stream.codec_context.sample_aspect_ratio = pixel_aspect
        if turn is not None:
            stream.set_display_rotation(turn[0], hflip=turn[1])
        for number, pixels_of_one in enumerate(pictures):
            source = "rgba" if pixels_of_one.shape[-1] == 4 else "rgb24"
            frame = av.VideoFrame.from_ndarray(pixels_of_one, format=source).reformat(format=pixels)
            time_s = number / 30 if times_s is None else times_s[number]
            frame.pts, frame.time_base = round(time_s / time_base), time_base
            file.mux(stream.encode(frame))
        file.mux(stream.encode(None))
    return path


@pytest.fixture(scope="session")
def film() -> Film:
    return write_film


@pytest.fixture(scope="session")
def drawn() -> Callable[..., np.ndarray]:
    return picture


@pytest.fixture(scope="session")
def number_in() -> Callable[[np.ndarray], int]:
    return number_of
