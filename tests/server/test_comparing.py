"""The same question three ways, on a session whose pictures can be seen again."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NoReturn

import numpy as np
import pytest
from served import ASK, BOTH, PLAIN, QUESTION, Start, ask, open_session, push, until
from walked import WALK

from longtake.errors import BusyError, CancelledWorkError, UnknownWordsError
from longtake.pipeline.admission import Demand
from longtake.server import comparing
from longtake.server.comparing import SeenPicture, compare, looks, pictures_of, pictures_to_compare
from longtake.server.engine import Engine
from longtake.server.problems import RequestError
from longtake.server.session import ServedSession
from longtake.server.settings import Limits
from longtake.server.spec import SessionSpec
from longtake.video.frame import VideoFrame
from longtake.video.worlds import WorldTour


def watched(engine: Engine, spec: SessionSpec) -> ServedSession:
    """A session that has seen its world to the end."""
    session = open_session(engine, replace(spec, source=WALK))
    engine.feed(session.id)
    until(lambda: session.record.is_finished, 120)
    return session


def compared(engine: Engine, session: ServedSession, **changes: Any) -> dict[str, Any]:
    asked = {"question": QUESTION, "max_tokens": None, "most_frames": 64, **changes}
    language = engine.networks.language_named(session.record.spec.language)
    return dict(compare(session, language, **asked).result(timeout=120))


def saved(session: ServedSession) -> dict[str, bytes]:
    """All that the session is, as it is on disk."""
    session.save().result(timeout=60)
    folder = session.shelf.state_folder(session.record.number)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.extra
def test_what_was_seen_anew_says_what_the_stream_says_and_no_trace_is_left(start: Start) -> None:
    engine = start()
    session = watched(engine, BOTH)
    before, said, held = saved(session), ask(session), engine.admission.num_bytes
    found = compared(engine, session)
    assert list(found) == ["streaming", "anew", "last_frame"]
    stream, anew, last = found.values()
    assert stream["text"] == anew["text"]
    assert (stream["frames"], last["frames"]) == (anew["frames"], 1)
    assert stream["memory_bytes"] == anew["memory_bytes"] > last["memory_bytes"] > 0
    for one in found.values():
        assert one.keys() == {"text", "first_token_s", "total_s", "memory_bytes", "frames"}
        assert 0 < one["first_token_s"] <= one["total_s"]
    assert anew["first_token_s"] > stream["first_token_s"]
    assert saved(session) == before
    assert ask(session, id="again") == said
    assert engine.admission.num_bytes == held


@pytest.mark.extra
def test_it_shows_at_most_so_many_pictures_the_newest(start: Start) -> None:
    engine = start(limits=Limits(compared_frames=4))
    session = watched(engine, ASK)
    found = compared(engine, session, most_frames=4, max_tokens=2)
    assert (found["streaming"]["frames"], found["anew"]["frames"]) == (24, 4)
    newest, every = pictures_to_compare(session, 4), list(pictures_of(session))
    assert len(every) == 24
    assert [one.time_s for one in newest] == [one.time_s for one in every[-4:]]


@pytest.mark.extra
def test_only_pictures_that_are_shown_are_made_again(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    session, drawn = watched(start(), ASK), list[int]()
    every = [one.read() for one in pictures_of(session)]
    draw = WorldTour._draw

    def counted(source: WorldTour, *arguments: Any) -> Any:
        drawn.append(1)
        return draw(source, *arguments)

    monkeypatch.setattr(WorldTour, "_draw", counted)
    newest = pictures_to_compare(session, 4)
    assert all(np.array_equal(one.read(), image) for one, image in zip(newest, every[-4:], strict=True))
    assert len(drawn) == 4


@pytest.mark.extra
def test_reading_ends_with_who_waits_for_it_and_with_the_session(start: Start) -> None:
    engine = start()
    session = watched(engine, ASK)
    asked = iter([False, False, True])
    with pytest.raises(CancelledWorkError, match="given up"):
        pictures_to_compare(session, 4, lambda: next(asked))
    reading = pictures_of(session)
    next(reading)
    engine.close(session.id).result(timeout=20)
    with pytest.raises(CancelledWorkError, match="given up"):
        next(reading)


@pytest.mark.extra
def test_pushed_pictures_are_shown_again_as_they_were_kept(start: Start, frames: Sequence[VideoFrame]) -> None:
    engine = start()
    session = open_session(engine, ASK)
    push(session, frames[:6])
    session.settle()
    kept = list(pictures_of(session))
    assert [one.time_s for one in kept] == [frame.timestamp_s for frame in frames[:6]]
    for one, frame in zip(kept, frames, strict=False):
        assert frame.image is not None
        assert np.abs(one.read().astype(int) - frame.image).mean() < 8
    found = compared(engine, session, max_tokens=2)
    assert [found[name]["frames"] for name in ("streaming", "anew", "last_frame")] == [6, 6, 1]


def test_beside_a_map_the_pictures_are_those_that_the_dialogue_looked_at() -> None:
    seen = [SeenPicture(3.0 + number / 10, lambda: np.zeros((2, 2, 3), np.uint8)) for number in range(12)]
    assert [one.time_s for one in looks(seen, 2.0)] == [3.0, 3.5, 4.0]


@pytest.mark.extra
def no_pictures(*_: object) -> NoReturn:
    raise AssertionError("no picture is to be read")


def test_what_cannot_be_compared_is_refused_in_a_sentence(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = start(budget_bytes=70_000_000, session_bytes=40_000_000, spare_idle_s=600.0)
    mapping = open_session(engine, replace(PLAIN, source=WALK))
    with pytest.raises(RequestError, match="no language model"):
        compared(engine, mapping)
    pushing = open_session(engine, ASK)
    with pytest.raises(RequestError, match="seen nothing"):
        compared(engine, pushing)
    session = watched(engine, replace(ASK, memory_bytes=30_000_000))
    engine.admission.admit("other", all_that_is_left(engine))
    with pytest.raises(BusyError):
        compared(engine, session)
    monkeypatch.setattr(comparing, "pictures_to_compare", no_pictures)  # questions are looked at before
    with pytest.raises(RequestError, match="1 to 4000 characters"):
        compared(engine, session, question=" ")
    with pytest.raises(RequestError, match="max_tokens"):
        compared(engine, session, max_tokens=10_000)
    with pytest.raises(UnknownWordsError):
        compared(engine, session, question="What is a qubit?")
    assert ask(session)


def all_that_is_left(engine: Engine) -> Demand:
    return Demand(num_bytes=engine.admission.budget_bytes - engine.admission.num_bytes, frames_per_s=0.0)
