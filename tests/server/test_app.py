"""A real server, and clients as they come: programs, OpenAI's words, sockets, and those that mean no good."""

import json
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from served import BOTH, QUESTION, Outputs, until, without_times
from server_process import ServerProcess

import longtake
from longtake.errors import InputError
from longtake.server.client import RemoteSession
from longtake.server.messages import BinaryMessage, Codec, MessageKind
from longtake.server.results import answer_record, geometry_bytes
from longtake.video.frame import VideoFrame

pytest.importorskip("fastapi")
connecting = pytest.importorskip("websockets.sync.client")
InvalidStatus = pytest.importorskip("websockets.exceptions").InvalidStatus
pytestmark = pytest.mark.extra


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("served") / "sessions") as started:
        yield started


def opened(url: str) -> RemoteSession:
    return longtake.Client(url).open_session(memory=BOTH.memory_bytes, share=BOTH.share, ask_fps=BOTH.ask_fps)


def stepped(session: RemoteSession, frames: Sequence[VideoFrame]) -> tuple[bytes, ...]:
    results = []
    for frame in frames:
        geometry = session.step(frame)
        assert geometry is not None
        results.append(geometry_bytes(geometry))
    return tuple(results)


def connect_once(url: str, **options: Any) -> None:
    """A socket that is refused raises."""
    with connecting.connect(url, proxy=None, **options):
        pass


def asked(session: RemoteSession) -> str:
    return without_times(answer_record(session.ask(QUESTION)))


def test_a_client_gets_to_the_bit_what_a_local_session_says(
    server: ServerProcess, frames: list[VideoFrame], local: Outputs
) -> None:
    with opened(server.url) as session:
        assert Outputs(stepped(session, frames), asked(session)) == local
        pieces = list(session.ask_stream(QUESTION))
        assert "".join(piece for piece in pieces[:-1] if isinstance(piece, str)) == pieces[-1].text
        assert len(session.finish() or ()) == 0
    assert session.id not in [one["id"] for one in longtake.Client(server.url).sessions()]


def test_a_lost_connection_and_an_eviction_are_nothing_a_caller_sees(
    server: ServerProcess, frames: list[VideoFrame], local: Outputs
) -> None:
    with opened(server.url) as session:
        steps = stepped(session, frames[:9])
        assert session._wire._socket is not None
        session._wire._socket.socket.close()
        steps += stepped(session, frames[9:12])
        assert server.call("POST", f"/v1/sessions/{session.id}/evict").record["state"] == "saved"
        session.detach()
        steps += stepped(session, frames[12:])
        session.detach()
        assert Outputs(steps, asked(session)) == local


def test_a_killed_server_that_comes_back_goes_on_to_the_same_bits(
    frames: list[VideoFrame], local: Outputs, tmp_path: Path
) -> None:
    folder = tmp_path / "sessions"
    with ServerProcess(folder, "--save-every", "5") as first:
        sessions = [opened(first.url) for _ in range(4)]
        steps = [stepped(session, frames[: 12 + number]) for number, session in enumerate(sessions)]
        until(lambda: [session.info["num_unsaved"] for session in sessions] == [2, 3, 4, 0])  # saves are written beside
        ended, forked = opened(first.url), opened(first.url)
        for session in (ended, forked):
            stepped(session, frames[:3])
        first.kill()
        with ServerProcess(folder, port=first.port) as second:
            listed = {one["id"]: one for one in longtake.Client(second.url).sessions()}
            assert [listed[session.id]["state"] for session in sessions] == ["saved"] * 4
            assert listed[sessions[1].id]["lost_frames"] == [10, 12]
            for number, session in enumerate(sessions):
                rest = stepped(session, frames[12 + number :])
                assert Outputs(steps[number] + rest, asked(session)) == local
            ended.finish()
            assert ended.info["num_frames"] == 3  # what was lost is sent again before anything is made of it
            assert forked.fork().info["num_frames"] == 3
            assert second.stop() == 0


def test_a_drain_saves_all_and_a_restart_goes_on(frames: list[VideoFrame], local: Outputs, tmp_path: Path) -> None:
    folder = tmp_path / "sessions"
    with ServerProcess(folder) as first:
        session = opened(first.url)
        steps = stepped(session, frames[:11])
        assert first.stop() == 0
    with ServerProcess(folder, port=first.port) as second:
        (listed,) = longtake.Client(second.url).sessions()
        assert (listed["state"], listed["num_frames"], listed["lost_frames"]) == ("saved", 11, None)
        assert Outputs(steps + stepped(session, frames[11:]), asked(session)) == local


def test_a_refused_frame_is_an_error_and_the_session_goes_on(
    server: ServerProcess, frames: list[VideoFrame], local: Outputs
) -> None:
    with opened(server.url) as session:
        steps = stepped(session, frames[:9])
        with pytest.raises(InputError, match="after"):
            session.step(frames[3])
        with pytest.raises(InputError, match="1 to 4000 characters"):
            session.ask(" ")
        assert Outputs(steps + stepped(session, frames[9:]), asked(session)) == local


@pytest.fixture(scope="module")
def watched(server: ServerProcess, frames: list[VideoFrame]) -> Iterator[RemoteSession]:
    with opened(server.url) as session:
        stepped(session, frames[:12])
        yield session


def test_questions_are_asked_as_of_openai(
    server: ServerProcess, watched: RemoteSession, frames: list[VideoFrame]
) -> None:
    messages = [{"role": "system", "content": "x"}, {"role": "user", "content": [{"type": "text", "text": QUESTION}]}]
    body = {"model": "micro-vqa", "messages": messages, "session_id": watched.id}
    whole = server.call("POST", "/v1/chat/completions", body).record
    expected = watched.ask(QUESTION)
    assert whole["object"] == "chat.completion"
    assert whole["choices"][0]["message"] == {"role": "assistant", "content": expected.text, "refusal": None}
    assert whole["longtake"]["seen_until_s"] == expected.answer.seen_until_s
    assert [span["weight"] for span in whole["longtake"]["evidence"]] == [one.weight for one in expected.evidence]
    for span in whole["longtake"]["evidence"]:
        assert frames[span["frame"]].timestamp_s == span["end_s"]
    lines = server.call("POST", "/v1/chat/completions", {**body, "stream": True}).content.decode().split("\n\n")
    assert lines[-2:] == ["data: [DONE]", ""]
    chunks = [json.loads(line.removeprefix("data: ")) for line in lines[:-2]]
    assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks) == expected.text
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"
    assert chunks[-1]["longtake"]["evidence"] == whole["longtake"]["evidence"]


def test_a_question_that_is_refused_is_a_refusal_as_of_openai(server: ServerProcess, watched: RemoteSession) -> None:
    body = {"messages": [{"role": "user", "content": "Is there a dragon?"}], "session_id": watched.id}
    whole = server.call("POST", "/v1/chat/completions", body).record
    (choice,), refused = whole["choices"], watched.ask("Is there a dragon?")
    assert refused.answer.refusal is not None
    assert choice["message"] == {"role": "assistant", "content": None, "refusal": refused.text}
    assert choice["finish_reason"] == "stop"
    assert whole["longtake"]["evidence"] == []
    lines = server.call("POST", "/v1/chat/completions", {**body, "stream": True}).content.decode().split("\n\n")
    deltas = [json.loads(line.removeprefix("data: "))["choices"][0]["delta"] for line in lines[:-2]]
    assert "".join(delta.get("refusal") or "" for delta in deltas) == refused.text
    assert not any(delta.get("content") for delta in deltas)


def test_results_can_be_fetched_while_it_runs(server: ServerProcess, watched: RemoteSession) -> None:
    lines = server.call("GET", f"/v1/sessions/{watched.id}/poses.tum").content.decode().splitlines()
    assert len(lines) == 12
    assert all(len(line.split()) == 8 for line in lines)
    events = server.call("GET", f"/v1/sessions/{watched.id}/events?after=3").record["events"]
    assert events[0]["id"] == 4
    assert {"input_frame.ack", "frame.known"} <= {event["type"] for event in events}


def test_a_fork_goes_on_by_itself(server: ServerProcess, watched: RemoteSession, frames: list[VideoFrame]) -> None:
    with watched.fork() as fork:
        stepped(fork, frames[12:14])
        assert fork.info["num_frames"] == 14
    assert watched.info["num_frames"] == 12


def test_an_upload_and_a_world_run_by_themselves(server: ServerProcess, tmp_path: Path) -> None:
    import av

    path = tmp_path / "walk.mp4"
    with av.open(str(path), "w") as file:
        stream = file.add_stream("mpeg4", rate=10)
        stream.width, stream.height, stream.pix_fmt = 126, 98, "yuv420p"
        for frame in longtake.open_video("world:9?frames=10&size=126x98"):
            file.mux(stream.encode(av.VideoFrame.from_ndarray(frame.image, format="rgb24")))
        file.mux(stream.encode())
    upload = server.call("POST", "/v1/sessions", {"source": "upload", "language": None, "memory": "10MB"}).record
    world = server.call(
        "POST", "/v1/sessions", {"source": "world:9?frames=10&size=126x98", "language": None, "memory": "10MB"}
    ).record
    assert server.call("PUT", f"/v1/sessions/{upload['id']}/video", content=path.read_bytes()).status == 202
    for id in (upload["id"], world["id"]):
        ends_s = time.monotonic() + 60
        while not (told := server.call("GET", f"/v1/sessions/{id}").record)["finished"]:
            assert time.monotonic() < ends_s, told
            time.sleep(0.1)
        assert told["num_frames"] == 10
        with pytest.raises(InputError, match="a source of its own"):
            longtake.Client(server.url).session(id).step(np.zeros((98, 126, 3), np.uint8), 100.0)
        assert server.call("DELETE", f"/v1/sessions/{id}").status == 204
    assert server.call("PUT", f"/v1/sessions/{world['id']}/video", content=b"x").status == 404


def test_what_a_client_gets_wrong_has_a_code_and_a_sentence(server: ServerProcess, watched: RemoteSession) -> None:
    chat = {"messages": [{"role": "user", "content": QUESTION}]}
    wrong: list[tuple[str, str, Any, int, str]] = [
        ("POST", "/v1/sessions", {"source": "/etc/passwd"}, 403, "source_forbidden"),
        ("POST", "/v1/sessions", {"source": "http://127.0.0.1/x"}, 403, "source_forbidden"),
        ("POST", "/v1/sessions", {"source": "world:9?size=90000x90000"}, 400, "bad_setting"),
        ("POST", "/v1/sessions", {"source": "world:9?frames=2&size=126x98&size=2900x3000"}, 400, "bad_setting"),
        ("POST", "/v1/sessions", {"source": "world:9?frames=2&size=0002900x0003000"}, 400, "bad_setting"),
        ("POST", "/v1/sessions", {"source": "world:nope"}, 400, "bad_input"),
        ("POST", "/v1/sessions", {"model": "../secret"}, 404, "unknown_model"),
        ("POST", "/v1/sessions", {"model": None, "language": None}, 400, "bad_setting"),
        ("POST", "/v1/sessions", {"memory": "900GB"}, 429, "quota"),
        ("POST", "/v1/sessions", {"memory": "19GB"}, 429, "busy"),
        ("POST", "/v1/sessions", {"memory": "lots"}, 400, "bad_setting"),
        ("POST", "/v1/sessions", {"colour": "red"}, 422, "bad_request"),
        ("POST", "/v1/sessions", [1], 422, "bad_request"),
        ("GET", "/v1/sessions/0000000000000000", None, 404, "unknown_session"),
        ("GET", "/v1/sessions/..%2f..%2fetc", None, 404, "bad_request"),
        ("GET", f"/v1/sessions/{watched.id}/events?after=-1", None, 422, "bad_request"),
        ("PUT", f"/v1/sessions/{watched.id}/video", None, 409, "wrong_source"),
        ("POST", "/v1/chat/completions", {**chat, "session_id": "x"}, 404, "unknown_session"),
        ("POST", "/v1/chat/completions", {"session_id": watched.id, "messages": []}, 422, "bad_request"),
        ("POST", "/v1/chat/completions", {**chat, "session_id": watched.id, "max_tokens": 999}, 400, "bad_question"),
        ("POST", f"/v1/sessions/{watched.id}/compare", {}, 422, "bad_request"),
        ("GET", "/v1/nothing", None, 404, "bad_request"),
        ("DELETE", "/v1/sessions", None, 405, "bad_request"),
    ]
    for method, path, body, status, code in wrong:
        reply = server.call(method, path, body)
        assert (reply.status, reply.code) == (status, code), (method, path, body, reply.content)
        assert reply.record["error"]["message"].endswith(".")
    busy = server.call("POST", "/v1/sessions", {"memory": "19GB"})
    assert int(busy.headers["retry-after"]) > 0


def test_a_client_is_told_in_its_own_words(server: ServerProcess, watched: RemoteSession) -> None:
    for id in ("abc", "a b", "0" * 16):
        with pytest.raises(
            InputError, match=rf"There is no session '{id}' on the server; client\.sessions\(\) lists all"
        ):
            longtake.Client(server.url).session(id)
    with pytest.raises(InputError, match=r"Expected a time for each picture, in seconds, as step\(picture, 0\.5\)"):
        watched.step(np.zeros((98, 126, 3), np.uint8))


def test_replies_of_json_end_with_a_newline(server: ServerProcess) -> None:
    for path in ("/health", "/ready", "/v1/sessions", "/v1/models", "/v1/nothing", f"/v1/sessions/{'0' * 16}"):
        assert server.call("GET", path).content.endswith(b"}\n")
    assert server.call("GET", "/v1/models", headers={"Host": "evil"}).content.endswith(b"}\n")


def test_a_sentence_says_what_was_wrong_with_a_request(server: ServerProcess, watched: RemoteSession) -> None:
    def said(method: str, path: str, content: bytes | None = None, kind: str = "application/json") -> str:
        reply = server.call(method, path, content=content, headers={"Content-Type": kind})
        return str(reply.record["error"]["message"])

    form = said("POST", "/v1/sessions", b'{"memory": "40MB"}', "application/x-www-form-urlencoded")
    assert "header Content-Type: application/json, but got application/x-www-form-urlencoded" in form
    assert "line 2, column 6: Expecting ':' delimiter." in said("POST", "/v1/sessions", b'{"memory": "40MB",\n "x" }')
    assert said("GET", "/v1/nothing") == "There is nothing at /v1/nothing; /docs lists all there is."
    assert said("DELETE", "/v1/sessions") == "There is no DELETE at /v1/sessions; /docs lists all there is."
    assert said("POST", "/v1/chat/completions", b'{"messages": [{"role": "user", "content": "x"}]}') == (
        "Expected session_id, but it is missing; /docs lists what each request takes."
    )
    assert said("POST", "/v1/sessions").startswith("Expected a body of JSON, but it is missing;")
    slip = said("POST", "/v1/sessions", b'{"sorce": "push"}')
    assert slip.startswith("There is no field 'sorce'; source is near; there are source, model, language, memory,")
    other = said("POST", f"/v1/sessions/{watched.id}/compare", b'{"question": "x", "{said}": 1}')
    assert other == "There is no field '{said}'; there are question, max_tokens."
    small = server.call("POST", "/v1/sessions", {"memory": "1MB", "language": None})
    assert (small.status, small.code) == (400, "budget_too_small")
    assert "at least 4.86 MB" in small.record["error"]["message"]
    for path, why in (
        (f"/v1/sessions/{'0' * 16}/live", "no session of this id"),
        (f"/v1/sessions/{watched.id}/live?after=-1", "another value of after"),
        ("/v1/live", "no socket at /v1/live"),
    ):
        with pytest.raises(InvalidStatus) as refused:
            connect_once(server.socket_url + path)
        assert refused.value.response.status_code == 403
        assert why in json.loads(refused.value.response.body or b"")["error"]["message"]
    with connecting.connect(f"{server.socket_url}/v1/sessions/{watched.id}/live", proxy=None) as socket:
        socket.send('{"type": }')
        while (event := json.loads(socket.recv(timeout=30)))["type"] != "error":
            pass
        assert event["message"] == "Expected a JSON object, but it breaks at line 1, column 10: Expecting value."


def test_a_session_that_was_ended_elsewhere_is_said_to_be_gone(server: ServerProcess) -> None:
    session = longtake.Client(server.url).open_session(memory="40MB")
    assert server.call("DELETE", f"/v1/sessions/{session.id}").status == 204
    with pytest.raises(InputError, match="no session of this id"):
        session.step(np.zeros((98, 126, 3), np.uint8), 0.0)


def test_bodies_beyond_the_limits_are_refused(server: ServerProcess) -> None:
    assert server.call("POST", "/v1/sessions", content=b" " * 1_000_001).code == "too_large"
    packed = server.call("POST", "/v1/sessions", content=b"{}", headers={"Content-Encoding": "gzip"})
    assert (packed.status, packed.code) == (415, "packed_body")


def test_hosts_and_origins_of_others_are_refused(server: ServerProcess, watched: RemoteSession) -> None:
    assert server.call("GET", "/v1/sessions", headers={"Host": "evil.example"}).code == "wrong_host"
    assert server.call("GET", "/v1/sessions", headers={"Origin": "http://evil.example"}).code == "wrong_origin"
    assert server.call("GET", "/v1/sessions", headers={"Origin": server.url}).status == 200
    live = f"{server.socket_url}/v1/sessions/{watched.id}/live"
    with pytest.raises(Exception, match="403"):
        connect_once(live, origin="http://evil.example")
    connect_once(live, origin=server.url)


def malformed(number: int, next_sequence: int) -> str | bytes:
    """Messages that mean nothing, of many kinds."""
    good = BinaryMessage(
        kind=MessageKind.FRAME,
        codec=Codec.RAW,
        sequence=next_sequence,
        time_us=0,
        fields={"width": 126, "height": 98, "time_s": 99.0},
        payload=bytes(126 * 98 * 3),
    ).pack()
    kinds: list[str | bytes] = [
        b"",
        good[:15],
        good[: 16 + number % 40],
        good[:-1],
        good + b"x",
        bytes([99]) + good[1:],
        bytes([1, 99]) + good[2:],
        bytes([1, 1, 0, 0]) + good[4:16] + b"\xff\xd8\xff" + bytes(number % 100),
        bytes([1, 2, 0, 0]) + good[4:16] + b"\x89PNG\r\n\x1a\n" + bytes(number % 50),
        bytes([2, 3, 0, 0]) + good[4:16],
        good[:2] + b"\xff\xff" + good[4:],
        good[:4] + (next_sequence + 7).to_bytes(4, "little") + good[8:],
        good.replace(b'"width": 126', b'"width": -26'),
        good.replace(b"99.0", b"null"),
        "",
        "nonsense",
        "[" * 5000,
        '{"type": "response.create"}',
        '{"type": "response.create", "question": 5}',
        '{"type": "response.create", "question": "Where?", "max_tokens": true}',
        '{"type": "response.cancel", "response": "none"}',
        '{"type": "session.update"}',
        '{"type": "credit", "bytes": -1}',
        '{"type": "credit", "bytes": NaN}',
        '{"type": "view.budget", "points": true}',
        '{"type": null}',
    ]
    return kinds[number % len(kinds)]


def test_malformed_messages_end_in_errors_and_leave_the_session(
    server: ServerProcess, frames: list[VideoFrame], local: Outputs
) -> None:
    with opened(server.url) as session:
        steps = stepped(session, frames[:10])
        live = f"{server.socket_url}/v1/sessions/{session.id}/live"
        with connecting.connect(live, proxy=None, compression=None) as socket:
            json.loads(socket.recv())
            for number in range(460):
                socket.send(malformed(number, 10))
                assert json.loads(socket.recv(timeout=30))["type"] == "error"
        assert Outputs(steps + stepped(session, frames[10:]), asked(session)) == local


def test_who_reads_nothing_is_closed_and_harms_nobody(server: ServerProcess, frames: list[VideoFrame]) -> None:
    with opened(server.url) as session:
        live = f"{server.socket_url}/v1/sessions/{session.id}/live?results=geometry"
        with connecting.connect(live, proxy=None, max_queue=1) as idle:
            stepped(session, frames)
            assert session.info["num_frames"] == 24
            idle.socket.close()


def test_two_watchers_hear_the_same_and_a_latecomer_hears_what_it_missed(
    server: ServerProcess, watched: RemoteSession
) -> None:
    live = f"{server.socket_url}/v1/sessions/{watched.id}/live"
    heard: list[list[dict[str, Any]]] = [[], []]

    def listen(number: int) -> None:
        with connecting.connect(live, proxy=None) as socket:
            while not heard[number] or heard[number][-1]["type"] != "response.output_text.done":
                heard[number].append(json.loads(socket.recv(timeout=30)))

    threads = [threading.Thread(target=listen, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    time.sleep(1.0)
    watched.ask(QUESTION)
    for thread in threads:
        thread.join(30)
    words = [[event for event in events if event["type"].startswith("response.")] for events in heard]
    assert words[0] == words[1]
    with connecting.connect(f"{live}?after={words[0][0]['id'] - 1}", proxy=None) as socket:
        assert [json.loads(socket.recv(timeout=30)) for _ in words[0]] == words[0]


def test_operators_are_told_how_it_is(server: ServerProcess) -> None:
    assert server.call("GET", "/health").record["status"] == "ok"
    assert server.call("GET", "/ready").record["status"] == "ready"
    paths = server.call("GET", "/v1/openapi.json").record["paths"]
    assert "/v1/chat/completions" in paths


def test_a_token_is_needed_where_one_is_set(tmp_path: Path) -> None:
    token = "a-token-of-some-length"
    with ServerProcess(tmp_path / "sessions", environment={"LONGTAKE_TOKEN": token}) as server:
        routes = server.call("GET", "/v1/openapi.json", headers={"Authorization": f"Bearer {token}"}).record["paths"]
        for path, methods in routes.items():
            for method in methods:
                for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {token}"}):
                    reply = server.call(method.upper(), path.replace("{id}", "0" * 16), headers=headers)
                    assert (reply.status == 401) == (path not in ("/health", "/ready")), (method, path)
        live = f"{server.socket_url}/v1/sessions/{'0' * 16}/live"
        with pytest.raises(Exception, match="403"):
            connect_once(live)
        client = longtake.Client(server.url, token=token)
        with client.open_session(ask=None, memory="10MB") as session:
            ticket = server.call("POST", "/v1/tickets", headers={"Authorization": f"Bearer {token}"}).record["ticket"]
            live = f"{server.socket_url}/v1/sessions/{session.id}/live?ticket={ticket}"
            connect_once(live)
            with pytest.raises(Exception, match="403"):
                connect_once(live)
        with pytest.raises(InputError, match="token"):
            longtake.Client(server.url).sessions()
        assert server.stop() == 0
        assert not any(token in path.read_text(errors="ignore") for path in tmp_path.rglob("*") if path.is_file())
