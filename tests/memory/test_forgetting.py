"""Frames forgotten by name, and keys revised in place: the rest stays as it was, and forks see what they saw."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from longtake.errors import ForkError, TransactionError
from longtake.memory.budget import MemoryRequirements
from longtake.memory.memory import Memory
from longtake.memory.policies.lockstep import KeepAll
from longtake.memory.policy import Keep
from longtake.memory.tokens import StreamLayout
from longtake.memory.transaction import Transaction

LAYOUT = StreamLayout(num_layers=2, num_heads=1, head_dim=2, tokens_per_frame=1, causal=True)


def new_memory(reserve: int = 0) -> Memory:
    return Memory(MemoryRequirements(streams={"text": (LAYOUT, KeepAll())}, first_clip=1, reserve=reserve).plan(2000))


def say(memory: Memory, first: int, count: int) -> None:
    """Tokens whose keys are their numbers."""
    with memory.begin(count, Keep.YES) as transaction:
        write(transaction, first, count)
        transaction.commit()


def write(transaction: Transaction, first: int, count: int) -> None:
    rows = torch.arange(first, first + count).float()[:, None, None].expand(-1, 1, 2)
    for layer in range(2):
        transaction.write("text", layer, rows + layer * 1000, -rows)


def remembered(memory: Memory) -> dict[int, float]:
    """Token numbers and their keys in the second layer."""
    tokens = memory.tokens("text")
    keys = memory._pool.streams["text"].slab.keys[1][torch.from_numpy(tokens.slot), 0, 0]
    return dict(zip(tokens.frame.tolist(), (keys - 1000).tolist(), strict=True))


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 5), st.sets(st.integers(0, 30))), min_size=1, max_size=6))
def test_what_is_forgotten_is_gone_and_the_rest_is_one_run(steps: list[tuple[int, set[int]]]) -> None:
    memory, left, said = new_memory(), set[int](), 0
    for count, gone in steps:
        say(memory, said, count)
        left |= set(range(said, said + count))
        said += count
        memory.forget("text", np.array(sorted(gone), dtype=np.int64))
        left -= gone
        assert remembered(memory) == {token: float(token) for token in left}
        memory.begin(1, Keep.NO).abandon()  # holes are filled before the next clip
        assert remembered(memory) == {token: float(token) for token in left}
        slots = sorted(memory.tokens("text").slot.tolist())
        assert slots == list(range(len(slots)))
        assert memory.use()["text"].live == len(left)


def test_fork_still_sees_what_its_parent_forgot() -> None:
    memory = new_memory(reserve=8)
    say(memory, 0, 6)
    with memory.fork() as fork:
        memory.forget("text", np.array([1, 2]))
        say(memory, 6, 3)
        assert remembered(fork) == {token: float(token) for token in range(6)}
        assert set(remembered(memory)) == {0, 3, 4, 5, 6, 7, 8}
    assert memory.use()["text"].held == 0


def test_keys_are_revised_for_some_and_not_while_a_fork_reads_them() -> None:
    memory = new_memory(reserve=4)
    say(memory, 0, 4)
    with memory.fork(), pytest.raises(ForkError, match="only while there is no fork"):
        memory.begin(1, Keep.YES, rewriting=True)
    with memory.begin(1, Keep.YES, rewriting=True) as transaction:
        transaction.revise_keys("text", np.array([1, 3]), lambda keys: keys + 0.5)
    assert remembered(memory) == {0: 0.0, 1: 1.0, 2: 2.0, 3: 3.0}
    with memory.begin(1, Keep.YES, rewriting=True) as transaction:
        transaction.revise_keys("text", np.array([1, 3]), lambda keys: keys + 0.5)
        write(transaction, 4, 1)
        transaction.commit()
    assert remembered(memory) == {0: 0.0, 1: 1.5, 2: 2.0, 3: 3.5, 4: 4.0}


def test_nothing_is_forgotten_while_a_clip_is_staged() -> None:
    memory = new_memory()
    say(memory, 0, 2)
    with memory.begin(1, Keep.YES), pytest.raises(TransactionError, match="before forgetting frames"):
        memory.forget("text", np.array([0]))
    assert set(remembered(memory)) == {0, 1}
