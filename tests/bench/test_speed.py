"""The speed benchmark's figures carry their contract."""

import pytest
import torch

from longtake.bench.speed import measure_speed
from longtake.geometry.model import GeometryModel
from longtake.memory.policies.lockstep import ContextRetention
from longtake.runtime.keyframes import EveryNth
from longtake.runtime.memory_plan import MemoryPlan
from longtake.runtime.session import SequenceSession
from longtake.weights.presets import TINY

LABELS = {"model": "tiny", "weights": "RANDOM", "compute_dtype": "float32", "backend": "sdpa", "captured": "no"}


@pytest.mark.parametrize("interval", [1, 3])
def test_figures_say_what_they_were_measured_under(interval: int) -> None:
    model = GeometryModel(TINY).eval().requires_grad_(False)
    retention = ContextRetention(anchors=2, window=3, history=16)
    plan = MemoryPlan(config=TINY, size=(28, 42), retention=retention, num_scale_frames=2)
    session = SequenceSession(model, plan, keyframes=EveryNth(interval))
    ticks: list[int] = []
    figures = measure_speed(session, LABELS, 4, 2 + 5 * interval, ticks.append)
    assert figures.warm_up_frames == 2 + 5 * interval
    assert len(ticks) == figures.warm_up_frames + 2 * 4
    assert (figures.height, figures.width, figures.keyframes) == (28, 42, {"interval": interval})
    assert (figures.policy["anchors"], figures.policy["window"]) == (2, 3)
    assert figures.why_portable == "attention goes through the sdpa backend"
    assert figures.heads == "camera x 2, depth"
    assert figures.weights == "RANDOM"
    assert 0 < figures.p50_ms <= figures.p90_ms <= figures.p99_ms
    assert figures.memory_bytes == session.num_bytes
    assert figures.torch == torch.__version__
    assert figures.device.startswith("CPU")
