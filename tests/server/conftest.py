"""A server's sessions without its web part, on the bundled models."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from live_page import heard  # noqa: F401 - a fixture
from served import Outputs, Start, local_outputs
from walked import WALK

import longtake
from longtake.server.engine import Engine
from longtake.server.networks import Networks
from longtake.server.settings import ServerSettings
from longtake.video.frame import VideoFrame


@pytest.fixture(scope="session")
def frames() -> list[VideoFrame]:
    return list(longtake.open_video(WALK))


@pytest.fixture(scope="session")
def networks() -> Networks:
    loaded = Networks(device="cpu")
    loaded.load_first()
    return loaded


@pytest.fixture(scope="session")
def local(networks: Networks, frames: Sequence[VideoFrame]) -> Outputs:
    """What a local session says of all frames."""
    return local_outputs(networks, frames)


@pytest.fixture
def start(networks: Networks, tmp_path: Path) -> Iterator[Start]:
    """Starts an engine on the folder of this test; all end with it."""
    started: list[Engine] = []

    def begin(**changes: object) -> Engine:
        engine = Engine(ServerSettings(folder=tmp_path / "sessions", **changes), networks)
        started.append(engine.__enter__())
        return engine

    yield begin
    for engine in started:
        engine.drain()
