"""Many sessions one after the other on one server: what they leave behind."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.serving.process import ServerProcess
from benchmarks.serving.scripts import ONE_THREAD, QUESTION, Kind, open_remote, walk_frames
from benchmarks.serving.usage import Usage, usage_of
from longtake.server.client import RemoteSession

_KINDS = (Kind.MAP, Kind.MAP, Kind.MAP, Kind.ASK, Kind.BOTH)
_SETTLING_S = 10.0
_QUIET_S = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class ChurnFigures:
    """What the server held after a part of the sessions, and after all."""

    num_sessions: int
    num_frames: int
    num_questions: int
    seconds: float
    settled_after: int
    """Sessions, after which it is looked at first: caches are filled then."""
    settled: Usage
    last: Usage

    @property
    def is_flat(self) -> bool:
        return self.last.is_flat_since(self.settled)


def churn(folder: Path, num_sessions: int, *, progress: Callable[[int], None] = lambda _: None) -> ChurnFigures:
    """Open, use and close sessions: maps, dialogues and both, of one to three frames, some evicted in between."""
    settled_after = max(1, num_sessions // 5)
    num_frames = num_questions = 0
    with ServerProcess(folder, environment=ONE_THREAD) as server:
        started_s = time.monotonic()
        for number in range(num_sessions):
            kind = _KINDS[number % len(_KINDS)]
            with open_remote(server.url, kind) as session:
                num_frames += _use(session, number)
                num_questions += _ask(session, kind)
            if number == settled_after - 1:
                settled = _at_rest(server)
            progress(1)
        seconds = time.monotonic() - started_s
        last = _at_rest(server)
    return ChurnFigures(
        num_sessions=num_sessions,
        num_frames=num_frames,
        num_questions=num_questions,
        seconds=seconds,
        settled_after=settled_after,
        settled=settled,
        last=last,
    )


def _use(session: RemoteSession, number: int) -> int:
    frames = walk_frames()[: 1 + number % 3]
    for frame in frames:
        session.step(frame)
    if number % 7 == 0:
        session.save()
    return len(frames)


def _ask(session: RemoteSession, kind: Kind) -> int:
    if kind is Kind.MAP:
        return 0
    session.ask(QUESTION)
    return 1


def _at_rest(server: ServerProcess) -> Usage:
    """Once connections that ended are gone, and their descriptors with them: those are given back a moment later."""
    ends_s = time.monotonic() + _SETTLING_S
    found = usage_of(server)
    while time.monotonic() < ends_s:
        time.sleep(_QUIET_S)
        before, found = found, usage_of(server)
        is_quiet = (found.num_files, found.num_threads) == (before.num_files, before.num_threads)
        if is_quiet and found.num_folders == 0 and found.num_sockets == 1:
            break
    return found
