"""What happens in a session, numbered: who watches gets it at once, who comes late the last of it."""

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

KEPT = 4096
"""Events that are kept for who comes back."""


@dataclass(frozen=True, slots=True)
class SessionEvent:
    """One event; its fields depend on its type."""

    id: int
    type: str
    fields: dict[str, Any]

    @property
    def record(self) -> dict[str, Any]:
        return {"id": self.id, "type": self.type, **self.fields}


Listener = Callable[[SessionEvent], None]


class EventLog:
    """Events of one session. Ids only grow; some may be left out. Safe for threads."""

    def __init__(
        self,
        *,
        first_id: int = 1,
        most: int = KEPT,
        keep: Listener = lambda _: None,
        observe: Listener = lambda _: None,
        shown: Callable[[str], str] = lambda message: message,
    ) -> None:
        """`keep` is called with every event before all who listen, so that they find what it keeps, and `observe` after
        them; `shown` makes messages fit for clients.
        """
        self._next_id, self._keep, self._observe, self.shown = first_id, keep, observe, shown
        self._kept: deque[SessionEvent] = deque(maxlen=most)
        self._listeners: list[Listener] = []
        self._lock = threading.RLock()

    @property
    def next_id(self) -> int:
        with self._lock:
            return self._next_id

    @property
    def num_listeners(self) -> int:
        with self._lock:
            return len(self._listeners)

    def add(self, type: str, **fields: Any) -> SessionEvent:
        """Number an event, keep it, and tell all who listen."""
        if "message" in fields:
            fields["message"] = self.shown(fields["message"])
        with self._lock:
            event = SessionEvent(self._next_id, type, fields)
            self._next_id += 1
            self._kept.append(event)
            self._keep(event)
            for listener in self._listeners:
                listener(event)
            self._observe(event)
        return event

    def after(self, id: int) -> list[SessionEvent]:
        """Events that are kept, of higher ids; where some of them are gone, an event that says so comes first."""
        with self._lock:
            return self._after(id)

    def listen(self, listener: Listener) -> int:
        """Call this with every event from now on; the newest id before them."""
        with self._lock:
            self._listeners.append(listener)
            return self._next_id - 1

    def follow(self, listener: Listener, after: int, most: int) -> tuple[list[SessionEvent], int | None]:
        """The next events of higher ids, at most so many; where they are all, the listener hears what comes after.

        Beside them the newest id before what the listener hears, None where it is not yet called.
        """
        with self._lock:
            missed = self._after(after)
            if len(missed) > most:
                return missed[:most], None
            return missed, self.listen(listener)

    def stop_listening(self, listener: Listener) -> None:
        with self._lock:
            if listener in self._listeners:
                self._listeners.remove(listener)

    def _after(self, id: int) -> list[SessionEvent]:
        kept = [event for event in self._kept if event.id > id]
        first = self._kept[0].id if self._kept else self._next_id
        if first <= id + 1:
            return kept
        return [SessionEvent(first - 1, "history.gone", {"after": id, "first": first}), *kept]
