"""Where results go, by what people write."""

import tempfile
from pathlib import Path

from longtake.batch.folder_storage import FolderStorage
from longtake.batch.remote_storage import RemoteStorage
from longtake.batch.storage import Storage
from longtake.errors import InputError
from longtake.takes.atomic_files import writing

_LOCAL = ("file://", "local://")
"""Names by which fsspec opens folders of this machine: the same storage as the folder, with the same lock."""


def open_storage(out: str | Path, scratch: Path | None = None) -> Storage:
    """A path, or an address such as `s3://bucket/walks`."""
    text = str(out)
    is_local = text.startswith(_LOCAL)
    if "://" in text and not is_local:
        return RemoteStorage(text.rstrip("/"), scratch or Path(tempfile.gettempdir()) / "longtake-batch")
    path = Path(text.partition("://")[2] if is_local else text).absolute()
    if path.exists() and not path.is_dir():
        raise InputError(f"Expected a folder for the results, but {path} is a file; name another.")
    with writing(str(path)):
        path.mkdir(parents=True, exist_ok=True)
    return FolderStorage(path)
