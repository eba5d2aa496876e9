from collections.abc import Sequence

import pytest
from served import ASK, QUESTION, Start, events_of, open_session, push

from longtake.server.problems import RequestError
from longtake.server.watches import MOST_WATCHES, Watch, Watches
from longtake.video.frame import VideoFrame


def watch(**changes: object) -> Watch:
    return Watch(**{"id": "w", "question": "Is it day?", "expected": "Yes", **changes})


def test_a_watch_is_due_every_so_often() -> None:
    watches = Watches([watch(every_s=0.5)])
    due = [time_s for time_s in (0.0, 0.2, 0.4, 0.5, 0.9, 1.0, 3.0) if watches.due(time_s)]
    assert due == [0.0, 0.5, 1.0, 3.0]


def test_it_fires_when_the_answer_becomes_the_expected_one_and_not_while_it_stays() -> None:
    watches, one = Watches([watch()]), watch()
    answers = ["no", " yes ", "yes", "no", "YES", "yes"]
    assert [watches.fires(one, answer, float(time_s)) for time_s, answer in enumerate(answers)] == [
        False,
        True,
        False,
        False,
        True,
        False,
    ]


def test_an_answer_must_hold_as_long_as_was_asked_for() -> None:
    one = watch(hold_s=2.0)
    watches = Watches([one])
    answers = ["yes", "yes", "no", "yes", "yes", "yes", "yes"]
    fired = [time_s for time_s, answer in enumerate(answers) if watches.fires(one, answer, float(time_s))]
    assert fired == [5]


def test_watches_are_few_and_can_be_taken_away() -> None:
    watches = Watches()
    for number in range(MOST_WATCHES):
        watches.add(watch(id=f"w{number}"))
    watches.add(watch(id="w0", expected="no"))
    with pytest.raises(RequestError, match="at most 4"):
        watches.add(watch(id="another"))
    watches.remove("w1")
    with pytest.raises(RequestError, match="no standing question"):
        watches.remove("w1")
    assert not watches.fires(watch(id="w1"), "yes", 0.0)
    assert len(watches.all) == 3


@pytest.mark.parametrize("changes", [{"question": " "}, {"expected": ""}, {"every_s": 0.0}, {"hold_s": float("nan")}])
def test_watches_without_a_meaning_are_refused(changes: dict[str, object]) -> None:
    with pytest.raises(RequestError, match="Expected"):
        watch(**changes)


def test_a_standing_question_is_told_and_survives_a_restart(start: Start, frames: Sequence[VideoFrame]) -> None:
    engine = start()
    session = open_session(engine, ASK)
    push(session, frames[:6])
    expected = session.ask("q", QUESTION).result(timeout=60)["text"]
    session.watch(watch(question=QUESTION, expected=expected, every_s=0.2)).result(timeout=60)
    push(session, frames[6:12], first=6)
    fired = events_of(session, "watch.fired")
    assert fired
    assert (fired[0]["question"], fired[0]["expected"], fired[0]["text"]) == (QUESTION, expected, expected)
    engine.drain()
    again = start().session(session.id)
    assert again.description["watches"] == session.description["watches"]
    again.stop_watching("w").result(timeout=60)
    assert again.description["watches"] == []
