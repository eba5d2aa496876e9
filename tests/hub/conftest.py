"""A hub cache of one's own, and a machine without a network."""

import socket
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import huggingface_hub.constants
import pytest

REVISION = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder where the hub's package looks, empty."""
    folder = tmp_path / "hub"
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(folder))
    return folder


@pytest.fixture
def put_in_cache(cache: Path) -> Callable[[str, str, bytes], Path]:
    """Puts a file where a download would: models--org--repo/snapshots/<revision>/file, named by refs/main."""

    def put(repo: str, file: str, content: bytes) -> Path:
        folder = cache / f"models--{repo.replace('/', '--')}"
        (folder / "refs").mkdir(parents=True, exist_ok=True)
        (folder / "refs" / "main").write_text(REVISION)
        path = folder / "snapshots" / REVISION / file
        path.parent.mkdir(parents=True, exist_ok=True)
        blob = folder / "blobs" / file.replace("/", "-")
        blob.parent.mkdir(exist_ok=True)
        blob.write_bytes(content)
        path.symlink_to(blob)
        return path

    return put


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> list[tuple[object, ...]]:
    """Every attempt to reach a machine fails and is noted here."""
    attempts: list[tuple[object, ...]] = []

    def refuse(*arguments: object, **_: object) -> NoReturn:
        attempts.append(arguments)
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    return attempts
