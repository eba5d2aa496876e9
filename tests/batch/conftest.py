"""Nobody waits before another try, but where a test is about that."""

import pytest


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("longtake.batch.pauses._FIRST_S", 0.0)
