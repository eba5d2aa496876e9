"""Questions and answers of a session, kept in its folder: who comes later, also after a restart, sees them again."""

import json
import logging
import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Executor
from contextlib import suppress
from pathlib import Path
from typing import Any

from longtake.errors import LongtakeError
from longtake.server.events import SessionEvent
from longtake.takes.atomic_files import replace_file
from longtake.takes.fields import JsonObject
from longtake.takes.sealed_json import sealed, unsealed

_log = logging.getLogger(__name__)
MOST_EXCHANGES = 100
MOST_BYTES = 500_000
"""Of all that is kept, as JSON; the oldest go first."""


class Conversation:
    """Hears the events of one session; safe for threads."""

    def __init__(self, path: Path, writer: Executor) -> None:
        """The file is written by `writer`, a moment after an answer."""
        self._path, self._writer = path, writer
        self._lock = threading.Lock()
        self._questions: dict[str, str] = {}
        self._kept = deque((exchange, _num_bytes(exchange)) for exchange in _read(path))

    @property
    def exchanges(self) -> Sequence[dict[str, Any]]:
        """Oldest first: each with its `key`, and what the event had that ended it."""
        with self._lock:
            return [exchange for exchange, _ in self._kept]

    def hear(self, event: SessionEvent) -> None:
        fields, response = event.fields, event.fields.get("response")
        if event.type == "watch.fired":
            self._keep({"key": f"{fields['watch']} {event.id}", **fields})
        elif event.type == "response.created":
            self._questions[fields["response"]] = fields["question"]
        elif event.type == "response.cancelled":
            self._questions.pop(fields["response"], None)
        elif response in self._questions and event.type == "response.output_text.done":
            self._keep({"key": response, "question": self._questions.pop(response), **fields})
        elif response in self._questions and event.type == "error":
            self._keep({"key": response, "question": self._questions.pop(response), "problem": fields["message"]})

    def _keep(self, exchange: dict[str, Any]) -> None:
        with self._lock:
            self._kept.append((exchange, _num_bytes(exchange)))
            while len(self._kept) > MOST_EXCHANGES or sum(size for _, size in self._kept) > MOST_BYTES:
                self._kept.popleft()
        with suppress(RuntimeError):  # the server has ended
            self._writer.submit(self._write)

    def _write(self) -> None:
        try:
            if self._path.parent.is_dir():  # it may have been closed meanwhile
                replace_file(self._path, sealed({"exchanges": list(self.exchanges)}))
        except (LongtakeError, OSError) as error:
            _log.warning("the conversation was not written: %s", error)


def _read(path: Path) -> list[dict[str, Any]]:
    """What was written; nothing where there is none, or it is damaged: the session goes on without."""
    try:
        record = unsealed(JsonObject.parse(path.read_bytes(), str(path)))
        return [dict(exchange.fields) for exchange in record.objects("exchanges")]
    except FileNotFoundError:
        return []
    except (LongtakeError, OSError) as error:
        _log.warning("the conversation cannot be read: %s", error)
        return []


def _num_bytes(exchange: dict[str, Any]) -> int:
    return len(json.dumps(exchange))
