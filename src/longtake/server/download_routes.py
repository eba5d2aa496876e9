"""The routes of what is recorded of a session: pictures, its cloud, its take, any format."""

import asyncio
from typing import Annotated

from fastapi import APIRouter, Path, Query, Response
from starlette.responses import FileResponse
from starlette.types import Message, Receive, Scope, Send

from longtake.server.downloads import TAKE, Download, Downloads, picture
from longtake.server.engine import Engine
from longtake.server.pictures import LARGEST_SIDE

_SMALLEST_SIDE = 8
_MOST_FRAMES = 2**32
_PATIENCE_S = 30.0
"""For a reader to take what it was sent last."""


class SentDownload(FileResponse):
    """A file that goes, with all it was made of, when it was sent or nobody reads on."""

    def __init__(self, download: Download, downloads: Downloads) -> None:
        kind = "application/zip" if download.path.suffix == ".zip" else "application/octet-stream"
        super().__init__(download.path, media_type=kind, filename=download.path.name)
        self._download, self._downloads = download, downloads

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_soon(message: Message) -> None:
            await asyncio.wait_for(send(message), _PATIENCE_S)

        try:
            await super().__call__(scope, receive, send_soon)
        finally:
            await self._downloads.in_thread(self._downloads.remove, self._download)


def download_routes(engine: Engine, downloads: Downloads) -> APIRouter:
    """All of them."""
    router = APIRouter(tags=["results"])

    async def made(id: str, format: str) -> Response:
        return SentDownload(await downloads.in_thread(downloads.make, engine.session(id), format), downloads)

    @router.get("/sessions/{id}/frames/{number}.jpg", response_class=Response)
    async def frame(
        id: str,
        number: Annotated[int, Path(ge=0, lt=_MOST_FRAMES)],
        size: Annotated[int, Query(ge=_SMALLEST_SIDE, le=LARGEST_SIDE)] = LARGEST_SIDE,
    ) -> Response:
        """The picture of a frame as it was taken, its longer side at most `size`."""
        jpeg = await downloads.in_thread(picture, engine.session(id), number, size)
        return Response(jpeg, media_type="image/jpeg", headers={"Cache-Control": "private, max-age=3600"})

    @router.get("/sessions/{id}/cloud.ply", response_class=FileResponse)
    async def cloud(id: str) -> Response:
        """The points of the frames that are final by now."""
        return await made(id, "ply")

    @router.get("/sessions/{id}/take.zip", response_class=FileResponse)
    async def take(id: str) -> Response:
        """The session's take, of the frames that are final by now."""
        return await made(id, TAKE)

    @router.get("/sessions/{id}/export", response_class=FileResponse)
    async def export(id: str, format: Annotated[str, Query(max_length=200)]) -> Response:
        """The same in any format of `longtake export`: a file as it is, a folder as .zip."""
        return await made(id, format)

    return router
