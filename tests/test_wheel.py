"""The wheel works anywhere: it is built, has what it needs and no more, and runs outside of the checkout."""

import os
import re
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import documented
import pytest
from selected import rest_by_hand

ROOT = Path(__file__).parent.parent
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
LARGEST_MB = 20
NEEDED = (
    "longtake/py.typed",
    "longtake/models/micro-map.safetensors",
    "longtake/models/micro-vqa/model.safetensors",
    "longtake/exports/report/page.html",
)
API_PAGES = [page for page in (ROOT / "README.md", ROOT / "docs" / "api.md") if page.exists()]


def run(*command: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Without the checkout in sight."""
    known = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(command, cwd=cwd, env=known | environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    done = run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder), cwd=ROOT)
    assert done.returncode == 0, done.stderr
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`bin` of an empty virtual environment that has the wheel, and what this one has besides longtake."""
    folder = tmp_path_factory.mktemp("installed") / "venv"
    done = run(sys.executable, "-m", "venv", "--without-pip", str(folder), cwd=folder.parent)
    assert done.returncode == 0, done.stderr
    python = str(folder / "bin" / "python")
    done = run(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", str(wheel), cwd=folder.parent)
    assert done.returncode == 0, done.stderr
    (packages,) = folder.glob("lib/python*/site-packages")
    # comes behind the environment's own packages; .pth files within it, such as that of the checkout, are not followed
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    return folder / "bin"


def test_all_has_every_extra_that_is_no_tool_of_ours() -> None:
    (names,) = re.findall(r"longtake\[(.*)\]", " ".join(EXTRAS["all"]))
    assert set(names.split(",")) == EXTRAS.keys() - {"all", "dev"}


@pytest.mark.extra
def test_wheel_is_small_and_has_the_models_but_nothing_of_the_checkout_beside_the_package(wheel: Path) -> None:
    assert wheel.stat().st_size < LARGEST_MB * 1e6
    with ZipFile(wheel) as file:
        names = file.namelist()
    assert set(NEEDED) <= set(names)
    assert {name.partition("/")[0] for name in names} == {"longtake", f"longtake-{PROJECT['version']}.dist-info"}
    assert not [name for name in names if re.search(r"\btraining|\bbenchmarks|\btests?\b|recipes|__pycache__", name)]


@pytest.mark.extra
def test_installed_command_says_its_version_and_runs_the_demo(installed: Path, tmp_path: Path) -> None:
    done = run(str(installed / "longtake"), "--version", cwd=tmp_path)
    assert done.stdout == f"longtake {PROJECT['version']}\n", done.stderr
    done = run(str(installed / "longtake"), "demo", "--frames", "10", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "answers right" in done.stdout
    assert (tmp_path / "out" / "demo.json").exists()


@pytest.mark.extra
def test_package_is_that_of_the_wheel_and_what_stands_beside_it_is_not_there(installed: Path, tmp_path: Path) -> None:
    done = run(str(installed / "python"), "-c", "import longtake; print(longtake.__file__)", cwd=tmp_path)
    assert Path(done.stdout.strip()).is_relative_to(installed.parent), done.stderr
    for name in ("training", "benchmarks"):
        assert run(str(installed / "python"), "-c", f"import {name}", cwd=tmp_path).returncode == 1


@pytest.mark.extra
@pytest.mark.parametrize("program", rest_by_hand(documented.blocks(API_PAGES, "python"), keep=4))
def test_example_runs_outside_of_the_checkout(
    program: str, installed: Path, tmp_path: Path, offline: dict[str, str]
) -> None:
    done = run(str(installed / "python"), "-c", program, cwd=tmp_path, **offline)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


@pytest.mark.extra
def test_all_extras_resolve_together(wheel: Path, installed: Path, tmp_path: Path) -> None:
    """With what is installed here; what is missing is only looked up."""
    pip = (sys.executable, "-m", "pip", "--python", str(installed / "python"), "--disable-pip-version-check")
    if run(*pip, "index", "versions", "nvidia-ml-py", cwd=tmp_path).returncode:
        pytest.skip("needs a package registry")
    done = run(*pip, "install", "--dry-run", f"longtake[all] @ {wheel.as_uri()}", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
