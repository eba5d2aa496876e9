"""FlashInfer: a missing package says what to install; on a GPU its kernels agree with the definition of right."""

import importlib.util
import math
import sys
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from longtake.attention.backend import Attended, ReferenceBackend
from longtake.attention.choose import backend_named
from longtake.attention.flashinfer import FlashInferBackend, why_unsuitable
from longtake.errors import MissingExtraError

on_gpu = pytest.mark.skipif(
    not torch.cuda.is_available() or importlib.util.find_spec("flashinfer") is None,
    reason="needs a CUDA device and FlashInfer",
)


def projections(queries: int, keys: int, batch: int = 1, device: str = "cpu") -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(queries + keys)
    shapes = ((batch, count, 2, 64) for count in (queries, keys, keys))
    q, k, v = (torch.randn(shape, generator=generator).to(device, torch.bfloat16) for shape in shapes)
    return q, k, v


def fake_single_prefill(q: Tensor, k: Tensor, v: Tensor, **settings: Any) -> tuple[Tensor, Tensor]:
    assert settings == {"causal": False, "sm_scale": 1 / 8, "backend": "fa2", "return_lse": True}
    return as_flashinfer(ReferenceBackend().attend(q[None], k[None], v[None]))


def as_flashinfer(attended: Attended) -> tuple[Tensor, Tensor]:
    return attended.values[0], attended.log_sum_exp[0] / math.log(2)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for the package that computes on the CPU."""
    package = ModuleType("flashinfer")
    vars(package)["single_prefill_with_kv_cache"] = fake_single_prefill
    monkeypatch.setitem(sys.modules, "flashinfer", package)
    monkeypatch.setattr("longtake.attention.flashinfer.why_unsuitable", lambda *_: None)


def test_missing_package_is_refused_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "flashinfer", None)
    for make in (FlashInferBackend, lambda: backend_named("flashinfer")):
        with pytest.raises(
            MissingExtraError, match=r'pip install "longtake\[flashinfer\]", or choose the sdpa backend'
        ):
            make()


@pytest.mark.parametrize(
    ("device", "dtype", "head_dim", "reason"),
    [
        ("cpu", torch.bfloat16, 64, "not on cpu"),
        ("cuda", torch.float32, 64, "not in torch.float32"),
        ("cuda", torch.bfloat16, 8, "not of 8"),
    ],
)
def test_what_has_no_kernel_is_said(device: str, dtype: torch.dtype, head_dim: int, reason: str) -> None:
    assert str(why_unsuitable(torch.device(device), dtype, head_dim)).endswith(reason)
    assert why_unsuitable(torch.device("cuda"), torch.float16, 128) is None


def test_tensors_without_a_kernel_take_the_portable_path(monkeypatch: pytest.MonkeyPatch) -> None:
    package = ModuleType("flashinfer")
    package.__dict__["single_prefill_with_kv_cache"] = None
    monkeypatch.setitem(sys.modules, "flashinfer", package)
    q, k, v = (tensor.float() for tensor in projections(5, 30))
    got, want = FlashInferBackend().attend(q, k, v), ReferenceBackend().attend(q, k, v)
    torch.testing.assert_close(got.values, want.values, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(got.log_sum_exp, want.log_sum_exp, rtol=1e-5, atol=1e-5)


@pytest.mark.usefixtures("fake")
def test_package_is_asked_in_its_own_terms_and_its_logarithms_become_natural() -> None:
    q, k, v = projections(5, 30, batch=2)
    got, want = FlashInferBackend().attend(q, k, v), ReferenceBackend().attend(q, k, v)
    assert torch.equal(got.values, want.values)
    torch.testing.assert_close(got.log_sum_exp, want.log_sum_exp, rtol=1e-6, atol=1e-6)


@on_gpu
def test_contiguous_kernel_equals_the_reference() -> None:
    q, k, v = projections(200, 3000, batch=2, device="cuda")
    got, want = FlashInferBackend().attend(q, k, v), ReferenceBackend().attend(q, k, v)
    torch.testing.assert_close(got.values, want.values, rtol=2**-7, atol=2**-8)
    torch.testing.assert_close(got.log_sum_exp, want.log_sum_exp, rtol=1e-4, atol=1e-3)
