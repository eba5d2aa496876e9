"""When a session was last used stays with it, whatever becomes of the server."""

from collections.abc import Sequence
from pathlib import Path

from served import ASK, MAP, Start, open_session, push, until

from longtake.server.engine import Engine
from longtake.server.networks import Networks
from longtake.server.settings import ServerSettings
from longtake.takes.fields import JsonObject
from longtake.takes.sealed_json import sealed, unsealed
from longtake.video.frame import VideoFrame

DAY_S = 86_400.0


class Clock:
    """Seconds since 1970, as a test says."""

    def __init__(self) -> None:
        self.now_s = 1e9

    def __call__(self) -> float:
        return self.now_s


def test_a_restart_is_no_use(tmp_path: Path, networks: Networks, frames: Sequence[VideoFrame]) -> None:
    settings, clock = ServerSettings(folder=tmp_path, retention_s=30 * DAY_S, idle_s=1e9), Clock()
    with Engine(settings, networks, clock=clock) as engine:
        seen, asked, empty = (open_session(engine, spec) for spec in (MAP, ASK, MAP))
        push(seen, frames[:3])
        push(asked, frames[:3])
        clock.now_s += DAY_S
        asked.ask("q", "Which room are you in now?").result(timeout=60)
    for _ in range(3):
        clock.now_s += 9.5 * DAY_S
        with Engine(settings, networks, clock=clock) as engine:
            used_s = {session.id: session.active_s for session in engine.sessions}
            assert used_s == {seen.id: 1e9, asked.id: 1e9 + DAY_S, empty.id: 1e9}
            assert [engine.session(id).description["active_s"] for id in used_s] == list(used_s.values())
            engine.keep_house()
    clock.now_s += DAY_S  # 30.5 days after the first use, 29.5 after the question
    with Engine(settings, networks, clock=clock) as engine:
        engine.keep_house()
        until(lambda: [session.id for session in engine.sessions] == [asked.id])


def test_a_use_of_a_session_that_rests_is_on_the_disk_soon(
    tmp_path: Path, networks: Networks, frames: Sequence[VideoFrame]
) -> None:
    clock = Clock()
    with Engine(ServerSettings(folder=tmp_path, idle_s=1e9), networks, clock=clock) as engine:
        session = open_session(engine, MAP)
        push(session, frames[:3])
        session.evict().result(timeout=60)
        clock.now_s += 3600
        session.note_use()  # as who downloads something
        engine.keep_house()
        until(lambda: session.shelf.read().used_s == clock.now_s)
        assert session.shelf.read().num_frames == 3
        clock.now_s += 1
        session.note_use()
    assert session.shelf.read().used_s == clock.now_s


def test_a_fork_is_used_when_it_is_made(tmp_path: Path, networks: Networks, frames: Sequence[VideoFrame]) -> None:
    clock = Clock()
    with Engine(ServerSettings(folder=tmp_path), networks, clock=clock) as engine:
        session = open_session(engine, MAP)
        push(session, frames[:1])
        clock.now_s += 100
        assert engine.fork(session.id).result(timeout=60).active_s == clock.now_s
        assert session.active_s == clock.now_s - 100


def test_sessions_of_earlier_versions_were_used_when_they_were_saved(start: Start) -> None:
    engine = start()
    session = open_session(engine, MAP)
    engine.drain()
    path = session.shelf.folder / "session.json"
    record = dict(unsealed(JsonObject.parse(path.read_bytes(), str(path))).fields)
    del record["used_s"]
    path.write_bytes(sealed(record | {"saved_s": 1000.0}))
    assert session.shelf.read().used_s == 1000.0
