"""Results in a folder that all workers see: videos are mapped there at once, and any worker goes on where one died."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from longtake.batch.storage import Storage, is_gone, parsed_record
from longtake.errors import InputError, StorageError
from longtake.pipeline.outputs import Outputs
from longtake.pipeline.run_folder import is_whole
from longtake.pipeline.run_record import is_run
from longtake.takes.atomic_files import replace_file
from longtake.takes.fields import require_file
from longtake.takes.folder_lock import locked
from longtake.takes.header import is_take


@dataclass(frozen=True, slots=True)
class FolderStorage(Storage):
    """A folder of this machine, or one that all machines share."""

    path: Path

    @property
    def address(self) -> str:
        return str(self.path)

    def is_result(self) -> bool:
        return is_run(self.path) or is_take(self.path)

    @contextmanager
    def held(self) -> Iterator[Callable[[], None]]:
        with locked(self.path):
            yield partial(self._require_same, self.path.stat())

    def _require_same(self, held: os.stat_result) -> None:
        """A lock is of the folder, not of its path: whoever makes another there does not see it."""
        try:
            is_same = os.path.samestat(held, self.path.stat())
        except (FileNotFoundError, NotADirectoryError):
            is_same = False
        except OSError:
            return  # whoever writes there will tell
        if not is_same:
            raise InputError(
                f"The folder {self.path} was moved or deleted while the batch wrote there; put it back, or name "
                "another, and run this again."
            )

    def is_done(self, name: str, outputs: Outputs) -> bool:
        path = self.path / name
        try:
            return is_whole(path, outputs)
        except InputError as error:
            if is_gone(error.__cause__):
                raise _silent(path, error.__cause__) from error
            raise
        except OSError as error:
            raise _unreadable(path, error) from error

    def record(self, name: str, file: str) -> dict[str, Any] | None:
        path = self.path / name / file
        try:
            return parsed_record(path.read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise _unreadable(path, error) from error

    def folder(self, name: str) -> Path:
        return self.path / name

    def bring(self, name: str) -> None:
        pass  # it is there

    def keep(self, name: str) -> None:
        pass  # it is there

    def deliver(self, name: str) -> None:
        pass  # it is there

    def forget(self, name: str) -> None:
        pass  # what it has is the result

    def fetched(self, name: str) -> Path:
        return self.path / name

    def require_free(self, name: str) -> None:
        path = self.path / name
        try:
            found = next(path.iterdir(), None)
        except FileNotFoundError:
            return
        except OSError as error:
            raise _unreadable(path, error) from error
        if found is not None:
            raise InputError(
                f"Expected nothing in {path}, where spans are joined, but there is {found.name}; move that folder away."
            )

    def remove(self, name: str) -> None:
        shutil.rmtree(self.path / name, ignore_errors=True)

    def beginning(self, name: str, num_bytes: int) -> bytes | None:
        path = self.path / name
        try:
            require_file(path)
            with path.open("rb") as file:
                return file.read(num_bytes)
        except FileNotFoundError:
            return None
        except OSError as error:
            if is_gone(error):
                raise _silent(path, error) from error
            raise InputError(
                f"{path} cannot be read ({error.strerror}), so it is not replaced; move it away."
            ) from error

    def write(self, name: str, content: bytes) -> None:
        replace_file(self.path / name, content)


def _unreadable(path: Path, error: OSError) -> InputError:
    """What is wrong with one file or folder, or with all of them."""
    if is_gone(error):
        return _silent(path, error)
    return InputError(f"{path} cannot be read ({error.strerror}); check the disk and its permissions.")


def _silent(path: Path, error: OSError) -> StorageError:
    return StorageError(
        f"{path} cannot be read ({error.strerror}); check the disk or the network that it is on, and run the batch "
        "again."
    )
