"""Every route of the OpenAPI and every socket, listed by the server itself, against those who may not come in."""

import gzip
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from server_process import ServerProcess

pytest.importorskip("fastapi")
connecting = pytest.importorskip("websockets.sync.client")
pytestmark = pytest.mark.extra

TOKEN = "a-token-of-some-length"
GOOD = {"Authorization": f"Bearer {TOKEN}"}
OPEN = ("/health", "/ready")
WRONG_TOKENS: list[dict[str, str]] = [
    {},
    {"Authorization": ""},
    {"Authorization": "Bearer "},
    {"Authorization": f"Bearer {TOKEN}x"},
    {"Authorization": f"Bearer {TOKEN[:-1]}"},
    {"Authorization": f"Basic {TOKEN}"},
    {"Authorization": TOKEN},
]
WRONG_NAMES = [
    "..",
    ".",
    "../../etc/passwd",
    "..%2f..%2fetc",
    "/etc/passwd",
    "\x00",
    "0" * 15,
    "0" * 17,
    "0" * 16,
    "ABCDEF0123456789",
    "é" * 16,
    "a" * 5000,
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("doors") / "sessions"
    with ServerProcess(folder, environment={"LONGTAKE_TOKEN": TOKEN}) as started:
        yield started


@pytest.fixture(scope="module")
def routes(server: ServerProcess) -> list[tuple[str, str]]:
    """Method and path of all, with pages that the description does not name."""
    paths = server.call("GET", "/v1/openapi.json", headers=GOOD).record["paths"]
    listed = [(method.upper(), path) for path, methods in paths.items() for method in methods]
    assert len(listed) >= 19
    return [*listed, ("GET", "/v1/openapi.json"), ("GET", "/docs"), ("GET", "/redoc"), ("GET", "/nothing")]


@pytest.fixture(scope="module")
def session(server: ServerProcess) -> str:
    return str(server.call("POST", "/v1/sessions", {"memory": "40MB"}, headers=GOOD).record["id"])


def filled(path: str, id: str) -> str:
    """With an id for the session, and a plain value for whatever else a path may name."""
    parts = [part if not part.startswith("{") else ("1" if part != "{id}" else id) for part in path.split("/")]
    return "/".join(parts)


def refused_socket(url: str, **options: Any) -> int:
    """The status of a handshake that is refused; 101 where it is not."""
    from websockets.exceptions import InvalidStatus

    try:
        with connecting.connect(url, proxy=None, **options):
            return 101
    except InvalidStatus as error:
        return int(error.response.status_code)


def live(server: ServerProcess, id: str) -> str:
    return f"{server.socket_url}/v1/sessions/{id}/live"


@pytest.mark.parametrize("headers", WRONG_TOKENS)
def test_no_route_and_no_socket_opens_without_the_token(
    server: ServerProcess, routes: list[tuple[str, str]], session: str, headers: dict[str, str]
) -> None:
    for method, path in routes:
        reply = server.call(method, filled(path, session), headers=headers)
        if path not in OPEN:
            assert (reply.status, reply.code) == (401, "unauthorized"), (method, path)
            assert reply.headers["www-authenticate"] == "Bearer"
        else:
            assert reply.status == 200
    assert refused_socket(live(server, session), additional_headers=headers) == 403
    assert refused_socket(f"{live(server, session)}?ticket=wrong", additional_headers=headers) == 403
    assert refused_socket(live(server, session), additional_headers=GOOD) == 101


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"Host": "evil.example"}, "wrong_host"),
        ({"Host": "127.0.0.1"}, "wrong_host"),
        ({"Host": "127.0.0.1:1"}, "wrong_host"),
        ({"Origin": "http://evil.example"}, "wrong_origin"),
        ({"Origin": "null"}, "wrong_origin"),
        ({"Origin": "https://127.0.0.1"}, "wrong_origin"),
    ],
)
def test_no_route_and_no_socket_opens_to_other_hosts_and_origins(
    server: ServerProcess, routes: list[tuple[str, str]], session: str, headers: dict[str, str], code: str
) -> None:
    for method, path in routes:
        reply = server.call(method, filled(path, session), headers=GOOD | headers)
        assert (reply.status in (403, 421), reply.code) == (True, code), (method, path)
    if "Origin" in headers:
        assert refused_socket(live(server, session), additional_headers=GOOD | headers) == 403


@pytest.mark.parametrize("name", WRONG_NAMES)
def test_names_that_no_session_has_lead_nowhere(
    server: ServerProcess, routes: list[tuple[str, str]], name: str
) -> None:
    before = sorted(server.folder.parent.rglob("*"))
    for method, path in routes:
        if "{id}" in path:
            reply = server.call(method, filled(path, quote(name, safe="")), {}, headers=GOOD)
            assert reply.status in (404, 405, 422), (method, path, reply.content)
            assert b"root:" not in reply.content
    body = {"session_id": name, "messages": [{"role": "user", "content": "x"}]}
    assert server.call("POST", "/v1/chat/completions", body, headers=GOOD).status == 404
    assert refused_socket(live(server, quote(name, safe="")), additional_headers=GOOD) in (403, 404)
    assert sorted(server.folder.parent.rglob("*")) == before


@pytest.mark.parametrize(
    "source",
    [
        "http://127.0.0.1:1/x.mp4",
        "https://a/b",
        "rtsp://user:secret@a/b",
        "camera:0",
        "file:///etc/passwd",
        "/etc",
        ".",
    ],
)
def test_addresses_are_not_opened_for_clients(server: ServerProcess, source: str) -> None:
    reply = server.call("POST", "/v1/sessions", {"source": source}, headers=GOOD)
    assert (reply.status, reply.code) == (403, "source_forbidden")
    assert b"secret" not in reply.content


@pytest.mark.parametrize("field", ["model", "language"])
@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "os:system", "http://a/b"])
def test_models_are_only_those_that_are_offered(server: ServerProcess, field: str, name: str) -> None:
    reply = server.call("POST", "/v1/sessions", {field: name}, headers=GOOD)
    assert (reply.status, reply.code) == (404, "unknown_model")


def test_bodies_too_large_or_packed_are_refused_on_every_route(
    server: ServerProcess, routes: list[tuple[str, str]], session: str
) -> None:
    bomb = gzip.compress(bytes(10_000_000))
    for method, path in routes:
        where = filled(path, session)
        packed = server.call(method, where, content=bomb, headers=GOOD | {"Content-Encoding": "gzip"})
        assert (packed.status, packed.code) == (415, "packed_body"), (method, path)
        if path.endswith("/video"):
            large = server.call(method, where, content=b"x", headers=GOOD | {"Content-Length": str(4_000_000_001)})
        else:
            large = server.call(method, where, content=bytes(1_000_001), headers=GOOD)
        assert (large.status, large.code) == (413, "too_large"), (method, path)


def test_what_was_refused_left_no_session_and_no_secret(server: ServerProcess, session: str) -> None:
    listed = server.call("GET", "/v1/sessions", headers=GOOD).record["sessions"]
    assert [one["id"] for one in listed] == [session]
    assert TOKEN not in json.dumps(listed)
