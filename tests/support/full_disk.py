"""A disk that takes no more, for the files that this process writes."""

from collections.abc import Iterator
from contextlib import contextmanager
from resource import RLIMIT_FSIZE, getrlimit, setrlimit


@contextmanager
def files_no_longer_than(num_bytes: int) -> Iterator[None]:
    """As on a full disk, writes beyond so many bytes fail."""
    soft, hard = getrlimit(RLIMIT_FSIZE)
    setrlimit(RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        setrlimit(RLIMIT_FSIZE, (soft, hard))
