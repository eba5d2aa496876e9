"""A real browser: the one that `make test-extra` fetches, or the machine's own."""

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from longtake.errors import InputError

FETCHED = Path(__file__).parents[2] / ".oracles" / "browser"
_OWN = ("chromium", "chromium-browser", "google-chrome")
_QUIET = (
    "--no-sandbox",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
BY_PROCESSOR = ("--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader")
"""Draws WebGL without a graphics card."""


@dataclass(frozen=True)
class Chromium:
    """The program, and what its environment needs."""

    path: str
    environment: dict[str, str]

    def launch(self, playwright: Any, flags: Sequence[str] = ()) -> Any:
        """Start it, without a window."""
        environment = os.environ | self.environment
        return playwright.chromium.launch(executable_path=self.path, env=environment, args=[*_QUIET, *flags])


def find_chromium() -> Chromium | None:
    """The browser that was fetched, or the machine's own."""
    folder = FETCHED / "chromium"
    if folder.is_dir():
        environment = {"LD_LIBRARY_PATH": str(folder / "lib"), "FONTCONFIG_PATH": str(folder)}
        return Chromium(str(folder / "chromium"), environment)
    paths = (shutil.which(name) for name in _OWN)
    return next((Chromium(path, {}) for path in paths if path), None)


@contextmanager
def chromium_ready(flags: Sequence[str] = BY_PROCESSOR) -> Iterator[Callable[[], Any]]:
    """What starts one, at once when it is called; all end with the block."""
    found = find_chromium()
    if found is None:
        raise InputError("There is no Chromium; run `make test-extra` once, which fetches one.")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError as error:
        raise InputError("There is no playwright; run `make test-extra` once, which installs it.") from error
    with sync_playwright() as playwright:
        yield lambda: found.launch(playwright, flags)
