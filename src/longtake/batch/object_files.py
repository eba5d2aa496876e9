"""Files on whatever fsspec has a name for, such as `s3://bucket/walks`: read, written and listed as wholes."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from longtake.errors import InputError, StorageError


@dataclass(frozen=True, slots=True)
class ObjectFiles:
    """All below one address, by names with slashes; whatever a storage has to say is one sentence."""

    url: str

    def read(self, name: str, num_bytes: int | None = None) -> bytes | None:
        """A file, or so many bytes of its beginning; None where there is none."""
        system, root = self._opened()
        with self._speaking():
            try:
                content: bytes = system.cat_file(f"{root}/{name}", end=num_bytes)
            except FileNotFoundError:
                return None
            return content

    def write(self, name: str, content: bytes) -> None:
        system, root = self._opened()
        with self._speaking():
            system.makedirs(f"{root}/{name}".rpartition("/")[0], exist_ok=True)
            system.pipe_file(f"{root}/{name}", content)

    def put(self, path: Path, name: str) -> None:
        """A file of this machine; one that is gone is a FileNotFoundError."""
        system, root = self._opened()
        with self._speaking():
            system.makedirs(f"{root}/{name}".rpartition("/")[0], exist_ok=True)
            system.put_file(str(path), f"{root}/{name}")

    def get(self, name: str, path: Path) -> None:
        """Into a file of this machine."""
        system, root = self._opened()
        path.parent.mkdir(parents=True, exist_ok=True)
        with self._speaking():
            system.get_file(f"{root}/{name}", str(path))

    def names_below(self, folder: str) -> list[str]:
        """Of all files there, as they are called below it; none where there is no such folder."""
        system, root = self._opened()
        with self._speaking():
            system.invalidate_cache()
            found = system.find(f"{root}/{folder}")
        return sorted(str(path).removeprefix(f"{root}/{folder}/") for path in found)

    def delete(self, name: str) -> None:
        system, root = self._opened()
        with self._speaking(), suppress(FileNotFoundError):
            system.rm_file(f"{root}/{name}")

    def delete_folder(self, name: str) -> None:
        system, root = self._opened()
        with self._speaking(), suppress(FileNotFoundError):
            system.rm(f"{root}/{name}", recursive=True)

    def _opened(self) -> tuple[Any, str]:
        import fsspec

        try:
            system, root = fsspec.core.url_to_fs(self.url)
        except (ImportError, ValueError) as error:
            raise InputError(f"The storage {self.url} cannot be opened ({error}).") from error
        return system, str(root).rstrip("/")

    @contextmanager
    def _speaking(self) -> Iterator[None]:
        try:
            yield
        except (InputError, FileNotFoundError):
            raise
        except Exception as error:  # each has its own kinds
            raise StorageError(
                f"The storage {self.url} cannot be used ({type(error).__name__}: {error}); check it, and run the batch "
                "again."
            ) from error
