"""A real browser for what exports write."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from chromium import FETCHED, launching


@pytest.fixture(scope="session")
def launch() -> Iterator[Callable[[list[str]], Any]]:
    """Starts a browser with flags of its own."""
    with launching() as start:
        yield start


@pytest.fixture(scope="session")
def browser(launch: Callable[[list[str]], Any]) -> Iterator[Any]:
    """Draws WebGL without a graphics card."""
    with launch(["--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]) as started:
        yield started


@pytest.fixture(scope="session")
def three() -> Path:
    """The folder of three.js."""
    folder = FETCHED / "three"
    if not folder.is_dir():
        pytest.skip("three.js is not here; `make test-extra` tries to fetch it")
    return folder
