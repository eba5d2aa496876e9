"""A clip that waits for room is told at once when room comes, or when its fork ends."""

import threading
import time
from typing import Any

import torch

from longtake.errors import ForkError, LongtakeError
from longtake.memory.budget import MemoryRequirements
from longtake.memory.memory import Memory
from longtake.memory.policies.lockstep import Window
from longtake.memory.policy import Keep
from longtake.memory.tokens import StreamLayout

LAYOUT = StreamLayout(num_layers=1, num_heads=1, head_dim=2, tokens_per_frame=2)


def new_memory(reserve: int = 0) -> Memory:
    return Memory(
        MemoryRequirements(streams={"a": (LAYOUT, Window(anchors=0, window=2))}, first_clip=1, reserve=reserve).plan()
    )


def keep(memory: Memory) -> None:
    with memory.begin(1, Keep.YES) as transaction:
        transaction.write("a", 0, torch.zeros(2, 1, 2), torch.zeros(2, 1, 2))
        transaction.commit()


def full_memory_with_a_fork() -> tuple[Memory, Memory]:
    memory = new_memory()
    keep(memory)
    fork = memory.fork()
    keep(memory)
    keep(memory)
    assert memory.use()["a"].free == 0
    return memory, fork


def begin_in_thread(branch: Memory, patience_s: float) -> tuple[threading.Thread, dict[str, Any]]:
    result: dict[str, Any] = {}

    def wait() -> None:
        start = time.monotonic()
        try:
            result["transaction"] = branch.begin(1, Keep.NO, patience_s=patience_s)
        except LongtakeError as error:
            result["error"] = error
        result["waited_s"] = time.monotonic() - start

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.1)
    return thread, result


def test_fork_that_ends_while_its_clip_waits_for_room_is_refused_the_clip() -> None:
    _, fork = full_memory_with_a_fork()
    thread, result = begin_in_thread(fork, 5.0)
    fork.close()
    thread.join()
    assert isinstance(result.get("error"), ForkError)


def test_clip_that_waits_for_room_begins_as_soon_as_the_parent_clears() -> None:
    memory, fork = full_memory_with_a_fork()
    thread, result = begin_in_thread(fork, 3.0)
    memory.clear()
    assert memory.use()["a"].free >= 2
    thread.join()
    assert result["waited_s"] < 1.0


def test_clip_that_waits_for_room_begins_as_soon_as_a_commit_makes_room() -> None:
    memory = new_memory()
    fork = memory.fork()
    keep(memory)
    keep(memory)
    transaction = memory.begin(1, Keep.YES)
    assert memory.use()["a"].free == 0
    thread, result = begin_in_thread(fork, 3.0)
    transaction.write("a", 0, torch.zeros(2, 1, 2), torch.zeros(2, 1, 2))
    transaction.commit()
    use = memory.use()["a"]
    assert use.free + use.staged == 2  # the clip that waits may have taken it already
    thread.join()
    assert result["waited_s"] < 1.0
