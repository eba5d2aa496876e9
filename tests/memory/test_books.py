"""Books on the device against tables on the host: the same tokens, statistics and keys in any order of events."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from longtake.errors import MemoryFullError, TransactionError
from longtake.memory import stream as streams
from longtake.memory.books import Books
from longtake.memory.budget import MemoryRequirements
from longtake.memory.change import change_together
from longtake.memory.memory import Memory
from longtake.memory.policies.budgeted import Managed
from longtake.memory.policies.layerwise import Layerwise
from longtake.memory.policies.lockstep import Window
from longtake.memory.policies.ratio import Ratio
from longtake.memory.policy import Keep, StackedPolicy
from longtake.memory.saved import SavedTensors, write_tensors
from longtake.memory.slots import SlotState
from longtake.memory.tokens import StreamLayout
from longtake.memory.transaction import Transaction

TRUNK = StreamLayout(num_layers=3, num_heads=1, head_dim=2, tokens_per_frame=4, special_tokens=1)
CAMERA = StreamLayout(num_layers=2, num_heads=1, head_dim=2, tokens_per_frame=1)
WIDTH = 512
POLICIES: tuple[StackedPolicy, ...] = (
    Managed(num_frames=3, special_frames=2),
    Managed(num_tokens=29, special_frames=2, decay=0.8, temperature=0.02, smoothing=0.5),
    Ratio(special_frames=2),
    Layerwise(num_frames=30, budget_ratio=0.1, strict=False),
    Layerwise(num_frames=4, budget_ratio=0.4),
)


@pytest.fixture(autouse=True)
def _policies_decide_on_the_device() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streams, "decides_there", lambda _: True)
        yield


def new_memory(policy: StackedPolicy, reserve: int = 0) -> Memory:
    kinds = {"trunk": (TRUNK, policy.for_stream(TRUNK)), "camera": (CAMERA, Window(anchors=1, window=3))}
    return Memory(MemoryRequirements(streams=kinds, first_clip=1, reserve=reserve).plan())


def attention(seed: int, layer: int, frame: np.ndarray, index: np.ndarray) -> torch.Tensor:
    """Of each token, by who it is."""
    weights = np.random.default_rng((seed, layer)).exponential(size=10**4).astype(np.float32)
    return torch.from_numpy(weights[(frame * 4 + index) % 10**4])


def compute(memory: Memory, transaction: Transaction, seed: int) -> None:
    """What a model does with a clip, wherever it is staged."""
    generator = torch.Generator().manual_seed(seed)
    rows = [torch.rand(4, 1, 2, generator=generator) for _ in range(3)]
    for layer in range(2):
        one = torch.rand(1, 1, 2, generator=generator)
        transaction.write("camera", layer, one, -one)
    if "trunk" in transaction.books:
        compute_on_device(memory, transaction, seed, rows)
        return
    for layer in range(3):
        transaction.write("trunk", layer, rows[layer], -rows[layer])
        if transaction.wants_attention_mass("trunk", layer):
            past, ordinal = transaction.past("trunk", layer), transaction.ordinals[0]
            frame, index = np.append(past.frame, [ordinal] * 4), np.append(past.index, range(4))
            transaction.record_attention_mass("trunk", layer, attention(seed, layer, frame, index))


def compute_on_device(memory: Memory, transaction: Transaction, seed: int, rows: list[torch.Tensor]) -> None:
    books, stream = transaction.books["trunk"], memory.streams["trunk"]
    bookkeeping, slab = stream.bookkeeping, stream.slab
    assert bookkeeping is not None
    own = bookkeeping.clip_slots(books.columns)
    read, sizes = bookkeeping.slots_read(books.columns, own, WIDTH), bookkeeping.sizes(books.columns)
    mass = torch.full((3, WIDTH), torch.nan)
    ends = books.columns.ends.tolist()
    for layer, (begin, end) in enumerate(zip([0, *ends], ends, strict=False)):
        slab.write(0, own[layer].long(), rows[layer], -rows[layer])
        slots, frame, index = books.columns.tokens[:, begin:end]
        assert read[layer, : int(sizes[layer])].tolist() == [*slots.tolist(), *own[layer].tolist()]
        frame, index = np.append(frame, [transaction.ordinals[0]] * 4), np.append(index, range(4))
        mass[layer, : len(frame)] = attention(seed, layer, frame, index)
    transaction.mark_written("trunk")
    if transaction.wants_attention_mass("trunk", 0):
        after = bookkeeping.after(books.columns, own, mass, torch.tensor(transaction.ordinals[0]))
        transaction.record_books("trunk", Books.kept(after, bound=books.largest.at_most() + 4))


def look(memory: Memory, seed: int, *, keep: Keep = Keep.YES, commit: bool = True, on_device: bool = True) -> bool:
    """A frame that follows from its seed; whether there was room for it."""
    try:
        transaction = memory.begin(1, keep, on_device=on_device)
    except MemoryFullError:
        return False
    with transaction:
        compute(memory, transaction, seed)
        if commit:
            transaction.commit()
    return True


def contents(memory: Memory) -> list[list[tuple[object, ...]]]:
    """Of every layer: frame, index, statistics and key of each token, in attention order; and the layer's own."""
    slab, layers = memory.streams["trunk"].slab, []
    for layer in range(3):
        tokens = memory.tokens("trunk", layer)
        keys = slab.keys[0][torch.from_numpy(tokens.slot)].reshape(-1, 2).tolist()
        columns = (tokens.frame.tolist(), tokens.index.tolist(), tokens.token_stats.tolist(), keys)
        layers.append([*zip(*columns, strict=True), memory._live["trunk"][layer].layer_stats])
    return layers


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: type(policy).__name__)
def test_books_say_what_tables_would(policy: StackedPolicy) -> None:
    host, device, never_asked, in_turn = (new_memory(policy) for _ in range(4))
    for seed in range(12):
        fits = look(host, seed, on_device=False)
        assert look(device, seed) == look(never_asked, seed) == look(in_turn, seed, on_device=seed % 3 > 0) == fits
        assert contents(device) == contents(host) == contents(in_turn)
    assert contents(never_asked) == contents(host)


def test_books_stay_on_the_device_until_somebody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = new_memory(POLICIES[0])
    look(memory, 0)
    bookkeeping = type(memory.streams["trunk"].bookkeeping)
    monkeypatch.delattr(bookkeeping, "read")
    monkeypatch.delattr(bookkeeping, "written")
    for seed in range(1, 9):
        look(memory, 100 + seed, keep=Keep.DEFERRED, commit=False)
        look(memory, seed)
    assert memory.num_kept == 9
    with pytest.raises(AttributeError, match="read"):
        memory.tokens("trunk")


def test_books_before_a_clip_and_after_it_are_within_what_was_declared() -> None:
    for policy in POLICIES:
        memory = new_memory(policy)
        look(memory, 0)
        columns = memory._pool.state.books["trunk"].columns
        keys_and_values = memory.streams["trunk"].slab.num_bytes
        spent = keys_and_values + 2 * (columns.tokens.nbytes + columns.token_stats.nbytes)
        assert spent <= memory.plans["trunk"].num_bytes


def test_clip_on_the_device_is_kept_only_with_its_books() -> None:
    memory = new_memory(POLICIES[0])
    with memory.begin(1, Keep.YES, on_device=True) as transaction:
        for layer in range(2):
            transaction.write("camera", layer, torch.zeros(1, 1, 2), torch.zeros(1, 1, 2))
        transaction.mark_written("trunk")
        with pytest.raises(TransactionError, match="did not write trunk books"):
            transaction.commit()
    assert memory.num_kept == 0


def test_fork_goes_on_when_the_memory_it_was_made_from_is_closed() -> None:
    memory, never = (new_memory(POLICIES[0], reserve=3) for _ in range(2))
    for each in (memory, never):
        look(each, 0)
    with memory.fork() as fork, never.fork() as beside:
        memory.close()
        assert look(fork, 1)
        assert look(beside, 1)
        assert contents(fork) == contents(beside)


def test_fork_born_while_a_clip_is_staged_finds_its_slots_taken() -> None:
    memory, plain = new_memory(POLICIES[0]), new_memory(POLICIES[0])
    for seed in range(5):
        look(memory, seed)
        look(plain, seed)
    with memory.begin(1, Keep.YES, on_device=True) as transaction:
        assert memory.use()["trunk"].free == 0
        with memory.fork() as fork:
            assert not look(fork, 50)
        compute(memory, transaction, 5)
        transaction.commit()
    look(plain, 5)
    assert contents(memory) == contents(plain)


class AnyOrder(RuleBasedStateMachine):
    """Two memories side by side, one of which never uses books: whatever happens, they remember the same."""

    seeds = st.integers(0, 10**6)

    @initialize(policy=st.sampled_from(POLICIES[:4]))
    def start(self, policy: StackedPolicy) -> None:
        self.policy = policy
        self.pair = [new_memory(policy, reserve=30) for _ in range(2)]
        self.forks: list[list[Memory]] = []

    def both(self) -> Iterator[tuple[Memory, bool]]:
        return zip(self.pair, (False, True), strict=True)

    @rule(seed=seeds, clips=st.integers(1, 5))
    def keep(self, seed: int, clips: int) -> None:
        for number in range(clips):
            one, other = [look(memory, seed + number, on_device=way) for memory, way in self.both()]
            assert one == other

    @rule(seed=seeds, keep=st.sampled_from(Keep))
    def reject(self, seed: int, keep: Keep) -> None:
        look(self.pair[1], seed, keep=keep, commit=False)

    @rule(seed=seeds)
    def fail(self, seed: int) -> None:
        with self.pair[1].begin(1, Keep.YES, on_device=True) as transaction:
            compute(self.pair[1], transaction, seed)
            with pytest.raises(ZeroDivisionError):
                change_together(transaction.commit_with, lambda _: 1 // 0)

    @precondition(lambda self: len(self.forks) < 3)
    @rule()
    def fork(self) -> None:
        self.forks.append([memory.fork() for memory in self.pair])

    @precondition(lambda self: len(self.forks) < 3)
    @rule(seed=seeds, asks_first=st.booleans(), ends=st.booleans(), commits=st.booleans())
    def fork_while_a_clip_is_staged(self, seed: int, asks_first: bool, ends: bool, commits: bool) -> None:
        forks = []
        for memory, way in self.both():
            with memory.begin(1, Keep.DEFERRED, on_device=way) as transaction:
                if asks_first:
                    forks.append(memory.fork())
                    look(forks[-1], seed + 1)
                compute(memory, transaction, seed)
                if not asks_first:
                    forks.append(memory.fork())
                    look(forks[-1], seed + 1)
                if ends:
                    forks[-1].close()
                if commits:
                    transaction.commit()
        if not ends:
            self.forks.append(forks)

    @precondition(lambda self: self.forks)
    @rule(seed=seeds)
    def keep_on_forks(self, seed: int) -> None:
        one, other = [look(memory, seed) for memory in self.forks[-1]]
        assert one == other

    @precondition(lambda self: self.forks)
    @rule(commits=st.booleans())
    def end(self, commits: bool) -> None:
        forks = self.forks.pop(0)
        for fork in forks:
            parent = fork._parent
            assert parent is not None
            moved = fork._pool.state.branches[parent._branch].version
            if commits and moved == fork._pool.state.branches[fork._branch].parent_version:
                fork.commit_fork()
            fork.close()

    @rule()
    def clear(self) -> None:
        for memory in self.pair:
            memory.clear()

    @precondition(lambda self: not self.forks)
    @rule()
    def save_and_resume(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            for number, memory in enumerate(self.pair):
                write_tensors(Path(folder) / "memory.safetensors", memory.contents(), {})
                self.pair[number] = new_memory(self.policy, reserve=30)
                self.pair[number].restore(SavedTensors(Path(folder) / "memory.safetensors"))

    @rule()
    def ask(self) -> None:
        assert contents(self.pair[0]) == contents(self.pair[1])
        for forks in self.forks:
            assert contents(forks[0]) == contents(forks[1])
        uses = [memory.use()["trunk"] for memory in self.pair]
        assert uses[0] == uses[1]

    @invariant()
    def every_slot_has_one_owner(self) -> None:
        state = self.pair[1]._pool.state
        if state.is_known:
            table, live = state.tables["trunk"], state.branches[1].live["trunk"]
            slots = np.concatenate([part.own.slot for part in live])
            assert len(set(slots.tolist())) == len(slots)
            assert (table.state[slots] == SlotState.LIVE).all()
            assert table.count(SlotState.STAGED) == 0

    def teardown(self) -> None:
        self.ask()


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=25, stateful_step_count=20, deadline=None)
