"""What a real server writes to stderr: lines of JSON, and nothing that is secret."""

import json
from pathlib import Path

import pytest
from served import until
from server_process import ServerProcess

import longtake

pytest.importorskip("fastapi")
connecting = pytest.importorskip("websockets.sync.client")
pytestmark = pytest.mark.extra

TOKEN = "a-token-of-some-length"
PASSWORD = "open-sesame"


def events(server: ServerProcess, id: str, headers: dict[str, str]) -> list[str]:
    told = server.call("GET", f"/v1/sessions/{id}/events", headers=headers)
    assert PASSWORD not in told.content.decode()
    return [event["type"] for event in told.record["events"]]


def holds(path: Path, secret: str) -> bool:
    return path.is_file() and secret.encode() in path.read_bytes()


@pytest.mark.parametrize("level", ["debug", pytest.param("info", marks=pytest.mark.by_hand)])
def test_each_line_is_an_object_and_none_has_a_token_a_ticket_or_a_password(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], level: str
) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    options = ("--log-level", level, "--allow-addresses")
    with ServerProcess(tmp_path / "sessions", *options, environment={"LONGTAKE_TOKEN": TOKEN}) as server:
        asked = {"source": f"rtsp://robot:{PASSWORD}@127.0.0.1:9/stream?key={PASSWORD}", "language": None}
        stream = server.call("POST", "/v1/sessions", asked, headers=headers).record
        assert PASSWORD not in json.dumps(stream)
        until(lambda: "error" in events(server, stream["id"], headers), seconds=60.0)  # nobody streams there
        assert server.call("POST", "/v1/sessions", {"source": asked["source"], "no": 1}, headers=headers).status == 422
        with longtake.Client(server.url, token=TOKEN).open_session(ask=None, memory="10MB") as session:
            ticket = server.call("POST", "/v1/tickets", headers=headers).record["ticket"]
            live = f"{server.socket_url}/v1/sessions/{session.id}/live?ticket={ticket}"
            with connecting.connect(live, proxy=None) as socket:
                socket.recv(timeout=30)
            assert server.call("GET", f"/v1/nothing?token={TOKEN}", headers=headers).status == 404
        assert server.stop() == 0
    written = capfd.readouterr().err
    told = [json.loads(line) for line in written.splitlines()]
    assert {("session.created", "info", session.id), ("session.closed", "info", session.id)} <= {
        (one["event"], one["level"], one.get("session")) for one in told
    }
    assert all({"time", "level", "event", "logger"} <= one.keys() for one in told)
    assert TOKEN not in written
    assert PASSWORD not in written
    assert not [path for path in (tmp_path / "sessions").rglob("*") if holds(path, PASSWORD) or holds(path, TOKEN)]
    assert ticket not in written
