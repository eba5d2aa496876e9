"""Errors that come at a chosen line of longtake's code."""

import ast
import gc
import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import longtake

_PACKAGE = Path(longtake.__file__).parent
ERRORS = [pytest.param(error, id=error.__name__) for error in (MemoryError, KeyboardInterrupt)]
"""What can come at any moment: an allocation that fails, and whoever presses Ctrl-C."""


@cache
def _with_lines(path: str) -> frozenset[int]:
    """Lines of a file where a `with` block begins; Python comes back to them when it is left."""
    tree = ast.parse(Path(path).read_text())
    return frozenset(node.lineno for node in ast.walk(tree) if isinstance(node, ast.With))


@dataclass
class Break:
    """Raises before the n-th line that is run in some rooms, if any; leaving a `with` block is no line of its own."""

    number: int | None
    rooms: tuple[str, ...]
    error: type[BaseException] = MemoryError
    lines: list[str] = field(default_factory=list)
    """All that were run, in order."""
    at: str = "nowhere"
    _left: dict[int, set[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._places = tuple(str(_PACKAGE / room) for room in self.rooms)

    def first_and_last(self) -> list[int]:
        """Numbers at which each line of the code was run for the first time and for the last."""
        first, last = {}, {}
        for number, line in enumerate(self.lines, start=1):
            first.setdefault(line, number)
            last[line] = number
        return sorted({*first.values(), *last.values()})

    def during(self, change: Callable[[], object]) -> None:
        before = sys.gettrace()
        gc.disable()  # what it would finalise runs lines of ours at moments that do not come again
        sys.settrace(self._enter)
        try:
            change()
        except self.error:
            pass
        finally:
            sys.settrace(before)
            gc.enable()

    def _enter(self, frame: FrameType, event: str, arg: object) -> Callable[..., Any] | None:
        path = frame.f_code.co_filename
        if not path.startswith(self._places):
            return None
        left: set[int] = set()
        if frame.f_code.co_flags & inspect.CO_GENERATOR:  # entered again wherever it goes on
            left = self._left.setdefault(id(frame), left)

        def step(frame: FrameType, event: str, arg: object) -> Callable[..., Any]:
            line = frame.f_lineno
            if event == "line" and line not in left:
                left.update({line} & _with_lines(path))
                self._count(f"{Path(path).relative_to(_PACKAGE)}:{line}")
            return step

        return step

    def _count(self, at: str) -> None:
        self.lines.append(at)
        if len(self.lines) == self.number:
            self.at = at
            raise self.error
