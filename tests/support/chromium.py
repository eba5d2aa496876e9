"""A real browser for tests, found as benchmarks find it."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from benchmarks.serving.browser import BY_PROCESSOR, FETCHED, find_chromium

__all__ = ["FETCHED", "browser", "launch"]


@pytest.fixture(scope="module")
def launch() -> Iterator[Callable[[list[str]], Any]]:
    """Starts a browser with flags of its own. It ends with the module: while it runs, no other event loop can."""
    api = pytest.importorskip("playwright.sync_api", reason="there is no playwright; `make test-extra` installs it")
    found = find_chromium()
    if found is None:
        pytest.skip("there is no Chromium; `make test-extra` tries to fetch one")
    with api.sync_playwright() as playwright:
        yield lambda flags: found.launch(playwright, flags)


@pytest.fixture(scope="module")
def browser(launch: Callable[[list[str]], Any]) -> Iterator[Any]:
    """Draws WebGL without a graphics card."""
    with launch([*BY_PROCESSOR]) as started:
        yield started
