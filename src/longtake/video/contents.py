"""What files hold, told by little of it: enough to notice when others have taken their place."""

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

_MOST_READ = 64
"""Files whose contents are looked at, evenly spread among all."""
_PART_BYTES = 1 << 16
"""Of a beginning, a middle and an end, which is all that is read of a file."""
_NUM_DIGITS = 16


def contents_of(paths: Sequence[Path]) -> Mapping[str, Any]:
    """Bytes of all files, and a digest of their names and sizes and of parts of a few; nothing where there are none.

    A file that is not there, or cannot be read, is none of the errors of this function.
    """
    if not paths:
        return {}
    sizes = [_num_bytes(path) for path in paths]
    digest = hashlib.sha256()
    for path, size in zip(paths, sizes, strict=True):
        digest.update(os.fsencode(path.name) + f"/{size}\n".encode())
    for place in range(0, len(paths), -(-len(paths) // _MOST_READ)):
        for part in _parts(paths[place], sizes[place]):
            digest.update(part)
    return {"num_bytes": sum(size or 0 for size in sizes), "contents": digest.hexdigest()[:_NUM_DIGITS]}


def _num_bytes(path: Path) -> int | None:
    """None for what is no file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def _parts(path: Path, num_bytes: int | None) -> Iterator[bytes]:
    if num_bytes is None:
        return
    with suppress(OSError), path.open("rb") as file:
        for start in (0, num_bytes // 2, max(0, num_bytes - _PART_BYTES)):
            file.seek(start)
            yield file.read(_PART_BYTES)
