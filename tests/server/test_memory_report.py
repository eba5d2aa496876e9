"""What a session's memory holds is told as it changes, and what left it with its time."""

import itertools
import time
from collections.abc import Sequence
from dataclasses import replace

import pytest
from served import ASK, BOTH, MAP, Start, events_of, open_session, push

from longtake.memory.policy import Segment
from longtake.server import memory_report
from longtake.server.events import EventLog
from longtake.server.memory_report import MemoryReport, spans_of
from longtake.server.networks import Networks
from longtake.server.session import ServedSession
from longtake.server.watchers import open_watcher
from longtake.video.frame import VideoFrame


def segment(first: int, time_s: float) -> Segment:
    return Segment(first=first, num_tokens=10, time_s=time_s, novelty=1.0)


def test_spans_are_runs_without_a_gap() -> None:
    held = [segment(0, 0.0), segment(10, 1.0), segment(30, 3.0), segment(40, 4.0), segment(50, 5.0)]
    assert spans_of(held) == [(0.0, 1.0), (3.0, 5.0)]
    assert spans_of(held, until_s=5.5) == [(0.0, 1.0), (3.0, 5.5)]
    assert spans_of([]) == spans_of([], until_s=1.0) == []


def test_of_very_many_spans_the_shortest_gaps_are_passed_over() -> None:
    held = [segment(20 * number, number + (100.0 if number >= 50 else 0.0)) for number in range(500)]
    spans = spans_of(held)
    assert len(spans) == 64
    assert (49.0, 150.0) in [(one[1], other[0]) for one, other in itertools.pairwise(spans)]
    assert (spans[0][0], spans[-1][1]) == (0.0, 599.0)


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.mark.extra
def test_it_is_told_twice_a_second_at_most_and_sooner_when_something_was_forgotten(
    networks: Networks, frames: Sequence[VideoFrame]
) -> None:
    spec = replace(ASK, memory_bytes=3_600_000)
    watcher = open_watcher(spec, None, networks.language_named(spec.language))
    events, clock, told = EventLog(), Clock(), []
    report = MemoryReport(events, clock, note=lambda _: None)
    events.listen(lambda event: told.append((clock.now_s, event.fields)))
    dialogue = watcher.dialogue
    assert dialogue is not None
    for index in range(60):
        watcher.step(frames[index % 24], float(index))
        report.tell(watcher, index, float(index))
        clock.now_s += 0.05
    gaps = [later[0] - earlier[0] for earlier, later in itertools.pairwise(told)]
    for gap, (_, fields) in zip(gaps, told[1:], strict=True):
        assert gap >= (0.0999 if fields["forgotten"] else 0.4999)
    gone = [span for _, fields in told for span in fields["forgotten"]]
    assert gone
    assert all(span["of"] == "dialogue" and span["start_s"] <= span["end_s"] for span in gone)
    assert [span["start_s"] for span in gone] == sorted(span["start_s"] for span in gone)
    last = told[-1][1]
    ((start_s, end_s),) = last["dialogue"]["spans"]
    assert gone[-1]["end_s"] < start_s < end_s <= 59
    assert 0 < last["dialogue"]["tokens"] <= last["dialogue"]["capacity"]
    assert last["map"] is None
    assert last["bytes"] == dialogue.info.live_bytes
    assert dialogue.info.num_forgotten >= len(gone)


def told(session: ServedSession) -> list[dict[str, object]]:
    return events_of(session, "memory")


@pytest.mark.extra
def test_a_session_of_both_tells_of_both(start: Start, frames: Sequence[VideoFrame]) -> None:
    session = open_session(start(), BOTH)
    push(session, frames[:11])
    time.sleep(0.6)  # after which it is told again
    push(session, frames[11:12], first=11)
    first, last = told(session)[0], told(session)[-1]
    assert (first["index"], first["time_s"]) == (0, frames[0].timestamp_s)
    assert first["map"] == {"kept": 0, "capacity": last["map"]["capacity"], "window": 0}
    assert 0 < last["map"]["kept"] <= last["map"]["capacity"]
    assert 0 < last["bytes"] <= BOTH.memory_bytes
    assert last["dialogue"]["spans"]
    assert last["forgotten"] == []


def test_a_walk_that_is_over_within_half_a_second_tells_what_it_ended_with(
    start: Start, frames: Sequence[VideoFrame], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_report, "_USUAL_S", 3600.0)  # as on a machine that is fast enough
    session = open_session(start(), MAP)
    push(session, frames[:12])
    assert [event["index"] for event in told(session)] == [0]
    session.finish().result(timeout=60)
    assert [event["index"] for event in told(session)] == [0, 11]
    last = told(session)[-1]
    assert last["bytes"] == session.description["resident_bytes"] > 0
    assert last["time_s"] == frames[11].timestamp_s
    session.finish().result(timeout=60)
    assert len(told(session)) == 2


def test_what_a_memory_holds_is_known_also_of_a_session_on_disk_and_of_a_fork(
    start: Start, frames: Sequence[VideoFrame]
) -> None:
    engine = start()
    session = open_session(engine, BOTH)
    assert session.description["resident_bytes"] is None  # nothing is known before a frame
    push(session, frames[:6])
    assert session.description["resident_bytes"] == events_of(session, "memory")[-1]["bytes"]
    session.save().result(timeout=60)
    held = session.description["resident_bytes"]
    assert held > 0
    assert engine.fork(session.id).result(timeout=60).description["resident_bytes"] == held
    session.evict().result(timeout=60)
    assert session.description["resident_bytes"] == held
    engine.drain()
    assert [each.description["resident_bytes"] for each in start().sessions] == [held, held]
