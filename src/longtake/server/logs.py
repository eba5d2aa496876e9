"""A server's log: one JSON object a line, with the session that it is about, and without anything secret."""

import json
import logging
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TextIO

from longtake.server.events import SessionEvent
from longtake.video.addresses import shown_address

_log = logging.getLogger(__name__)
_HIDDEN = "…"
_BEARER = re.compile(r"(?i)\b(bearer|basic)\s+\S+")
_QUERY = re.compile(r"(?P<path>[^\s?]*/[^\s?]*)\?\S+")
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/+\S+")
_FOREIGN = ("uvicorn", "websockets", "asyncio")
"""They tell of each connection; what they warn of is told."""
_EVENT_LEVELS = {
    "session.created": logging.INFO,
    "session.resumed": logging.INFO,
    "session.saved": logging.INFO,
    "session.evicted": logging.INFO,
    "session.finished": logging.INFO,
    "session.closed": logging.INFO,
    "watch.fired": logging.INFO,
    "error": logging.WARNING,
}
_TOLD_FIELDS = ("code", "message", "next_sequence", "sequence", "response", "watch")
_ABOUT = "about"


class JsonLines(logging.Formatter):
    """A record as a line of JSON; what is secret is hidden, wherever in it."""

    def __init__(self, secrets: Sequence[str] = ()) -> None:
        super().__init__()
        self._secrets = tuple(secrets)

    def format(self, record: logging.LogRecord) -> str:
        values = vars(record)
        told = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": self._shown(record.getMessage()),
            "logger": record.name,
        }
        if "session" in values:
            told["session"] = values["session"]
        about = values.get(_ABOUT, {})
        told |= {name: self._shown(value) if isinstance(value, str) else value for name, value in about.items()}
        if record.exc_info:
            told["error"] = self._shown(self.formatException(record.exc_info))
        return json.dumps(told)

    def _shown(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, _HIDDEN)
        text = _ADDRESS.sub(lambda found: shown_address(found[0]), text)
        text = _BEARER.sub(rf"\1 {_HIDDEN}", text)
        return _QUERY.sub(rf"\g<path>?{_HIDDEN}", text)


def write_logs(stream: TextIO, level: str, *, secrets: Sequence[str] = ()) -> None:
    """Let all that is logged from now on go to this stream."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines(secrets))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for name in _FOREIGN:
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.captureWarnings(capture=True)


def log_event(session: str, event: SessionEvent) -> None:
    """What happens to a session, as far as an operator wants to know: nothing of what was asked and answered."""
    level = _EVENT_LEVELS.get(event.type, logging.DEBUG)
    if _log.isEnabledFor(level):
        hidden = ("message",) if "response" in event.fields else ()  # it may repeat the question
        about = {name: event.fields[name] for name in _TOLD_FIELDS if name in event.fields and name not in hidden}
        _log.log(level, event.type, extra={"session": session, _ABOUT: about})
