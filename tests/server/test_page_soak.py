"""A page watched and asked for a moment, in short: what `python -m benchmarks page-soak` does for minutes."""

from pathlib import Path

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("playwright.sync_api")
from benchmarks.serving.browser import find_chromium
from benchmarks.serving.page_soak import LIMITS, NUM_LOOKS, soak_page

pytestmark = pytest.mark.extra
PHONE_POINTS = 300_000


@pytest.mark.skipif(find_chromium() is None, reason="there is no Chromium; `make test-extra` tries to fetch one")
def test_what_a_page_holds_is_counted_and_bounded(tmp_path: Path) -> None:
    figures = soak_page(tmp_path / "sessions", 3.0, width=390)
    assert figures.complaints == []
    assert figures.num_answered > 0
    assert figures.most_points == PHONE_POINTS
    assert len(figures.samples) == NUM_LOOKS + 1
    first, last = figures.samples[0], figures.samples[-1]
    assert last.num_frames > first.num_frames > 0
    assert last.num_received >= last.num_points > 5_000
    assert last.gl_bytes > 10 * last.num_points
    assert last.heap_bytes > 1_000_000
    assert all(last.lists[name] <= most for name, most in LIMITS.items())
    assert last.lists["poses"] > 0
    assert 0 < last.lists["answers"] <= figures.num_asked
