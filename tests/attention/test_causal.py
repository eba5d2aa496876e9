"""A clip of tokens over a remembered past: equal to one masked pass, for shared heads, splits and batches."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from longtake.attention.backend import Backend, ReferenceBackend, SdpaBackend
from longtake.attention.causal import AttentionRecorder, CausalRecall, attend_to_earlier, attend_to_earlier_by_map
from longtake.attention.triton import TritonBackend
from longtake.errors import InputError
from longtake.memory.budget import MemoryRequirements
from longtake.memory.memory import Memory
from longtake.memory.policies.lockstep import KeepAll
from longtake.memory.policy import Keep
from longtake.memory.tokens import StreamLayout

HEADS, KEY_HEADS, DIM, LAYERS = 4, 2, 8, 2
LAYOUT = StreamLayout(num_layers=LAYERS, num_heads=KEY_HEADS, head_dim=DIM, tokens_per_frame=1, causal=True)


def new_memory() -> Memory:
    return Memory(MemoryRequirements(streams={"text": (LAYOUT, KeepAll())}, first_clip=1, reserve=64).plan(10**6))


def tensors(num_tokens: int, seed: int = 0, batch: int = 1) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shapes = ((batch, num_tokens, HEADS, DIM), *[(batch, num_tokens, KEY_HEADS, DIM)] * 2)
    q, k, v = (torch.randn(shape, generator=generator) for shape in shapes)
    return q, k, v


def whole(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Lower-triangular attention by a loop over heads."""
    out = torch.zeros_like(q)
    for head in range(HEADS):
        shared = head * KEY_HEADS // HEADS
        logits = q[0, :, head] @ k[0, :, shared].T / math.sqrt(DIM)
        logits = logits.masked_fill(torch.ones_like(logits, dtype=torch.bool).triu(1), -math.inf)
        out[0, :, head] = logits.softmax(-1) @ v[0, :, shared]
    return out


BACKENDS = pytest.mark.parametrize("backend", [SdpaBackend(), TritonBackend()], ids=["blocks", "slots"])
"""The past read block by block, and in place; here both compute by torch."""


def feed(
    memory: Memory,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    keep: Keep = Keep.YES,
    recorder: AttentionRecorder | None = None,
    backend: Backend | None = None,
) -> Tensor:
    with memory.begin(q.shape[1], keep) as transaction:
        recall = CausalRecall(transaction, backend or SdpaBackend(), recorder)
        outs = [recall.attend("text", layer, q, k, v) for layer in range(LAYERS)]
        if keep is Keep.YES:
            transaction.commit()
    assert torch.equal(outs[0], outs[1])
    return outs[0]


@BACKENDS
@settings(max_examples=25, deadline=None)
@given(sizes=st.lists(st.integers(1, 9), min_size=1, max_size=6), seed=st.integers(0, 1000))
def test_any_split_equals_one_masked_pass(sizes: list[int], seed: int, backend: Backend) -> None:
    q, k, v = tensors(sum(sizes), seed)
    memory = new_memory()
    parts = [
        feed(memory, *part, backend=backend) for part in zip(*(x.split(sizes, dim=1) for x in (q, k, v)), strict=True)
    ]
    assert torch.allclose(torch.cat(parts, dim=1), whole(q, k, v), atol=1e-5)


def weights_of(place: int, q: Tensor, k: Tensor) -> Tensor:
    """What one token pays to each up to itself, over all heads, by a loop."""
    paid = torch.zeros(place + 1)
    for head in range(HEADS):
        paid += (k[0, : place + 1, head * KEY_HEADS // HEADS] @ q[0, place, head] / math.sqrt(DIM)).softmax(-1)
    return paid


@BACKENDS
@settings(max_examples=25, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 6), min_size=1, max_size=4), num_past=st.integers(1, 12), seed=st.integers(0, 1000)
)
def test_witness_sums_what_the_last_token_of_each_clip_pays(
    sizes: list[int], num_past: int, seed: int, backend: Backend
) -> None:
    q, k, v = tensors(num_past + sum(sizes), seed)
    num_heard = num_past + sizes[0]
    memory, recorder, wanted, start = new_memory(), AttentionRecorder(num_heard), torch.zeros(num_heard), num_past
    feed(memory, *(x[:, :num_past] for x in (q, k, v)))
    for size in sizes:
        feed(memory, *(x[:, start : start + size] for x in (q, k, v)), recorder=recorder, backend=backend)
        start += size
        wanted += LAYERS * weights_of(start - 1, q, k)[:num_heard]
    assert torch.allclose(recorder.attention_mass.float(), wanted, atol=1e-5)


def test_fork_goes_on_from_the_past_and_leaves_no_trace() -> None:
    q, k, v = tensors(20)
    memory, plain = new_memory(), new_memory()
    for other in (memory, plain):
        feed(other, *(x[:, :12] for x in (q, k, v)))
    with memory.fork() as fork:
        parts = [feed(fork, *(x[:, place : place + 1] for x in (q, k, v))) for place in range(12, 20)]
        assert torch.allclose(torch.cat(parts, dim=1), whole(q, k, v)[:, 12:], atol=1e-5)
    more = tensors(5, seed=3)
    assert torch.equal(feed(memory, *more), feed(plain, *more))


@BACKENDS
def test_batch_that_is_not_kept_shares_the_past_and_writes_nothing(backend: Backend) -> None:
    q, k, v = tensors(10)
    memory, plain = new_memory(), new_memory()
    for other in (memory, plain):
        feed(other, q, k, v)
    branches = tensors(3, seed=1, batch=4)
    together = feed(memory, *branches, keep=Keep.NO, backend=backend)
    for entry in range(4):
        alone = [
            torch.cat([past, branch[entry : entry + 1]], dim=1)
            for past, branch in zip((q, k, v), branches, strict=True)
        ]
        assert torch.allclose(together[entry], whole(*alone)[0, 10:], atol=1e-5)
    more = tensors(2, seed=5)
    assert torch.equal(feed(memory, *more), feed(plain, *more))


def test_batch_cannot_be_kept() -> None:
    with pytest.raises(InputError, match="a batch of 2 came"):
        feed(new_memory(), *tensors(3, batch=2))


@pytest.mark.parametrize("num_tokens", [1, 2, 17])
def test_fused_own_attention_equals_its_twin(num_tokens: int) -> None:
    q, k, v = tensors(num_tokens, batch=3)
    fast, slow = attend_to_earlier(q, k, v), attend_to_earlier_by_map(q, k, v)
    assert torch.allclose(fast.values, slow.values, atol=1e-6)
    assert torch.allclose(fast.log_sum_exp, slow.log_sum_exp, atol=1e-6)


def test_reference_backend_gives_the_same() -> None:
    q, k, v = tensors(9)
    memory = new_memory()
    feed(memory, *(x[:, :5] for x in (q, k, v)))
    with memory.begin(4, Keep.NO) as transaction:
        recall = CausalRecall(transaction, ReferenceBackend())
        got = recall.attend("text", 0, *(x[:, 5:] for x in (q, k, v)))
    assert torch.allclose(got, whole(q, k, v)[:, 5:], atol=1e-5)
