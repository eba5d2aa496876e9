"""A reduced soak; the full one is `longtake bench soak`."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from longtake.bench.soak import SoakFigures, Stretch


@pytest.mark.extra
def test_long_run_stays_flat() -> None:
    command = [Path(sys.executable).with_name("longtake"), "bench", "soak", "--frames", "4000", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    print(done.stdout, done.stderr)
    assert done.returncode == 0
    figures = json.loads(done.stdout)
    assert figures["is_flat"] is True
    assert figures["last"]["num_tensors"] == figures["first"]["num_tensors"]
    assert figures["last"]["num_objects"] <= figures["first"]["num_objects"] + 100


def test_growth_is_called_growth() -> None:
    first = Stretch(resident_bytes=200_000_000, step_ms=1.0, num_tensors=10, num_objects=100)
    flat = SoakFigures(num_frames=10, stretch_frames=2, memory_bytes=1, first=first, last=first)
    assert flat.is_flat
    assert not replace(flat, last=replace(first, resident_bytes=221_000_000)).is_flat
    assert not replace(flat, last=replace(first, num_tensors=11)).is_flat
    assert replace(flat, last=replace(first, step_ms=1.5)).step_ratio == 1.5
