"""Every command and every program shown in the documentation runs; of the hub's models a tiny one stands in."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from done import Done

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(language: str) -> list[str]:
    pattern = re.compile(rf"^```{language}\n(.*?)^```", re.DOTALL | re.MULTILINE)
    return [block for page in PAGES for block in pattern.findall(page.read_text())]


def commands(program: str) -> list[str]:
    lines = {line for block in blocks("sh") for line in block.splitlines()}
    return sorted(line for line in lines if line.split()[0] == program)


def test_every_shell_line_is_a_command_these_tests_know() -> None:
    lines = [line for block in blocks("sh") for line in block.splitlines()]
    assert lines
    assert {line.split()[0] for line in lines} <= {"make", "longtake"}


def sessions() -> list[list[str]]:
    """The longtake lines of each block, which may use what earlier ones made; those about no file run once."""
    found, seen = [], set[str]()
    for block in blocks("sh"):
        lines = [line for line in block.splitlines() if line.startswith("longtake ") and line not in seen]
        seen |= {line for line in lines if re.match(r"longtake (bench|doctor|explain|models)\b(?!.*\bout\b)", line)}
        found.append(lines)
    return [lines for lines in found if lines]


@pytest.mark.extra
@pytest.mark.parametrize("lines", sessions(), ids=lambda lines: lines[-1])
def test_documented_commands_run_one_after_the_other(
    lines: list[str], tmp_path: Path, longtake: Callable[..., Done]
) -> None:
    (tmp_path / "out").mkdir()
    for line in lines:
        done = longtake(*shlex.split(line)[1:], cwd=tmp_path)
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"


@pytest.mark.parametrize("command", commands("make"))
def test_documented_make_target_is_run_by_continuous_integration(command: str) -> None:
    assert command in (ROOT / ".ci" / "run").read_text().splitlines()


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
