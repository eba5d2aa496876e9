"""What a real server writes to stderr: lines of JSON, and nothing that is secret."""

import json
from pathlib import Path

import pytest
from server_process import ServerProcess

import longtake

pytest.importorskip("fastapi")
connecting = pytest.importorskip("websockets.sync.client")
pytestmark = pytest.mark.extra

TOKEN = "a-token-of-some-length"


def test_each_line_is_an_object_and_none_has_a_token_or_a_ticket(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    with ServerProcess(tmp_path / "sessions", "--log-level", "debug", environment={"LONGTAKE_TOKEN": TOKEN}) as server:
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
    assert ticket not in written
