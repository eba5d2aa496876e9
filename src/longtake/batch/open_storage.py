"""Where results go, by what people write."""

import tempfile
from pathlib import Path

from longtake.batch.folder_storage import FolderStorage
from longtake.batch.remote_storage import RemoteStorage
from longtake.batch.storage import Storage
from longtake.errors import InputError

_LOCAL = ("file://", "local://")
"""Names by which fsspec opens folders of this machine: the same storage as the folder, with the same lock."""


def open_storage(out: str | Path, scratch: Path | None = None) -> Storage:
    """A path, or an address such as `s3://bucket/walks`; nothing is made there yet."""
    text = str(out)
    is_local = text.startswith(_LOCAL)
    if "://" in text and not is_local:
        return RemoteStorage(text.rstrip("/"), scratch or Path(tempfile.gettempdir()) / "longtake-batch")
    place = text.partition("://")[2] if is_local else text
    if not place:
        raise InputError("Expected a folder for the results, or an address, but got an empty text; name one.")
    path = Path(place).absolute()
    try:
        is_taken = path.exists() and not path.is_dir()
    except OSError as error:
        raise InputError(f"The folder {place:.200} cannot be used ({error.strerror}); name another.") from error
    if is_taken:
        raise InputError(f"Expected a folder for the results, but {path} is a file; name another.")
    return FolderStorage(path)
