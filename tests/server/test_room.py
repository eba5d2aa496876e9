"""What a server has room and time for, with costs that a test decides: 429 beyond it, and nobody starves within."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from served import PLAIN, Start, open_session, push

from longtake.errors import BusyError
from longtake.pipeline.scheduler import Scheduler
from longtake.server.engine import Engine
from longtake.server.networks import Networks
from longtake.server.problems import problem_of
from longtake.server.settings import ServerSettings
from longtake.video.frame import VideoFrame

FRAME_S = 0.1


class SteppingClock:
    """Every second look at it is so many seconds later: what a step costs, whatever it really took."""

    def __init__(self, step_s: float) -> None:
        self._step_s, self._now_s, self._num_looks = step_s, 0.0, 0

    def __call__(self) -> float:
        self._num_looks += 1
        self._now_s += 0.0 if self._num_looks % 2 else self._step_s
        return self._now_s


@pytest.fixture
def engine(networks: Networks, tmp_path: Path) -> Iterator[Engine]:
    """Every step costs a tenth of a second; a frame is one, opening a session two."""
    settings = ServerSettings(folder=tmp_path / "sessions", budget_bytes=100_000_000, session_bytes=10_000_000)
    with Engine(settings, networks, scheduler=Scheduler(clock=SteppingClock(FRAME_S))) as started:
        yield started


def test_sessions_beyond_the_time_or_the_bytes_are_refused_with_429(
    engine: Engine, frames: Sequence[VideoFrame]
) -> None:
    push(open_session(engine, PLAIN), frames[:4])
    frame_s = engine.scheduler.mean_frame_s
    assert FRAME_S <= frame_s <= 2 * FRAME_S
    served = [open_session(engine, replace(PLAIN, fps=2.0)) for _ in range(int(0.9 / frame_s / 2.0))]
    with pytest.raises(BusyError, match="of the time") as late:
        open_session(engine, replace(PLAIN, fps=2.0))
    with pytest.raises(BusyError, match="Expected room for") as full:
        open_session(engine, replace(PLAIN, memory_bytes=99_000_000))
    assert [problem_of(error.value).status for error in (late, full)] == [429, 429]
    engine.close(served[0].id).result(timeout=60)
    open_session(engine, replace(PLAIN, fps=2.0))


@pytest.mark.extra
def test_none_of_fifty_sessions_under_one_budget_starves(start: Start, frames: Sequence[VideoFrame]) -> None:
    engine = start(budget_bytes=60_000_000, session_bytes=10_000_000, spare_idle_s=0.001)
    sessions = [open_session(engine, PLAIN) for _ in range(50)]
    most = 0
    for sequence in range(3):
        for session in sessions:
            push(session, [frames[sequence]], first=sequence)
            most = max(most, engine.admission.num_bytes)
    assert most <= engine.admission.budget_bytes
    assert [session.record.num_frames for session in sessions] == [3] * 50
