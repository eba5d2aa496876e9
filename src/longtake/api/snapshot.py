"""A session of geometry as it was at a moment, to be saved while it goes on."""

import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from longtake.memory.saved import TensorFile
from longtake.runtime.steps import VideoSession


class SessionSnapshot:
    """What the session's `save` would have written then; safe for threads.

    It costs nothing at first: it reads what the session holds, which cannot leave a full memory meanwhile. With `own`
    it has a copy.
    """

    def __init__(self, session: VideoSession, as_file: Callable[[VideoSession], TensorFile]) -> None:
        self._held, self._as_file = session.hold(), as_file
        self._copy: TensorFile | Exception | None = as_file(session).copied() if self._held is None else None
        self._owning = threading.Lock()

    @property
    def is_own(self) -> bool:
        """Whether it holds nothing of the session's any more."""
        return self._held is None

    def own(self) -> None:
        """Copy what it is of, and let the session have that to itself; what keeps it from a copy, `save` raises."""
        with self._owning:
            if self._held is None:
                return
            try:
                with closing(self._held) as held:
                    self._copy = self._as_file(held).copied()
            except Exception as error:  # noqa: BLE001 - of the save, which is another's
                self._copy = error
            self._held = None

    def save(self, path: str | Path) -> None:
        """Write it, whenever that is; the file is complete or absent."""
        self.own()
        if isinstance(self._copy, Exception):
            raise self._copy
        assert self._copy is not None
        self._copy.save(path)
