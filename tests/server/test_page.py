"""The page as files: all of them are there, by name only, under a policy that keeps a browser to them."""

import asyncio
import re
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path

import pytest
from server_process import ServerProcess

from longtake.exports.viewer.script import as_one_script, module_names, module_text
from longtake.server.access import AccessRules, App, Message, Scope
from longtake.server.engine import Engine
from longtake.server.networks import Networks
from longtake.server.settings import ServerSettings

pytest.importorskip("fastapi")
from longtake.server.app import create_app

PAGE = files("longtake.server").joinpath("page")
MODULES = {found.name: found.read_text("utf-8") for found in PAGE.iterdir() if found.name.endswith(".js")}
SHARED = {f"view/{name}": module_text(name) for name in module_names()}


def test_modules_import_only_what_is_there() -> None:
    for name, text in (MODULES | SHARED).items():
        folder = "view/" if name.startswith("view/") else ""
        for imported in re.findall(r'from "\./([^"]+)"', text):
            assert folder + imported in MODULES | SHARED, (name, imported)
        assert not re.search(r'from "(?!\./)', text), name


def test_text_is_never_set_as_markup() -> None:
    for name, text in (MODULES | SHARED).items():
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function", text), name


def test_nothing_is_asked_of_other_servers() -> None:
    texts = MODULES | SHARED | {name: PAGE.joinpath(name).read_text("utf-8") for name in ("index.html", "style.css")}
    for name, text in texts.items():
        addresses = set(re.findall(r"https?://[^\s\"'`)]+", text)) - {"http://www.w3.org/2000/svg"}
        assert not addresses, name


def test_the_view_as_one_script_has_each_module_once() -> None:
    script = as_one_script('import { Viewer } from "./viewer.js";\nnew Viewer();\n')
    assert "import " not in script
    assert not re.search(r"^export ", script, re.MULTILINE)
    assert script.count("class PointRing") == script.count("class Viewer ") == 1
    declared = re.findall(r"^(?:const|let|class|function|async function) (\w+)", script, re.MULTILINE)
    assert len(declared) == len(set(declared))


@dataclass
class Reply:
    """What an ASGI app said to one request."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


def got(app: App, path: str, **headers: str) -> Reply:
    reply = Reply()
    given = {"host": "robot.lan:8765", **{name.replace("_", "-"): value for name, value in headers.items()}}
    scope: Scope = {"type": "http", "method": "GET", "path": path, "query_string": b"", "http_version": "1.1"}
    scope |= {"headers": [(name.encode(), value.encode()) for name, value in given.items()], "root_path": ""}

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            reply.status = message["status"]
            reply.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        reply.body += message.get("body", b"")

    asyncio.run(app(scope, receive, send))
    return reply


@pytest.mark.extra
def test_the_page_needs_no_token_and_its_files_are_served_by_name(tmp_path: Path) -> None:
    engine = Engine(ServerSettings(folder=tmp_path / "sessions"), Networks(device="cpu"))
    app = create_app(engine, AccessRules.named(("robot.lan",), 8765, token="a-token-of-some-length"))
    page = got(app, "/")
    assert (page.status, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    for name in [*MODULES, *SHARED, "style.css", "panels.css", "api.css", "icon.svg"]:
        found = got(app, f"/static/{name}")
        assert (found.status, found.headers["content-security-policy"]) == (200, policy), name
        again = got(app, f"/static/{name}", if_none_match=found.headers["etag"])
        assert (again.status, again.body) == (304, b"")
    for name in ("view/__init__.py", "view/script.py", "../app.py", "", "view/"):
        assert got(app, f"/static/{name}").status == 404, name
    assert got(app, "/v1/sessions").status == 401
    assert got(app, "/static").status == 401
    assert got(app, "/docs").status == 401
    docs = got(app, "/docs", authorization="Bearer a-token-of-some-length")
    assert docs.headers["content-security-policy"] == policy
    text = docs.body.decode()
    assert "<code>POST /v1/sessions/{id}/fork</code>" in text
    assert "delivery" in text
    assert not re.search(r"https?://|<script|style=", text)


@pytest.mark.extra
def test_the_page_is_opened_with_its_token_while_models_are_loaded(tmp_path: Path) -> None:
    browser, opened, token = tmp_path / "browser", tmp_path / "opened", "a-token-of-some-length"
    browser.write_text(f'#!/bin/sh\necho "$1" > {opened}\n')
    browser.chmod(0o755)
    environment = {"BROWSER": str(browser), "LONGTAKE_TOKEN": token}
    with ServerProcess(tmp_path / "sessions", "--open", environment=environment) as server:
        assert opened.read_text().strip() == f"{server.url}/#token={token}"
