"""A reduced soak; the full one is `python -m benchmarks soak`."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from selected import rest_by_hand

from benchmarks.soak import Ages, SoakFigures, Stretch, small, soak
from longtake.errors import SettingError
from longtake.memory.policies.budgeted import Managed
from longtake.memory.policies.lockstep import ContextRetention, Window
from longtake.memory.registry import stream_policy_named

ROOT = Path(__file__).parents[2]


@pytest.mark.extra
@pytest.mark.parametrize("frames", rest_by_hand(["2400", "4000"], keep=1))
def test_long_run_stays_flat(frames: str) -> None:
    command = [sys.executable, "-m", "benchmarks", "soak", "--frames", frames, "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    print(done.stdout, done.stderr)
    assert done.returncode == 0
    figures = json.loads(done.stdout)
    assert figures["is_flat"] is True
    assert figures["last"]["num_tensors"] == figures["first"]["num_tensors"]
    assert figures["last"]["num_objects"] <= figures["first"]["num_objects"] + 100


def test_growth_is_called_growth() -> None:
    first = Stretch(resident_bytes=200_000_000, taken_bytes=1, step_ms=1.0, num_tensors=10, num_objects=100)
    flat = SoakFigures(num_frames=10, stretch_frames=2, memory_bytes=1, most_taken_bytes=1, first=first, last=first)
    assert flat.is_flat
    assert not replace(flat, last=replace(first, resident_bytes=221_000_000)).is_flat
    assert not replace(flat, last=replace(first, num_tensors=11)).is_flat
    assert replace(flat, last=replace(first, step_ms=1.5)).step_ratio == 1.5
    assert flat.is_steady
    assert replace(flat, ages=Ages(num_frames=2, old_step_ms=1.1, young_step_ms=1.0)).is_steady
    assert not replace(flat, ages=Ages(num_frames=2, old_step_ms=1.11, young_step_ms=1.0)).is_steady
    assert flat.is_bounded
    assert not replace(flat, most_taken_bytes=2).is_bounded


@pytest.mark.extra
@pytest.mark.parametrize(
    "name", rest_by_hand(["managed", "window", "context", "key-diversity", "farthest-frames", "ratio"], keep=3)
)
def test_every_policy_with_a_bound_stays_below_it(name: str) -> None:
    ticks: list[int] = []
    rule = small(stream_policy_named(name))
    if not isinstance(rule, Window):
        room = {"history": 16} if isinstance(rule, ContextRetention) else {"camera_frames": 16}
        rule = replace(rule, **room)  # type: ignore[type-var]
    figures = soak(20, 5, ticks.append, rule)
    assert len(ticks) == 20
    assert figures.ages is not None
    assert figures.ages.num_frames == 5
    assert min(figures.ages.old_step_ms, figures.ages.young_step_ms) > 0
    assert figures.is_bounded
    assert 0 < figures.first.taken_bytes < figures.last.taken_bytes <= figures.most_taken_bytes
    assert figures.memory_bytes > 0


@pytest.mark.extra
def test_managed_memory_fills_what_was_declared_to_the_byte() -> None:
    rule = replace(Managed(), num_frames=4, special_frames=4, camera_frames=6)
    figures = soak(20, 5, lambda _: None, rule)
    assert figures.most_taken_bytes == figures.memory_bytes


def test_policy_without_a_bound_is_refused() -> None:
    with pytest.raises(SettingError, match="never forgets needs a budget"):
        soak(20, 5, lambda _: None, stream_policy_named("keep-all"))


def test_run_without_a_policy_compares_no_ages() -> None:
    assert soak(4, 2, lambda _: None).ages is None
