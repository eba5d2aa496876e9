"""A video that comes with a request, to the folder of its session."""

import asyncio
import logging
import os
from pathlib import Path
from typing import BinaryIO

from starlette.requests import Request

from longtake.server.engine import Engine
from longtake.server.problems import RequestError
from longtake.server.quota import Quota
from longtake.server.session import ServedSession
from longtake.server.shelf import VIDEO_NAME
from longtake.server.spec import UPLOAD
from longtake.takes.atomic_files import writing

_log = logging.getLogger(__name__)


async def receive_video(engine: Engine, session: ServedSession, request: Request) -> None:
    """Written beside its place, and put there when it is whole; another that comes meanwhile is refused."""
    path, unfinished = session.shelf.folder / VIDEO_NAME, _unfinished(session)
    if session.record.spec.source != UPLOAD or path.exists() or unfinished.exists():
        raise RequestError("wrong_source", "Expected a session of source upload that has no video yet.", status=409)
    engine.quota.require(int(request.headers.get("content-length", "0")))
    with writing(path.name), unfinished.open("xb") as file:
        try:
            async for chunk in request.stream():
                session.note_use()
                await asyncio.to_thread(_write, engine.quota, file, chunk)
            await asyncio.to_thread(_sync, file)
            engine.session(session.id)  # it may have been closed meanwhile
            unfinished.replace(path)
        finally:
            unfinished.unlink(missing_ok=True)


def remove_unfinished_video(session: ServedSession) -> None:
    """What a server that was killed has left of one; what cannot be removed is no reason not to start."""
    try:
        _unfinished(session).unlink(missing_ok=True)
    except OSError:
        _log.exception("not removed", extra={"session": session.id})


def _unfinished(session: ServedSession) -> Path:
    return (session.shelf.folder / VIDEO_NAME).with_suffix(".unfinished")


def _write(quota: Quota, file: BinaryIO, chunk: bytes) -> None:
    """Each part within the quota, since a request need not say how long it is."""
    if not quota.take(len(chunk)):
        quota.require(len(chunk))
    file.write(chunk)


def _sync(file: BinaryIO) -> None:
    """Return when what was written is on the disk."""
    file.flush()
    os.fsync(file.fileno())
