"""Which cases of a test run at once, and which only with all that takes long."""

from collections.abc import Iterable
from typing import Any

import pytest


def rest_in_extra(cases: Iterable[Any], *, keep: int) -> list[Any]:
    """The first few cases run with `make test`, the others with `make test-extra`."""
    return _rest(cases, keep, pytest.mark.extra)


def rest_by_hand(cases: Iterable[Any], *, keep: int) -> list[Any]:
    """The first few cases run as the test says, the others with `pytest -m by_hand`."""
    return _rest(cases, keep, pytest.mark.by_hand)


def _rest(cases: Iterable[Any], keep: int, mark: pytest.MarkDecorator) -> list[Any]:
    listed = list(cases)
    later = [pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=mark) for case in listed]
    return [*listed[:keep], *later[keep:]]
