"""FlashInfer: a missing package says what to install; on a GPU its kernels agree with the definition of right."""

import importlib.util
import math
import sys
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from longtake.attention.backend import Attended
from longtake.attention.choose import backend_named
from longtake.attention.flashinfer import FlashInferBackend, FlashInferPages, why_unsuitable
from longtake.attention.paged import PagedCache, PageKernel
from longtake.attention.reference import ReferenceBackend
from longtake.errors import MissingExtraError
from longtake.memory.layout import StreamLayout
from longtake.memory.pages import PagePlan
from longtake.memory.policies.context import ContextRetention
from longtake.memory.policy import Keep

on_gpu = pytest.mark.skipif(
    not torch.cuda.is_available() or importlib.util.find_spec("flashinfer") is None,
    reason="needs a CUDA device and FlashInfer",
)
LAYOUT = StreamLayout(num_layers=2, num_heads=2, head_dim=64, tokens_per_frame=21, dtype=torch.bfloat16)


def projections(queries: int, keys: int, batch: int = 1, device: str = "cpu") -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(queries + keys)
    shapes = ((batch, count, 2, 64) for count in (queries, keys, keys))
    q, k, v = (torch.randn(shape, generator=generator).to(device, torch.bfloat16) for shape in shapes)
    return q, k, v


class FakeWrapper:
    """FlashInfer's paged prefill in plain torch, with its arguments, shapes and base of logarithms."""

    def __init__(self, workspace: Tensor, *, kv_layout: str, backend: str) -> None:
        assert (workspace.dtype, kv_layout, backend) == (torch.uint8, "NHD", "fa2")

    def plan(
        self, qo_indptr: Tensor, kv_indptr: Tensor, kv_indices: Tensor, last_page_len: Tensor, *sizes: int, **rest: Any
    ) -> None:
        assert {tensor.dtype for tensor in (qo_indptr, kv_indptr, kv_indices, last_page_len)} == {torch.int32}
        assert sizes[:3] == (2, 2, 64)
        assert rest["causal"] is False
        assert rest["sm_scale"] == 1 / 8
        assert rest["q_data_type"] == rest["kv_data_type"] == torch.bfloat16
        assert kv_indptr.tolist() == [0, len(kv_indices)]
        self.num_queries, self.indices = int(qo_indptr[1]), kv_indices.long()
        self.num_keys = (len(kv_indices) - 1) * sizes[3] + int(last_page_len)

    def run(self, q: Tensor, paged: tuple[Tensor, Tensor], *, return_lse: bool) -> tuple[Tensor, Tensor]:
        assert return_lse
        assert q.shape == (self.num_queries, 2, 64)
        k, v = (part[self.indices].flatten(0, 1)[: self.num_keys] for part in paged)
        return as_flashinfer(ReferenceBackend().attend(q[None], k[None], v[None]))


def fake_single_prefill(q: Tensor, k: Tensor, v: Tensor, **settings: Any) -> tuple[Tensor, Tensor]:
    assert settings == {"causal": False, "sm_scale": 1 / 8, "backend": "fa2", "return_lse": True}
    return as_flashinfer(ReferenceBackend().attend(q[None], k[None], v[None]))


def as_flashinfer(attended: Attended) -> tuple[Tensor, Tensor]:
    return attended.values[0], attended.log_sum_exp[0] / math.log(2)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for the package that computes on the CPU."""
    package = ModuleType("flashinfer")
    vars(package).update(
        BatchPrefillWithPagedKVCacheWrapper=FakeWrapper, single_prefill_with_kv_cache=fake_single_prefill
    )
    monkeypatch.setitem(sys.modules, "flashinfer", package)
    monkeypatch.setattr("longtake.attention.flashinfer.why_unsuitable", lambda *_: None)


def stream(
    kernel: PageKernel | None, page_size: int | None, trail_tokens: int, device: str
) -> tuple[PagedCache, Tensor]:
    """Eight frames, every third not kept, then two together, through pages; what each frame saw in each layer."""
    plan = PagePlan(
        patches=15,
        specials=6,
        retention=ContextRetention(anchors=2, window=3, trail=trail_tokens, history=None),
        max_total_frames=64,
        page_size=page_size,
    )
    cache = PagedCache(LAYOUT, plan, device=device, backend=ReferenceBackend(), kernel=kernel)
    q, k, v = projections(10 * 21, 10 * 21, device=device)
    outputs = []
    for frame in range(9):
        num_frames = 2 if frame == 8 else 1
        rows = slice(21 * frame, 21 * (frame + num_frames))
        with cache.begin(num_frames, Keep.DEFERRED) as step:
            outputs += [step.attend(layer, q[:, rows], (layer + 1) * k[:, rows], v[:, rows]) for layer in range(2)]
            if frame % 3 < 2:
                step.commit()
    return cache, torch.cat(outputs, dim=1)


def test_missing_package_is_refused_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "flashinfer", None)
    for make in (FlashInferBackend, lambda: FlashInferPages("cpu"), lambda: backend_named("flashinfer")):
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


@pytest.mark.usefixtures("fake")
@pytest.mark.parametrize(("page_size", "trail_tokens"), [(None, 6), (16, 6), (4, 6), (None, 1)])
def test_pages_are_described_to_the_package_so_that_it_reads_what_is_visible(
    page_size: int | None, trail_tokens: int
) -> None:
    kernel = FlashInferPages("cpu")
    assert isinstance(kernel, PageKernel)
    cache, got = stream(kernel, page_size, trail_tokens, "cpu")
    assert cache.gathers_because is None
    assert torch.equal(got, stream(None, page_size, trail_tokens, "cpu")[1])


@on_gpu
def test_contiguous_kernel_equals_the_reference() -> None:
    q, k, v = projections(200, 3000, batch=2, device="cuda")
    got, want = FlashInferBackend().attend(q, k, v), ReferenceBackend().attend(q, k, v)
    torch.testing.assert_close(got.values, want.values, rtol=2**-7, atol=2**-8)
    torch.testing.assert_close(got.log_sum_exp, want.log_sum_exp, rtol=1e-4, atol=1e-3)


@on_gpu
@pytest.mark.parametrize(("page_size", "trail_tokens"), [(None, 6), (16, 6), (4, 6), (None, 1)])
def test_paged_kernel_equals_the_reference(page_size: int | None, trail_tokens: int) -> None:
    cache, got = stream(FlashInferPages("cuda"), page_size, trail_tokens, "cuda")
    assert cache.gathers_because is None
    torch.testing.assert_close(got, stream(None, page_size, trail_tokens, "cuda")[1], rtol=2**-7, atol=2**-6)
