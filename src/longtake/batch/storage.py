"""Where the results of many videos go: a folder that all workers see, or whatever fsspec has a name for.

Into a folder videos are mapped at once, so that any worker goes on where another died. What is no folder gets a video
when it is done, `summary.json` last: without that, there is no result.
"""

import json
import os
import shutil
import socket
import tempfile
import threading
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from longtake.errors import InputError
from longtake.exports.report.folder import SUMMARY_NAME
from longtake.pipeline.outputs import Outputs
from longtake.pipeline.run_folder import is_done
from longtake.takes.atomic_files import replace_file, writing
from longtake.takes.folder_lock import locked

_LEASE_NAME = "batch-lease.json"
_RENEWED_S, _STALE_S = 15.0, 60.0


class Storage(ABC):
    """One place for the results of a batch, a folder for each video."""

    @property
    @abstractmethod
    def address(self) -> str:
        """As people write it."""

    @abstractmethod
    def held(self) -> AbstractContextManager[None]:
        """While a batch writes there; another one is refused."""

    @abstractmethod
    def is_done(self, name: str, outputs: Outputs) -> bool:
        """Whether a video was mapped to its end, and delivered."""

    @abstractmethod
    def summary(self, name: str) -> dict[str, Any] | None:
        """What came of a video; None where nothing has."""

    @abstractmethod
    def folder(self, name: str) -> Path:
        """Where a worker maps a video into."""

    @abstractmethod
    def deliver(self, name: str) -> None:
        """What lies in that folder is the result."""

    @abstractmethod
    def fetched(self, name: str) -> Path:
        """A folder with a delivered video, for who has to read it again."""

    @abstractmethod
    def remove(self, name: str) -> None:
        """Take away what was mapped on the way to a result."""

    @abstractmethod
    def write(self, name: str, content: bytes) -> None:
        """A file beside the folders, as a whole."""


@dataclass(frozen=True, slots=True)
class FolderStorage(Storage):
    """A folder of this machine, or one that all machines share."""

    path: Path

    @property
    def address(self) -> str:
        return str(self.path)

    def held(self) -> AbstractContextManager[None]:
        return locked(self.path)

    def is_done(self, name: str, outputs: Outputs) -> bool:
        return is_done(self.path / name, outputs)

    def summary(self, name: str) -> dict[str, Any] | None:
        return _summary_in(self.path / name)

    def folder(self, name: str) -> Path:
        return self.path / name

    def deliver(self, name: str) -> None:
        pass  # it is there

    def fetched(self, name: str) -> Path:
        return self.path / name

    def remove(self, name: str) -> None:
        shutil.rmtree(self.path / name, ignore_errors=True)

    def write(self, name: str, content: bytes) -> None:
        replace_file(self.path / name, content)


@dataclass(frozen=True, slots=True)
class RemoteStorage(Storage):
    """Anything that fsspec opens, such as `s3://bucket/walks`; videos are mapped into folders of each machine first."""

    url: str
    scratch: Path
    """Below which they are; what a worker left there, one of the same machine goes on with."""

    @property
    def address(self) -> str:
        return self.url

    @contextmanager
    def held(self) -> Iterator[None]:
        lease = _Lease(self)
        lease.take()
        try:
            with lease.renewed():
                yield
        finally:
            lease.give_back()

    def is_done(self, name: str, outputs: Outputs) -> bool:  # noqa: ARG002 - delivered only with its export
        return self.summary(name) is not None

    def summary(self, name: str) -> dict[str, Any] | None:
        content = self.read(f"{name}/{SUMMARY_NAME}")
        return None if content is None else _parsed(content)

    def folder(self, name: str) -> Path:
        return self.scratch / sha256(self.url.encode()).hexdigest()[:16] / name

    def deliver(self, name: str) -> None:
        """All files, and last the one that says so."""
        folder, (system, root) = self.folder(name), self._opened()
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        files.sort(key=lambda path: path == folder / SUMMARY_NAME)
        with self._speaking():
            for path in files:
                target = f"{root}/{name}/{path.relative_to(folder).as_posix()}"
                system.makedirs(target.rpartition("/")[0], exist_ok=True)
                system.put_file(str(path), target)
        shutil.rmtree(folder)

    def remove(self, name: str) -> None:
        system, root = self._opened()
        shutil.rmtree(self.folder(name), ignore_errors=True)
        with self._speaking(), suppress(FileNotFoundError):
            system.rm(f"{root}/{name}", recursive=True)

    def write(self, name: str, content: bytes) -> None:
        system, root = self._opened()
        with self._speaking():
            system.makedirs(root, exist_ok=True)
            system.pipe_file(f"{root}/{name}", content)

    def read(self, name: str) -> bytes | None:
        """A file; None where there is none."""
        system, root = self._opened()
        with self._speaking():
            try:
                content: bytes = system.cat_file(f"{root}/{name}")
            except FileNotFoundError:
                return None
            return content

    def delete(self, name: str) -> None:
        system, root = self._opened()
        with self._speaking(), suppress(FileNotFoundError):
            system.rm_file(f"{root}/{name}")

    def fetched(self, name: str) -> Path:
        system, root = self._opened()
        folder = self.folder(name)
        if not (folder / SUMMARY_NAME).exists():
            with self._speaking():
                system.get(f"{root}/{name}/", f"{folder}/", recursive=True)
        return folder

    def _opened(self) -> tuple[Any, str]:
        import fsspec

        try:
            system, root = fsspec.core.url_to_fs(self.url)
        except (ImportError, ValueError) as error:
            raise InputError(f"The storage {self.url} cannot be opened ({error}).") from error
        return system, str(root).rstrip("/")

    @contextmanager
    def _speaking(self) -> Iterator[None]:
        """Whatever a storage has to say, in a sentence."""
        try:
            yield
        except (InputError, FileNotFoundError):
            raise
        except Exception as error:  # each has its own kinds
            raise InputError(
                f"The storage {self.url} cannot be used ({type(error).__name__}: {error}); check it, and run the batch "
                "again."
            ) from error


class _Lease:
    """A file that says who writes to a storage without locks, renewed while that lasts."""

    def __init__(self, storage: RemoteStorage) -> None:
        self._storage, self._id = storage, uuid.uuid4().hex

    def take(self) -> None:
        """Whoever wrote last has it; two that begin at once both look again."""
        self._require_free()
        self._renew()
        self._require_free()

    def give_back(self) -> None:
        with suppress(InputError):
            if self._holder().get("id") == self._id:
                self._storage.delete(_LEASE_NAME)

    @contextmanager
    def renewed(self) -> Iterator[None]:
        is_over = threading.Event()

        def renew() -> None:
            while not is_over.wait(_RENEWED_S):
                with suppress(InputError):  # the next time, or whoever delivers a video, will tell
                    self._renew()

        thread = threading.Thread(target=renew, daemon=True)
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()

    def _renew(self) -> None:
        record = {"id": self._id, "host": socket.gethostname(), "pid": os.getpid(), "renewed_s": time.time()}
        self._storage.write(_LEASE_NAME, json.dumps(record).encode())

    def _holder(self) -> dict[str, Any]:
        return _parsed(self._storage.read(_LEASE_NAME) or b"{}") or {}

    def _require_free(self) -> None:
        holder = self._holder()
        if holder.get("id") in (None, self._id):
            return
        if time.time() - float(holder.get("renewed_s", 0.0)) < _STALE_S:
            raise InputError(
                f"Another batch writes to {self._storage.url}, process {holder.get('pid')} on {holder.get('host')}; "
                "wait for its end, or name another place."
            )


def open_storage(out: str | Path, scratch: Path | None = None) -> Storage:
    """A path, or an address such as `s3://bucket/walks`."""
    text = str(out)
    if "://" in text and not text.startswith("file://"):
        return RemoteStorage(text.rstrip("/"), scratch or Path(tempfile.gettempdir()) / "longtake-batch")
    path = Path(text.removeprefix("file://")).absolute()
    if path.exists() and not path.is_dir():
        raise InputError(f"Expected a folder for the results, but {path} is a file; name another.")
    with writing(str(path)):
        path.mkdir(parents=True, exist_ok=True)
    return FolderStorage(path)


def _summary_in(folder: Path) -> dict[str, Any] | None:
    try:
        return _parsed((folder / SUMMARY_NAME).read_bytes())
    except OSError:
        return None


def _parsed(content: bytes) -> dict[str, Any] | None:
    try:
        record = json.loads(content)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None
