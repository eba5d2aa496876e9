"""Whether a Matroska or WebM file is cut off: its two outermost elements say how long they are.

    1A 45 DF A3  size  ...         what kind of file it is
    18 53 80 67  size  ...         everything else

A size has one to eight bytes; the zero bits it begins with say how many follow. All ones mean that nobody knew, as in a
recording that was never finished.
"""

from pathlib import Path
from typing import BinaryIO

_KIND, _CONTENT = b"\x1a\x45\xdf\xa3", b"\x18\x53\x80\x67"


def num_missing_bytes(path: Path) -> int:
    """By how much a file is shorter than it says; 0 where it does not say, or is no Matroska."""
    with path.open("rb") as file:
        if file.read(4) != _KIND:
            return 0
        file.seek(_read_size(file) or 0, 1)
        if file.read(4) != _CONTENT:
            return 0
        size = _read_size(file)
        return 0 if size is None else max(0, file.tell() + size - path.stat().st_size)


def _read_size(file: BinaryIO) -> int | None:
    first = file.read(1)
    if not first or not first[0]:
        return None
    num_following = 8 - first[0].bit_length()
    num_bits = 7 * (num_following + 1)
    size = int.from_bytes(first + file.read(num_following)) % (1 << num_bits)
    return None if size == (1 << num_bits) - 1 else size
