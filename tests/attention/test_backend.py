"""Backends against the definition of right, and exact merging of blocks by their log-sum-exp."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from longtake.attention.backend import Attended, Backend, ReferenceBackend, SdpaBackend, merge

BACKENDS: list[Backend] = [SdpaBackend(), ReferenceBackend()]
by_name = pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)

sizes = st.fixed_dictionaries(
    {
        "queries": st.integers(1, 9),
        "keys": st.integers(1, 40),
        "heads": st.integers(1, 3),
        "head_dim": st.sampled_from([2, 8, 16]),
        "batch": st.integers(1, 2),
        "seed": st.integers(0, 2**20),
    }
)


def projections(
    *, queries: int, keys: int, heads: int = 2, head_dim: int = 8, batch: int = 1, seed: int = 0
) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    q, k, v = (torch.randn(batch, count, heads, head_dim, generator=generator) for count in (queries, keys, keys))
    return 2 * q, k, v


def by_hand(q: Tensor, k: Tensor, v: Tensor) -> Attended:
    """One query and one head at a time, in float64."""
    values, log_sum_exp = torch.empty_like(q), q.new_empty(q.shape[:3])
    for at in torch.cartesian_prod(*(torch.arange(size) for size in q.shape[:3])).tolist():
        batch, query, head = at
        logits = k[batch, :, head].double() @ q[batch, query, head].double() / math.sqrt(q.shape[-1])
        values[batch, query, head] = logits.softmax(0) @ v[batch, :, head].double()
        log_sum_exp[batch, query, head] = torch.logsumexp(logits, 0)
    return Attended(values, log_sum_exp)


def assert_close(got: Attended, want: Attended, tolerance: float = 1e-5) -> None:
    torch.testing.assert_close(got.values, want.values, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(got.log_sum_exp, want.log_sum_exp, rtol=tolerance, atol=tolerance)


@by_name
@settings(max_examples=25, deadline=None)
@given(size=sizes)
def test_backend_equals_attention_by_hand(backend: Backend, size: dict[str, int]) -> None:
    q, k, v = projections(**size)
    assert_close(backend.attend(q, k, v), by_hand(q, k, v))


@settings(deadline=None)
@given(sizes)
def test_fused_kernel_equals_the_reference(size: dict[str, int]) -> None:
    q, k, v = projections(**size)
    assert_close(SdpaBackend().attend(q, k, v), ReferenceBackend().attend(q, k, v))


@settings(deadline=None)
@given(sizes)
def test_fused_kernel_in_bfloat16_is_within_its_rounding_of_the_reference(size: dict[str, int]) -> None:
    q, k, v = (tensor.bfloat16() for tensor in projections(**size))
    got, want = SdpaBackend().attend(q, k, v), ReferenceBackend().attend(q, k, v)
    assert got.values.dtype == want.values.dtype == torch.bfloat16
    assert got.log_sum_exp.dtype == want.log_sum_exp.dtype == torch.float32
    # eight bits of mantissa: weights and mixed values are each rounded once
    torch.testing.assert_close(got.values, want.values, rtol=2**-7, atol=2**-6)
    torch.testing.assert_close(got.log_sum_exp, want.log_sum_exp, rtol=1e-5, atol=1e-4)


@by_name
@settings(max_examples=50, deadline=None)
@given(size=sizes, data=st.data())
def test_blocks_merged_are_the_same_keys_in_one_block_in_any_order(
    backend: Backend, size: dict[str, int], data: st.DataObject
) -> None:
    q, k, v = projections(**size)
    want = backend.attend(q, k, v)
    order = data.draw(st.permutations(range(size["keys"])))
    cuts = sorted(data.draw(st.sets(st.integers(1, max(1, size["keys"] - 1)), max_size=4)) - {size["keys"]})
    blocks = torch.tensor(order).tensor_split(cuts)
    assert_close(merge([backend.attend(q, k[:, block], v[:, block]) for block in blocks]), want)
    assert_close(backend.attend(q, k[:, order], v[:, order]), want)


@by_name
def test_log_sum_exp_is_that_of_the_scaled_logits(backend: Backend) -> None:
    q, k, v = projections(queries=3, keys=17)
    logits = torch.einsum("bqhd,bkhd->bqhk", q, k) / math.sqrt(8)
    attended = backend.attend(q, k, v)
    torch.testing.assert_close(attended.log_sum_exp, torch.logsumexp(logits, dim=-1), rtol=1e-5, atol=1e-6)
    assert attended.log_sum_exp.dtype == torch.float32


@by_name
def test_one_key_is_its_value_whatever_the_query(backend: Backend) -> None:
    q, k, v = projections(queries=1, keys=1)
    attended = backend.attend(q, k, v)
    torch.testing.assert_close(attended.values, v)
    torch.testing.assert_close(attended.log_sum_exp, (q * k).sum(-1) / math.sqrt(8))


@by_name
def test_slice_of_a_slab_is_read_as_its_copy_would_be(backend: Backend) -> None:
    q, k, v = projections(queries=2, keys=20)
    block = slice(3, 14)
    in_place = backend.attend(q, k[:, block], v[:, block])
    copied = backend.attend(q, k[:, block].clone(), v[:, block].clone())
    assert torch.equal(in_place.values, copied.values)
    assert torch.equal(in_place.log_sum_exp, copied.log_sum_exp)


def test_merging_one_part_changes_nothing() -> None:
    part = Attended(torch.randn(1, 2, 1, 4), torch.randn(1, 2, 1))
    assert merge([part]) is part


def test_merging_blocks_of_very_unequal_weight_neither_overflows_nor_forgets() -> None:
    heavy = Attended(torch.full((1, 1, 1, 2), 3.0), torch.full((1, 1, 1), 500.0))
    light = Attended(torch.full((1, 1, 1, 2), -7.0), torch.full((1, 1, 1), -500.0))
    merged = merge([light, heavy])
    assert merged.values.flatten().tolist() == [3.0, 3.0]
    assert merged.log_sum_exp.item() == 500.0


def test_equal_blocks_are_averaged_and_weigh_twice() -> None:
    parts = [Attended(torch.full((1, 1, 1, 2), value), torch.ones(1, 1, 1)) for value in (2.0, 6.0)]
    merged = merge(parts)
    torch.testing.assert_close(merged.values, torch.full((1, 1, 1, 2), 4.0))
    assert merged.log_sum_exp.item() == pytest.approx(1 + math.log(2))


def test_merged_values_are_summed_in_float32_and_keep_their_type() -> None:
    q, k, v = (tensor.bfloat16() for tensor in projections(queries=4, keys=64))
    parts = [ReferenceBackend().attend(q, k[:, at : at + 1], v[:, at : at + 1]) for at in range(64)]
    merged = merge(parts)
    assert merged.values.dtype == torch.bfloat16
    assert merged.log_sum_exp.dtype == torch.float32
    want = by_hand(q.float(), k.float(), v.float())
    # one-key parts are exact in bfloat16, so only the last rounding is left
    torch.testing.assert_close(merged.values.float(), want.values, rtol=2**-8, atol=1e-5)


@by_name
def test_backends_are_backends(backend: Backend) -> None:
    assert isinstance(backend, Backend)


def test_reference_rounds_half_precision_once_at_the_end() -> None:
    q, k, v = (tensor.bfloat16() for tensor in projections(queries=9, keys=200))
    got, want = ReferenceBackend().attend(q, k, v), by_hand(q.float(), k.float(), v.float())
    torch.testing.assert_close(got.values.float(), want.values, rtol=2**-8, atol=1e-5)
    torch.testing.assert_close(got.log_sum_exp, want.log_sum_exp, rtol=1e-5, atol=1e-5)


def test_devices_without_a_fused_kernel_fall_back_to_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    attend = ReferenceBackend.attend

    def listening(self: ReferenceBackend, q: Tensor, k: Tensor, v: Tensor) -> Attended:
        asked.append(q.device.type)
        return attend(self, q, k, v)

    monkeypatch.setattr(ReferenceBackend, "attend", listening)
    here = projections(queries=3, keys=5)
    SdpaBackend().attend(*here)
    attended = SdpaBackend().attend(*(tensor.to("meta") for tensor in here))
    assert asked == ["meta"]
    assert attended.values.shape == (1, 3, 2, 8)
    assert attended.log_sum_exp.shape == (1, 3, 2)
