"""A session says what it does not know: nothing seen, no such question, models that know other worlds."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from served import ASK, BOTH, MAP, QUESTION, Start, events_of, open_session, push, until

from longtake.errors import BudgetError, UnknownWordsError
from longtake.server.machine import SessionState
from longtake.server.problems import RequestError, problem_of
from longtake.server.shelf import VIDEO_NAME
from longtake.server.spec import UPLOAD
from longtake.server.watches import Watch
from longtake.video.frame import VideoFrame

pytestmark = pytest.mark.extra


def test_who_has_seen_nothing_answers_nothing(start: Start, frames: Sequence[VideoFrame]) -> None:
    session = open_session(start(), ASK)
    with pytest.raises(RequestError, match="seen nothing yet; ask it when it has"):
        session.ask("early", QUESTION).result(timeout=60)
    push(session, frames[:2])
    assert session.ask("late", QUESTION).result(timeout=60)["text"]


@pytest.mark.parametrize(
    ("question", "expected"), [("Is there a bicycle?", "yes"), ("Which room are you in now?", "kitchen")]
)
def test_a_standing_question_that_can_never_be_told_of_is_refused(start: Start, question: str, expected: str) -> None:
    session = open_session(start(), ASK)
    with pytest.raises(UnknownWordsError):
        session.watch(Watch(id="w", question=question, expected=expected))
    assert session.description["watches"] == []


def test_frames_become_final_and_an_ended_session_is_watched_no_more(
    start: Start, frames: Sequence[VideoFrame]
) -> None:
    session = open_session(start(), BOTH)
    push(session, frames[:12])
    told = [event["num_final"] for event in events_of(session, "input_frame.ack")]
    assert told == sorted(told)
    session.finish().result(timeout=60)
    (ended,) = events_of(session, "session.finished")
    assert ended["num_final"] == 12
    with pytest.raises(RequestError, match="has ended"):
        session.watch(Watch(id="w", question=QUESTION, expected="left"))


def test_a_memory_that_is_too_small_is_refused_with_the_whole_that_would_do(
    start: Start, frames: Sequence[VideoFrame]
) -> None:
    """At opening; once it does for some shape of a picture, with the first one of another."""
    engine = start()
    for share, whose in ((0.3, "30% are the map's"), (0.9, "10% are the dialogue's")):
        small = replace(BOTH, memory_bytes=10_000, share=share)
        with pytest.raises(BudgetError, match=f"{whose}, but got 10.00 kB") as refused:
            open_session(engine, small)
        assert refused.value.least_bytes is not None
        assert engine.admission.num_bytes == 0
        push(open_session(engine, replace(small, memory_bytes=refused.value.least_bytes)), frames[:1])
        engine.close(engine.sessions[0].id).result(timeout=60)
    enough_for_4_to_3 = open_session(engine, replace(MAP, memory_bytes=4_700_000))
    with pytest.raises(BudgetError, match=r"the smallest that works is 4\.86 MB"):
        push(enough_for_4_to_3, [VideoFrame(0, 0.0, np.zeros((90, 160, 3), np.uint8))])


def test_a_session_without_a_frame_waits_and_is_let_go_of_as_others_are(start: Start) -> None:
    engine = start(idle_s=0.2)
    session = open_session(engine, MAP)
    assert session.state is SessionState.WAITING
    until(lambda: not session.holds_room)
    engine.drain()
    (listed,) = start().sessions  # a server that is started again makes it no younger
    assert listed.active_s == session.record.created_s


def test_notes_tell_what_the_models_know_unless_a_world_is_watched(start: Start) -> None:
    engine = start()
    notes = open_session(engine, BOTH).description["notes"]
    assert [note.split(" and knows nothing else")[0] for note in notes] == [
        "micro-map was trained on procedural scenes",
        "micro-vqa was trained on procedural houses",
    ]
    assert open_session(engine, replace(MAP, source="world:9?frames=3")).description["notes"] == []


def test_a_sentence_about_an_upload_does_not_say_where_the_server_has_it(start: Start, tmp_path: Path) -> None:
    engine = start()
    session = open_session(engine, replace(ASK, source=UPLOAD))
    (session.shelf.folder / VIDEO_NAME).write_text("no video")
    engine.feed(session.id)
    until(lambda: bool(events_of(session, "error")))
    (error,) = events_of(session, "error")
    assert error["message"].startswith("Expected the uploaded file to be a video, but ")
    assert str(tmp_path) not in error["message"]
    until(lambda: session.description["problem"] == error["message"])


def test_a_refusal_is_short_and_says_what_to_ask(start: Start, frames: Sequence[VideoFrame]) -> None:
    session = open_session(start(), ASK)
    push(session, frames[:2])
    said = session.ask("q", "Is there a dragon?").result(timeout=60)
    assert said["ending"] == "refused"
    (told,) = events_of(session, "response.output_text.delta")
    assert told["text"] == said["text"]
    with pytest.raises(UnknownWordsError) as refused:
        session.watch(Watch(id="w", question="Is there a dragon?", expected="yes"))
    for text in (said["text"], problem_of(refused.value).message):
        assert len(text.split()) < 60
        assert "Have you seen a red ball?" in text
        assert not any(door in text for door in ("from_pretrained", "--model", "longtake ask"))


def test_what_a_standing_question_waits_for_is_short(start: Start) -> None:
    session = open_session(start(), ASK)
    with pytest.raises(RequestError, match="at most 400 characters, but got 100000"):
        session.watch(Watch(id="w", question=QUESTION, expected="x" * 100_000))
    assert session.description["watches"] == []
