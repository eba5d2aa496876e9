"""Who writes to a storage without locks, said by a file that is renewed while that lasts."""

import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from longtake.batch.object_files import ObjectFiles
from longtake.batch.storage import parsed_record
from longtake.errors import InputError

_LEASE_NAME = "batch-lease.json"
_RENEWED_S, _STALE_S = 15.0, 60.0


class Lease:
    """A file that says who writes to a storage without locks, renewed while that lasts."""

    def __init__(self, files: ObjectFiles) -> None:
        self._files, self._id = files, uuid.uuid4().hex

    @contextmanager
    def held(self) -> Iterator[None]:
        self._take()
        try:
            with self._renewed():
                yield
        finally:
            self._give_back()

    def _take(self) -> None:
        """Whoever wrote last has it; two that begin at once both look again."""
        self._require_free()
        self._renew()
        self._require_free()

    def _give_back(self) -> None:
        with suppress(InputError):
            if self._holder().get("id") == self._id:
                self._files.delete(_LEASE_NAME)

    @contextmanager
    def _renewed(self) -> Iterator[None]:
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
        self._files.write(_LEASE_NAME, json.dumps(record).encode())

    def _holder(self) -> dict[str, Any]:
        return parsed_record(self._files.read(_LEASE_NAME) or b"{}") or {}

    def _require_free(self) -> None:
        holder = self._holder()
        if holder.get("id") in (None, self._id):
            return
        if time.time() - float(holder.get("renewed_s", 0.0)) < _STALE_S:
            raise InputError(
                f"Another batch writes to {self._files.url}, process {holder.get('pid')} on {holder.get('host')}; "
                "wait for its end, or name another place."
            )
