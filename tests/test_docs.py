"""Every command and every program shown in the documentation runs; of the hub's models a tiny one stands in."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import documented
import numpy as np
import pytest
from done import Done

from longtake import DialogueSession, open_video
from longtake.cli.program import REFUSED
from longtake.evaluation.asked_walk import QuestionPlan, film_walk
from longtake.world.question_candidates import candidates
from longtake.world.things import Sightings
from longtake.world.visibility import until
from longtake.world.walk import WALK_FPS

ROOT = Path(__file__).parent.parent
PROGRAMS = ("longtake ", "python -m training ", "python -m benchmarks ")
ABOUT_NO_FILE = re.compile(r"(longtake (bench|doctor|explain|models)|python -m benchmarks)\b(?!.*\bout\b)")
WORLD = r"world:(\d+)\?frames=(\d+)&size=(\d+)x(\d+)"
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


@cache
def sightings_of_world(address: str) -> Sightings:
    """What a walk shows, frame by frame."""
    seed, frames, width, height = map(int, re.fullmatch(WORLD, address).groups())  # type: ignore[union-attr]
    plan = QuestionPlan(num_frames=frames, fps=WALK_FPS, num_moments=1, num_questions=1, recent_s=0.0)
    return film_walk(seed, plan, (height, width), lambda _: None).seen


def truth_at(address: str, time_s: float) -> dict[str, str]:
    """Every question with one true answer at a moment of a walk, and that answer."""
    seen = until(sightings_of_world(address), round(time_s * WALK_FPS) + 1)
    draws = [candidates(seen, np.random.default_rng(seed)) for seed in range(20)]  # each asks of some unseen things
    asked = [question for draw in draws for kind in draw.values() for question in kind]
    return {question.text.removesuffix(" ?"): question.answer for question in asked}


def plain(question: str) -> str:
    return question.lower().removesuffix("?").replace(",", " ,").strip()


@pytest.mark.extra
@pytest.mark.parametrize("program", [block for block in blocks("python") if '"micro-vqa"' in block])
def test_documented_questions_are_answered_truly_in_programs(program: str) -> None:
    (address,) = re.findall(r'"(world:[^"]*)"', program)
    questions = re.findall(r'"([A-Z][^"]*\?)"', program)
    assert questions
    with DialogueSession.from_pretrained("micro-vqa", memory="100MB") as chat:
        for frame in open_video(address, fps=2.0):  # as both programs and LiveSession see them
            chat.see(frame)
        answers = chat.ask_together(questions)
    for question, answer in zip(questions, answers, strict=True):
        assert answer.seen_until_s is not None
        assert answer.text == truth_at(address, answer.seen_until_s).get(plain(question)), question


@pytest.mark.extra
@pytest.mark.parametrize(
    "line",
    [line for line in commands("longtake") if re.match('longtake (ask|live) "world:', line) and "--model" not in line],
)
def test_documented_questions_are_answered_truly_by_commands(line: str, longtake: Callable[..., Done]) -> None:
    _, *arguments = shlex.split(line)
    done = longtake(*arguments, "--json")
    events = [json.loads(text) for text in done.stdout.splitlines()]
    answers = [event for event in events if event["event"] == "answer" and event["ending"] != "refused"]
    assert answers or done.returncode == REFUSED
    for answer in answers:
        truth = truth_at(arguments[1], answer["seen_until_s"]).get(plain(answer["question"]))
        is_fair = answer["kind"] == "once" or truth is not None  # others come up at moments that nobody chose
        assert not is_fair or answer["text"] == truth, answer


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
