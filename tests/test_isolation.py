"""From runtime down the code needs only torch, numpy, safetensors and jaxtyping, so it runs on any GPU box as it is."""

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import longtake

ROOMS = [
    "runtime",
    "weights",
    "geometry",
    "language",
    "layers",
    "attention",
    "memory",
    "world",
    "spatial",
    "types",
    "records",
    "extras",
    "errors",
]
ALLOWED = ["torch", "numpy", "safetensors", "jaxtyping"]
KERNELS = "_kernels"
"""How modules end that need Triton too, and are loaded only where it is."""
SOURCES = Path(longtake.__file__).parent

IMPORT_ALL = """
import builtins, importlib, importlib.abc, importlib.metadata, json, pkgutil, re, sys

rooms, allowed, kernels = json.loads(sys.argv[1])


def name_of(requirement):
    return re.match(r"[\\w.-]+", requirement)[0].lower().replace("_", "-")


# what the four packages need themselves, in this environment
needed, waiting = set(), list(allowed)
while waiting:
    package = waiting.pop()
    if package in needed:
        continue
    needed.add(package)
    try:
        requirements = importlib.metadata.requires(package) or []
    except importlib.metadata.PackageNotFoundError:
        continue
    waiting += [name_of(requirement) for requirement in requirements if "extra ==" not in requirement]

importable = importlib.metadata.packages_distributions()
refused = {
    module
    for module, packages in importable.items()
    if module != "longtake" and not any(name_of(package) in needed for package in packages)
}


class Refusing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in refused:
            raise ModuleNotFoundError(f"{name} is not on a GPU box", name=name)


def checked_import(name, globals=None, locals=None, fromlist=(), level=0):
    importer = (globals or {}).get("__name__", "")
    top = name.partition(".")[0]
    if level == 0 and importer.partition(".")[0] == "longtake":
        if top not in {"longtake", *allowed, *sys.stdlib_module_names}:
            raise ModuleNotFoundError(f"{importer} asks for {name}, which is not on a GPU box", name=name)
    return original(name, globals, locals, fromlist, level)


original = builtins.__import__
builtins.__import__ = checked_import
sys.meta_path.insert(0, Refusing())

imported = []
for room in rooms:
    module = importlib.import_module(f"longtake.{room}")
    imported.append(module.__name__)
    if hasattr(module, "__path__"):
        for part in pkgutil.walk_packages(module.__path__, module.__name__ + "."):
            if not part.name.endswith(kernels):
                importlib.import_module(part.name)
                imported.append(part.name)

others = sorted({name.split(".")[1] for name in sys.modules if name.startswith("longtake.")} - set(rooms))
print(json.dumps({"imported": imported, "refused": sorted(refused), "others": others}))
"""


def test_rooms_from_runtime_down_import_with_nothing_else_installed() -> None:
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_ALL, json.dumps([ROOMS, ALLOWED, KERNELS])],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    files = {path.relative_to(SOURCES.parent) for room in ROOMS for path in modules_of(room)}
    paths = [path.with_suffix("") for path in files if not path.stem.endswith(KERNELS)]
    names = {".".join(path.parts).removesuffix(".__init__") for path in paths}
    assert set(report["imported"]) == names
    assert {"PIL", "typer", "rich", "psutil", "beartype", "pytest"} <= set(report["refused"])
    assert not set(ALLOWED) & set(report["refused"])
    assert report["others"] == []


def modules_of(room: str) -> list[Path]:
    folder = SOURCES / room
    return sorted(folder.rglob("*.py")) if folder.is_dir() else [folder.with_suffix(".py")]


def imports_of(path: Path) -> Iterator[str]:
    """Top-level names that a module asks for anywhere, inside functions too."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


@pytest.mark.parametrize("room", ROOMS)
def test_no_function_of_a_room_imports_anything_else_later(room: str) -> None:
    expected = {"longtake", *ALLOWED, *sys.stdlib_module_names}
    asked = {(path.name, name) for path in modules_of(room) for name in imports_of(path)}
    assert {(file, name) for file, name in asked if name not in expected} <= {
        (f"slot{KERNELS}.py", "triton"),
        (f"tail{KERNELS}.py", "triton"),
        (f"block{KERNELS}.py", "triton"),
    }
