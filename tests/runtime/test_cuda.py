"""The promises of the memory on a GPU; left out where there is none."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from longtake.attention.backend import ReferenceBackend, SdpaBackend
from longtake.geometry.model import GeometryModel
from longtake.memory.policies.lockstep import ContextRetention
from longtake.runtime.keyframes import EveryNth
from longtake.runtime.memory_plan import MemoryPlan
from longtake.runtime.session import SequenceSession

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")


@pytest.fixture(autouse=True)
def _full_precision() -> Iterator[None]:
    """Convolutions round to TF32 by default, far beyond the golden tolerance."""
    allowed = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    yield
    torch.backends.cudnn.allow_tf32 = allowed


@pytest.fixture(scope="module")
def model(load_tiny: Callable[..., GeometryModel]) -> GeometryModel:
    return load_tiny().requires_grad_(False).cuda()


def open_session(model: GeometryModel, interval: int = 1, **settings: Any) -> SequenceSession:
    retention = ContextRetention(anchors=2, window=3)
    plan = MemoryPlan(config=model.config, size=(42, 70), retention=retention, num_scale_frames=2, **settings)
    return SequenceSession(model, plan, keyframes=EveryNth(interval))


@pytest.mark.parametrize(("name", "interval"), [("stream", 1), ("stream_kf3", 3)])
def test_streaming_on_the_gpu_reproduces_the_golden_run(
    name: str, interval: int, golden: Callable[[str], Any], golden_frames: Tensor, model: GeometryModel
) -> None:
    want = golden(name)
    parts = list(open_session(model, interval).run(golden_frames[0]))
    want.check("pose_enc", torch.cat([part.pose_encoding for part in parts]).cpu(), tolerance=1e-4)
    want.check("depth", torch.cat([part.depth for part in parts]).cpu(), tolerance=1e-4)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 2e-2)])
def test_fused_kernels_equal_the_reference(dtype: torch.dtype, tolerance: float) -> None:
    generator = torch.Generator().manual_seed(0)
    for num_queries, num_keys in ((1, 1), (33, 1000), (1005, 3001)):
        q, k, v = (
            torch.randn(1, n, 3, 64, generator=generator).cuda().to(dtype) for n in (num_queries, num_keys, num_keys)
        )
        got, want = SdpaBackend().attend(q, k, v), ReferenceBackend().attend(q, k, v)
        torch.testing.assert_close(got.values.float(), want.values.float(), rtol=tolerance, atol=tolerance)
        torch.testing.assert_close(got.log_sum_exp, want.log_sum_exp, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_forks_and_saving_leave_the_next_outputs_bit_identical(
    dtype: torch.dtype, golden_frames: Tensor, model: GeometryModel, tmp_path: Path
) -> None:
    plain = open_session(model, trunk_dtype=dtype)
    disturbed = open_session(model, trunk_dtype=dtype, reserve_frames=12)
    lasting: list[SequenceSession] = []
    for index, frame in enumerate(golden_frames[0]):
        lasting.append(disturbed.fork())
        lasting[-1].step(golden_frames[0, (index + 5) % 14])
        if len(lasting) == 2:
            lasting.pop(0).close()
        if index == 9:
            disturbed.save(tmp_path / "session.safetensors")
            disturbed = SequenceSession.resume(tmp_path / "session.safetensors", model)
            lasting.clear()
        got, want = disturbed.step(frame), plain.step(frame)
        assert torch.equal(got.depth, want.depth)
        assert torch.equal(got.pose_encoding, want.pose_encoding)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_captured_session_gives_the_same_bits(dtype: torch.dtype, golden_frames: Tensor, model: GeometryModel) -> None:
    def session(*, capture: bool) -> SequenceSession:
        plan = MemoryPlan(
            config=model.config,
            size=(42, 70),
            retention=ContextRetention(anchors=2, window=3),
            num_scale_frames=2,
            trunk_dtype=dtype,
            reserve_frames=8,
        )
        return SequenceSession(model, plan, compute_dtype=dtype, capture=capture)

    eager, captured = session(capture=False), session(capture=True)
    for frame in golden_frames[0]:
        with captured.fork() as fork:
            fork.step(frame.flip(-1))
        got, want = captured.step(frame), eager.step(frame)
        assert torch.equal(got.depth, want.depth)
        assert torch.equal(got.pose_encoding, want.pose_encoding)
        assert got.points is None or torch.equal(got.points, want.points)
