"""Streams whose layers forget on their own: one pool of slots, each in one layer's hands, no trace of what failed."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from longtake.errors import MemoryFullError, TransactionError
from longtake.memory.budget import MemoryRequirements
from longtake.memory.memory import Memory
from longtake.memory.policies.lockstep import Window
from longtake.memory.policy import Clip, EvictionDecision, Keep, LayerState, LockstepPolicy, PerLayerPolicy
from longtake.memory.tokens import StreamLayout

LAYOUT = StreamLayout(num_layers=3, num_heads=1, head_dim=2, tokens_per_frame=4)
CAMERA = StreamLayout(num_layers=2, num_heads=1, head_dim=2, tokens_per_frame=3, passes=3)
NEVER_FULL = 60


@dataclass(frozen=True, slots=True)
class Lottery(PerLayerPolicy):
    """Each layer keeps its own number of tokens, those with the highest sum of what they received."""

    keeps: tuple[int, ...]

    @property
    def num_token_stats(self) -> int:
        return 1

    @property
    def num_layer_stats(self) -> int:
        return 1

    @property
    def wants_attention_mass(self) -> bool:
        return True

    def decide(self, layers: Sequence[LayerState], clip: Clip) -> list[EvictionDecision]:
        return [self._decide(state, keep, clip) for state, keep in zip(layers, self.keeps, strict=True)]

    def _decide(self, state: LayerState, keep: int, clip: Clip) -> EvictionDecision:
        assert state.attention_mass is not None
        token_stats = state.tokens.token_stats + state.attention_mass[:, None]
        best = np.argsort(-token_stats[:, 0], kind="stable")[:keep]
        stays = np.zeros(len(token_stats), dtype=np.bool_)
        stays[best] = True
        return EvictionDecision(
            stays=stays, token_stats=token_stats, layer_stats=(state.layer_stats[0] + clip.num_frames,)
        )

    def camera(self) -> LockstepPolicy:
        return Window(anchors=1, window=3)

    def most_tokens(self, layout: StreamLayout, *, clip_frames: int = 1) -> int:
        return sum(self.keeps)


def new_memory(keeps: tuple[int, ...] = (2, 7, 5), reserve: int = 0) -> Memory:
    streams = {"trunk": (LAYOUT, Lottery(keeps)), "camera": (CAMERA, Window(anchors=1, window=3))}
    return Memory(MemoryRequirements(streams=streams, first_clip=1, reserve=reserve).plan())


def look(memory: Memory, seed: int, *, keep: Keep = Keep.YES, commit: bool = True) -> None:
    """A frame whose keys and attention follow from its seed."""
    generator = torch.Generator().manual_seed(seed)
    with memory.begin(1, keep) as transaction:
        for layer in range(3):
            rows = torch.rand(4, 1, 2, generator=generator)
            transaction.write("trunk", layer, rows, -rows)
            if transaction.wants_attention_mass("trunk", layer):
                num_seen = sum(len(keys) for keys, _ in transaction.read("trunk", layer))
                transaction.record_attention_mass("trunk", layer, torch.rand(num_seen, generator=generator))
        for layer in range(2 * 3):
            rows = torch.rand(1, 1, 2, generator=generator)
            transaction.write("camera", layer, rows, -rows)
        if commit:
            transaction.commit()


def look_many(memory: Memory, seeds: range) -> None:
    for seed in seeds:
        look(memory, seed)


def contents(memory: Memory) -> list[list[tuple[int, int, float, list[float]]]]:
    """Of every layer of the trunk: frame, index, note and key of each token, in attention order."""
    slab = memory._pool.streams["trunk"].slab
    layers = []
    for layer in range(3):
        tokens = memory.tokens("trunk", layer)
        keys = slab.keys[0][torch.from_numpy(tokens.slot)].reshape(-1, 2).tolist()
        columns = (tokens.frame.tolist(), tokens.index.tolist(), tokens.token_stats[:, 0].tolist(), keys)
        layers.append(list(zip(*columns, strict=True)))
    return layers


@settings(max_examples=30, deadline=None)
@given(st.tuples(*[st.integers(0, 9)] * 3), st.integers(1, 12))
def test_every_layer_holds_its_own_tokens_and_no_slot_is_held_twice(keeps: tuple[int, ...], num_frames: int) -> None:
    memory = new_memory(keeps)
    for seed in range(num_frames):
        look(memory, seed)
        slots = np.concatenate([memory.tokens("trunk", layer).slot for layer in range(3)])
        assert len(set(slots.tolist())) == len(slots) == memory.use()["trunk"].live
        sizes = [len(memory.tokens("trunk", layer)) for layer in range(3)]
        assert sizes == [min(keep, 4 * (seed + 1)) for keep in keeps]


def test_what_layers_hold_is_what_a_list_for_each_would_hold() -> None:
    """The slow twin: a list of (frame, index, note, key) for each layer."""
    keeps = (2, 7, 5)
    memory = new_memory(keeps)
    twin: list[list[tuple[int, int, float, list[float]]]] = [[], [], []]
    for seed in range(9):
        look(memory, seed)
        generator = torch.Generator().manual_seed(seed)
        for layer, keep in enumerate(keeps):
            keys = torch.rand(4, 1, 2, generator=generator).reshape(4, 2).tolist()
            rows = twin[layer] + [(seed, index, 0.0, keys[index]) for index in range(4)]
            got = torch.rand(len(rows), generator=generator).tolist()
            rows = [
                (f, i, float(np.float32(note) + np.float32(g)), k) for (f, i, note, k), g in zip(rows, got, strict=True)
            ]
            best = sorted(sorted(range(len(rows)), key=lambda place: -rows[place][2])[:keep])
            twin[layer] = [rows[place] for place in best]
        assert contents(memory) == twin


@pytest.mark.parametrize("keep", [Keep.NO, Keep.DEFERRED, Keep.YES])
def test_clip_that_is_not_committed_leaves_no_trace(keep: Keep) -> None:
    plain, disturbed = new_memory(), new_memory()
    for seed in range(8):
        look(plain, seed)
        look(disturbed, 100 + seed, keep=keep, commit=False)
        look(disturbed, seed)
    assert contents(plain) == contents(disturbed)


def test_fork_sees_the_notes_of_its_birth_and_its_parent_never_sees_the_forks() -> None:
    plain, parent, twin = new_memory(), new_memory(reserve=8), new_memory()
    for seed in range(5):
        for memory in (plain, parent, twin):
            look(memory, seed)
    with parent.fork() as fork:
        for seed in range(20, 24):
            look(fork, seed)
            look(twin, seed)
            look(parent, seed - 15)
            look(plain, seed - 15)
        assert contents(fork) == contents(twin)
        assert contents(parent) == contents(plain)
    look(parent, 50)
    look(plain, 50)
    assert contents(parent) == contents(plain)
    use = parent.use()["trunk"]
    assert use.held == use.staged == 0


def test_fork_committed_into_its_parent_is_what_the_parent_would_have_become() -> None:
    plain, parent = new_memory(), new_memory(reserve=8)
    for seed in range(5):
        look(plain, seed)
        look(parent, seed)
    fork = parent.fork()
    for seed in range(5, 8):
        look(plain, seed)
        look(fork, seed)
    fork.commit_fork()
    assert contents(parent) == contents(plain)
    look(plain, 8)
    look(parent, 8)
    assert contents(parent) == contents(plain)
    assert parent.use()["trunk"].live == sum(len(layer) for layer in contents(plain))


def test_clip_without_its_statistics_cannot_be_kept() -> None:
    memory = new_memory()
    with memory.begin(1, Keep.YES) as transaction:
        for layer in range(3):
            transaction.write("trunk", layer, torch.zeros(4, 1, 2), torch.zeros(4, 1, 2))
        for layer in range(6):
            transaction.write("camera", layer, torch.zeros(1, 1, 2), torch.zeros(1, 1, 2))
        with pytest.raises(TransactionError, match=r"did not write trunk.0 attention \(3 missing"):
            transaction.commit()
    assert memory.num_kept == 0


def test_pool_that_is_full_says_how_many_slots_all_layers_need() -> None:
    memory = new_memory()
    look(memory, 0)
    fork = memory.fork()
    look(memory, 1)
    with pytest.raises(MemoryFullError, match="Stream 'trunk' needs 12 slots for this clip"):
        look_many(memory, range(2, NEVER_FULL))
    fork.close()
    look(memory, 2)


def test_passes_bring_a_token_each_and_see_those_up_to_their_own() -> None:
    memory = new_memory()
    look(memory, 0)
    with memory.begin(1, Keep.YES) as transaction:
        for number in range(3):
            for layer in range(2):
                rows = torch.full((1, 1, 2), 10.0 * (number + 1) + layer)
                transaction.write("camera", 2 * number + layer, rows, rows)
                seen = torch.cat([keys for keys, _ in transaction.read("camera", 2 * number + layer)])
                assert len(seen) == 3 + number + 1
                own = sorted(seen[:, 0, 0].tolist())[-number - 1 :]
                assert own == [10.0 * (n + 1) + layer for n in range(number + 1)]
