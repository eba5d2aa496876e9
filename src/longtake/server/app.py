"""The routes of a server, each a few lines over the engine."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, FastAPI, Query, Request, Response, WebSocket
from fastapi.exceptions import RequestValidationError, WebSocketRequestValidationError
from fastapi.responses import PlainTextResponse, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError
from starlette.exceptions import HTTPException
from starlette.websockets import WebSocketState

from longtake import __version__
from longtake.api.arguments import memory_bytes
from longtake.errors import LongtakeError
from longtake.server.access import REFUSED_SOCKET_STATUS, Access, AccessRules, App, Tickets
from longtake.server.chat import ChatRequest, Completion
from longtake.server.choosing import chosen
from longtake.server.comparing import Comparisons
from longtake.server.download_routes import download_routes
from longtake.server.downloads import Downloads
from longtake.server.engine import Engine
from longtake.server.live_socket import LiveSocket
from longtake.server.metrics import metrics_text
from longtake.server.page import page_router
from longtake.server.problems import RETRY_AFTER_S, RequestError, problem_of, without_place
from longtake.server.replies import JsonReply
from longtake.server.results import geometry_bytes
from longtake.server.spec import UPLOAD, Delivery, SessionSpec
from longtake.server.uploads import receive_video, remove_unfinished_video

_DEFAULT = "default"
_MOST_EVENTS = 10**15
_MISSING, _UNKNOWN_NAME = "missing", "unknown_name"
"""Kinds of what is wrong with a request: pydantic's own, and ours."""


class PlainRequest(BaseModel):
    """A request in which a name that it does not have is a slip of who wrote it."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def require_known_names(cls, given: Any) -> Any:
        names = list(cls.model_fields)
        unknown = next((name for name in given if name not in names), None) if isinstance(given, dict) else None
        if unknown is not None:
            near = "".join(f"{name} is near; " for name in get_close_matches(str(unknown), names, 1))
            said = f"There is no field {str(unknown)[:80]!r}; {near}there are {', '.join(names)}."
            raise PydanticCustomError(_UNKNOWN_NAME, "{said}", {"said": said})
        return given


class SessionRequest(PlainRequest):
    """What a session is to be; a model of null is left out, one that is not named is the server's first."""

    source: str = Field(default="push", max_length=2000, description="push, upload, world or world:9?frames=60")
    model: str | None = Field(default=_DEFAULT, max_length=200, description="of the map; null for questions alone")
    language: str | None = Field(default=_DEFAULT, max_length=200, description="of questions; null for a map alone")
    memory: str | int | None = Field(default=None, description="such as 64MB")
    share: float = Field(default=0.5, gt=0, lt=1, description="the map's part of the memory")
    ask_fps: float = Field(default=2.0, gt=0, le=1e6)
    fps: float | None = Field(default=None, gt=0, le=1e6)
    delivery: Delivery = Delivery.EVERY
    max_tokens: int = Field(default=64, ge=1, le=4096)
    loops: bool = Field(default=True, description="whether the map closes loops, where its model's card says how")
    title: str | None = Field(default=None, max_length=200, description="what people call it, such as walk.mp4")
    exact: bool = Field(default=True, description="that no other session changes a bit; it is always so")

    def spec(self, engine: Engine) -> SessionSpec:
        memory = engine.settings.session_bytes if self.memory is None else memory_bytes(self.memory)
        maps, languages = engine.networks.maps, engine.networks.languages
        return SessionSpec(
            source=self.source,
            model=next(iter(maps), None) if self.model == _DEFAULT else self.model,
            language=next(iter(languages), None) if self.language == _DEFAULT else self.language,
            memory_bytes=memory,
            share=self.share,
            ask_fps=self.ask_fps,
            fps=self.fps,
            delivery=self.delivery,
            max_tokens=self.max_tokens,
            loops=self.loops,
            title=(self.title or "").strip() or None,
        )


class ChooseRequest(PlainRequest):
    """A question, and the answers to choose from."""

    question: str = Field(max_length=100_000)
    choices: list[Annotated[str, Field(min_length=1, max_length=400)]] = Field(min_length=2, max_length=26)


class CompareRequest(PlainRequest):
    """A question to be answered three ways."""

    question: str = Field(max_length=100_000)
    max_tokens: int | None = Field(default=None, ge=1, le=4096)


def create_app(engine: Engine, rules: AccessRules) -> App:
    """The whole server as an ASGI app over an engine that has begun; it drains the engine when it ends."""
    tickets, downloads = Tickets(), Downloads(engine.settings.folder)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        downloads.clear()
        for session in engine.sessions:
            remove_unfinished_video(session)
        yield
        with ThreadPoolExecutor(1, thread_name_prefix="longtake-drain") as own:  # those of requests may all be busy
            await asyncio.get_running_loop().run_in_executor(own, engine.drain)
        downloads.close()

    app = FastAPI(
        title="longtake",
        version=__version__,
        lifespan=lifespan,
        openapi_url="/v1/openapi.json",
        docs_url=None,  # the page's own, which needs nothing from elsewhere
        redoc_url=None,
        default_response_class=JsonReply,
    )
    tell_problem = partial(_tell_problem, engine.settings.folder)
    app.add_exception_handler(LongtakeError, tell_problem)
    app.add_exception_handler(RequestValidationError, _tell_invalid)
    app.add_exception_handler(WebSocketRequestValidationError, _tell_invalid_socket)
    app.add_exception_handler(HTTPException, _tell_http)
    app.add_exception_handler(Exception, tell_problem)
    app.include_router(page_router())
    app.include_router(_operations(engine))
    app.include_router(_sessions(engine), prefix="/v1")
    app.include_router(_results(engine), prefix="/v1")
    app.include_router(download_routes(engine, downloads), prefix="/v1")
    app.include_router(_questions(engine, tickets), prefix="/v1")
    app.include_router(_unknown_sockets())
    return Access(app, rules, tickets, engine.settings.limits)


def _operations(engine: Engine) -> APIRouter:
    router = APIRouter(tags=["operations"])

    @router.get("/health")
    async def health() -> dict[str, str]:
        """That the server runs."""
        return {"status": "ok", "version": __version__}

    @router.get("/ready")
    async def ready() -> Response:
        """Whether it takes sessions: 503 while it ends."""
        status = "draining" if engine.is_draining else "ready"
        return JsonReply({"status": status}, status_code=503 if engine.is_draining else 200)

    @router.get("/metrics", response_class=PlainTextResponse)
    async def metrics() -> Response:
        """For Prometheus."""
        return Response(await asyncio.to_thread(metrics_text, engine), media_type="text/plain; version=0.0.4")

    return router


def _sessions(engine: Engine) -> APIRouter:
    router = APIRouter(tags=["sessions"])

    @router.post("/sessions", status_code=201)
    async def open_session(request: SessionRequest) -> dict[str, Any]:
        """Open a session; 429 where there is no room or no time."""
        session = await asyncio.wrap_future(engine.open(request.spec(engine)))
        if session.record.spec.source != UPLOAD:
            engine.feed(session.id)
        return dict(session.description)

    @router.get("/sessions")
    async def list_sessions() -> dict[str, Any]:
        """All sessions, in memory and on disk."""
        return {"sessions": [session.description for session in engine.sessions], "damaged": engine.damaged}

    @router.get("/sessions/{id}")
    async def describe(id: str) -> dict[str, Any]:
        return engine.session(id).description

    @router.delete("/sessions/{id}", status_code=204)
    async def close(id: str) -> None:
        """End a session and remove what is on disk."""
        await asyncio.wrap_future(await asyncio.to_thread(engine.close, id))

    @router.post("/sessions/{id}/save")
    async def save(id: str) -> dict[str, Any]:
        return await _described(engine, id, engine.session(id).save())

    @router.post("/sessions/{id}/evict")
    async def evict(id: str) -> dict[str, Any]:
        """Save it and let it leave memory; the next frame or question brings it back."""
        return await _described(engine, id, engine.session(id).evict())

    @router.post("/sessions/{id}/pause")
    async def pause(id: str) -> dict[str, Any]:
        return await _described(engine, id, engine.session(id).pause(is_paused=True))

    @router.post("/sessions/{id}/resume")
    async def resume(id: str) -> dict[str, Any]:
        return await _described(engine, id, engine.session(id).pause(is_paused=False))

    @router.post("/sessions/{id}/fork", status_code=201)
    async def fork(id: str) -> dict[str, Any]:
        """Another session that goes on from here."""
        forked = await asyncio.wrap_future(await asyncio.to_thread(engine.fork, id))
        return dict(forked.description)

    @router.put("/sessions/{id}/video", status_code=202)
    async def upload(id: str, request: Request) -> dict[str, Any]:
        """The video of a session whose source is upload; it runs at once."""
        session = engine.session(id)
        await receive_video(engine, session, request)
        engine.feed(id)
        return session.description

    return router


def _results(engine: Engine) -> APIRouter:
    router = APIRouter(tags=["results"])

    @router.post("/sessions/{id}/finish", response_class=Response)
    async def finish(id: str) -> Response:
        """The results still owed, as safetensors; 204 where nothing maps."""
        geometry = await asyncio.wrap_future(engine.session(id).finish())
        if geometry is None:
            return Response(status_code=204)
        return Response(geometry_bytes(geometry), media_type="application/octet-stream")

    @router.get("/sessions/{id}/poses.tum", response_class=PlainTextResponse)
    async def poses(id: str, response: Response) -> str:
        """The poses so far: time, centre, quaternion; the header `Longtake-Version` is of the last correction in it."""
        version, lines = await asyncio.to_thread(engine.session(id).poses)
        response.headers["Longtake-Version"] = str(version)
        return lines

    @router.get("/sessions/{id}/events")
    async def events(id: str, after: Annotated[int, Query(ge=0, le=_MOST_EVENTS)] = 0) -> dict[str, Any]:
        """Events of higher ids, as many as are kept."""
        return {"events": [event.record for event in engine.session(id).events.after(after)]}

    @router.get("/sessions/{id}/conversation")
    async def conversation(id: str) -> dict[str, Any]:
        """The last questions with their answers, also of before a restart, and standing questions that fired."""
        return {"exchanges": engine.session(id).conversation.exchanges}

    @router.websocket("/sessions/{id}/live")
    async def live(
        socket: WebSocket,
        id: str,
        after: Annotated[int | None, Query(ge=0, le=_MOST_EVENTS)] = None,
        results: Annotated[str, Query(pattern="^(events|geometry)$")] = "events",
        client: Annotated[str, Query(pattern="^[0-9a-f]{0,32}$")] = "",
    ) -> None:
        session = engine.session(id)
        live = LiveSocket(socket, session, engine.settings.limits, wants_geometry=results == "geometry")
        await live.run(after, client)

    return router


def _unknown_sockets() -> APIRouter:
    router = APIRouter()

    @router.websocket("/{path:path}")
    async def unknown(path: str) -> None:
        raise RequestError("bad_request", f"There is no socket at /{path}; /v1/sessions/ID/live is one.", status=404)

    return router


def _questions(engine: Engine, tickets: Tickets) -> APIRouter:
    router, comparisons = APIRouter(tags=["questions"]), Comparisons(engine)

    @router.post("/chat/completions", response_model=None)
    async def complete(request: ChatRequest) -> Response | dict[str, Any]:
        """A question about a session, as OpenAI's clients ask it."""
        completion = Completion(engine.session(request.session_id), request)
        if not request.stream:
            return await completion.whole()
        return StreamingResponse(await completion.begin(), media_type="text/event-stream")

    @router.post("/sessions/{id}/compare")
    async def compare_answers(id: str, request: CompareRequest) -> dict[str, Any]:
        """The same question answered by the stream, by encoding everything anew, and by the last frame."""
        return await comparisons.answers(engine.session(id), request.question, request.max_tokens)

    @router.post("/sessions/{id}/choose")
    async def choose(id: str, request: ChooseRequest) -> dict[str, Any]:
        """How likely each of several answers is, by the log-likelihood of its tokens; `text` is the likeliest."""
        return await chosen(engine.session(id), request.question, request.choices)

    @router.get("/models")
    async def models() -> dict[str, Any]:
        """What the server offers, and what to ask."""
        maps = [{"id": name, "object": "model", "owned_by": "longtake", "kind": "map"} for name in engine.networks.maps]
        languages = [
            {
                "id": name,
                "object": "model",
                "owned_by": "longtake",
                "kind": "language",
                "questions": engine.networks.questions_for(name),
                "words": engine.networks.words_for(name),
            }
            for name in engine.networks.languages
        ]
        return {"object": "list", "data": [*maps, *languages]}

    @router.post("/tickets", status_code=201)
    async def ticket() -> dict[str, str]:
        """For a page: opens one request as `?ticket=`, within a minute."""
        return {"ticket": tickets.issue()}

    return router


async def _described(engine: Engine, id: str, done: "Future[Any]") -> dict[str, Any]:
    await asyncio.wrap_future(done)
    return engine.session(id).description


def _reply(code: str, message: str, status: int) -> JsonReply:
    headers = {"Retry-After": str(RETRY_AFTER_S)} if status in (429, 503) else None
    content = {"error": {"code": code, "message": message, "type": code}}
    return JsonReply(content, status_code=status, headers=headers)


async def _tell_problem(sessions: Path, asking: Request | WebSocket, error: Exception) -> JsonReply:
    problem = problem_of(error)
    if isinstance(asking, WebSocket) and asking.application_state is not WebSocketState.CONNECTING:
        raise error  # there is no handshake any more that could be answered
    status = REFUSED_SOCKET_STATUS if isinstance(asking, WebSocket) else problem.status
    return _reply(problem.code, without_place(problem.message, sessions), status)


async def _tell_invalid_socket(_: Request | WebSocket, error: Exception) -> JsonReply:
    assert isinstance(error, WebSocketRequestValidationError)
    return _reply("bad_request", _wrong_value(error.errors()[0]), REFUSED_SOCKET_STATUS)


async def _tell_invalid(request: Request, error: Exception) -> JsonReply:
    """The first thing that is wrong with a request."""
    assert isinstance(error, RequestValidationError)
    first, kind = error.errors()[0], request.headers.get("content-type", "none")
    if first["type"] == "json_invalid":
        return _reply("bad_request", _broken_json(error.body, first), 422)
    if first["loc"] == ("body",) and "json" not in kind.lower():
        said = f"Expected a body of JSON with the header Content-Type: application/json, but got {kind[:100]}."
        return _reply("bad_request", said, 422)
    return _reply("bad_request", _wrong_value(first), 422)


def _wrong_value(problem: Mapping[str, Any]) -> str:
    place = ".".join(str(part) for part in problem["loc"] if part not in ("body", "query", "path"))
    if problem["type"] == _UNKNOWN_NAME:
        return str(problem["msg"])
    if problem["type"] == _MISSING:
        return f"Expected {place or 'a body of JSON'}, but it is missing; /docs lists what each request takes."
    return f"Expected another value of {place or 'the request'}: {problem['msg']}."


def _broken_json(body: str, problem: Mapping[str, Any]) -> str:
    before = body[: problem["loc"][-1]]
    line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
    return f"Expected JSON, but it breaks at line {line}, column {column}: {problem['ctx']['error']}."


async def _tell_http(request: Request, error: Exception) -> JsonReply:
    assert isinstance(error, HTTPException)
    what, path = f"{error.detail}.", request.url.path[:200]
    if error.status_code == 404:
        what = f"There is nothing at {path}; /docs lists all there is."
    elif error.status_code == 405:
        what = f"There is no {request.method} at {path}; /docs lists all there is."
    return _reply("bad_request" if error.status_code < 500 else "internal", what, error.status_code)
