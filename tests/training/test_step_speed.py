"""The time of a step, as a developer asks for it."""

import json

import pytest
from typer.testing import CliRunner

from training.__main__ import train

pytestmark = pytest.mark.extra


def test_steps_of_each_length_are_timed() -> None:
    arguments = ["step-speed", "--quick", "--size", "42x28", "--lengths", "4,8", "--frames", "8", "--device", "cpu"]
    done = CliRunner().invoke(train, [*arguments, "--json"])
    assert done.exit_code == 0, done.output
    figures = json.loads(done.stdout)
    assert [one["clip_frames"] for one in figures] == [4, 8]
    assert all(one["step_ms"] > 0 and one["gradient"] > 0 for one in figures)
    assert "passing over" in CliRunner().invoke(train, arguments).stdout


def test_lengths_without_meaning_are_refused() -> None:
    done = CliRunner().invoke(train, ["step-speed", "--quick", "--lengths", "many"])
    assert "Expected --lengths as numbers of frames, such as 24,96, but got 'many'" in str(done.exception)
