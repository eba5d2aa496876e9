"""A real browser: the one that `make test-extra` fetches, or the machine's own."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

FETCHED = Path(__file__).parents[2] / ".oracles" / "browser"
OWN = ("chromium", "chromium-browser", "google-chrome")
QUIET = [
    "--no-sandbox",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
BY_PROCESSOR = ["--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]


def find_chromium() -> tuple[str, dict[str, str]]:
    """The program, and what its environment needs."""
    folder = FETCHED / "chromium"
    if folder.is_dir():
        return str(folder / "chromium"), {"LD_LIBRARY_PATH": str(folder / "lib"), "FONTCONFIG_PATH": str(folder)}
    for name in OWN:
        if path := shutil.which(name):
            return path, {}
    pytest.skip("there is no Chromium; `make test-extra` tries to fetch one")


@pytest.fixture(scope="module")
def launch() -> Iterator[Callable[[list[str]], Any]]:
    """Starts a browser with flags of its own. It ends with the module: while it runs, no other event loop can."""
    api = pytest.importorskip("playwright.sync_api", reason="there is no playwright; `make test-extra` installs it")
    path, more = find_chromium()
    with api.sync_playwright() as playwright:

        def start(flags: list[str]) -> Any:
            return playwright.chromium.launch(executable_path=path, env=os.environ | more, args=[*QUIET, *flags])

        yield start


@pytest.fixture(scope="module")
def browser(launch: Callable[[list[str]], Any]) -> Iterator[Any]:
    """Draws WebGL without a graphics card."""
    with launch(BY_PROCESSOR) as started:
        yield started
