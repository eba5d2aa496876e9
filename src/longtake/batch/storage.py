"""What a batch needs of the place where its results go: a folder for each video, which is there as a whole or not."""

import errno
import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TypeGuard

from longtake.exports.report.folder import SUMMARY_NAME
from longtake.pipeline.outputs import Outputs

_GONE = {
    *(errno.EIO, errno.ESTALE, errno.ENXIO, errno.ENODEV, errno.ENOTCONN, errno.ETIMEDOUT, errno.EHOSTDOWN),
    *(errno.EHOSTUNREACH, errno.ENETDOWN, errno.ENETUNREACH, errno.ECONNREFUSED, errno.ECONNRESET, errno.ECONNABORTED),
}
"""What a disk or a mount says that does not answer."""


class Storage(ABC):
    """One place for the results of a batch, a folder for each video."""

    @property
    @abstractmethod
    def address(self) -> str:
        """As people write it."""

    @abstractmethod
    def is_result(self) -> bool:
        """Whether the place is itself what a single video was mapped into, and none for a folder of each."""

    @abstractmethod
    def held(self) -> AbstractContextManager[Callable[[], None]]:
        """While a batch writes there; another one is refused. Gives what refuses to go on once another has it."""

    @abstractmethod
    def is_done(self, name: str, outputs: Outputs) -> bool:
        """Whether a video was mapped to its end, and delivered."""

    @abstractmethod
    def record(self, name: str, file: str) -> dict[str, Any] | None:
        """What a JSON file in the folder of a video says; None where there is none that is whole."""

    def summary(self, name: str) -> dict[str, Any] | None:
        """What came of a video; None where nothing has."""
        return self.record(name, SUMMARY_NAME)

    @abstractmethod
    def folder(self, name: str) -> Path:
        """Where a worker maps a video into."""

    @abstractmethod
    def bring(self, name: str) -> None:
        """Into that folder, what another machine has kept of a video that is not done, if it came further."""

    @abstractmethod
    def keep(self, name: str) -> None:
        """What lies in that folder up to its newest checkpoint can be gone on with elsewhere."""

    @abstractmethod
    def deliver(self, name: str) -> None:
        """What lies in that folder is the result."""

    @abstractmethod
    def forget(self, name: str) -> None:
        """What this machine still has of a video that was delivered, as one that was killed just then."""

    @abstractmethod
    def fetched(self, name: str) -> Path:
        """A folder with a delivered video, for who has to read it again."""

    @abstractmethod
    def require_free(self, name: str) -> None:
        """Refuse a place where no result can be put that is made beside it."""

    @abstractmethod
    def remove(self, name: str) -> None:
        """Take away what was mapped on the way to a result."""

    @abstractmethod
    def beginning(self, name: str, num_bytes: int) -> bytes | None:
        """Of a file beside the folders; None where there is none."""

    @abstractmethod
    def write(self, name: str, content: bytes) -> None:
        """A file beside the folders, as a whole."""


def parsed_record(content: bytes) -> dict[str, Any] | None:
    """What a JSON file says; None for one that is no record."""
    try:
        record = json.loads(content)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


def is_gone(error: BaseException | None) -> TypeGuard[OSError]:
    """Whether a whole disk or mount does not answer, which may pass, and not one file of it is wrong."""
    return isinstance(error, OSError) and error.errno in _GONE
