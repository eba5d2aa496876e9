"""What `map`, `ask`, `live` and `doctor` say of how they compute, on a GPU as torch would describe one."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from done import Done

from longtake.attention import triton
from longtake.cli import ask, doctor, live
from longtake.cli import map as mapping
from longtake.hub.load import load_language_model, load_model
from longtake.runtime import dialogue, execution
from longtake.video.source import open_source

WALK = "world:9?frames=4&size=56x56&fps=2"
QUESTION = "Which room are you in now?"
NO_TRITON = "the kernels need Triton"
NO_LOOPS = ", no loops: the model has no card of loops"


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Is described as one; all that is loaded for it lands on the CPU, where it is computed."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    monkeypatch.setattr(execution, "_has_bfloat16", lambda _: True)
    monkeypatch.setattr(execution, "find_spec", lambda _: None)
    monkeypatch.setattr(triton, "why_missing", lambda: NO_TRITON)
    monkeypatch.setattr(dialogue, "why_reading_unrecorded", lambda _: triton.why_missing())

    def load_here(name: str, **_: Any) -> Any:
        return load_model(name)

    def load_language_here(name: str, **_: Any) -> Any:
        return load_language_model(name)

    for command in (mapping, ask, live):
        monkeypatch.setattr(command, "open_source", lambda text, *_: open_source(text))
        monkeypatch.setattr(command, "load_model", load_here, raising=False)
        monkeypatch.setattr(command, "load_language_model", load_language_here, raising=False)
    return monkeypatch


def first_line(done: Done) -> str:
    (line,) = [line for line in (done.stderr + done.stdout).splitlines() if "attention by" in line]
    return line


@pytest.mark.usefixtures("gpu")
def test_on_a_gpu_the_first_line_says_why_the_portable_path_is_taken(
    run_here: Callable[..., Done], tmp_path: Path
) -> None:
    exact = ("--precision", "fp32")
    end = f", fp32 on cuda, attention by sdpa (portable path: {NO_TRITON})"
    assert first_line(run_here("ask", WALK, QUESTION, *exact)) == f"micro-vqa{end}"
    line = first_line(run_here("live", WALK, QUESTION, "--model", "tiny", *exact))
    assert line == f"tiny and micro-vqa{end}{NO_LOOPS}"
    out = ("--out", str(tmp_path / "mapped"))
    assert first_line(run_here("map", WALK, "--model", "tiny", *out, *exact)) == f"tiny{end}{NO_LOOPS}"
    (start,) = run_here("ask", WALK, QUESTION, *exact, "--json").of("start")
    assert (start["backend"], start["why_portable"]) == ("sdpa", NO_TRITON)


def test_networks_with_different_reasons_are_named_with_theirs(
    run_here: Callable[..., Done], gpu: pytest.MonkeyPatch
) -> None:
    gpu.setattr(triton, "why_missing", lambda: None)
    asked = (WALK, QUESTION, "--precision", "bf16", "--backend", "sdpa")
    reason = "attention goes through the sdpa backend"
    assert first_line(run_here("ask", *asked)).endswith(f"attention by sdpa (portable path: {reason})")
    heads = "there are kernels for heads of 64 and 128 channels, not of 24"
    line = first_line(run_here("live", *asked, "--model", "tiny"))
    assert line.endswith(f"(portable path: tiny: {heads}; micro-vqa: {reason}){NO_LOOPS}")


def test_nothing_is_said_of_it_where_all_is_recorded_and_on_a_cpu(
    run_here: Callable[..., Done], gpu: pytest.MonkeyPatch
) -> None:
    assert "portable" not in first_line(run_here("ask", WALK, QUESTION, "--device", "cpu"))
    (start,) = run_here("ask", WALK, QUESTION, "--device", "cpu", "--json").of("start")
    assert "why_portable" not in start
    gpu.setattr(dialogue.DialogueSession, "why_portable", None)
    assert "portable" not in first_line(run_here("ask", WALK, QUESTION, "--precision", "fp32"))


def test_doctor_says_of_a_gpu_whether_dialogues_are_recorded(
    run_here: Callable[..., Done], gpu: pytest.MonkeyPatch
) -> None:
    gpu.setattr(doctor, "_hardware", list)
    gpu.setattr(doctor, "_errors", lambda *_: [])
    gpu.setenv("COLUMNS", "200")

    def told() -> list[str]:
        return [" ".join(line.split()) for line in run_here("doctor").stdout.splitlines() if "dialogues" in line]

    assert told() == [f"dialogues portable path {NO_TRITON}"]
    gpu.setattr(triton, "why_missing", lambda: None)
    assert told() == ["dialogues recorded as CUDA graphs frames, questions and words go through our own kernels"]
    gpu.setattr(torch.cuda, "is_available", lambda: False)
    assert told() == []
