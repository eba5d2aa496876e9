"""What a viewer is sent: no more bytes than it has paid for, a fair share of all points, what is newest first."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from shown import Shown

from longtake.server.messages import parse_text
from longtake.server.point_history import PointHistory
from longtake.server.points import ROW, PointChunk
from longtake.server.previews import KnownDepth, Snapshot
from longtake.server.problems import RequestError
from longtake.server.viewer import MOST_CREDIT, ViewBudget, Viewer


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def history_of(num_chunks: int, count: int = 100) -> PointHistory:
    history = PointHistory()
    for frame in range(num_chunks):
        add(history, frame, count)
    return history


def add(history: PointHistory, frame: int, count: int = 100) -> None:
    origin = (0.0, 0.0, 0.0)
    chunk = PointChunk(frame=frame, time_s=0.0, origin=origin, scale=1.0, rows=np.zeros(count, ROW), total=count)
    history.add(chunk, np.eye(4))


def snapshot(frame: int, *, with_depth: bool = True) -> Snapshot:
    image = np.random.default_rng(frame).integers(0, 256, (98, 126, 3), dtype=np.uint8)
    depth = np.linspace(1, 5, 98 * 126, dtype=np.float32).reshape(98, 126)
    known = KnownDepth(frame=frame, time_s=1.0, depth=depth, confidence=depth)
    return Snapshot(frame=frame, time_s=frame / 10, image=image, known=known if with_depth else None)


def sent(viewer: Viewer) -> list[Shown]:
    messages = iter(viewer.next_message, None)
    return [Shown.read(message) for message in itertools.islice(messages, 10_000)]


def viewer_of(history: PointHistory, *, points: int = 10**6, credit: int = MOST_CREDIT) -> Viewer:
    viewer = Viewer(history)
    viewer.set_budget(ViewBudget(points=points))
    viewer.add_credit({"bytes": credit})
    return viewer


def test_without_a_budget_or_without_credit_nothing_is_sent() -> None:
    viewer = Viewer(history_of(3))
    assert sent(viewer) == []
    viewer.add_credit({"bytes": 10**6})
    assert sent(viewer) == []
    assert sent(viewer_of(history_of(3), credit=0)) == []
    assert sent(viewer_of(history_of(3), points=0)) == []


def test_who_comes_gets_all_points_so_far_and_then_those_that_come_each_once() -> None:
    history = history_of(5)
    viewer = viewer_of(history)
    assert [one.sequence for one in sent(viewer)] == [4, 3, 2, 1, 0]
    assert sent(viewer) == []
    add(history, 5)
    add(history, 6)
    assert sorted(one.sequence for one in sent(viewer)) == [5, 6]
    assert sent(viewer) == []


def test_never_more_bytes_are_sent_than_were_paid_for() -> None:
    viewer, total = viewer_of(history_of(30), credit=0), 0
    for credit in (1, 1000, 2500, 0, 7000, 100_000):
        viewer.add_credit({"bytes": credit})
        total += credit
        while (message := viewer.next_message()) is not None:
            total -= len(message)
            assert total >= 0
        assert viewer.credit == total


def test_a_small_budget_gets_a_fair_share_of_each_chunk_and_not_more_in_all() -> None:
    shown = sent(viewer_of(history_of(50, 200), points=1000))
    assert len(shown) == 50
    assert {one.fields["count"] for one in shown} == {20}
    assert {one.fields["total"] for one in shown} == {200}
    assert sent(viewer_of(history_of(50, 200), points=10)) == []


def test_who_slept_gets_the_newest_first_and_what_it_missed_after_that() -> None:
    history = history_of(2)
    viewer = viewer_of(history, credit=0)
    for frame in range(2, 40):
        add(history, frame)
        assert sent(viewer) == []
    viewer.add_credit({"bytes": 3000})
    assert [one.sequence for one in sent(viewer)] == [39, 38]
    add(history, 40)
    viewer.add_credit({"bytes": MOST_CREDIT})
    assert [one.sequence for one in sent(viewer)] == [40, *range(37, -1, -1)]


@given(st.lists(st.one_of(st.just("add"), st.integers(0, 6000)), max_size=120))
def test_in_the_end_every_chunk_was_sent_once(happening: list[str | int]) -> None:
    history, got = history_of(3), []
    viewer = viewer_of(history, credit=0)
    for what in [*happening, MOST_CREDIT]:
        if isinstance(what, int):
            viewer.add_credit({"bytes": what})
        else:
            add(history, history.next_sequence)
        got += [one.sequence for one in sent(viewer)]
    assert set(got) == set(range(history.next_sequence))
    if len(happening) < 64:
        assert len(got) == len(set(got))


def test_another_budget_begins_anew_and_the_same_one_does_not() -> None:
    viewer = viewer_of(history_of(4), points=200)
    assert [one.fields["count"] for one in sent(viewer)] == [50] * 4
    viewer.set_budget(ViewBudget(points=200, previews=True))
    assert sent(viewer) == []
    viewer.set_budget(ViewBudget(points=400))
    assert [one.fields["count"] for one in sent(viewer)] == [100] * 4


def test_flapping_budgets_cost_no_more_than_the_credit() -> None:
    viewer = viewer_of(history_of(20), credit=50_000)
    num_bytes = 0
    for number in range(2000):
        viewer.set_budget(ViewBudget(points=100 + number % 2, previews=bool(number % 3)))
        message = viewer.next_message()
        num_bytes += 0 if message is None else len(message)
    assert num_bytes <= 50_000


@pytest.mark.parametrize("given", [-1, True, 1.5, "9", None, [1], float("nan"), float("inf")])
def test_credit_that_is_no_number_of_bytes_is_refused_and_changes_nothing(given: object) -> None:
    viewer = viewer_of(history_of(1), credit=70)
    with pytest.raises(RequestError, match="bytes as a whole number"):
        viewer.add_credit({"bytes": given})
    assert viewer.credit == 70


def test_huge_credit_is_capped() -> None:
    viewer = viewer_of(history_of(1), credit=10**30)
    viewer.add_credit({"bytes": 10**18})
    assert viewer.credit == MOST_CREDIT == 64_000_000


@pytest.mark.parametrize(
    "text",
    [
        '{"points": -1}',
        '{"points": true}',
        '{"points": 1e3}',
        '{"points": null}',
        '{"previews": 1}',
        '{"preview_px": 15}',
        '{"preview_px": 641}',
        '{"preview_px": "big"}',
    ],
)
def test_budgets_that_mean_nothing_are_refused(text: str) -> None:
    with pytest.raises(RequestError, match="Expected"):
        ViewBudget.parse(parse_text(text))
    assert ViewBudget.parse({"type": "view.budget"}) == ViewBudget()
    assert ViewBudget.parse({"points": 10**30}).points == 10**8


def showing(credit: int = MOST_CREDIT) -> tuple[Viewer, Clock]:
    clock = Clock()
    viewer = Viewer(PointHistory(), clock)
    viewer.set_budget(ViewBudget(previews=True, preview_px=64))
    viewer.add_credit({"bytes": credit})
    return viewer, clock


def test_previews_are_made_ten_times_a_second_at_most_and_only_of_what_is_new() -> None:
    viewer, clock = showing()
    first, second = snapshot(0), snapshot(1)
    assert viewer.preview_wait_s(None) is None
    assert viewer.preview_wait_s(first) == 0
    viewer.show(viewer.previews_of(first))
    assert viewer.preview_wait_s(second) is None, "what is made waits to be sent"
    assert [one.fields["of"] for one in sent(viewer)] == ["image", "depth", "confidence"]
    assert viewer.preview_wait_s(first) is None
    wait_s = viewer.preview_wait_s(second)
    assert wait_s == pytest.approx(0.1)
    clock.now_s += 0.1
    assert viewer.preview_wait_s(second) == 0


def test_previews_without_credit_are_not_made_and_one_too_dear_is_made_once() -> None:
    viewer, clock = showing(credit=0)
    assert viewer.preview_wait_s(snapshot(0)) is None
    viewer.add_credit({"bytes": 100})
    assert viewer.preview_wait_s(snapshot(0)) == 0
    previews = viewer.previews_of(snapshot(0))
    viewer.show(previews)
    assert sent(viewer) == []
    clock.now_s += 9
    assert viewer.preview_wait_s(snapshot(1)) is None
    viewer.add_credit({"bytes": len(previews.messages[0])})
    assert viewer.preview_wait_s(snapshot(2)) == 0
    viewer.show(viewer.previews_of(snapshot(2)))
    assert sent(viewer)[0].fields["frame"] == 2


def test_previews_of_another_size_or_no_longer_wanted_are_not_sent() -> None:
    viewer, _ = showing()
    made = viewer.previews_of(snapshot(0))
    viewer.set_budget(ViewBudget(previews=True, preview_px=128))
    viewer.show(made)
    assert sent(viewer) == []
    viewer.set_budget(ViewBudget(previews=False))
    viewer.show(made)
    assert sent(viewer) == []
