"""The life of one clip: written in every layer, then kept as a whole or gone."""

import threading
from collections.abc import Callable

import pytest
import torch

from longtake.errors import TransactionError
from longtake.memory.budget import MemoryRequirements
from longtake.memory.memory import Memory
from longtake.memory.policies.lockstep import Window
from longtake.memory.policy import Keep
from longtake.memory.tokens import StreamLayout
from longtake.memory.transaction import Transaction

LAYOUT = StreamLayout(num_layers=3, num_heads=1, head_dim=2, tokens_per_frame=2)


def new_memory() -> Memory:
    return Memory(MemoryRequirements(streams={"only": (LAYOUT, Window(anchors=0, window=2))}, first_clip=1).plan())


def write(transaction: Transaction, value: float, layers: range = range(3)) -> None:
    for layer in layers:
        rows = torch.full((2, 1, 2), value + layer / 10)
        transaction.write("only", layer, rows, -rows)


def test_clip_reads_its_own_keys_and_values_layer_by_layer() -> None:
    with new_memory().begin(1, Keep.NO) as transaction:
        write(transaction, 5.0)
        for layer in range(3):
            ((keys, values),) = transaction.read("only", layer)
            assert keys[:, 0, 0].tolist() == pytest.approx([5 + layer / 10] * 2)
            assert torch.equal(values, -keys)


def test_clip_reads_what_was_kept_before_it() -> None:
    memory = new_memory()
    for value in (1.0, 2.0):
        with memory.begin(1, Keep.YES) as transaction:
            write(transaction, value)
            transaction.commit()
    for keep, seen in ((Keep.YES, [2, 2, 3, 3]), (Keep.NO, [1, 1, 2, 2, 3, 3]), (Keep.DEFERRED, [1, 1, 2, 2, 3, 3])):
        with memory.begin(1, keep) as transaction:
            write(transaction, 3.0)
            values = [value for keys, _ in transaction.read("only", 0) for value in keys[:, 0, 0].tolist()]
            assert sorted(values) == seen


@pytest.mark.parametrize(("layers", "first", "count"), [(range(0), 0, 3), (range(1), 1, 2), (range(2), 2, 1)])
def test_clip_that_misses_a_layer_is_not_kept_but_can_be_completed(layers: range, first: int, count: int) -> None:
    memory = new_memory()
    with memory.begin(1, Keep.YES) as transaction:
        write(transaction, 1.0, layers)
        with pytest.raises(TransactionError, match=rf"did not write only layer {first} \({count} missing in all\)"):
            transaction.commit()
        assert memory.num_kept == 0
        write(transaction, 1.0)
        transaction.commit()
    assert memory.num_kept == 1


@pytest.mark.parametrize("tokens", [1, 3])
def test_write_of_too_few_or_too_many_tokens_is_refused(tokens: int) -> None:
    rows = torch.zeros(tokens, 1, 2)
    transaction = new_memory().begin(1, Keep.YES)
    with pytest.raises(TransactionError, match=f"has 2 slots staged for this clip, but {tokens} tokens came"):
        transaction.write("only", 0, rows, rows)


@pytest.mark.parametrize("keep", [Keep.YES, Keep.DEFERRED])
def test_clip_is_kept_only_if_committed(keep: Keep) -> None:
    memory = new_memory()
    with memory.begin(1, keep) as transaction:
        write(transaction, 1.0)
    assert memory.num_kept == 0
    with memory.begin(1, keep) as transaction:
        write(transaction, 1.0)
        transaction.commit()
    assert memory.num_kept == 1


def test_clip_declared_as_not_kept_cannot_be_committed() -> None:
    memory = new_memory()
    with memory.begin(1, Keep.NO) as transaction:
        write(transaction, 1.0)
        with pytest.raises(TransactionError, match="declared as not kept"):
            transaction.commit()
    assert memory.num_kept == 0


@pytest.mark.parametrize("end", [Transaction.commit, Transaction.abandon], ids=["committed", "left"])
@pytest.mark.parametrize(
    "use",
    [
        lambda transaction: write(transaction, 2.0),
        lambda transaction: transaction.read("only", 0),
        lambda transaction: transaction.commit(),
    ],
    ids=["write", "read", "commit"],
)
def test_ended_transaction_is_refused(end: Callable[[Transaction], None], use: Callable[[Transaction], object]) -> None:
    memory = new_memory()
    transaction = memory.begin(1, Keep.YES)
    write(transaction, 1.0)
    end(transaction)
    before = memory.use(), memory.num_kept
    with pytest.raises(TransactionError, match="has ended"):
        use(transaction)
    assert (memory.use(), memory.num_kept) == before


def test_clip_that_was_left_makes_way_in_its_own_thread_alone() -> None:
    memory = new_memory()
    clips = [memory.begin(1, Keep.YES)]
    thread = threading.Thread(target=memory.leave)
    thread.start()
    thread.join()
    write(clips[0], 1.0)
    memory.leave()
    with pytest.raises(TransactionError, match="has ended"):
        clips[0].commit()
    with memory.begin(1, Keep.YES) as transaction:
        write(transaction, 1.0)
        clips.clear()
        transaction.commit()
    memory.leave()
    assert memory.num_kept == 1


def test_leaving_an_ended_transaction_leaves_the_next_alone() -> None:
    memory = new_memory()
    for end in (Transaction.commit, Transaction.abandon):
        first = memory.begin(1, Keep.YES)
        write(first, 1.0)
        end(first)
        with memory.begin(1, Keep.YES):
            before = memory.use()
            first.abandon()
            assert memory.use() == before
            with pytest.raises(TransactionError, match="staged already"):
                memory.begin(1, Keep.YES)
