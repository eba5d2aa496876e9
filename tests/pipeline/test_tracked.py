"""A camera that is lost and found, as a run tells it: in events, lines, counts and words, broken off or not."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from returning import NUM_DARK, SESSION, TORN, easy_loops, files, run, with_darkness
from torn_video import TornVideo

from longtake.exports.tracking import TrackingSummary
from longtake.geometry.model import GeometryModel
from longtake.hub.load import load_model
from longtake.pipeline.events import Begun, Ended, Event, Found, Frame, Lost
from longtake.pipeline.live import LiveSession
from longtake.pipeline.mapper import Mapper
from longtake.pipeline.run import Run
from longtake.pipeline.tracked import TrackingTeller
from longtake.pipeline.video_map import preprocessor
from longtake.places.build import with_loops
from longtake.runtime.build import open_session
from longtake.takes.take import read_take
from longtake.types import Tracking, TrackingReason, TrackingState

LOST, LIGHT = 14 + 2, 14 + NUM_DARK
"""The third dark frame, and the first one after the darkness."""


@pytest.fixture(scope="module")
def model() -> GeometryModel:
    return load_model("tiny")


@pytest.fixture(scope="module")
def told(model: GeometryModel, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Event]]:
    out = tmp_path_factory.mktemp("dark") / "out"
    return out, list(run(model, out, shown=with_darkness()))


def tracking_events(events: list[Event]) -> list[Lost | Begun | Found]:
    return [event for event in events if isinstance(event, Lost | Begun | Found)]


def test_darkness_is_told_with_its_reason_and_the_way_on_and_back(told: tuple[Path, list[Event]]) -> None:
    lost, begun, found = tracking_events(told[1])
    assert lost == Lost(index=LOST, timestamp_s=LOST / 10, reason=TrackingReason.DARKNESS)
    assert isinstance(begun, Begun)
    assert begun.sub_map == 1
    assert LIGHT <= begun.index <= LIGHT + 1
    assert isinstance(found, Found)
    assert found.sub_map == 1
    assert found.index > begun.index


def test_each_line_of_a_take_says_how_its_frame_was_tracked(told: tuple[Path, list[Event]]) -> None:
    records = read_take(told[0]).records
    first_told = {event.index: event.mapped for event in told[1] if isinstance(event, Frame)}
    for record in records:
        mapped = first_told[record.index]
        assert mapped is not None
        assert record.tracking == mapped.tracking
    lost = [record.index for record in records if record.tracking and record.tracking.state is TrackingState.LOST]
    assert lost[0] == LOST
    line = json.loads((told[0] / "frames.jsonl").read_text().splitlines()[lost[0] - len(TORN)])
    assert line["tracking"] == {"state": "lost", "reason": "darkness", "sub_map": None}


def test_the_summary_counts_states_and_the_report_says_it_in_words(told: tuple[Path, list[Event]]) -> None:
    out = told[0]
    records = read_take(out).records
    summary = json.loads((out / "summary.json").read_text())["tracking"]
    assert sum(summary["states"].values()) == len(records)
    for state, number in summary["states"].items():
        assert number == sum(record.tracking is not None and record.tracking.state == state for record in records)
    assert summary["reasons"]["lost"]["darkness"] == summary["states"]["lost"]
    assert (summary["num_sub_maps"], summary["apart"]) == (2, [])
    words = f"lost in {summary['states']['lost']} frames (darkness)"
    assert words in (out / "report.html").read_text()


@pytest.mark.parametrize("stopped_after", [LOST + 4, pytest.param(LIGHT + 12, marks=pytest.mark.by_hand)])
def test_a_run_that_goes_on_tells_nothing_twice_and_ends_the_same(
    model: GeometryModel, told: tuple[Path, list[Event]], tmp_path: Path, stopped_after: int
) -> None:
    """Stopped in the dark, and when a sub-map is not joined yet."""
    first, events = run(model, tmp_path / "out", shown=with_darkness()), []
    for number, event in enumerate(first, start=1):
        events.append(event)
        if number == stopped_after:
            first.stop()
    events += run(model, tmp_path / "out", resume=True, shown=with_darkness())
    assert files(tmp_path / "out") == files(told[0])
    assert tracking_events(events) == tracking_events(told[1])
    one, other = (json.loads((out / "summary.json").read_text()) for out in (tmp_path / "out", told[0]))
    assert one["tracking"] == other["tracking"]


def test_what_is_known_of_a_frame_again_is_told_once() -> None:
    teller, ok = TrackingTeller(), Tracking(state=TrackingState.OK, sub_map=1)
    found = Tracking(state=TrackingState.RELOCALISED, sub_map=1)
    assert [list(teller.take(3, 0.3, tracking)) for tracking in (ok, None, found, found)] == [
        [],
        [],
        [Found(index=3, timestamp_s=0.3, sub_map=1)],
        [],
    ]


def test_words_name_reasons_and_sub_maps_or_are_none() -> None:
    quiet = TrackingSummary(states={"ok": 9}, reasons={"ok": {"overlay": 3}}, num_sub_maps=1, apart=())
    assert quiet.in_words is None
    lost = TrackingSummary(
        states={"ok": 9, "weak": 1, "lost": 5},
        reasons={"weak": {"too fast": 1}, "lost": {"cut": 2, "darkness": 3}},
        num_sub_maps=3,
        apart=(2,),
        frames_apart=4,
    )
    told = "Tracking: lost in 5 frames (cut 2, darkness 3); weak in 1 frame (too fast); 3 sub-maps, "
    apart = "a sub-map that is not joined lies where the camera was last known, in a unit of its own"
    assert lost.in_words == (
        f"{told}1 of them not joined (4 frames). {apart.capitalize()}; poses of lost frames say nothing."
    )
    joined = replace(lost, apart=(), frames_apart=0)
    assert joined.in_words == f"{told}all joined. Poses of lost frames say nothing."
    only_apart = TrackingSummary(states={"ok": 9}, reasons={}, num_sub_maps=2, apart=(1,))  # of an earlier version
    assert only_apart.in_words == f"Tracking: 2 sub-maps, 1 of them not joined. {apart.capitalize()}."


def test_a_run_into_no_folder_says_it_at_its_end(model: GeometryModel, told: tuple[Path, list[Event]]) -> None:
    loops = easy_loops()
    mapper = Mapper(
        lambda size: with_loops(open_session(model, SESSION, size), loops.card, loops.rule),
        preprocessor(SESSION, model.config),
    )
    *_, ended = Run(TornVideo("dark", with_darkness(), TORN), LiveSession(mapper))
    assert isinstance(ended, Ended)
    assert ended.tracking is not None
    assert ended.tracking == next(event.tracking for event in told[1] if isinstance(event, Ended))
