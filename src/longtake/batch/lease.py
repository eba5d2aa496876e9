"""Who writes to a storage without locks, said by a file that is renewed while that lasts."""

import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from longtake.batch.naming import LEASE_NAME
from longtake.batch.object_files import ObjectFiles
from longtake.batch.storage import parsed_record
from longtake.errors import InputError

_RENEWED_S, _STALE_S = 15.0, 60.0
_WATCHED_S = 20.0
"""For which a lease that seems old is looked at before it is taken over: clocks of two machines may differ."""


class Lease:
    """A file that says who writes to a storage without locks, renewed while that lasts."""

    def __init__(self, files: ObjectFiles) -> None:
        self._files, self._id = files, uuid.uuid4().hex
        self._taken_by: dict[str, Any] | None = None
        """Another, that found this one silent for too long."""

    @contextmanager
    def held(self) -> Iterator[Callable[[], None]]:
        """Gives what refuses, in a sentence, to go on once another has it."""
        try:
            self._take()
            with self._renewed():
                yield self._require_held
        finally:
            self._give_back()

    def _require_held(self) -> None:
        if self._taken_by is not None:
            raise InputError(
                f"{_named(self._taken_by)} took over {self._files.url} while this batch did not answer; what is done "
                "stays. Wait for the end of the other one, and run this again."
            )

    def _take(self) -> None:
        """Whoever wrote last has it; two that begin at once both look again."""
        self._require_free()
        self._renew()
        self._require_free()

    def _give_back(self) -> None:
        with suppress(InputError, OSError):
            if self._holder().get("id") == self._id:
                self._files.delete(LEASE_NAME)

    @contextmanager
    def _renewed(self) -> Iterator[None]:
        is_over = threading.Event()

        def renew() -> None:
            while not is_over.wait(_RENEWED_S) and self._taken_by is None:
                with suppress(InputError, OSError):  # the next time, or whoever delivers a video, will tell
                    self._renew_own()

        thread = threading.Thread(target=renew, daemon=True)
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()

    def _renew_own(self) -> None:
        holder = self._holder()
        if holder.get("id") in (None, self._id):
            self._renew()
        else:
            self._taken_by = holder

    def _renew(self) -> None:
        record = {"id": self._id, "host": socket.gethostname(), "pid": os.getpid(), "renewed_s": time.time()}
        self._files.write(LEASE_NAME, json.dumps(record).encode())

    def _holder(self) -> dict[str, Any]:
        return parsed_record(self._files.read(LEASE_NAME) or b"{}") or {}

    def _require_free(self) -> None:
        holder = self._holder()
        if holder.get("id") in (None, self._id):
            return
        if _is_fresh(holder) or self._is_renewed(holder):
            raise InputError(
                f"{_named(holder)} writes to {self._files.url}; wait for its end, or name another place. One that was "
                f"killed is taken for ended after {_STALE_S:.0f} s."
            )

    def _is_renewed(self, holder: dict[str, Any]) -> bool:
        """Whether one that seems old changes, by whatever clock."""
        until_s = time.monotonic() + _WATCHED_S
        while (left_s := until_s - time.monotonic()) > 0:
            time.sleep(min(left_s, _WATCHED_S / 10))
            now = self._holder()
            if now != holder:
                return now.get("id") not in (None, self._id)
        return False


def _named(holder: dict[str, Any]) -> str:
    return f"Another batch, process {holder.get('pid')} on {holder.get('host')},"


def _is_fresh(holder: dict[str, Any]) -> bool:
    """By the clocks of both; one that is far ahead says nothing."""
    renewed_s = holder.get("renewed_s")
    return isinstance(renewed_s, int | float) and abs(time.time() - renewed_s) < _STALE_S
