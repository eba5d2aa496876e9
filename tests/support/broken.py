"""Errors that come at a chosen line of longtake's code, and interrupts wherever Python lets a signal in."""

import ast
import contextlib
import dis
import gc
import inspect
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

import longtake

_PACKAGE = Path(longtake.__file__).parent
_LIBRARY = Path(contextlib.__file__).parent
_CONTEXTS = (contextlib.__file__, threading.__file__)
"""What `with` blocks of ours run of the standard library."""
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


@cache
def _after_calls(code: CodeType) -> frozenset[int]:
    """Where Python looks for signals: behind a call, and where a jump back lands; the beginning is told by an event."""
    found, instructions = set[int](), list(dis.get_instructions(code))
    for instruction, following in pairwise(instructions):
        if instruction.opname in ("CALL", "CALL_FUNCTION_EX", "CALL_KW"):
            found.add(following.offset)
        if instruction.opname == "JUMP_BACKWARD":
            found.add(int(instruction.argval))
    return frozenset(found)


@dataclass
class Interrupt(Break):
    """Raises where the handler of a signal might: between two instructions, also on the way into and out of `with`.

    The traceback is kept, as a notebook does, and with it all that the interrupted functions had in hand.
    """

    error: type[BaseException] = KeyboardInterrupt
    raised: BaseException | None = None

    def __post_init__(self) -> None:
        self._places = (*(str(_PACKAGE / room) for room in self.rooms), *_CONTEXTS)

    def during(self, change: Callable[[], object]) -> None:
        def kept() -> None:
            try:
                change()
            except self.error as error:
                self.raised = error

        super().during(kept)

    def _enter(self, frame: FrameType, event: str, arg: object) -> Callable[..., Any] | None:
        path, code = frame.f_code.co_filename, frame.f_code
        if not path.startswith(self._places):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        name = path.removeprefix(f"{_PACKAGE}/").removeprefix(f"{_LIBRARY}/")
        has_begun = False

        def step(frame: FrameType, event: str, arg: object) -> Callable[..., Any]:
            nonlocal has_begun
            if event == "opcode" and (not has_begun or frame.f_lasti in _after_calls(code)):
                has_begun = True
                self._count(f"{name}:{frame.f_lineno} {code.co_qualname} +{frame.f_lasti}")
            return step

        return step
