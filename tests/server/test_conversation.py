"""Questions and answers of a session stay with it: over a restart, in a fork, bounded, and without it where damaged."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from served import ASK, QUESTION, Start, open_session, push

from longtake.server.conversation import MOST_BYTES, MOST_EXCHANGES, Conversation
from longtake.server.events import SessionEvent
from longtake.server.shelf import CONVERSATION_NAME
from longtake.server.watches import Watch
from longtake.video.frame import VideoFrame

pytestmark = pytest.mark.extra


def exchange(conversation: Conversation, number: int, text: str = "left") -> None:
    created = {"response": f"q{number}", "question": QUESTION}
    conversation.hear(SessionEvent(2 * number, "response.created", created))
    done = {"response": f"q{number}", "text": text}
    conversation.hear(SessionEvent(2 * number + 1, "response.output_text.done", done))


def test_answers_are_there_after_a_restart_and_in_a_fork(start: Start, frames: Sequence[VideoFrame]) -> None:
    engine = start()
    session = open_session(engine, ASK)
    push(session, frames[:4])
    told = session.ask("first", QUESTION).result(timeout=60)
    expected = [{"key": "first", "response": "first", "question": QUESTION, **told}]
    assert session.conversation.exchanges == expected
    fork = engine.fork(session.id).result(timeout=60)
    assert fork.conversation.exchanges == expected
    engine.drain()
    again = start().session(session.id)
    assert again.conversation.exchanges == expected
    again.ask("second", QUESTION).result(timeout=60)
    assert [kept["key"] for kept in again.conversation.exchanges] == ["first", "second"]


def test_who_hears_of_an_answer_finds_it_in_the_conversation(start: Start, frames: Sequence[VideoFrame]) -> None:
    session, found = open_session(start(), ASK), list[list[str]]()

    def look(event: SessionEvent) -> None:
        if event.type == "response.output_text.done":
            found.append([kept["key"] for kept in session.conversation.exchanges])

    push(session, frames[:2])
    session.events.listen(look)
    for id in ("first", "second"):
        session.ask(id, QUESTION).result(timeout=60)
    assert found == [["first"], ["first", "second"]]


def test_a_finding_of_a_fork_has_another_key_than_any_that_it_brings_along(
    start: Start, frames: Sequence[VideoFrame]
) -> None:
    """A watch and the number of an event make it."""
    engine = start()
    session = open_session(engine, ASK)
    push(session, frames[:1])
    found = session.ask("first", QUESTION).result(timeout=60)["text"]
    session.watch(Watch(id="now", question=QUESTION, expected=found)).result(timeout=60)
    push(session, frames[1:2], first=1)
    fork = engine.fork(session.id).result(timeout=60)
    (told_first, *_) = fork.events.after(0)
    own = [event.id for event in fork.events.after(0) if event.type != "history.gone"]
    assert told_first.type == "history.gone"
    assert own[0] > max(event.id for event in session.events.after(0))
    push(fork, frames[2:4], first=2)
    fork.settle()
    keys = [kept["key"] for kept in fork.conversation.exchanges]
    assert keys[0] == "first"
    assert len({*keys}) == len(keys)


def test_a_problem_and_a_finding_are_kept_and_what_was_given_up_is_not(tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as writer:
        conversation = Conversation(tmp_path / CONVERSATION_NAME, writer)
        for number, (type, more) in enumerate((("error", {"message": "no"}), ("response.cancelled", {}))):
            created = {"response": str(number), "question": "?"}
            conversation.hear(SessionEvent(1, "response.created", created))
            conversation.hear(SessionEvent(2, type, {"response": str(number), **more}))
        conversation.hear(SessionEvent(9, "watch.fired", {"watch": "w", "time_s": 1.0, "text": "yes"}))
    kept = Conversation(tmp_path / CONVERSATION_NAME, writer).exchanges
    assert kept == [
        {"key": "0", "question": "?", "problem": "no"},
        {"key": "w 9", "watch": "w", "time_s": 1.0, "text": "yes"},
    ]


def test_it_is_bounded_in_number_and_bytes_and_a_damaged_one_is_done_without(tmp_path: Path) -> None:
    path = tmp_path / CONVERSATION_NAME
    with ThreadPoolExecutor(1) as writer:
        conversation = Conversation(path, writer)
        for number in range(MOST_EXCHANGES + 20):
            exchange(conversation, number)
        keys = [kept["key"] for kept in conversation.exchanges]
        assert keys == [f"q{number}" for number in range(20, MOST_EXCHANGES + 20)]
        for number in range(4):
            exchange(conversation, 1000 + number, "x" * (MOST_BYTES // 3))
        assert [kept["key"] for kept in conversation.exchanges] == ["q1002", "q1003"]
    assert path.stat().st_size < 1.1 * MOST_BYTES
    path.write_text(path.read_text().replace("q1003", "q1004"))
    assert Conversation(path, writer).exchanges == []
