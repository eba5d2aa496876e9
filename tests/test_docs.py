"""Every command and every program shown in the documentation runs; of the hub's models a tiny one stands in."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import documented
import pytest
from done import Done

from longtake.cli.program import REFUSED

ROOT = Path(__file__).parent.parent
PROGRAMS = ("longtake ", "python -m training ", "python -m benchmarks ")
ABOUT_NO_FILE = re.compile(r"(longtake (bench|doctor|explain|models)|python -m benchmarks)\b(?!.*\bout\b)")
PAGES = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(language: str) -> list[str]:
    return documented.blocks(PAGES, language)


def commands(program: str) -> list[str]:
    lines = {line for block in blocks("sh") for line in block.splitlines()}
    return sorted(line for line in lines if line.split()[0] == program)


def test_every_shell_line_is_a_command_these_tests_know() -> None:
    lines = [line for block in blocks("sh") for line in block.splitlines()]
    assert lines
    assert all(line.startswith(("make ", *PROGRAMS)) for line in lines)


def sessions() -> list[list[str]]:
    """The lines of each block that run us, which may use what earlier ones made; those about no file run once."""
    found, seen = [], set[str]()
    for block in blocks("sh"):
        lines = [line for line in block.splitlines() if line.startswith(PROGRAMS) and line not in seen]
        seen |= {
            line
            for line in lines
            if re.match(r"(longtake (bench|doctor|explain|models)|python -m benchmarks)\b(?!.*\bout\b)", line)
        }
        found.append(lines)
    return [lines for lines in found if lines]


@pytest.mark.extra
@pytest.mark.parametrize("lines", sessions(), ids=lambda lines: lines[-1])
def test_documented_commands_run_one_after_the_other(
    lines: list[str], tmp_path: Path, longtake: Callable[..., Done]
) -> None:
    (tmp_path / "out").mkdir()
    for line in lines:
        program, *arguments = shlex.split(line)
        done = longtake(*arguments, cwd=tmp_path) if program == "longtake" else from_checkout(arguments, tmp_path)
        is_refused = "I only know about" in done.stderr  # shown on the page, or by the tiny stand-in
        assert done.returncode == (REFUSED if is_refused else 0), f"{line}\n{done.stdout}{done.stderr}"


def from_checkout(arguments: list[str], folder: Path) -> Done:
    """A module beside the package, which is found from the checkout only."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    command, environment = [sys.executable, *arguments], os.environ | {"PYTHONPATH": path}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return Done(done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize("command", commands("make"))
def test_documented_make_target_is_run_by_continuous_integration(command: str) -> None:
    assert command in (ROOT / ".ci" / "run").read_text().splitlines()


@pytest.mark.extra
@pytest.mark.parametrize("program", blocks("python"))
def test_documented_program_runs_and_prints(program: str, tmp_path: Path, offline: dict[str, str]) -> None:
    command, environment = [sys.executable, "-c", program], os.environ | offline
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_install_lines_name_extras_and_versions_that_exist() -> None:
    project = (ROOT / "pyproject.toml").read_text()
    lines = [line for block in blocks("install") for line in block.splitlines()]
    assert lines
    for line in lines:
        assert line.startswith("pip install ")
        for requirement in re.findall(r'"(torch[^"]*)"', line):
            assert f'"{requirement}"' in project
        for extra in re.findall(r"\[([\w,]+)\]", line):
            assert re.search(rf"^{extra} = \[", project, re.MULTILINE)


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\((?!https?://)([^)#]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
