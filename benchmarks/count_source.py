"""How large the source is, and how far a reader goes in it: files behind one mapped frame and behind one question.

Commands are run in this process over a few pictures, and every call of a function is counted by its file. A file is on
the way of one frame if a video that is one frame longer calls more of its functions.
"""

import ast
import inspect
import io
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType

import numpy as np
from PIL import Image
from rich.table import Table

import longtake
from longtake.cli.main import app
from longtake.cli.options import AsJson
from longtake.cli.tables import show, table

PACKAGE = Path(longtake.__file__).parent
CHECKOUT = Path(__file__).parent.parent
BESIDE = ("training", "benchmarks")
_PAGE = "exports/report/"
"""Written from the finished folder, long after its frames."""
_PICTURES = 10
"""More than a scale block."""
_QUESTIONS = ("Have you seen a red ball?", "Have you seen a blue ball?")


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFigures:
    """Files count only where a function of theirs is called."""

    lines: dict[str, int]
    """Of Python, by folder; `wheel` is the package."""
    whole_lines: int
    """Of these folders."""
    test_lines: int
    num_files: int
    """In the package."""
    single_importer: tuple[str, ...]
    """Files that one other file imports, and no more."""
    frame_files: tuple[str, ...]
    """Called more often where a mapped folder has one picture more."""
    map_files: tuple[str, ...]
    """Of the whole of `longtake map`."""
    more_question_files: tuple[str, ...]
    """Called more often where one question more is asked."""
    question_files: tuple[str, ...]
    """Of the whole of `longtake ask` with one question."""


def count_source(*, as_json: AsJson = False) -> None:
    """Count lines, files on the way of one mapped frame and of one question, and files with a single importer."""
    figures = measure_source()
    show(asdict(figures), _blocks(figures), as_json=as_json)


def measure_source() -> SourceFigures:
    lines = {"wheel": num_lines(PACKAGE)} | {name: num_lines(CHECKOUT / name) for name in BESIDE}
    with TemporaryDirectory() as name:
        folder = Path(name)
        mapped, longer = _map_calls(folder, _PICTURES), _map_calls(folder, _PICTURES + 1)
        asked, more = _ask_calls(folder, _QUESTIONS[:1]), _ask_calls(folder, _QUESTIONS)
    return SourceFigures(
        lines=lines,
        whole_lines=sum(lines.values()),
        test_lines=num_lines(CHECKOUT / "tests"),
        num_files=len(list(PACKAGE.rglob("*.py"))),
        single_importer=tuple(single_importers(PACKAGE)),
        frame_files=tuple(file for file in _more(mapped, longer) if not file.startswith(_PAGE)),
        map_files=tuple(sorted(mapped)),
        more_question_files=tuple(_more(asked, more)),
        question_files=tuple(sorted(asked)),
    )


def num_lines(folder: Path) -> int:
    """Of all Python below it."""
    return sum(len(path.read_text().splitlines()) for path in folder.rglob("*.py"))


def single_importers(package: Path) -> list[str]:
    """Files that exactly one other file of the package imports, at its top or within a function."""
    files = {_module(package, path): path for path in package.rglob("*.py")}
    importers: Counter[str] = Counter()
    for name, path in files.items():
        importers.update(_imported(path, set(files)) - {name})
    return sorted(str(files[name].relative_to(package)) for name, count in importers.items() if count == 1)


def _module(package: Path, path: Path) -> str:
    return ".".join(path.relative_to(package.parent).with_suffix("").parts).removesuffix(".__init__")


def _imported(path: Path, known: set[str]) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            parts = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= (parts & known) or {node.module}
    return found & known


def _map_calls(folder: Path, count: int) -> Counter[str]:
    arguments = ["map", _pictures(folder, count), "--out", str(folder / f"map-{count}"), "--device", "cpu", "--json"]
    return _calls([*arguments, "--overwrite"])


def _ask_calls(folder: Path, questions: tuple[str, ...]) -> Counter[str]:
    return _calls(["ask", _pictures(folder, 4), *questions, "--device", "cpu", "--json"])


def _calls(arguments: list[str]) -> Counter[str]:
    """After a run that imports what is imported once."""
    for _ in range(2):
        with _noted() as calls, redirect_stdout(io.StringIO()):
            app(arguments, standalone_mode=False)
    return calls


@contextmanager
def _noted() -> Iterator[Counter[str]]:
    """Calls of functions, methods and generators by their file, in all threads that begin meanwhile."""
    calls: Counter[str] = Counter()
    root = f"{PACKAGE}/"

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        is_function = code.co_flags & inspect.CO_OPTIMIZED  # bodies of modules and classes run when they are imported
        if event == "call" and is_function and code.co_filename.startswith(root):
            calls[code.co_filename.removeprefix(root)] += 1

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield calls
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def _pictures(folder: Path, count: int) -> str:
    pictures = folder / f"pictures-{count}"
    pictures.mkdir(exist_ok=True)
    for index in range(count):
        pixels = np.random.default_rng(index).integers(0, 256, (98, 126, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(pictures / f"{index:03}.png")
    return str(pictures)


def _more(fewer: Counter[str], calls: Counter[str]) -> list[str]:
    return sorted(file for file in calls if calls[file] > fewer[file])


def _blocks(figures: SourceFigures) -> Iterator[str | Table]:
    counted = figures.lines | {"whole": figures.whole_lines, "tests": figures.test_lines}
    yield table(("lines of Python", ""), [(name, f"{count:,}") for name, count in counted.items()])
    yield ""
    rows = (
        ("one mapped frame more", figures.frame_files),
        ("longtake map", figures.map_files),
        ("one question more", figures.more_question_files),
        ("longtake ask, one question", figures.question_files),
        ("with a single importer", figures.single_importer),
    )
    yield table((f"files, of {figures.num_files}", ""), [(name, str(len(files))) for name, files in rows])
