"""How far a session has come, and how far its folder says so."""

import threading
from dataclasses import replace
from typing import Any

from longtake.server.shelf import SessionRecord, Shelf


class Standing:
    """Changed by the worker, which counts frames, and by who writes saves meanwhile; safe for threads."""

    def __init__(self, shelf: Shelf, record: SessionRecord) -> None:
        self._shelf, self._record, self._num_unsaved = shelf, record, 0
        self._kept_use_s = record.used_s
        """As the folder says it, or was to say."""
        self._writing, self._counting = threading.Lock(), threading.Lock()
        """One who writes the record waits for the disk, and those who count must not wait for that."""

    @property
    def record(self) -> SessionRecord:
        """As it is now; its folder has that of the last save."""
        return self._record

    @property
    def num_unsaved(self) -> int:
        """Frames, and the end where there was one, since the moment of the last save that is on the disk."""
        return self._num_unsaved

    @property
    def unkept_use_s(self) -> float:
        """By how much the last use is later than the folder says."""
        return self._record.used_s - self._kept_use_s

    def count(self, **changes: Any) -> None:
        """A frame, or the end."""
        with self._counting:
            self._record = replace(self._record, **changes)
            self._num_unsaved += 1

    def know(self, **changes: Any) -> None:
        """From now on; on disk with the next save."""
        with self._counting:
            self._record = replace(self._record, **changes)

    def change(self, **changes: Any) -> None:
        """On disk and in memory alike, whatever else is saved; what the disk does not take is not changed."""
        with self._writing:
            self._kept_use_s = used_s = self._record.used_s
            self._shelf.write(replace(self._shelf.read(), used_s=used_s, **changes))
            with self._counting:
                self._record = replace(self._record, **changes)

    def publish(self, moment: SessionRecord, num_saved: int, **changes: Any) -> None:
        """Let a save count that is of a moment when so many frames were unsaved; what was changed since stays."""
        with self._writing:
            now = self._record
            self._kept_use_s = now.used_s
            kept = replace(moment, is_paused=now.is_paused, watches=now.watches, used_s=now.used_s)
            self._shelf.write(replace(kept, **changes))
            with self._counting:
                self._record = replace(self._record, **changes)
                self._num_unsaved -= num_saved
