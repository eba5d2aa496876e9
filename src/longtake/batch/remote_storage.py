"""Results on whatever fsspec opens: videos are mapped into folders of each machine, kept at checkpoints, and delivered.

`summary.json` comes last: without that, there is no result.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from longtake.batch.kept_video import KeptVideo
from longtake.batch.lease import Lease
from longtake.batch.object_files import ObjectFiles
from longtake.batch.storage import Storage, parsed_record
from longtake.exports.report.folder import RUN_NAME, SUMMARY_NAME
from longtake.pipeline.outputs import Outputs
from longtake.takes.header import HEADER_NAME


@dataclass(frozen=True, slots=True)
class RemoteStorage(Storage):
    """An address such as `s3://bucket/walks`."""

    url: str
    scratch: Path
    """Below which videos are mapped; what a worker left there, one of the same machine goes on with."""

    @property
    def address(self) -> str:
        return self.url

    @property
    def files(self) -> ObjectFiles:
        return ObjectFiles(self.url)

    def is_result(self) -> bool:
        return any(self.files.read(name, 1) is not None for name in (RUN_NAME, HEADER_NAME))

    def held(self) -> AbstractContextManager[Callable[[], None]]:
        return Lease(self.files).held()

    def is_done(self, name: str, outputs: Outputs) -> bool:  # noqa: ARG002 - delivered only with its export
        return self.summary(name) is not None

    def record(self, name: str, file: str) -> dict[str, Any] | None:
        content = self.files.read(f"{name}/{file}")
        return None if content is None else parsed_record(content)

    def folder(self, name: str) -> Path:
        return self.scratch / sha256(self.url.encode()).hexdigest()[:16] / name

    def bring(self, name: str) -> None:
        self._video(name).bring()

    def keep(self, name: str) -> None:
        self._video(name).keep()

    def deliver(self, name: str) -> None:
        self._video(name).deliver()

    def forget(self, name: str) -> None:
        self._video(name).forget()

    def fetched(self, name: str) -> Path:
        if not (self.folder(name) / SUMMARY_NAME).exists():
            self._video(name).fetch()
        return self.folder(name)

    def require_free(self, name: str) -> None:
        pass  # what is delivered takes the place of whatever was there

    def remove(self, name: str) -> None:
        self._video(name).remove()

    def beginning(self, name: str, num_bytes: int) -> bytes | None:
        return self.files.read(name, num_bytes)

    def write(self, name: str, content: bytes) -> None:
        self.files.write(name, content)

    def _video(self, name: str) -> KeptVideo:
        return KeptVideo(self.files, name, self.folder(name))
