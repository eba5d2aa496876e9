"""Three.js, beside the browser that all tests share."""

from pathlib import Path

import pytest
from chromium import FETCHED


@pytest.fixture(scope="session")
def three() -> Path:
    """The folder of three.js."""
    folder = FETCHED / "three"
    if not folder.is_dir():
        pytest.skip("three.js is not here; `make test-extra` tries to fetch it")
    return folder
