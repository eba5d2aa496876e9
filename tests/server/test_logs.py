import io
import json
import logging
import sys
from collections.abc import Iterator

import pytest

from longtake.server.events import SessionEvent
from longtake.server.logs import JsonLines, log_event

TOKEN = "a-token-of-some-length"


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    """What is logged while the test runs."""
    stream, logger = io.StringIO(), logging.getLogger("longtake")
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines([TOKEN]))
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    yield stream
    logger.removeHandler(handler)
    logger.setLevel(before)


def records(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_record_is_one_object_a_line_with_its_session(lines: io.StringIO) -> None:
    logging.getLogger("longtake.server.engine").warning("not resumed:\n%s", "why", extra={"session": "ab"})
    (told,) = records(lines)
    assert told["time"].endswith("+00:00")
    del told["time"]
    assert told == {
        "level": "warning",
        "event": "not resumed:\nwhy",
        "logger": "longtake.server.engine",
        "session": "ab",
    }


def test_what_goes_wrong_is_told_with_where(lines: io.StringIO) -> None:
    try:
        raise ValueError(f"no {TOKEN} here")
    except ValueError:
        logging.getLogger("longtake.x").error("failed", exc_info=sys.exc_info())
    (told,) = records(lines)
    assert "ValueError: no … here" in str(told["error"])
    assert "test_logs.py" in str(told["error"])


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"sent Bearer {TOKEN}", "sent Bearer …"),
        ("rtsp://me:secret@camera.lan:554/live?key=secret failed", "rtsp://camera.lan:554/live failed"),
        ('"WebSocket /v1/sessions/ab/live?ticket=secret" [accepted]', '"WebSocket /v1/sessions/ab/live?… [accepted]'),
        ("Authorization: basic c2VjcmV0", "Authorization: basic …"),
        ("Is it running? Yes.", "Is it running? Yes."),
        ("world:9?frames=60 is a house", "world:9?frames=60 is a house"),
    ],
)
def test_secrets_are_hidden_wherever_they_stand(lines: io.StringIO, text: str, shown: str) -> None:
    logging.getLogger("longtake.x").warning(text)
    log_event("ab", SessionEvent(1, "error", {"code": "x", "message": text}))
    plain, event = records(lines)
    assert plain["event"] == event["message"] == shown
    assert "secret" not in lines.getvalue()


def test_events_are_told_without_what_was_asked_and_answered(lines: io.StringIO) -> None:
    log_event("ab", SessionEvent(1, "session.saved", {"next_sequence": 8}))
    log_event("ab", SessionEvent(2, "response.created", {"response": "q", "question": "private"}))
    log_event("ab", SessionEvent(3, "response.output_text.done", {"response": "q", "text": "private"}))
    log_event("ab", SessionEvent(4, "error", {"code": "unknown_words", "message": "'private'?", "response": "q"}))
    told = records(lines)
    assert [(one["event"], one["level"]) for one in told] == [
        ("session.saved", "info"),
        ("response.created", "debug"),
        ("response.output_text.done", "debug"),
        ("error", "warning"),
    ]
    assert told[0]["next_sequence"] == 8
    assert told[3]["code"] == "unknown_words"
    assert "private" not in lines.getvalue()
