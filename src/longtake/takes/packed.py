"""A take as one file, as a server gives it away: unpacked for as long as it is read."""

import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from longtake.errors import InputError
from longtake.takes.header import HEADER_NAME


@contextmanager
def unpacked(take: Path) -> Iterator[Path]:
    """A folder as it is; of a .zip what is inside, until the end."""
    if not zipfile.is_zipfile(take):
        yield take
        return
    with tempfile.TemporaryDirectory(prefix="longtake-") as folder:
        try:
            with zipfile.ZipFile(take) as archive:
                archive.extractall(folder)  # outside of which it leaves nothing, whatever names say
        except (OSError, zipfile.BadZipFile) as error:
            raise InputError(f"Expected a take in {take}, but it cannot be unpacked ({error}).") from error
        headers = sorted(Path(folder).glob(f"*/{HEADER_NAME}")) or sorted(Path(folder).glob(HEADER_NAME))
        if not headers:
            raise InputError(
                f"Expected a take in {take}, but there is no {HEADER_NAME} in it; name one that was downloaded as Take."
            )
        yield headers[0].parent
