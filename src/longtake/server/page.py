"""The page of a server: files of the package, and the headers that keep a browser to them."""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable

from fastapi import APIRouter, Request, Response

from longtake.exports.viewer.script import module_names, module_text
from longtake.server.api_page import api_page
from longtake.server.problems import RequestError

_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Permissions-Policy": "camera=(self)",
    "Cache-Control": "no-cache",
}
_ENTRY, _VIEW = "index.html", "view"


@dataclass(frozen=True, slots=True)
class _File:
    content: bytes
    media_type: str
    tag: str


def page_router() -> APIRouter:
    """`/` and `/static/…`: nothing but what is in the package, by name; and `/docs`."""
    router, found = APIRouter(include_in_schema=False), _read_files()

    @router.get("/docs")
    async def docs(request: Request) -> Response:
        content = api_page(request.app.openapi()).encode()
        return Response(content, media_type=_TYPES["html"], headers=_HEADERS)

    @router.get("/")
    async def page(request: Request) -> Response:
        return _reply(found[_ENTRY], request)

    @router.get("/static/{name:path}")
    async def static(name: str, request: Request) -> Response:
        if name not in found:
            raise RequestError("unknown_file", "There is no such file of the page.", status=404)
        return _reply(found[name], request)

    return router


def _reply(file: _File, request: Request) -> Response:
    headers = {**_HEADERS, "ETag": file.tag}
    if request.headers.get("if-none-match") == file.tag:
        return Response(status_code=304, headers=headers)
    return Response(file.content, media_type=file.media_type, headers=headers)


def _read_files() -> Mapping[str, _File]:
    own = {found.name: found.read_bytes() for found in _folder().iterdir() if _type_of(found.name) is not None}
    shared = {f"{_VIEW}/{name}": module_text(name).encode() for name in module_names()}
    return {
        name: _File(content, _type_of(name) or "", f'"{sha256(content).hexdigest()[:32]}"')
        for name, content in (own | shared).items()
    }


def _folder() -> Traversable:
    return files(__package__).joinpath("page")


def _type_of(name: str) -> str | None:
    return _TYPES.get(name.rpartition(".")[2])
