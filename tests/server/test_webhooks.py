"""Findings of standing questions, posted to hosts that the operator allows, and to no others."""

import json
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from served import ASK, QUESTION, Start, events_of, open_session, push, until

from longtake.errors import SettingError
from longtake.server import webhooks
from longtake.server.events import EventLog, SessionEvent
from longtake.server.problems import RequestError
from longtake.server.watches import Watch
from longtake.server.webhooks import Webhooks, require_webhook, webhook_hosts
from longtake.video.frame import VideoFrame

HOSTS = webhook_hosts(["robot.lan", "127.0.0.1:9000", "[::1]:9000", "Hook.example:8443"])


class Heard(HTTPServer):
    """A host that is posted to; it keeps what it hears, and replies with these statuses, the last of them for ever."""

    def __init__(self, statuses: Sequence[int]) -> None:
        super().__init__(("127.0.0.1", 0), _Hearing)
        self.statuses, self.bodies, self.headers = list(statuses), list[dict[str, object]](), list[dict[str, str]]()

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.server_port}"


class _Hearing(BaseHTTPRequestHandler):
    server: Heard

    def do_POST(self) -> None:
        server = self.server
        server.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        server.headers.append(dict(self.headers.items()))
        status = server.statuses.pop(0) if len(server.statuses) > 1 else server.statuses[0]
        self.send_response(status)
        self.send_header("Location", f"http://{server.host}/elsewhere")
        self.end_headers()

    def do_GET(self) -> None:
        raise AssertionError("a redirect was followed")

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def hearing() -> Iterator[Callable[..., Heard]]:
    started: list[Heard] = []

    def begin(*statuses: int) -> Heard:
        server = Heard(statuses or (200,))
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        started.append(server)
        return server

    yield begin
    for server in started:
        server.shutdown()
        server.server_close()


def watch(url: str) -> Watch:
    return Watch(id="w", question="Is it day?", expected="yes", webhook=url)


def fired(number: int = 1) -> SessionEvent:
    return SessionEvent(number, "watch.fired", {"watch": "w", "time_s": 2.5, "text": "yes", "seen_until_s": 2.5})


@pytest.mark.parametrize(
    "url",
    [
        "http://robot.lan/found",
        "https://robot.lan",
        "https://ROBOT.lan:443/x?y=1",
        "http://127.0.0.1:9000/",
        "http://[::1]:9000/x",
        "https://hook.example:8443",
    ],
)
def test_hosts_that_were_named_are_posted_to(url: str) -> None:
    assert require_webhook(url, HOSTS).geturl()


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("http://robot.lan:8080/", "webhook_forbidden"),
        ("http://127.0.0.1/", "webhook_forbidden"),
        ("http://10.0.0.1/", "webhook_forbidden"),
        ("http://[::1]/", "webhook_forbidden"),
        ("http://robot.lan.evil.example/", "webhook_forbidden"),
        ("http://2130706433/", "webhook_forbidden"),
        ("https://hook.example/", "webhook_forbidden"),
        ("file:///etc/passwd", "bad_webhook"),
        ("gopher://robot.lan/", "bad_webhook"),
        ("//robot.lan/", "bad_webhook"),
        ("robot.lan", "bad_webhook"),
        ("http://me:secret@robot.lan/", "bad_webhook"),
        ("http://evil.example@robot.lan/", "bad_webhook"),
        ("http://robot.lan/#x", "bad_webhook"),
        ("http://robot.lan:99999/", "bad_webhook"),
        ("http://robot.lan:0/", "bad_webhook"),
        ("http://robot.lan/\r\nX: y", "bad_webhook"),
        ("http://robot.lan/a b", "bad_webhook"),
        ("http://röbot.lan/", "bad_webhook"),
        ("http://robot.lan/" + "x" * 2000, "bad_webhook"),
        ("", "bad_webhook"),
    ],
)
def test_other_addresses_are_refused_in_a_sentence(url: str, code: str) -> None:
    with pytest.raises(RequestError, match="Expected a webhook") as refused:
        require_webhook(url, HOSTS)
    assert refused.value.code == code
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("host", ["http://robot.lan", "robot.lan/x", "me@robot.lan", "", "robot.lan:x"])
def test_what_an_operator_allows_is_a_host(host: str) -> None:
    with pytest.raises(SettingError, match="Expected --allow-webhooks"):
        webhook_hosts([host])


def test_a_finding_is_posted_once_and_carries_nothing_else(hearing: Callable[..., Heard]) -> None:
    host, log = hearing(), EventLog()
    hooks = Webhooks(webhook_hosts([host.host]))
    hooks.tell("ab", [watch(f"http://{host.host}/found?x=1")], fired(), log)
    until(lambda: bool(host.bodies))
    hooks.close()
    assert host.bodies == [
        {
            "session": "ab",
            "question": "Is it day?",
            "expected": "yes",
            "watch": "w",
            "time_s": 2.5,
            "text": "yes",
            "seen_until_s": 2.5,
        }
    ]
    assert not {"authorization", "cookie"} & {name.lower() for name in host.headers[0]}
    assert log.after(0) == []


@pytest.mark.parametrize("statuses", [(500, 200), (307, 204)])
def test_it_is_tried_twice_and_no_redirect_is_followed(
    hearing: Callable[..., Heard], statuses: tuple[int, int]
) -> None:
    host, log = hearing(*statuses), EventLog()
    hooks = Webhooks(webhook_hosts([host.host]))
    hooks.tell("ab", [watch(f"http://{host.host}/")], fired(), log)
    until(lambda: len(host.bodies) == 2)
    hooks.close()
    assert log.after(0) == []


def test_a_host_that_fails_twice_is_an_error_of_the_session(hearing: Callable[..., Heard]) -> None:
    host, log = hearing(500), EventLog()
    hooks = Webhooks(webhook_hosts([host.host]))
    hooks.tell("ab", [watch(f"http://{host.host}/")], fired(), log)
    until(lambda: bool(log.after(0)))
    hooks.close()
    (error,) = log.after(0)
    assert (error.type, error.fields["code"], error.fields["watch"]) == ("error", "webhook_failed", "w")
    assert "it replied 500" in error.fields["message"]
    assert len(host.bodies) == 2


def test_a_host_that_takes_its_time_holds_up_nobody_and_few_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhooks, "_TIMEOUT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        host, log = f"127.0.0.1:{silent.getsockname()[1]}", EventLog()
        hooks = Webhooks(webhook_hosts([host]))
        started_s = time.monotonic()
        for number in range(100):
            hooks.tell("ab", [watch(f"http://{host}/")], fired(number), log)
        assert time.monotonic() - started_s < 0.2
        until(lambda: len(log.after(0)) > 35)
        hooks.close()
        assert any("too many wait" in event.fields["message"] for event in log.after(0))


def test_a_host_that_is_silent_holds_up_no_other_and_all_ends_are_counted(hearing: Callable[..., Heard]) -> None:
    host, log, ends = hearing(), EventLog(), Counter[str]()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        other = f"127.0.0.1:{silent.getsockname()[1]}"
        hooks = Webhooks(webhook_hosts([host.host, other]), lambda end: ends.update([end]))
        for number in range(70):
            hooks.tell("ab", [watch(f"http://{other}/")], fired(number), log)
        hooks.tell("ab", [watch(f"http://{host.host}/")], fired(), log)
        until(lambda: ends["sent"] == 1)
        assert len(host.bodies) == 1
        assert ends["dropped"] in (5, 6)
    hooks.close()


def test_a_standing_question_posts_what_it_finds_and_is_refused_where_that_is_not_allowed(
    start: Start, frames: Sequence[VideoFrame], hearing: Callable[..., Heard]
) -> None:
    host = hearing()
    session = open_session(start(webhook_hosts=webhook_hosts([host.host])), ASK)
    push(session, frames[:6])
    expected = session.ask("q", QUESTION).result(timeout=60)["text"]
    standing = Watch(id="w", question=QUESTION, expected=expected, every_s=0.2, webhook=f"http://{host.host}/x?key=1")
    with pytest.raises(RequestError, match="--allow-webhooks"):
        session.watch(Watch(id="w", question=QUESTION, expected=expected, webhook="http://127.0.0.1:1/"))
    assert session.description["watches"] == []
    session.watch(standing).result(timeout=60)
    assert session.description["watches"][0]["webhook"] == f"http://{host.host}/x"
    push(session, frames[6:12], first=6)
    until(lambda: bool(host.bodies))
    assert host.bodies[0]["text"] == expected
    assert host.bodies[0]["session"] == session.id
    assert events_of(session, "error") == []
