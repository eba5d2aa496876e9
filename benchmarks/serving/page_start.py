"""From `longtake serve --open` to a page that shows something: how long it takes, the browser's start included."""

import stat
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from benchmarks.serving.browser import chromium_ready
from benchmarks.serving.process import ServerProcess

_FEWEST_POINTS = 5_000
_MOST_S, _PATIENCE_S = 10.0, 120.0
_SHOWN = f"""() => {{
  const counts = window.longtake?.counts, answers = [...(window.longtake?.page.state.answers.values() ?? [])];
  const isAnswered = answers.some(({{ isDone, text }}) => isDone && text);
  return isAnswered && counts?.points >= {_FEWEST_POINTS} && counts.path > 1 ? counts : null;
}}"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageStart:
    """Seconds since the command was given."""

    asked_for_s: float
    """Until a browser was asked for."""
    shown_s: float
    """Until there were 5,000 points, a path and an answer."""
    num_points: int
    num_places: int
    """Of the path."""

    @property
    def is_fine(self) -> bool:
        return self.shown_s <= _MOST_S


def time_start(folder: Path) -> PageStart:
    """Give the command, start the browser when it is asked for, and wait for what it shows."""
    program, address = folder / "browser", folder / "address"
    program.write_text(f'#!/bin/sh\nprintf "%s" "$1" > "{address}.part" && mv "{address}.part" "{address}"\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    with chromium_ready() as launch, ThreadPoolExecutor(1) as beside:
        began_s = time.monotonic()
        starting = beside.submit(ServerProcess, folder / "sessions", "--open", environment={"BROWSER": str(program)})
        while not address.exists():
            assert time.monotonic() - began_s < _PATIENCE_S, "no browser was asked for"
            time.sleep(0.01)
        asked_for_s = time.monotonic() - began_s
        with launch() as browser:
            page = browser.new_page(viewport={"width": 1280, "height": 800})
            page.goto(address.read_text())
            shown = page.wait_for_function(_SHOWN, timeout=1000 * _PATIENCE_S).json_value()
            shown_s = time.monotonic() - began_s
        with starting.result():
            return PageStart(
                asked_for_s=asked_for_s, shown_s=shown_s, num_points=shown["points"], num_places=shown["path"]
            )
