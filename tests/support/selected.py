"""Which cases of a test run at once, and which only with all that takes long."""

from collections.abc import Iterable
from typing import Any

import pytest


def rest_in_extra(cases: Iterable[Any], *, keep: int) -> list[Any]:
    """The first few cases run with `make test`, the others with `make test-extra`."""
    listed = list(cases)
    later = [pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.extra) for case in listed]
    return [*listed[:keep], *later[keep:]]
