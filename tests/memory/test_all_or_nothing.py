"""An error at any line of any change leaves the memory as it was: the next outputs are the same to the bit."""

import itertools
import random
import threading
from collections.abc import Callable
from functools import cache, partial

import numpy as np
import pytest
import torch
from broken import ERRORS, Break, Interrupt
from selected import rest_in_extra
from torch import Tensor

from longtake.attention.backend import SdpaBackend
from longtake.attention.recall import StreamRecall
from longtake.errors import MemoryFullError
from longtake.memory.budget import MemoryRequirements
from longtake.memory.memory import Memory
from longtake.memory.policies.budgeted import KeyDiversity, Managed
from longtake.memory.policies.farthest_frames import FarthestFrames
from longtake.memory.policies.layerwise import Layerwise
from longtake.memory.policies.lockstep import ContextRetention, KeepAll, Window
from longtake.memory.policies.ratio import Ratio
from longtake.memory.policy import Keep, StreamPolicy
from longtake.memory.registry import POLICIES
from longtake.memory.shared_pool import ROOT
from longtake.memory.tokens import StreamLayout
from longtake.memory.transaction import Transaction

TRUNK = StreamLayout(num_layers=2, num_heads=1, head_dim=4, tokens_per_frame=4, special_tokens=1)
CAMERA = StreamLayout(num_layers=1, num_heads=1, head_dim=4, tokens_per_frame=2, passes=2)
LAYOUTS = {"trunk": TRUNK, "camera": CAMERA}
POLICIES_HERE: dict[str, StreamPolicy] = {
    "context": ContextRetention(anchors=1, window=2, history=6),
    "keep-all": KeepAll(),
    "window": Window(anchors=1, window=3),
    "managed": Managed(num_frames=4, special_frames=2, camera_frames=4),
    "ratio": Ratio(special_frames=2, camera_frames=4),
    "key-diversity": KeyDiversity(num_frames=4, special_frames=2, camera_frames=4),
    "farthest-frames": FarthestFrames(num_frames=3, camera_frames=4),
    "layerwise": Layerwise(num_frames=14, budget_ratio=0.3),
}
"""Small enough that every change below evicts and moves."""
ROOMS = ("memory",)
BEFORE = 7
"""Frames kept before the change that fails."""


def new_memory(policy: StreamPolicy) -> Memory:
    streams = {"trunk": (TRUNK, policy.for_stream(TRUNK)), "camera": (CAMERA, policy.camera().for_stream(CAMERA))}
    wanted = MemoryRequirements(streams=streams, first_clip=1, reserve=6)
    return Memory(wanted.plan(wanted.num_bytes(16) if wanted.full_after is None else None))


def clone(memory: Memory) -> Memory:
    """A memory in the very same state; states are values, so only keys and values are copied."""
    twin = Memory(memory.plans)
    for name, stream in memory._pool.streams.items():
        slabs = (stream.slab, twin._pool.streams[name].slab)
        for here, there in zip(*((*slab.keys, *slab.values) for slab in slabs), strict=True):
            there.copy_(here)
    twin._pool._state.become(memory._pool.state)
    return twin


def attend(transaction: Transaction, seed: int) -> list[Tensor]:
    """One frame through all layers; its attention outputs."""
    recall, outputs = StreamRecall(transaction, SdpaBackend(), num_scale_frames=1), []
    for name, layout in LAYOUTS.items():
        for layer in range(layout.num_layers * layout.passes):
            generator = torch.Generator().manual_seed(seed * 100 + layer)
            shape = (3, 1, layout.tokens_per_frame // layout.passes, layout.num_heads, layout.head_dim)
            outputs.append(recall.attend(name, layer, *torch.randn(shape, generator=generator)))
    return outputs


def look(memory: Memory, seed: int, *, keep: Keep = Keep.YES, done: Callable[[], None] = lambda: None) -> list[Tensor]:
    with memory.begin(1, keep) as transaction:
        outputs = attend(transaction, seed)
        if keep is Keep.YES:
            transaction.commit()
            done()
    return outputs


def commit_fork(memory: Memory, done: Callable[[], None]) -> None:
    with memory.fork() as fork:
        look(fork, 50)
        fork.commit_fork()
        done()


def fork_and_drop(memory: Memory, done: Callable[[], None]) -> None:
    with memory.fork() as fork:
        look(memory.fork(), 51)
        look(fork, 52, keep=Keep.NO)


def forget(memory: Memory, done: Callable[[], None]) -> None:
    memory.forget("trunk", np.array([0, 4, 6]))
    done()
    look(memory, 50, keep=Keep.NO)


def rewrite(memory: Memory, done: Callable[[], None]) -> None:
    """Frames leave for a clip that lies where they were, and keys of others are revised: as when a dialogue is full."""
    with memory.begin(1, Keep.YES, forgetting={"trunk": np.array([0, 4, 6])}, rewriting=True) as transaction:
        transaction.revise_keys("trunk", np.array([3, 5]), lambda keys: keys * 2)
        attend(transaction, 50)
        transaction.commit()
        done()


def clear(memory: Memory, done: Callable[[], None]) -> None:
    memory.clear()
    done()


Change = Callable[[Memory, Callable[[], None]], object]
"""Changes a memory, and tells when it is done; what comes after that changes nothing more."""
CHANGES: dict[str, Change] = {
    "keep": lambda memory, done: look(memory, 50, done=done),
    "look": lambda memory, done: look(memory, 50, keep=Keep.NO, done=done),
    "commit fork": commit_fork,
    "fork": fork_and_drop,
    "forget": forget,
    "rewrite": rewrite,
    "clear": clear,
}


def outputs_from_here(memory: Memory) -> list[Tensor]:
    return [*look(memory, 90), *look(memory, 91), *look(memory, 92, keep=Keep.NO)]


def same(some: list[Tensor], others: list[Tensor]) -> bool:
    return all(torch.equal(*pair) for pair in zip(some, others, strict=True))


@cache
def watched(name: str) -> Memory:
    memory = new_memory(POLICIES_HERE[name])
    for seed in range(BEFORE):
        look(memory, seed)
    return memory


def break_lines(name: str, change: Change, *, error: type[BaseException], some: int | None = None) -> int:
    """Break it at some of its lines, or at every one, the first time and the last; how many moments there were."""
    whole, changed = Break(None, ROOMS), clone(watched(name))
    whole.during(lambda: change(changed, lambda: None))
    want = {False: outputs_from_here(clone(watched(name))), True: outputs_from_here(changed)}
    every = whole.first_and_last()
    numbers = every if some is None else random.Random(name).sample(every, some)
    for number in numbers:
        memory, broken, done = clone(watched(name)), Break(number, ROOMS, error), list[bool]()
        broken.during(partial(change, memory, partial(done.append, True)))
        assert broken.at != "nowhere"
        assert same(outputs_from_here(memory), want[bool(done)]), broken.at
        use = memory.use()
        assert list(memory._pool.state.branches) == [ROOT], broken.at
        assert all(stream.staged == stream.held == 0 for stream in use.values()), broken.at
        assert all(
            stream.live == sum(len(part.own) for part in memory._live[stream_name])
            for stream_name, stream in use.items()
        ), broken.at
    return len(numbers)


def is_lockable(memory: Memory) -> bool:
    """Whether another thread can have the lock."""
    got: list[bool] = []

    def lock() -> None:
        got.append(memory._pool.lock.acquire(timeout=1.0))
        if got[0]:
            memory._pool.lock.release()

    thread = threading.Thread(target=lock)
    thread.start()
    thread.join()
    return got[0]


def interrupt(name: str, change: Change, *, some: int | None = None) -> int:
    """Interrupt it between some of its instructions, or any two; how many moments there were."""
    whole, changed = Interrupt(None, ROOMS), clone(watched(name))
    whole.during(lambda: change(changed, lambda: None))
    want = {False: outputs_from_here(clone(watched(name))), True: outputs_from_here(changed)}
    every = whole.first_and_last()
    numbers = every if some is None else random.Random(name).sample(every, some)
    version = watched(name)._pool.state.branches[ROOT].version
    for number in numbers:
        memory, broken = clone(watched(name)), Interrupt(number, ROOMS)
        broken.during(partial(change, memory, lambda: None))
        assert broken.raised is not None
        assert is_lockable(memory), broken.at
        memory.leave()
        done = memory._pool.state.branches[ROOT].version != version
        assert same(outputs_from_here(memory), want[done]), broken.at
        broken.raised = None  # and with it what the traceback held
        assert all(stream.staged == stream.held == 0 for stream in memory.use().values()), broken.at
        assert list(memory._pool.state.branches) == [ROOT], broken.at
    return len(numbers)


@pytest.mark.parametrize("change", CHANGES)
def test_interrupt_between_two_instructions_of_a_change_leaves_no_trace(change: str) -> None:
    assert interrupt("context", CHANGES[change], some=12) == 12


@pytest.mark.by_hand
@pytest.mark.timeout(0)
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", POLICIES_HERE)
def test_interrupt_between_any_two_instructions_of_a_change_leaves_no_trace(name: str, change: str) -> None:
    print(f"{name}, {change}: interrupted at {interrupt(name, CHANGES[change])} moments")


def test_every_policy_of_a_map_is_broken_here() -> None:
    assert list(POLICIES_HERE) == [name for name, kind in POLICIES.items() if issubclass(kind, StreamPolicy)]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", rest_in_extra(["context", "managed"], keep=1))
def test_error_at_a_line_of_a_change_leaves_no_trace(name: str, change: str) -> None:
    assert break_lines(name, CHANGES[change], error=KeyboardInterrupt, some=9)


@pytest.mark.parametrize("name", POLICIES_HERE)
def test_error_at_a_line_of_a_commit_leaves_no_trace_whatever_the_policy(name: str) -> None:
    assert break_lines(name, CHANGES["keep"], error=KeyboardInterrupt, some=9)


@pytest.mark.by_hand
@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", POLICIES_HERE)
def test_error_at_any_line_of_a_change_leaves_no_trace(name: str, change: str, error: type[BaseException]) -> None:
    print(f"{name}, {change}, {error.__name__}: broken at {break_lines(name, CHANGES[change], error=error)} moments")


def test_forks_that_are_lost_without_being_closed_are_given_back() -> None:
    memory = clone(watched("context"))
    for seed in range(200):
        look(memory.fork(), seed)
    assert memory.use()["trunk"].live == len(memory.tokens("trunk"))
    assert list(memory._pool.state.branches) == [ROOT]
    assert same(outputs_from_here(memory), outputs_from_here(clone(watched("context"))))


def fill_with_forks(memory: Memory, forks: list[Memory]) -> None:
    for seed in itertools.count(60):
        forks.append(memory.fork())
        look(memory, seed)


def test_waiting_clip_begins_once_forks_are_lost() -> None:
    memory, forks = clone(watched("context")), list[Memory]()
    with pytest.raises(MemoryFullError, match="end a fork"):
        fill_with_forks(memory, forks)
    timer = threading.Timer(0.1, forks.clear)
    timer.start()
    with memory.begin(1, Keep.YES, patience_s=20.0):
        pass
    timer.join()
