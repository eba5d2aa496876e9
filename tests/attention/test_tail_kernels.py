"""The kernels of a language model against the definition of right: on a GPU as they are, elsewhere interpreted."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

ON_GPU = torch.cuda.is_available()
pytest.importorskip("triton", reason="needs Triton")
slots_module: Any = pytest.importorskip("longtake.attention.slot_kernels")
kernels: Any = pytest.importorskip("longtake.attention.tail_kernels")

pytestmark = pytest.mark.extra
DEVICE = "cuda" if ON_GPU else "cpu"
HALF = torch.bfloat16 if ON_GPU else torch.float16  # the interpreter multiplies no bfloat16
ROUNDING = 2.0**-7 if ON_GPU else 2.0**-10
NUM_SLOTS, HEADS, KEY_HEADS = 200, 4, 2
PAST = [(10, 30), (100, 160)]


def some(*shape: int, seed: int, dtype: torch.dtype = HALF) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE, dtype)


def on_device(numbers: Any) -> Tensor:
    return torch.tensor(numbers, dtype=torch.int32, device=DEVICE)


def by_map(q: Tensor, keys: Tensor, values: Tensor, is_seen: Tensor) -> tuple[Tensor, Tensor]:
    """Mixed values, and the weight of each key for each query and head, in float64."""
    share = HEADS // KEY_HEADS
    k, v = (each.double().repeat_interleave(share, 1) for each in (keys, values))
    logits = torch.einsum("qhd,khd->qhk", q.double(), k) / math.sqrt(q.shape[-1])
    weights = logits.masked_fill(~is_seen[:, None], -math.inf).softmax(-1)
    return torch.einsum("qhk,khd->qhd", weights, v), weights


@pytest.mark.parametrize("head_dim", [16, 32, 64, 128])
@pytest.mark.parametrize(
    ("tokens", "before", "counts", "past"),
    [
        (1, (0, 5), (1, 1), PAST),
        (1, (70,), (1,), PAST),
        (16, (0, 3, 0), (16, 9, 0), PAST),
        (40, (2,), (37,), []),
    ],
    ids=["words of two", "a long tail", "questions of three, one without any", "no past"],
)
def test_past_and_tail_are_attended_to_as_by_the_whole_map(
    tokens: int, before: tuple[int, ...], counts: tuple[int, ...], past: list[tuple[int, int]], head_dim: int
) -> None:
    entries, most = len(counts), 100
    q = some(entries, tokens, HEADS, head_dim, seed=0)
    k, v = (some(NUM_SLOTS, KEY_HEADS, head_dim, seed=seed) for seed in (1, 2))
    storage = slots_module.Storage.of(k, v)
    tails = torch.stack(
        [torch.randperm(NUM_SLOTS, generator=torch.Generator().manual_seed(n))[:most] for n in range(9)]
    )
    tails = tails[:entries].to(DEVICE, torch.int32)
    ranges = on_device([*past, *[(0, 0)] * (4 - len(past))])
    of_past = slots_module.attend_few(q.flatten(0, 1), storage, ranges, NUM_SLOTS, exact=True)
    mixed, log_sum_exp = kernels.attend_tails(q, storage, of_past, tails, on_device(before), on_device(counts))
    masses = torch.zeros(entries, NUM_SLOTS, device=DEVICE), torch.zeros(entries, most, device=DEVICE)
    lengths = on_device([[[0, b + c]] for b, c in zip(before, counts, strict=True)])
    for _ in range(2):  # what is there is added to
        kernels.add_received(q, storage, log_sum_exp, on_device(counts), ranges.unsqueeze(0), None, masses[0])
        kernels.add_received(q, storage, log_sum_exp, on_device(counts), lengths, tails, masses[1])
    order = torch.cat([torch.arange(0), *(torch.arange(begin, end) for begin, end in past)]).to(DEVICE)
    for entry, (earlier, count) in enumerate(zip(before, counts, strict=True)):
        if not count:
            continue
        which = torch.cat((order, tails[entry, : earlier + count]))
        own = (
            torch.arange(earlier + count, device=DEVICE)[None, :]
            <= earlier + torch.arange(count, device=DEVICE)[:, None]
        )
        is_seen = torch.cat((torch.ones(count, len(order), dtype=torch.bool, device=DEVICE), own), dim=1)
        want, weights = by_map(q[entry, :count], k[which], v[which], is_seen)
        assert float((mixed[entry, :count] - want).norm() / want.norm()) < ROUNDING
        got = torch.cat((masses[0][entry, : len(order)], masses[1][entry, : earlier + count]))
        torch.testing.assert_close(got.double(), 2 * weights[-1].sum(0), rtol=1e-4, atol=1e-5)


def test_a_past_that_is_listed_gives_the_same_bits() -> None:
    q = some(2, 1, HEADS, 64, seed=0)
    k, v = (some(NUM_SLOTS, KEY_HEADS, 64, seed=seed) for seed in (1, 2))
    storage, ranges = slots_module.Storage.of(k, v), on_device([[0, 130]])
    listed = torch.arange(10, 140, dtype=torch.int32, device=DEVICE)
    in_place = on_device([[10, 140]])
    one = slots_module.attend_few(q.flatten(0, 1), storage, in_place, NUM_SLOTS, exact=True)
    other = slots_module.attend_few(q.flatten(0, 1), storage, ranges, NUM_SLOTS, listed, exact=True)
    assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
    log_sum_exp, counts = one[1].reshape(2, 1, HEADS), on_device([1, 1])
    masses = [torch.zeros(2, NUM_SLOTS, device=DEVICE) for _ in range(2)]
    kernels.add_received(q, storage, log_sum_exp, counts, in_place[None], None, masses[0])
    kernels.add_received(q, storage, log_sum_exp, counts, ranges[None], listed[None], masses[1])
    assert torch.equal(*masses)
    assert float(masses[0].sum()) == pytest.approx(2 * HEADS, rel=1e-4)


@pytest.mark.parametrize("head_dim", [16, 128])
def test_keys_are_turned_and_written_and_nothing_beyond_the_count(head_dim: int) -> None:
    q = some(2, 3, HEADS * head_dim, seed=0)
    k, v = (some(2, 3, KEY_HEADS * head_dim, seed=seed) for seed in (1, 2))
    angle = some(2, 3, head_dim // 2, seed=3, dtype=torch.float32)
    keys, values = (torch.full((20, KEY_HEADS, head_dim), 7.0, dtype=HALF, device=DEVICE) for _ in range(2))
    slots = on_device([[4, 9, 2], [11, 0, 0]])
    turned = kernels.turn_and_write(
        slots_module.Storage.of(keys, values), q, k, v, (angle.cos(), angle.sin()), slots, on_device([3, 1])
    )

    def rotated(x: Tensor) -> Tensor:
        a, b = x.unflatten(-1, (-1, head_dim)).float().chunk(2, dim=-1)
        cos, sin = angle.cos().unsqueeze(2), angle.sin().unsqueeze(2)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)

    torch.testing.assert_close(turned.float(), rotated(q), rtol=ROUNDING, atol=ROUNDING)
    written = slots[0].long()
    torch.testing.assert_close(keys[written].float(), rotated(k)[0], rtol=ROUNDING, atol=ROUNDING)
    assert torch.equal(values[written], v[0].unflatten(-1, (KEY_HEADS, -1)))
    assert torch.equal(values[11], v[1, 0].unflatten(-1, (KEY_HEADS, -1)))
    untouched = [slot for slot in range(20) if slot not in (4, 9, 2, 11)]
    assert bool((keys[untouched] == 7).all())
    assert bool((values[untouched] == 7).all())
