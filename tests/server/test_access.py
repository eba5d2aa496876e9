"""The rules of access as plain ASGI: sockets and requests alike, before any framework sees them."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest

from longtake.server.access import Access, AccessRules, Message, Receive, Scope, Send, Tickets
from longtake.server.settings import Limits

TOKEN = "a-token-of-some-length"
RULES = AccessRules.named(("robot.lan",), 8765, token=TOKEN)
GOOD = {"host": "robot.lan:8765", "authorization": f"Bearer {TOKEN}"}


def sent(
    headers: dict[str, str],
    *,
    kind: str = "http",
    path: str = "/v1/sessions",
    method: str = "POST",
    query: str = "",
    tickets: Tickets | None = None,
    bodies: Sequence[bytes] = (b"{}",),
    extensions: dict[str, Any] | None = None,
) -> list[Message]:
    """What comes back; the app behind it reads all and says 200."""
    replies: list[Message] = []
    waiting = [
        {"type": "http.request", "body": body, "more_body": place < len(bodies) - 1}
        for place, body in enumerate(bodies)
    ]
    if kind == "websocket":
        waiting = [{"type": "websocket.connect"}]

    async def receive() -> Message:
        return waiting.pop(0)

    async def send(message: Message) -> None:
        replies.append(message)

    async def behind(scope: Scope, receive: Receive, send: Send) -> None:
        while (await receive()).get("more_body", False):
            pass
        await send({"type": "reached", "status": 200})

    scope: dict[str, Any] = {
        "type": kind,
        "path": path,
        "method": method,
        "query_string": query.encode(),
        "extensions": extensions or {},
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
    }
    limits = Limits(body_bytes=100, upload_bytes=1000)
    asyncio.run(Access(behind, RULES, tickets or Tickets(), limits)(scope, receive, send))
    return replies


def code(replies: list[Message]) -> str:
    return str(json.loads(replies[1]["body"])["error"]["code"])


def test_what_brings_all_is_let_through() -> None:
    assert sent(GOOD)[0]["type"] == "reached"
    assert sent(GOOD, kind="websocket")[0]["type"] == "reached"
    assert sent({**GOOD, "origin": "http://robot.lan:8765"})[0]["type"] == "reached"


WRONG = {
    "wrong_host": [
        {**GOOD, "host": host} for host in ("", "evil", "robot.lan", "robot.lan:8766", "robot.lan:8765.evil")
    ],
    "wrong_origin": [
        {**GOOD, "origin": origin} for origin in ("null", "http://evil", "https://robot.lan:8765", "http://robot.lan")
    ],
    "unauthorized": [
        {"host": GOOD["host"], "authorization": given}
        for given in ("", "Bearer", "Bearer x", f"Basic {TOKEN}", f"Bearer {TOKEN}x", TOKEN, "Bearer é")
    ],
}


@pytest.mark.parametrize(("expected", "headers"), [(name, one) for name, some in WRONG.items() for one in some])
def test_what_brings_something_wrong_is_refused_as_request_and_as_socket(
    expected: str, headers: dict[str, str]
) -> None:
    assert code(sent(headers)) == expected
    (closed,) = sent(headers, kind="websocket")
    assert (closed["type"], closed["code"]) == ("websocket.close", 1008)
    told = sent(headers, kind="websocket", extensions={"websocket.http.response": {}})
    assert [part["type"].removeprefix("websocket.http.response.") for part in told] == ["start", "body"]
    assert (told[0]["status"], code(told)) == (403, expected)


def test_a_refusal_says_what_to_do() -> None:
    def sentence(**headers: str) -> str:
        return str(json.loads(sent(headers)[1]["body"])["error"]["message"])

    for given, came in (({}, "none came"), ({"authorization": "Bearer x"}, "another came")):
        told = sentence(host=GOOD["host"], **given)
        assert came in told
        assert all(way in told for way in ("Authorization: Bearer", "--token", "LONGTAKE_TOKEN"))
    assert "start it with --name cellar.lan." in sentence(host="cellar.lan:8765")
    assert "robot.lan at another port" in sentence(host="Robot.lan:1").replace("Robot", "robot")
    assert "robot" not in sentence(host="cellar.lan:1")  # no name is told to who does not know it


def test_a_ticket_opens_one_request_within_its_minute() -> None:
    now_s = 0.0
    tickets = Tickets(lambda: now_s)
    bare = {"host": GOOD["host"]}
    ticket = tickets.issue()
    assert sent(bare, kind="websocket", query=f"ticket={ticket}", tickets=tickets)[0]["type"] == "reached"
    assert code(sent(bare, query=f"ticket={ticket}", tickets=tickets)) == "unauthorized"
    ticket = tickets.issue()
    now_s = 61.0
    assert code(sent(bare, query=f"ticket={ticket}", tickets=tickets)) == "unauthorized"
    assert code(sent(bare, query="ticket=", tickets=tickets)) == "unauthorized"


def test_that_it_runs_is_said_without_a_token_but_to_no_other_host() -> None:
    assert sent({"host": GOOD["host"]}, path="/health")[0]["type"] == "reached"
    assert code(sent({"host": "evil"}, path="/health")) == "wrong_host"


def test_bodies_are_bounded_whatever_they_declare() -> None:
    assert code(sent({**GOOD, "content-length": "101"})) == "too_large"
    assert code(sent({**GOOD, "content-length": "-1"})) == "too_large"
    upload = sent({**GOOD, "content-length": "101"}, method="PUT", path="/v1/sessions/x/video")
    assert upload[0]["type"] == "reached"
    assert code(sent({**GOOD, "content-encoding": "gzip"})) == "packed_body"
    with pytest.raises(Exception, match="at most 100 bytes"):
        sent(GOOD, bodies=[b"x" * 60, b"x" * 60])


def test_this_machine_needs_no_token_but_its_own_name() -> None:
    rules = AccessRules.local(8765)
    assert rules.token is None
    assert "localhost:8765" in rules.hosts
    assert "http://127.0.0.1:8765" in rules.origins
    assert "https://x" in AccessRules.named(("x",), 443, scheme="https").origins
