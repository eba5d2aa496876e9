"""A real server on trial, in short: what `python -m benchmarks serve-...` does for longer."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from served import until

pytest.importorskip("fastapi")
pytest.importorskip("websockets")

from websockets.sync.client import connect

from benchmarks.serving.attack import attack
from benchmarks.serving.bare_sockets import bare_socket
from benchmarks.serving.churn import churn
from benchmarks.serving.live_pace import live_pace
from benchmarks.serving.malformed import frame_message
from benchmarks.serving.openapi import call_everything
from benchmarks.serving.overhead import measure_overhead
from benchmarks.serving.process import ServerProcess
from benchmarks.serving.recovery import Upset, cut_connections, recover
from benchmarks.serving.scripts import (
    QUESTION,
    Kind,
    Outputs,
    local_outputs,
    open_remote,
    plain_answer,
    play,
    walk_script,
)
from benchmarks.serving.soak import Soak
from benchmarks.serving.usage import usage_of
from longtake.server.results import geometry_bytes

pytestmark = pytest.mark.extra


def test_eight_sessions_at_once_over_sockets_say_to_the_bit_what_local_ones_say(tmp_path: Path) -> None:
    kinds = [Kind.MAP, Kind.MAP, Kind.MAP, Kind.ASK, Kind.ASK, Kind.BOTH, Kind.BOTH, Kind.BOTH]

    def outputs(kind: Kind) -> Outputs:
        with open_remote(server.url, kind) as session:
            return play(session, walk_script(kind))

    with ServerProcess(tmp_path / "sessions") as server, ThreadPoolExecutor(8) as pool:
        for kind, found in zip(kinds, pool.map(outputs, kinds), strict=True):
            assert found == local_outputs(kind), kind


def test_malformed_messages_end_in_errors_or_closed_sockets_and_no_other_session_notices(tmp_path: Path) -> None:
    figures = attack(tmp_path / "sessions", 300)
    assert figures.unanswered == ()
    assert figures.num_errors + figures.num_closed == 300
    assert figures.num_closed == figures.kinds["broken socket"]
    assert figures.others_are_same
    assert figures.attacked_is_same
    assert figures.num_rounds > 0


@pytest.mark.parametrize(
    "upset", [upset if upset is Upset.KILL else pytest.param(upset, marks=pytest.mark.by_hand) for upset in Upset]
)
def test_no_bit_changes_whatever_happens_in_mid_video(upset: Upset, tmp_path: Path) -> None:
    (found,) = recover(tmp_path, upset, 1, seed=len(upset))
    assert found.num_same == 4, found


def test_sessions_come_and_go_and_leave_nothing_in_the_process(tmp_path: Path) -> None:
    figures = churn(tmp_path / "sessions", 50)
    assert figures.is_flat, figures
    assert figures.last.num_folders == 0


@pytest.mark.by_hand
def test_live_cameras_are_served_alike_and_hear_of_every_frame(tmp_path: Path) -> None:
    figures = live_pace(tmp_path / "sessions", 8, fps=2.0, seconds=4.0)
    assert figures.num_taken + figures.num_dropped == figures.num_sent == 64
    assert figures.jain >= 0.9, figures  # of so few frames, on a machine that does other things


def test_nothing_that_the_openapi_describes_breaks_the_server(tmp_path: Path) -> None:
    pytest.importorskip("schemathesis", reason="there is no schemathesis; `make test-extra` installs it")
    figures = call_everything(tmp_path, 100, phases="fuzzing")
    assert figures.is_fine, figures.failures
    assert figures.num_cases >= 100


def test_random_clients_and_restarts_break_no_promise(tmp_path: Path) -> None:
    figures = Soak(tmp_path, seconds=10.0, num_clients=3, restart_every_s=6.0, seed=1).run()
    assert figures.problems == ()
    assert figures.is_at_rest, figures


@pytest.mark.by_hand
def test_the_server_s_own_time_of_a_frame_is_measured(tmp_path: Path) -> None:
    figures = measure_overhead(tmp_path / "sessions", size="252x196", num_frames=30, results="events", pause_s=0.0)
    assert figures.num_frames == 30
    assert 0 < figures.overhead_p50_s < 0.05
    assert figures.step_p50_s > 0


def test_who_reads_nothing_is_closed_and_the_others_go_on(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "sessions") as server, open_remote(server.url, Kind.MAP) as session:
        frames = walk_script(Kind.MAP).frames
        for frame in frames[:10]:
            session.step(frame)
        with bare_socket(server.port, f"/v1/sessions/{session.id}/live?results=geometry"):
            num_sockets = usage_of(server).num_sockets
            with connect(f"{server.socket_url}/v1/sessions/{session.id}/live", proxy=None, compression=None) as busy:
                for _ in range(100):
                    busy.send(frame_message(sequence=9))  # taken before: who asked for its result gets it again
                    while "input_frame.ack" not in str(busy.recv(timeout=30)):
                        pass
            until(lambda: usage_of(server).num_sockets < num_sockets, seconds=60)
        geometry = session.step(frames[10])
        assert geometry is not None
        assert geometry_bytes(geometry) == local_outputs(Kind.MAP).steps[10]


def test_an_answer_that_came_while_the_connection_was_lost_is_heard(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "sessions") as server, open_remote(server.url, Kind.ASK) as session:
        for frame in walk_script(Kind.ASK).frames[:6]:
            session.step(frame)
        expected = plain_answer(session.ask(QUESTION))
        for number in range(20):
            cut = threading.Timer(0.002 * number, cut_connections, [server.port])
            cut.start()
            assert plain_answer(session.ask(QUESTION)) == expected
            cut.join()
