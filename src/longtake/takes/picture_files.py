"""Pictures in files: the formats we mean and no others, and no more pixels than a frame may have."""

import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from warnings import catch_warnings

from PIL import Image

from longtake.errors import InputError
from longtake.takes.fields import require_file

LARGEST_PIXELS = 50_000_000
"""Of a frame, counted before there is memory for them; video of 8K has 33 million."""
# Pillow knows others, and starts programs for some of them.
_FORMATS = ("PNG", "JPEG", "WEBP", "TIFF", "BMP", "PPM", "JPEG2000", "AVIF")
# A damaged file is an OSError in most of Pillow, but not in all of it.
_PICTURE_ERRORS = (
    OSError,
    ValueError,
    SyntaxError,
    RuntimeError,
    LookupError,
    TypeError,
    AttributeError,
    ArithmeticError,
    EOFError,
    MemoryError,
    struct.error,
    zlib.error,
    Image.DecompressionBombError,
    Image.DecompressionBombWarning,
)


@contextmanager
def open_picture(path: Path, what: str = "a picture") -> Iterator[Image.Image]:
    """A picture of a size that can be held; whatever is wrong with it, here or while it is read, is an InputError."""
    with reading_picture(f"{what} at {path}", "check the file"):
        require_file(path)
        with catch_warnings(action="error", category=Image.DecompressionBombWarning):
            opened = Image.open(path, formats=_FORMATS)
        with opened as image:
            require_pixels(image.width, image.height, str(path))
            yield image


@contextmanager
def reading_picture(expected: str, advice: str) -> Iterator[None]:
    """Whatever Pillow raises over a picture that it cannot read is an InputError."""
    try:
        yield
    except _PICTURE_ERRORS as error:
        raise InputError(f"Expected {expected}, but it cannot be read ({_reason(error)}); {advice}.") from error


def require_pixels(width: int, height: int, name: str) -> None:
    """Refuse a frame that has too many pixels, before it is made."""
    if width * height > LARGEST_PIXELS:
        raise InputError(
            f"Expected at most {LARGEST_PIXELS // 1_000_000} million pixels in {name}, but it has {width}x{height}; "
            "make it smaller."
        )


def _reason(error: BaseException) -> str:
    told = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    lines = told.strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__
