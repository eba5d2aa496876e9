"""The command line as a user meets it, in a process of its own."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from done import Done

from longtake import __version__
from longtake.cli import doctor
from longtake.cli.doctor import PURPOSES
from longtake.cli.main import COMMANDS
from longtake.extras import Extra, known_extras

LONGTAKE = str(Path(sys.executable).with_name("longtake"))


def without(module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Where a module is not installed."""
    start = f"import sys; sys.modules[{module!r}] = None; from longtake.cli.main import main; main()"
    command = [sys.executable, "-c", start, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)


def test_version_and_help_need_no_torch() -> None:
    assert without("torch", "--version").stdout.startswith("longtake 0.")
    assert "doctor" in without("torch", "--help").stdout


@pytest.mark.extra
def test_help_of_a_command_is_its_own_and_begins_as_the_list_says(longtake: Callable[..., Done]) -> None:
    for name, about in COMMANDS.items():
        done = longtake(name, "--help")
        assert done.returncode == 0, done.stderr
        assert f"longtake {name}" in done.stdout
        said = " ".join(done.stdout.replace("│", " ").split())
        assert " ".join(about.split()[:5]) in said


def test_list_of_commands_imports_none_of_them() -> None:
    start = (
        "import sys; sys.argv = ['longtake', '--help']; from longtake.cli.main import app\n"
        "app(standalone_mode=False)\n"
        "print(sorted(name for name in sys.modules if name.startswith(('longtake.', 'torch', 'av'))))"
    )
    done = subprocess.run([sys.executable, "-c", start], capture_output=True, text=True, check=False, timeout=100)
    loaded = done.stdout.splitlines()[-1]
    own = ["longtake.cli", "longtake.cli.main", "longtake.cli.program", "longtake.cli.signals", "longtake.errors"]
    assert loaded == str(own)


@pytest.mark.extra
def test_installed_script_ends_with_the_code_of_its_command() -> None:
    done = subprocess.run([LONGTAKE, "bench", "memory", "--size", "500x300"], capture_output=True, check=False)
    assert done.returncode == 1
    assert b"multiples of 14" in done.stderr
    done = subprocess.run([LONGTAKE, "doctor", "--json"], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "attention" in {row["topic"] for row in json.loads(done.stdout)}


def test_doctor_reports_the_backend_and_a_small_error(longtake: Callable[..., Done]) -> None:
    done = longtake("doctor", "--json")
    assert done.returncode == 0, done.stderr
    findings = {row["topic"].strip(): row for row in json.loads(done.stdout)}
    assert findings["attention"]["found"] == "sdpa"
    assert float(findings["cpu float32"]["found"]) < 1e-5
    for extra in known_extras():
        note = findings[f"extra {extra.name}"]["note"]
        assert PURPOSES[extra.name] in note
        assert (extra.install_command in note) == bool(extra.missing)


def test_doctor_prints_what_to_install_with_its_brackets(
    monkeypatch: pytest.MonkeyPatch, run_here: Callable[..., Done]
) -> None:
    monkeypatch.setattr(doctor, "known_extras", lambda: [Extra("rerun", ("no-such-package",))])
    monkeypatch.setenv("COLUMNS", "200")
    assert 'missing no-such-package         the format rrd; pip install "longtake[rerun]"' in run_here("doctor").stdout


@pytest.mark.extra
def test_bench_memory_agrees_with_the_formula_to_the_byte(longtake: Callable[..., Done]) -> None:
    done = longtake("bench", "memory", "--frames", "80", "--json")
    assert done.returncode == 0, done.stderr
    rows = {row["policy"]: row for row in json.loads(done.stdout)}
    published = rows["published"]
    assert published["resident_frame_layer_bytes"] * 24 == 98_795_520
    assert published["last_frame_layer_bytes"] * 24 == 589_824
    assert published["trunk_bytes"] == 72 * 98_795_520 + 8 * 589_824
    assert published["camera_bytes"] == 80 * 262_144
    assert rows["camera only"]["last_frame_layer_bytes"] == 4096
    assert rows["no trail"]["last_frame_layer_bytes"] == 0
    assert rows["keep all"]["trunk_bytes"] == 80 * 98_795_520
    assert all(row["agrees"] for row in rows.values())


@pytest.mark.extra
def test_explain_positions_needs_no_transformers_and_draws(longtake: Callable[..., Done], tmp_path: Path) -> None:
    wanted = ("explain", "positions", "--fps", "4", "--chunks", "3", "--size", "1280x720")
    done = without("transformers", *wanted, "--plot", str(tmp_path / "plot.png"))
    assert done.returncode == 0, done.stderr
    assert "26 x 46 tokens" in done.stdout
    assert "17, 40, 60" in done.stdout
    assert (tmp_path / "plot.png").stat().st_size > 1000
    told = json.loads(longtake(*wanted, "--json").stdout)
    assert [one["name"] for one in told["formats"]] == ["native", "turns", "open clip", "library"]
    assert told["formats"][1]["chunks"][2]["question"] == {"time": 170, "row": 170, "column": 170}


@pytest.mark.extra
def test_missing_extra_is_one_sentence_with_the_command_that_installs_it(tmp_path: Path) -> None:
    done = without("matplotlib", "bench", "memory", "--frames", "2", "--plot", str(tmp_path / "plot.png"))
    assert done.returncode == 1
    assert 'run: pip install "longtake[plot]"' in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


def test_the_package_is_a_program_too() -> None:
    command = [sys.executable, "-m", "longtake", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert (done.returncode, done.stdout) == (0, f"longtake {__version__}\n")


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (("bench", "memory", "--size", "large"), 2, "Expected a size such as 518x378"),
        (("bench", "memory", "--size", "500x300"), 1, "multiples of 14"),
        (("bench", "memory", "--frames", "0"), 2, "Invalid value"),
        (("bench", "speed", "--model", "huge"), 2, "no model 'huge'; choose one of tiny, lingbot-map"),
        (("bench", "speed", "--precision", "int3"), 2, "no precision 'int3'"),
        (("bench", "speed", "--device", "tpu"), 2, "no device 'tpu'; choose one of cpu, cuda, auto"),
        (("bench", "speed", "--backend", "slow"), 2, "no attention backend 'slow'"),
        (("bench", "speed", "--weights", "nowhere.pt"), 1, "nowhere.pt"),
        (("bench", "policies", "--model", "none", "--language", "none"), 2, "name one"),
        (("bench", "policies", "--language", "none", "--card", "card.json"), 2, "name a --language model"),
        (("bench", "speed", "--device", "cpu", "--capture"), 2, "Recording needs a CUDA device"),
        (("explain", "positions", "--size", "wide"), 2, "Expected a size such as 518x378"),
        (("explain", "positions", "--fps", "0"), 2, "frames a second above 0"),
        (("explain", "positions", "--chunk-frames", "100000"), 2, "at most 4,000,000 tokens"),
        (("explain", "positions", "--plot", "nowhere/plot.png"), 1, "cannot be written to nowhere/plot.png"),
        (("nonsense",), 2, "No such command"),
    ],
)
def test_bad_option_is_one_sentence_and_no_traceback(
    arguments: tuple[str, ...], code: int, sentence: str, longtake: Callable[..., Done]
) -> None:
    done = longtake(*arguments)
    assert done.returncode == code
    assert sentence in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
