"""A finished take behind the same page: a server of one session that has ended and knows no model."""

import asyncio
import io
import json
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Annotated, Any

import torch
from fastapi import APIRouter, FastAPI, Query, Request, Response, WebSocket
from fastapi.responses import FileResponse
from PIL import Image
from starlette.websockets import WebSocketDisconnect

from longtake import __version__
from longtake.errors import LongtakeError
from longtake.exports.ply import CLOUD_NAME
from longtake.exports.report.folder import read_folder
from longtake.exports.saved import position_of
from longtake.server.access import Access, AccessRules, App, Tickets
from longtake.server.messages import parse_text
from longtake.server.page import page_router
from longtake.server.problems import problem_of
from longtake.server.replies import JsonReply
from longtake.server.results import pose_numbers
from longtake.server.settings import Limits
from longtake.takes.take import Take

TAKE_ID = "take"
"""Of the one session there is."""
_MOST_PX = 640

Chunks = Callable[[], Iterable[bytes]]
"""Points of the take as messages of the socket."""


def create_take_app(take: Take, chunks: Chunks, rules: AccessRules) -> App:
    """Routes that the page asks, as a server of sessions has them."""
    app = FastAPI(
        title="longtake view",
        version=__version__,
        openapi_url="/v1/openapi.json",
        docs_url=None,
        redoc_url=None,
        default_response_class=JsonReply,
    )
    app.add_exception_handler(LongtakeError, _tell_problem)
    app.include_router(page_router())
    app.include_router(_take_routes(take, chunks), prefix="/v1")
    return Access(app, rules, Tickets(), Limits())


def _take_routes(take: Take, chunks: Chunks) -> APIRouter:
    router, one = APIRouter(), f"/sessions/{TAKE_ID}"

    @router.get("/models")
    async def models() -> dict[str, Any]:
        return {"object": "list", "data": []}

    @router.get("/sessions")
    async def sessions() -> dict[str, Any]:
        return {"sessions": [_description(take)], "damaged": {}}

    @router.get(one)
    async def describe() -> dict[str, Any]:
        return _description(take)

    @router.get(f"{one}/frames/{{index}}.jpg")
    async def picture(index: int, size: Annotated[int, Query(ge=16, le=_MOST_PX)] = _MOST_PX) -> Response:
        return Response(await asyncio.to_thread(_jpeg, take, index, size), media_type="image/jpeg")

    @router.get(f"{one}/{CLOUD_NAME}")
    async def cloud() -> Response:
        return FileResponse(take.folder / CLOUD_NAME)

    @router.websocket(f"{one}/live")
    async def live(socket: WebSocket, client: str = "") -> None:
        await _TakeSocket(socket, chunks).run(_events(take, client))

    return router


class _TakeSocket:
    """One viewer: all events, then points as its credit allows."""

    def __init__(self, socket: WebSocket, chunks: Chunks) -> None:
        self._socket, self._chunks = socket, chunks
        self._credit = 0
        self._has_credit = asyncio.Event()

    async def run(self, events: Iterator[dict[str, Any]]) -> None:
        await self._socket.accept()
        sending: asyncio.Task[None] | None = None
        try:
            for event in events:
                await self._socket.send_text(json.dumps(event))
            while True:
                request = parse_text(await self._socket.receive_text())
                if request.get("type") == "view.budget" and request.get("points") and sending is None:
                    sending = asyncio.create_task(self._send_points())
                elif request.get("type") == "credit":
                    self._credit += int(request.get("bytes", 0))
                    self._has_credit.set()
        except (WebSocketDisconnect, RuntimeError):
            return
        finally:
            if sending is not None:
                sending.cancel()

    async def _send_points(self) -> None:
        async for message in _in_thread(self._chunks()):
            while self._credit < len(message):
                self._has_credit.clear()
                await self._has_credit.wait()
            self._credit -= len(message)
            await self._socket.send_bytes(message)


async def _in_thread(messages: Iterable[bytes]) -> AsyncIterator[bytes]:
    """One at a time: reading a take takes a while."""
    iterator = iter(messages)
    while (message := await asyncio.to_thread(next, iterator, None)) is not None:
        yield message


def _events(take: Take, client: str) -> Iterator[dict[str, Any]]:
    yield {"id": 1, "type": "session.updated", "session": _description(take), "client": client}
    height, width = take.header.size
    for position, record in enumerate(take.records):
        (fx, _, cx), (_, fy, cy), _ = take.intrinsics[position].tolist()
        yield {
            "id": 2 + position,
            "type": "frame.known",
            "index": record.index,
            "time_s": record.timestamp_s,
            "status": "final",
            "pose": pose_numbers(take.trajectory.world_from_camera[position].to(torch.float64)),
            "intrinsics": {"fx": fx, "fy": fy, "cx": cx, "cy": cy, "width": width, "height": height},
        }


def _description(take: Take) -> dict[str, Any]:
    """As of a session that has ended, maps, and answers nothing."""
    return {
        "id": TAKE_ID,
        "state": "open",
        "source": take.folder.resolve().name,
        "model": take.header.made_by,
        "language": None,
        "memory_bytes": 0,
        "resident_bytes": 0,
        "active_s": 0,
        "num_frames": len(take),
        "next_sequence": len(take),
        "paused": False,
        "finished": True,
        "read_only": True,
        "notes": read_folder(take.folder).all_notes,
        "watches": [],
    }


def _jpeg(take: Take, index: int, longer_px: int) -> bytes:
    picture = Image.fromarray(take.image(position_of(take, index)))
    picture.thumbnail((longer_px, longer_px))
    packed = io.BytesIO()
    picture.save(packed, "JPEG", quality=90)
    return packed.getvalue()


async def _tell_problem(_: Request, error: Exception) -> JsonReply:
    problem = problem_of(error)
    content = {"error": {"code": problem.code, "message": problem.message, "type": problem.code}}
    return JsonReply(content, status_code=problem.status)
