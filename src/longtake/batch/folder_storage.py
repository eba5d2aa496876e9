"""Results in a folder that all workers see: videos are mapped there at once, and any worker goes on where one died."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from longtake.batch.storage import Storage, parsed_record
from longtake.pipeline.outputs import Outputs
from longtake.pipeline.run_folder import is_whole
from longtake.takes.atomic_files import replace_file
from longtake.takes.folder_lock import locked


@dataclass(frozen=True, slots=True)
class FolderStorage(Storage):
    """A folder of this machine, or one that all machines share."""

    path: Path

    @property
    def address(self) -> str:
        return str(self.path)

    @contextmanager
    def held(self) -> Iterator[Callable[[], None]]:
        with locked(self.path):
            yield lambda: None  # a lock is not lost

    def is_done(self, name: str, outputs: Outputs) -> bool:
        return is_whole(self.path / name, outputs)

    def record(self, name: str, file: str) -> dict[str, Any] | None:
        try:
            return parsed_record((self.path / name / file).read_bytes())
        except OSError:
            return None

    def folder(self, name: str) -> Path:
        return self.path / name

    def bring(self, name: str) -> None:
        pass  # it is there

    def keep(self, name: str) -> None:
        pass  # it is there

    def deliver(self, name: str) -> None:
        pass  # it is there

    def fetched(self, name: str) -> Path:
        return self.path / name

    def remove(self, name: str) -> None:
        shutil.rmtree(self.path / name, ignore_errors=True)

    def write(self, name: str, content: bytes) -> None:
        replace_file(self.path / name, content)
