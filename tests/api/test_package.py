"""`import longtake`: what it offers, what it costs, and that rooms never hide a function."""

import subprocess
import sys

import pytest

import longtake

NAMES = [
    "Answer",
    "AsyncClient",
    "Client",
    "DialogueSession",
    "Geometry",
    "GeometrySession",
    "LiveSession",
    "LongtakeError",
    "Take",
    "evaluate",
    "export",
    "load_language_model",
    "load_model",
    "locate",
    "map",
    "map_many",
    "merge",
    "open_take",
    "open_video",
]
TIMED = """
import sys, time
before = set(sys.modules)
started = time.perf_counter()
import longtake
from longtake import __version__
took_s = time.perf_counter() - started
print(took_s, *(set(sys.modules) - before))
"""


def run(program: str) -> str:
    command = [sys.executable, "-c", program]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_names_are_those_promised_and_each_is_there() -> None:
    assert sorted(longtake.__all__) == NAMES
    assert set(NAMES) <= set(dir(longtake))
    for name in NAMES:
        namespace: dict[str, object] = {}
        exec(f"from longtake import {name}", namespace)
        assert callable(namespace[name])


def test_import_takes_less_than_50_ms_and_loads_nothing_heavy() -> None:
    runs = [run(TIMED).split() for _ in range(5)]
    assert min(float(took_s) for took_s, *_ in runs) < 0.05
    loaded = {name.partition(".")[0] for name in runs[0][1:]}
    assert not {"torch", "numpy", "av", "PIL", "rich", "safetensors"} & loaded
    assert [name for name in runs[0][1:] if name.startswith("longtake")] == ["longtake"]


@pytest.mark.extra
@pytest.mark.parametrize("name", ["evaluate", "export"])
def test_importing_rooms_leaves_the_functions_where_they_are(name: str) -> None:
    program = (
        "import importlib, pkgutil, longtake\n"
        "for room in pkgutil.iter_modules(longtake.__path__):\n"
        "    if room.name not in ('compat', 'cli'):\n"
        "        importlib.import_module(f'longtake.{room.name}')\n"
        "import longtake.takes.take, longtake.api.mapping\n"
        f"print(type(longtake.{name}).__name__, longtake.{name}.__module__)"
    )
    assert run(program).split()[0] == "function"
    assert "longtake.api." in run(program)


def test_an_unknown_name_is_answered_with_those_there_are() -> None:
    with pytest.raises(AttributeError, match="longtake has no 'Mapper'; it has Answer, AsyncClient, Client, Dialogue"):
        _ = longtake.Mapper
