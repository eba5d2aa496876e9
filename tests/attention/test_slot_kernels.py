"""Our kernels against the definition of right: on a GPU as they are, elsewhere by Triton's interpreter.

The interpreter multiplies no bfloat16, so float16 stands for both there.
"""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

ON_GPU = torch.cuda.is_available()
pytest.importorskip("triton", reason="needs Triton")
kernels: Any = pytest.importorskip("longtake.attention.slot_kernels")

pytestmark = pytest.mark.extra
DEVICE = "cuda" if ON_GPU else "cpu"
DTYPES = (torch.bfloat16, torch.float16) if ON_GPU else (torch.float16,)
HEADS = pytest.mark.parametrize(("head_dim", "heads", "key_heads"), [(64, 2, 2), (128, 4, 2)])
RANGES = {
    "one run": [(3, 260)],
    "whole blocks": [(0, 256)],
    "less than a block": [(250, 300)],
    "several, one of them empty": [(10, 20), (100, 230), (230, 230), (270, 299)],
}
NUM_SLOTS, NUM_QUERIES = 300, 70


def rows(count: int, heads: int, head_dim: int, dtype: torch.dtype, seed: int) -> Tensor:
    """Normed, as a network's queries and keys are."""
    generator = torch.Generator().manual_seed(seed)
    normed = torch.nn.functional.layer_norm(torch.randn(count, heads, head_dim, generator=generator), (head_dim,))
    return normed.to(DEVICE, dtype)


def by_map(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mixed values, log-sum-exp and what each key received, in float64."""
    share = q.shape[1] // k.shape[1]
    k, v = (each.double().repeat_interleave(share, 1) for each in (k, v))
    logits = torch.einsum("qhd,khd->qhk", q.double(), k) / math.sqrt(q.shape[-1])
    log_sum_exp = logits.logsumexp(-1)
    weights = (logits - log_sum_exp.unsqueeze(-1)).exp()
    return torch.einsum("qhk,khd->qhd", weights, v), log_sum_exp, weights.sum((0, 1))


def in_order(ranges: list[tuple[int, int]]) -> Tensor:
    return torch.cat([torch.arange(begin, end) for begin, end in ranges]).to(DEVICE)


def on_device(numbers: Any) -> Tensor:
    return torch.tensor(numbers, dtype=torch.int32, device=DEVICE)


@pytest.fixture(params=DTYPES, ids=str)
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    found: torch.dtype = request.param
    return found


@HEADS
@pytest.mark.parametrize("name", RANGES)
def test_ranges_are_attended_to_as_by_the_whole_map(
    name: str, head_dim: int, heads: int, key_heads: int, dtype: torch.dtype
) -> None:
    q = rows(NUM_QUERIES, heads, head_dim, dtype, 0)
    k, v = (rows(NUM_SLOTS, key_heads, head_dim, dtype, seed) for seed in (1, 2))
    order = in_order(RANGES[name])
    values, log_sum_exp, received = by_map(q, k[order], v[order])
    got, weights = kernels.attend(q, kernels.Storage.of(k, v), on_device(RANGES[name]))
    rounding = 2.0**-7 if dtype is torch.bfloat16 else 2.0**-10
    assert float((got - values).norm() / values.norm()) < rounding
    torch.testing.assert_close(weights.double(), log_sum_exp, rtol=0, atol=1e-5)
    mass = kernels.received(q, kernels.Storage.of(k, k), weights, on_device(RANGES[name]), len(order) + 3)
    torch.testing.assert_close(mass[: len(order)].double(), received, rtol=1e-5, atol=1e-5)


@HEADS
@pytest.mark.parametrize("is_bounded", [False, True])
def test_slots_in_any_order_give_the_same_bits_as_slots_in_place(
    head_dim: int, heads: int, key_heads: int, is_bounded: bool, dtype: torch.dtype
) -> None:
    q = rows(NUM_QUERIES, heads, head_dim, dtype, 0)
    k, v = (rows(NUM_SLOTS, key_heads, head_dim, dtype, seed) for seed in (1, 2))
    slots = torch.randperm(NUM_SLOTS, generator=torch.Generator().manual_seed(3)).to(DEVICE)
    scattered_k, scattered_v = torch.empty_like(k), torch.empty_like(v)
    scattered_k[slots], scattered_v[slots] = k, v
    ranges, listed = on_device(RANGES["several, one of them empty"]), slots.to(torch.int32)
    key_norm = 1.01 * math.sqrt(head_dim) if is_bounded else None
    in_place = kernels.attend(q / 8, kernels.Storage.of(k, v), ranges, key_norm=key_norm)
    gathered = kernels.attend(q / 8, kernels.Storage.of(scattered_k, scattered_v), ranges, listed, key_norm=key_norm)
    assert all(torch.equal(some, other) for some, other in zip(in_place, gathered, strict=True))
    received = [
        kernels.received(q / 8, kernels.Storage.of(keys, keys), in_place[1], ranges, 169, listing)
        for keys, listing in ((k, None), (scattered_k, listed))
    ]
    assert torch.equal(*received)


@HEADS
def test_bounded_logits_differ_from_a_running_maximum_by_rounding_alone(
    head_dim: int, heads: int, key_heads: int, dtype: torch.dtype
) -> None:
    """Also where one key outweighs all, at the longest that is allowed."""
    k, v = (rows(NUM_SLOTS, key_heads, head_dim, dtype, seed) for seed in (1, 2))
    longest = 1.01 * math.sqrt(head_dim)
    q = rows(NUM_QUERIES, heads, head_dim, dtype, 0)
    allowed = kernels.most_key_norm(longest, head_dim, dtype)
    q = q if allowed >= longest else (q * (allowed / longest)).to(dtype)
    k[7] = q[:1, :: heads // key_heads] * (
        math.sqrt(head_dim) / q[:1, :: heads // key_heads].float().norm(dim=-1, keepdim=True)
    )
    ranges = on_device([(0, NUM_SLOTS)])
    running, bounded = (kernels.attend(q, kernels.Storage.of(k, v), ranges, key_norm=norm) for norm in (None, longest))
    torch.testing.assert_close(bounded[1], running[1], rtol=0, atol=1e-4)
    rounding = 2.0**-6 if dtype is torch.bfloat16 else 2.0**-9
    assert float((bounded[0] - running[0]).float().norm() / running[0].float().norm()) < rounding


def test_what_stands_behind_the_last_query_and_key_is_not_touched() -> None:
    """Blocks are of fixed size: neither rows beyond a tensor nor slots beyond a range are read or written."""
    q = rows(1, 2, 64, torch.float16, 0)
    k, v = (rows(NUM_SLOTS, 2, 64, torch.float16, seed) for seed in (1, 2))
    poisoned_k, poisoned_v = k.clone(), v.clone()
    for poisoned in (poisoned_k, poisoned_v):
        poisoned[:5] = poisoned[6:] = math.nan
    mixed, log_sum_exp = kernels.attend(q, kernels.Storage.of(poisoned_k, poisoned_v), on_device([(5, 6)]))
    assert torch.equal(mixed, v[5:6])
    received = kernels.received(q, kernels.Storage.of(poisoned_k, poisoned_k), log_sum_exp, on_device([(5, 6)]), 1)
    torch.testing.assert_close(received, torch.full((1,), 2.0, device=DEVICE))


FEW = pytest.mark.parametrize("few_dtype", [torch.float32, *DTYPES], ids=str)


@HEADS
@FEW
@pytest.mark.parametrize("name", RANGES)
def test_few_queries_attend_as_by_the_whole_map(
    name: str, head_dim: int, heads: int, key_heads: int, few_dtype: torch.dtype
) -> None:
    num_queries = 3 if few_dtype is torch.float32 or name != "one run" else 67  # more than a program takes
    q = rows(num_queries, heads, head_dim, few_dtype, 0)
    k, v = (rows(NUM_SLOTS, key_heads, head_dim, few_dtype, seed) for seed in (1, 2))
    order = in_order(RANGES[name])
    values, log_sum_exp, _ = by_map(q, k[order], v[order])
    got, weights = kernels.attend_few(q, kernels.Storage.of(k, v), on_device(RANGES[name]), NUM_SLOTS)
    rounding = {torch.float32: 1e-6, torch.bfloat16: 2.0**-7, torch.float16: 2.0**-10}[few_dtype]
    assert float((got - values).norm() / values.norm()) < rounding
    torch.testing.assert_close(weights.double(), log_sum_exp, rtol=0, atol=1e-5)


@FEW
def test_keys_shared_out_among_programs_are_merged_exactly_wherever_they_lie(few_dtype: torch.dtype) -> None:
    """More keys than one program takes, and more room than there are keys."""
    num_slots = 1200
    q = rows(1, 2, 64, few_dtype, 0)
    k, v = (rows(num_slots, 1, 64, few_dtype, seed) for seed in (1, 2))
    slots = torch.randperm(num_slots, generator=torch.Generator().manual_seed(3)).to(DEVICE)
    scattered_k, scattered_v = torch.empty_like(k), torch.empty_like(v)
    scattered_k[slots], scattered_v[slots] = k, v
    ranges = on_device([(7, 700), (800, 1190)])
    order = in_order([(7, 700), (800, 1190)])
    in_place = kernels.attend_few(q, kernels.Storage.of(k, v), ranges, 2000)
    listed = kernels.attend_few(q, kernels.Storage.of(scattered_k, scattered_v), ranges, 1083, slots.to(torch.int32))
    assert all(torch.equal(some, other) for some, other in zip(in_place, listed, strict=True))
    values, log_sum_exp, _ = by_map(q, k[order], v[order])
    assert float((in_place[0] - values).norm() / values.norm()) < (1e-6 if few_dtype is torch.float32 else 2.0**-7)
    torch.testing.assert_close(in_place[1].double(), log_sum_exp, rtol=0, atol=1e-5)


def test_no_key_at_all_weighs_nothing() -> None:
    q, k = rows(1, 2, 64, torch.float32, 0), rows(5, 2, 64, torch.float32, 1)
    values, log_sum_exp = kernels.attend_few(q, kernels.Storage.of(k, k), on_device([(3, 3)]), 5)
    assert torch.equal(values, torch.zeros_like(q))
    assert torch.equal(log_sum_exp, torch.full_like(log_sum_exp, -math.inf))


@pytest.mark.parametrize("few_dtype", [torch.float32, *DTYPES], ids=str)
def test_rows_of_a_clip_go_into_their_slots_and_nowhere_else(few_dtype: torch.dtype) -> None:
    keys, values = (rows(20, 3, 64, few_dtype, seed) for seed in (0, 1))
    clip = rows(5, 9, 64, few_dtype, 2).unflatten(1, (3, 3))  # keys and values as a product of three leaves them
    slots = torch.tensor([4, 19, 0, 7, 8], device=DEVICE)
    want_keys, want_values = keys.clone(), values.clone()
    want_keys[slots], want_values[slots] = clip[:, 1], clip[:, 2]
    kernels.write(kernels.Storage.of(keys, values), slots.to(torch.int32), clip[:, 1], clip[:, 2])
    assert torch.equal(keys, want_keys)
    assert torch.equal(values, want_values)
