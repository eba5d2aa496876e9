"""Sessions of a server answer to the bit as local ones do, whatever happens to them in between."""

import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from served import (
    ASK,
    BOTH,
    MAP,
    PLAIN,
    QUESTION,
    Outputs,
    Start,
    ask,
    await_save,
    events_of,
    open_session,
    push,
    pushed,
    until,
    without_times,
)

from longtake.api.dialogue_session import DialogueSession
from longtake.errors import BusyError, InputError
from longtake.server.engine import Engine
from longtake.server.machine import PushedFrame, SessionState
from longtake.server.networks import Networks
from longtake.server.pose_log import tum_lines
from longtake.server.problems import RequestError
from longtake.server.results import answer_record, geometry_bytes
from longtake.server.settings import ServerSettings
from longtake.server.shelf import POSES_NAME
from longtake.server.spec import Delivery, SessionSpec
from longtake.video.frame import VideoFrame


def test_a_pushed_session_says_to_the_bit_what_a_local_one_says(
    start: Start, frames: Sequence[VideoFrame], local: Outputs
) -> None:
    session = open_session(start())
    assert Outputs(tuple(push(session, frames)), ask(session)) == local
    assert [event["sequence"] for event in events_of(session, "input_frame.ack")] == list(range(24))
    assert len(events_of(session, "frame.known")) >= 24


def test_three_sessions_at_once_say_the_same(start: Start, frames: Sequence[VideoFrame], local: Outputs) -> None:
    engine = start()
    sessions = [open_session(engine) for _ in range(3)]

    def outputs(number: int) -> Outputs:
        return Outputs(tuple(push(sessions[number], frames)), ask(sessions[number]))

    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(outputs, range(3))) == [local] * 3


def test_eviction_and_return_leave_the_same_bits(start: Start, frames: Sequence[VideoFrame], local: Outputs) -> None:
    engine = start()
    session = open_session(engine)
    steps = push(session, frames[:11])
    session.evict().result(timeout=60)
    assert session.state is SessionState.SAVED
    assert engine.admission.num_bytes == 0
    steps += push(session, frames[11:], first=11)
    session.evict().result(timeout=60)
    assert Outputs(tuple(steps), ask(session)) == local
    assert len(events_of(session, "session.evicted")) == 2


def test_an_idle_session_leaves_memory_by_itself(start: Start, frames: Sequence[VideoFrame]) -> None:
    session = open_session(start(idle_s=0.3), MAP)
    push(session, frames[:9])
    until(lambda: session.state is SessionState.SAVED)
    push(session, frames[9:10], first=9)
    assert session.state is SessionState.OPEN


def test_a_restart_lists_sessions_and_goes_on_with_the_same_bits(
    start: Start, frames: Sequence[VideoFrame], local: Outputs
) -> None:
    engine = start()
    session = open_session(engine)
    steps = push(session, frames[:13])
    engine.drain()
    again = start().session(session.id)
    assert again.state is SessionState.SAVED
    assert again.description["next_sequence"] == 13
    assert again.lost is None
    assert Outputs((*steps, *push(again, frames[13:], first=13)), ask(again)) == local


def test_after_a_crash_replayed_frames_lead_to_the_same_bits(
    start: Start, frames: Sequence[VideoFrame], local: Outputs, tmp_path: Path, networks: Networks
) -> None:
    session = open_session(start(save_every_frames=8))
    steps = push(session, frames[:14])
    await_save(session, 6)
    shutil.copytree(tmp_path / "sessions", tmp_path / "crashed")  # as the disk is when the program is killed now
    with Engine(ServerSettings(folder=tmp_path / "crashed"), networks) as engine:
        again = engine.session(session.id)
        assert again.lost == (8, 13)
        assert again.description["next_sequence"] == 8
        replayed = push(again, frames[8:14], first=8)
        assert replayed == steps[8:14]
        assert again.lost is None
        assert Outputs((*steps[:8], *replayed, *push(again, frames[14:], first=14)), ask(again)) == local
        assert len(tum_lines(again.shelf.folder / POSES_NAME).splitlines()) == 24


def test_event_ids_grow_over_a_crash(start: Start, frames: Sequence[VideoFrame]) -> None:
    engine = start()
    session = open_session(engine, MAP)
    push(session, frames[:9])
    newest = session.events.next_id
    engine.drain()
    assert start().session(session.id).events.next_id > newest


def test_a_frame_sent_twice_is_taken_once(start: Start, frames: Sequence[VideoFrame]) -> None:
    session = open_session(start(), MAP)
    push(session, frames[:9])
    before = session.last
    session.push(pushed(frames[8], 8)).result(timeout=60)
    assert session.last is before
    assert events_of(session, "input_frame.ack")[-1] == {"sequence": 8, "duplicate": True}
    assert session.record.num_frames == 9


@pytest.mark.parametrize("spec", [MAP, ASK], ids=["map", "ask"])
def test_the_last_result_is_there_again_after_a_restart(
    start: Start, frames: Sequence[VideoFrame], spec: SessionSpec
) -> None:
    """A client that was not told of it waits for it; of a session that only answers it is that there is none."""
    engine = start()
    session = open_session(engine, spec)
    known = push(session, frames[:9])
    engine.drain()
    again = start().session(session.id)
    again.push(pushed(frames[8], 8)).result(timeout=60)
    assert again.last is not None
    assert again.last.sequence == 8
    assert (b"" if again.last.geometry is None else geometry_bytes(again.last.geometry)) == known[-1]


def test_what_is_refused_leaves_the_session_as_it_was(
    start: Start, frames: Sequence[VideoFrame], local: Outputs
) -> None:
    session = open_session(start())
    steps = push(session, frames[:10])
    wrong: list[tuple[PushedFrame, type[Exception]]] = [
        (pushed(frames[12], 12), RequestError),
        (PushedFrame(10, 99.0, np.zeros((40, 40, 3), np.uint8)), InputError),
        (PushedFrame(10, 0.1, pushed(frames[10], 10).picture), InputError),
    ]
    for frame, error in wrong:
        with pytest.raises(error):
            session.push(frame).result(timeout=60)
    until(lambda: len(events_of(session, "error")) == len(wrong))  # they are told when whoever pushed was answered
    codes = [event["code"] for event in events_of(session, "error")]
    assert codes == ["sequence_gap", "bad_input", "bad_input"]
    with pytest.raises(RequestError, match="1 to 4000 characters"):
        session.ask("q1", "  ")
    with pytest.raises(RequestError, match="max_tokens from 1 to 64"):
        session.ask("q1", QUESTION, max_tokens=65)
    steps += push(session, frames[10:], first=10)
    assert Outputs(tuple(steps), ask(session)) == local


def test_frames_go_on_between_the_words_of_an_answer_and_change_neither(
    start: Start, frames: Sequence[VideoFrame], local: Outputs, networks: Networks
) -> None:
    engine = start()
    session = open_session(engine)
    steps = push(session, frames[:12])
    before = ask(session, id="before")
    answered = session.ask("under way", QUESTION)
    steps += push(session, frames[12:], first=12)
    assert without_times(answered.result(timeout=60)) == before
    assert Outputs(tuple(steps), ask(session)) == local


def test_questions_under_way_change_nothing_in_a_full_memory_either(
    start: Start, frames: Sequence[VideoFrame], networks: Networks
) -> None:
    small = replace(ASK, memory_bytes=3_600_000)
    session = open_session(start(), small)
    asked = []
    for sequence, frame in enumerate(frames):
        session.push(pushed(frame, sequence))
        if sequence % 3 == 0:
            asked.append(session.ask(f"q{sequence}", QUESTION))
            asked[-1].result(timeout=60) if sequence % 2 else None
    answers = [without_times(one.result(timeout=60)) for one in asked]
    local = DialogueSession.from_pretrained(networks.language_named("micro-vqa"), memory=small.memory_bytes)
    expected = []
    for sequence, frame in enumerate(frames):
        local.see(frame)
        if sequence % 3 == 0:
            expected.append(without_times(answer_record(local.ask(QUESTION))))
    assert local.info.num_forgotten > 0
    assert answers == expected
    assert ask(session, id="last") == without_times(answer_record(local.ask(QUESTION)))


def test_questions_beyond_four_at_once_are_refused(start: Start, frames: Sequence[VideoFrame]) -> None:
    session = open_session(start(), ASK)
    for frame in range(4):
        session.push(pushed(frames[frame], frame))
    asked = [session.ask(f"q{number}", QUESTION) for number in range(4)]
    assert session.ask("q0", QUESTION) is asked[0]
    with pytest.raises(RequestError, match="at most 4 questions"):
        session.ask("q4", QUESTION)
    assert len({done.result(timeout=60)["text"] for done in asked}) == 1


def test_newest_wins_and_what_is_dropped_is_told(start: Start, frames: Sequence[VideoFrame]) -> None:
    session = open_session(start(), replace(MAP, delivery=Delivery.NEWEST))
    for sequence, frame in enumerate(frames):
        last = session.push(pushed(frame, sequence))
    last.result(timeout=60)
    taken = [event["sequence"] for event in events_of(session, "input_frame.ack")]
    dropped = [event["sequence"] for event in events_of(session, "input_frame.dropped")]
    assert sorted(taken + dropped) == list(range(24))
    assert taken[-1] == 23
    assert dropped


def test_a_world_runs_by_itself_to_its_end(start: Start) -> None:
    engine = start()
    session = open_session(engine, replace(BOTH, source="world:9?frames=10&size=126x98"))
    engine.feed(session.id)
    until(lambda: bool(events_of(session, "session.finished")), seconds=60)
    assert session.record.num_frames == 10
    assert session.record.is_finished


def test_a_fork_goes_on_from_where_its_parent_was(start: Start, frames: Sequence[VideoFrame], local: Outputs) -> None:
    engine = start()
    session = open_session(engine)
    steps = push(session, frames[:12])
    fork = engine.fork(session.id).result(timeout=60)
    assert fork.id != session.id
    assert (fork.description["fork_of"], session.description["fork_of"]) == (session.id, None)
    later = [*push(fork, frames[12:], first=12)]
    assert Outputs((*steps, *later), ask(fork)) == local
    assert session.record.num_frames == 12


def test_sessions_beyond_the_budget_are_refused_unless_idle_ones_can_leave(
    start: Start, frames: Sequence[VideoFrame]
) -> None:
    engine = start(budget_bytes=20_000_000, session_bytes=10_000_000, spare_idle_s=1000.0)
    first, second = open_session(engine, PLAIN), open_session(engine, PLAIN)
    with pytest.raises(BusyError, match="Expected room for"):
        open_session(engine, PLAIN)
    assert first.holds_room
    assert second.holds_room
    engine.close(first.id).result(timeout=60)
    open_session(engine, PLAIN)


def test_no_session_leaves_memory_for_one_that_has_no_room_even_then(
    start: Start, frames: Sequence[VideoFrame]
) -> None:
    engine = start(budget_bytes=20_000_000, session_bytes=10_000_000, spare_idle_s=0.001)
    session = open_session(engine, PLAIN)
    push(session, frames[:1])
    with pytest.raises(BusyError):
        open_session(engine, replace(PLAIN, memory_bytes=21_000_000))
    assert session.is_in_memory


def test_many_sessions_take_turns_in_memory_and_never_more_than_the_budget(
    start: Start, frames: Sequence[VideoFrame]
) -> None:
    engine = start(budget_bytes=30_000_000, session_bytes=10_000_000, spare_idle_s=0.001)
    sessions = [open_session(engine, PLAIN) for _ in range(6)]
    for sequence in range(10):
        for session in sessions:
            push(session, [frames[sequence]], first=sequence)
            assert engine.admission.num_bytes <= engine.admission.budget_bytes
    assert all(session.record.num_frames == 10 for session in sessions)
    assert any(events_of(session, "session.evicted") for session in sessions)


def test_a_session_of_more_frames_than_there_is_time_for_is_refused(start: Start, frames: Sequence[VideoFrame]) -> None:
    engine = start()
    push(open_session(engine, MAP), frames[:10])
    assert engine.scheduler.mean_frame_s > 0
    with pytest.raises(BusyError, match="of the time"):
        open_session(engine, replace(MAP, fps=1e6))


def test_closing_leaves_nothing_behind(start: Start, frames: Sequence[VideoFrame], tmp_path: Path) -> None:
    engine = start()
    session = open_session(engine)
    push(session, frames[:9])
    engine.close(session.id).result(timeout=60)
    until(lambda: not engine.sessions)
    assert list((tmp_path / "sessions").iterdir()) == []
    assert engine.admission.num_bytes == 0
    with pytest.raises(RequestError, match="There is no session"):
        engine.session(session.id)
    with pytest.raises(RequestError, match="was closed"):
        session.push(pushed(frames[9], 9))


@pytest.mark.parametrize("id", ["", "..", "../../etc", "a" * 16 + "/..", "0" * 16, "é"])
def test_ids_that_name_no_session_are_refused(start: Start, id: str) -> None:
    with pytest.raises(RequestError, match="There is no session"):
        start().session(id)


@pytest.mark.parametrize(
    "source", ["/etc/passwd", "http://localhost/x.mp4", "rtsp://a/b", "camera:0", "os:system", ".."]
)
def test_addresses_are_refused_unless_the_operator_allows_them(start: Start, source: str) -> None:
    with pytest.raises(RequestError, match="opens no addresses"):
        start().open(replace(MAP, source=source))


def test_the_password_of_an_address_is_in_no_file(start: Start, frames: Sequence[VideoFrame], tmp_path: Path) -> None:
    session = open_session(start(allows_addresses=True), replace(MAP, source="rtsp://me:hidden@camera/1"))
    push(session, frames[:1])
    session.save().result(timeout=60)
    assert session.record.spec.source == "rtsp://me:hidden@camera/1"
    assert not any(b"hidden" in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())


def test_models_that_are_not_offered_are_refused(start: Start) -> None:
    with pytest.raises(RequestError, match="the server offers micro-map"):
        start().open(SessionSpec(model="/etc/passwd", memory_bytes=1))


def test_a_paused_session_takes_no_frames_until_it_goes_on(start: Start, frames: Sequence[VideoFrame]) -> None:
    session = open_session(start(), MAP)
    session.pause(is_paused=True).result(timeout=60)
    with pytest.raises(RequestError, match="paused"):
        session.push(pushed(frames[0], 0))
    session.pause(is_paused=False).result(timeout=60)
    push(session, frames[:1])


def test_sessions_that_nobody_used_for_long_are_removed(start: Start) -> None:
    engine = start(retention_s=0.2)
    open_session(engine, MAP)
    until(lambda: not engine.sessions)


def test_a_full_disk_quota_refuses_new_sessions(start: Start) -> None:
    with pytest.raises(RequestError, match="on the disk"):
        open_session(start(quota_bytes=1000), MAP)


def test_a_damaged_session_is_named_and_harms_no_other(start: Start, frames: Sequence[VideoFrame]) -> None:
    engine = start()
    broken, whole = open_session(engine, MAP), open_session(engine, MAP)
    push(whole, frames[:9])
    engine.drain()
    (broken.shelf.folder / "session.json").write_text("{}")
    again = start()
    assert list(again.damaged) == [broken.id]
    assert [session.id for session in again.sessions] == [whole.id]


def test_what_a_killed_program_left_of_no_session_is_removed_and_nothing_else(start: Start, tmp_path: Path) -> None:
    folder = tmp_path / "sessions"
    (folder / ("0" * 16)).mkdir(parents=True)
    (folder / f"{'1' * 16}.unfinished" / "state-1").mkdir(parents=True)
    (folder / "notes").mkdir()
    whole = open_session(start(), MAP)
    assert sorted(path.name for path in folder.iterdir() if path.is_dir()) == sorted(["notes", whole.id])


def test_a_session_without_a_language_model_cannot_be_asked(start: Start) -> None:
    with pytest.raises(RequestError, match="no language model"):
        open_session(start(), MAP).ask("q", QUESTION)
