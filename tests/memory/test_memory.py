"""Equalities of the memory: against a slow twin, across slot orders, forks and rejected clips."""

import gc
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from longtake.attention.backend import ReferenceBackend, SdpaBackend
from longtake.attention.recall import StreamRecall
from longtake.errors import ForkError, MemoryFullError, SavedSessionError, TransactionError
from longtake.memory.budget import MemoryRequirements
from longtake.memory.memory import Memory
from longtake.memory.policies.lockstep import ContextRetention, KeepAll, Window
from longtake.memory.policy import Keep, LockstepPolicy
from longtake.memory.saved import SavedTensors, write_tensors
from longtake.memory.shared_pool import PoolState
from longtake.memory.slots import SlotState
from longtake.memory.tokens import StreamLayout

WIDE = StreamLayout(num_layers=3, num_heads=2, head_dim=8, tokens_per_frame=5)
NARROW = StreamLayout(num_layers=2, num_heads=1, head_dim=4, tokens_per_frame=1)
RETENTION = ContextRetention(anchors=2, window=3, trail=2, history=9)
CAMERA = Window(anchors=2, window=7)
FORGETFUL: dict[str, LockstepPolicy] = {
    "wide": ContextRetention(anchors=0, window=3, trail=2, history=9),
    "narrow": Window(anchors=0, window=7),
}
LAYOUTS = {"wide": WIDE, "narrow": NARROW}
RETENTIONS: dict[str, LockstepPolicy] = {"wide": RETENTION, "narrow": CAMERA}


def new_memory(reserve: int = 0, first_clip: int = 2, retentions: dict[str, LockstepPolicy] = RETENTIONS) -> Memory:
    streams = {name: (LAYOUTS[name], retentions[name]) for name in LAYOUTS}
    return Memory(MemoryRequirements(streams=streams, first_clip=first_clip, reserve=reserve).plan())


def projections(seed: int, num_frames: int, stream: str, layer: int) -> tuple[Tensor, Tensor, Tensor]:
    layout = LAYOUTS[stream]
    generator = torch.Generator().manual_seed(seed * 1000 + layer * 10 + len(stream))
    shape = (3, 1, num_frames * layout.tokens_per_frame, layout.num_heads, layout.head_dim)
    return tuple(torch.randn(shape, generator=generator))  # type: ignore[return-value]


Outputs = dict[tuple[str, int], Tensor]


def look(
    memory: Memory, seed: int, *, num_frames: int = 1, keep: Keep = Keep.YES, commit: bool | None = None
) -> Outputs:
    """One clip through all layers of all streams; its attention outputs."""
    with memory.begin(num_frames, keep) as transaction:
        recall = StreamRecall(transaction, SdpaBackend(), num_scale_frames=2)
        outputs = {
            (name, layer): recall.attend(name, layer, *projections(seed, num_frames, name, layer))
            for name, layout in LAYOUTS.items()
            for layer in range(layout.num_layers)
        }
        if keep is Keep.YES if commit is None else commit:
            transaction.commit()
    return outputs


def same(a: Outputs, b: Outputs) -> bool:
    return all(torch.equal(a[key], b[key]) for key in a)


@dataclass
class SlowTwin:
    """The published rule over a plain list of (frame, index, keys, values); a token of every layer in one row."""

    rows: dict[tuple[str, int], list[tuple[int, int, Tensor, Tensor]]] = field(default_factory=dict)
    num_kept: int = 0

    def look(self, seed: int, *, num_frames: int = 1, keep: Keep = Keep.YES, commit: bool | None = None) -> Outputs:
        outputs, stored = {}, {}
        committed = keep is Keep.YES if commit is None else commit
        for name, layout in LAYOUTS.items():
            for layer in range(layout.num_layers):
                q, k, v = projections(seed, num_frames, name, layer)
                new = [
                    (
                        self.num_kept + token // layout.tokens_per_frame,
                        token % layout.tokens_per_frame,
                        k[0, token],
                        v[0, token],
                    )
                    for token in range(k.shape[1])
                ]
                old = self.rows.get((name, layer), [])
                after = self.num_kept + num_frames
                seen = [row for row in old if self._stays(name, row, after)] if keep is Keep.YES else old
                visible = seen + new
                keys = torch.stack([row[2] for row in visible])[None]
                values = torch.stack([row[3] for row in visible])[None]
                outputs[name, layer] = ReferenceBackend().attend(q, keys, values).values
                stored[name, layer] = [row for row in old + new if self._stays(name, row, after)]
        if committed:
            self.rows, self.num_kept = stored, self.num_kept + num_frames
        return outputs

    def _stays(self, name: str, row: tuple[int, int, Tensor, Tensor], num_kept: int) -> bool:
        frame, index = row[:2]
        if name == "narrow":
            return frame < 2 or frame >= num_kept - 7
        return frame < 2 or frame >= num_kept - 3 or (index < 2 and frame >= num_kept - 7)


def assert_close(got: Outputs, want: Outputs) -> None:
    for key, value in want.items():
        torch.testing.assert_close(got[key], value, rtol=1e-5, atol=1e-6)


SCHEDULE = [Keep.YES, Keep.YES, Keep.NO, Keep.DEFERRED, Keep.YES, Keep.NO, Keep.DEFERRED, Keep.YES, Keep.YES, Keep.YES]


@pytest.mark.parametrize("first_clip", [1, 2, 4, 8])
def test_memory_equals_the_slow_twin(first_clip: int) -> None:
    memory, twin = new_memory(first_clip=first_clip), SlowTwin()
    assert_close(look(memory, 0, num_frames=first_clip), twin.look(0, num_frames=first_clip))
    for step, keep in enumerate(SCHEDULE * 3, start=1):
        commit = step % 4 != 0 if keep is Keep.DEFERRED else None
        assert_close(look(memory, step, keep=keep, commit=commit), twin.look(step, keep=keep, commit=commit))
    assert memory.num_kept == twin.num_kept


def test_memory_equals_the_slow_twin_when_several_frames_come_at_once() -> None:
    memory, twin = new_memory(reserve=3), SlowTwin()
    for step, num_frames in enumerate((2, 1, 3, 1, 2, 4, 1, 3)):
        for keep in (Keep.NO, Keep.DEFERRED, Keep.YES):
            seed = 10 * step + num_frames
            assert_close(
                look(memory, seed, num_frames=num_frames, keep=keep),
                twin.look(seed, num_frames=num_frames, keep=keep),
            )


def test_steady_state_reads_one_run_of_slots_without_a_copy() -> None:
    memory = new_memory()
    look(memory, 0, num_frames=2)
    for step in range(1, 30):
        for keep in (Keep.NO, Keep.DEFERRED, Keep.YES):
            with memory.begin(1, keep) as transaction:
                for (staged,) in transaction.staged.values():
                    assert staged.view.in_place
                    assert len(staged.view.blocks) == 1
        look(memory, step)


def test_what_the_next_clip_moves_is_found_while_the_last_one_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = new_memory()
    look(memory, 0, num_frames=2)
    for seed in range(1, 9):
        look(memory, seed)
    for stream in memory.streams.values():
        monkeypatch.setattr(stream, "moves", lambda *_: pytest.fail("looked for again"))
    with memory.begin(1, Keep.YES) as transaction:
        assert all(staged.view.in_place for (staged,) in transaction.staged.values())


@pytest.mark.parametrize("meanwhile", ["nothing", "a fork", "a fork committed", "frames forgotten", "a clip rejected"])
def test_what_was_found_beforehand_is_what_would_be_found_before_each_clip(
    meanwhile: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory, twin = new_memory(reserve=6), new_memory(reserve=6)
    monkeypatch.setattr(twin._pool, "with_packing", lambda state, number: state)  # finds it before each clip
    for seed in range(30):
        num_frames = 1 if seed else 2
        assert same(look(memory, seed, num_frames=num_frames), look(twin, seed, num_frames=num_frames))
        if seed % 3 != 2:
            continue
        for each in (memory, twin):
            if meanwhile.startswith("a fork"):
                fork = each.fork()
                look(fork, seed + 50)
                fork.commit_fork() if meanwhile == "a fork committed" else fork.close()
            elif meanwhile == "frames forgotten":
                each.forget("wide", each.tokens("wide").frame[-1:])
            elif meanwhile == "a clip rejected":
                look(each, seed + 50, commit=False)


@pytest.mark.parametrize("keep", [Keep.NO, Keep.DEFERRED, Keep.YES])
def test_rejected_clip_leaves_no_trace(keep: Keep) -> None:
    plain, disturbed = new_memory(), new_memory()
    look(plain, 0, num_frames=2)
    look(disturbed, 0, num_frames=2)
    for step in range(1, 20):
        look(disturbed, 500 + step, keep=keep, commit=False)
        assert same(look(disturbed, step), look(plain, step))


def break_off(memory: Memory, seed: int) -> None:
    with memory.begin(1, Keep.YES) as transaction:
        recall = StreamRecall(transaction, SdpaBackend(), num_scale_frames=2)
        recall.attend("wide", 0, *projections(seed, 1, "wide", 0))
        raise ZeroDivisionError


def test_exception_in_the_middle_of_a_layer_leaves_no_trace() -> None:
    plain, disturbed = new_memory(), new_memory()
    for step in range(12):
        with pytest.raises(ZeroDivisionError):
            break_off(disturbed, 900 + step)
        assert same(look(disturbed, step), look(plain, step))


def test_fork_leaves_no_trace_whether_it_ends_before_or_after_the_parent_goes_on() -> None:
    plain, disturbed = new_memory(), new_memory(reserve=12)
    look(plain, 0, num_frames=2)
    look(disturbed, 0, num_frames=2)
    forks: list[Memory] = []
    for step in range(1, 40):
        fork = disturbed.fork()
        look(fork, 700 + step)
        look(fork, 800 + step)
        forks.append(fork)
        if len(forks) == 2:
            forks.pop(0).close()
        assert same(look(disturbed, step), look(plain, step))


def test_fork_returns_the_same_bits_while_its_parent_evicts_all_it_saw() -> None:
    def watched() -> Memory:
        memory = new_memory(reserve=16, retentions=FORGETFUL)
        for step in range(9):
            look(memory, step)
        return memory

    still, moving = watched(), watched()
    with still.fork() as quiet, moving.fork() as lasting:
        want = look(quiet, 55, keep=Keep.NO)
        with ThreadPoolExecutor(1) as pool:
            parent = pool.submit(lambda: [look(moving, 100 + step) for step in range(200)])
            while not parent.done():
                assert same(look(lasting, 55, keep=Keep.NO), want)
            parent.result()
        assert same(look(lasting, 55, keep=Keep.NO), want)
        assert moving.num_kept == 209
        for name in LAYOUTS:
            assert not set(lasting.tokens(name).slot) & set(
                moving.tokens(name).slot[2 * LAYOUTS[name].tokens_per_frame :]
            )
        assert same(look(lasting, 56), look(quiet, 56))
        assert same(look(lasting, 57), look(quiet, 57))
    assert all(use.held == 0 for use in moving.use().values())


def test_fork_of_a_fork_survives_its_parent() -> None:
    memory = new_memory(reserve=20)
    for step in range(6):
        look(memory, step)
    fork = memory.fork()
    look(fork, 50)
    grandchild = fork.fork()
    want = look(grandchild, 60, keep=Keep.NO)
    fork.close()
    for step in range(6, 14):
        look(memory, step)
    assert same(look(grandchild, 60, keep=Keep.NO), want)
    grandchild.close()
    assert all(use.held == use.staged == 0 for use in memory.use().values())


def test_committed_fork_is_what_the_parent_would_have_kept() -> None:
    plain, forked = new_memory(reserve=4), new_memory(reserve=4)
    for step in range(8):
        look(plain, step)
        look(forked, step)
    with forked.fork() as fork:
        look(fork, 8)
        look(fork, 9)
        fork.commit_fork()
    look(plain, 8)
    look(plain, 9)
    assert forked.num_kept == plain.num_kept == 10
    assert all(use.held == 0 for use in forked.use().values())
    for name in LAYOUTS:
        for got, want in zip(forked._live[name][0].sections, plain._live[name][0].sections, strict=True):
            assert set(zip(got.frame, got.index, strict=True)) == set(zip(want.frame, want.index, strict=True))
    for keep in Keep:
        with forked.begin(1, keep) as transaction:
            assert all(staged.view.in_place for (staged,) in transaction.staged.values())
    assert_close(look(forked, 10), look(plain, 10))


def test_committed_fork_has_ended_and_closing_it_changes_nothing() -> None:
    memory = new_memory(reserve=4)
    for step in range(8):
        look(memory, step)
    with memory.fork() as fork:
        look(fork, 8)
        fork.commit_fork()
        before = memory.use()
        with pytest.raises(ForkError, match="ended"):
            look(fork, 9)
        with pytest.raises(ForkError, match="ended"):
            fork.fork()
        with pytest.raises(ForkError, match="ended"):
            fork.clear()
        with pytest.raises(ForkError, match="ended"):
            fork.contents()
    assert memory.use() == before


def test_fork_closed_twice_gives_back_its_slots_once() -> None:
    memory = new_memory(reserve=4)
    fork = memory.fork()
    look(fork, 0)
    fork.close()
    with memory.fork() as other:
        look(other, 1)
        before = memory.use()
        fork.close()
        assert memory.use() == before


def test_fork_closed_with_a_clip_staged_gives_its_slots_back() -> None:
    memory = new_memory(reserve=4)
    fork = memory.fork()
    transaction = fork.begin(1, Keep.YES)
    fork.close()
    assert all(use.free == use.num_slots for use in memory.use().values())
    with pytest.raises(TransactionError, match="has ended"):
        transaction.commit()


def test_fork_that_was_interrupted_never_ends_another(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = new_memory(reserve=4)
    publish = memory._pool.publish

    def interrupted(state: PoolState) -> None:
        if len(state.branches) > 1:
            raise KeyboardInterrupt
        publish(state)

    with monkeypatch.context() as patched:
        patched.setattr(memory._pool, "publish", interrupted)
        with pytest.raises(KeyboardInterrupt) as kept:
            memory.fork()
    with memory.fork() as fork:
        look(fork, 0)
        del kept  # and with its traceback the fork that never was
        gc.collect()
        look(fork, 1)
        assert fork.num_kept == 2


@pytest.mark.parametrize("move", [lambda memory: look(memory, 70), Memory.clear], ids=["keeping a clip", "clearing"])
def test_fork_is_stale_once_its_parent_has_changed_by(move: Callable[[Memory], object]) -> None:
    memory = new_memory(reserve=8)
    look(memory, 0)
    with memory.fork() as fork:
        look(fork, 1)
        move(memory)
        with pytest.raises(ForkError, match="moved on"):
            fork.commit_fork()


def test_fork_is_stale_once_another_was_committed() -> None:
    memory = new_memory(reserve=8)
    look(memory, 0)
    with memory.fork() as first, memory.fork() as second:
        look(first, 1)
        look(second, 2)
        first.commit_fork()
        with pytest.raises(ForkError, match="moved on"):
            second.commit_fork()
    assert memory.num_kept == 2


def test_fork_whose_parent_has_ended_or_that_has_forks_is_not_committed() -> None:
    memory = new_memory(reserve=8)
    look(memory, 0)
    with memory.fork() as fork, fork.fork() as grandchild:
        with pytest.raises(ForkError, match="forks of its own"):
            fork.commit_fork()
        fork.close()
        with pytest.raises(ForkError, match="moved on"):
            grandchild.commit_fork()


@pytest.mark.parametrize("who", ["fork", "parent"])
def test_fork_is_not_committed_while_a_clip_is_staged(who: str) -> None:
    memory = new_memory(reserve=8)
    look(memory, 0)
    with memory.fork() as fork:
        branch = {"fork": fork, "parent": memory}[who]
        with branch.begin(1, Keep.YES), pytest.raises(TransactionError, match="before committing the fork"):
            fork.commit_fork()
        fork.commit_fork()


def fill(memory: Memory) -> Memory:
    """A fork for which so many slots are held that its parent has no room left."""
    for step in range(8):
        look(memory, step)
    fork = memory.fork()
    look(memory, 8)
    return fork


def begin_while(memory: Memory, event: Callable[[], None]) -> float:
    """Seconds a clip waited for room that this event makes."""
    start = time.monotonic()
    timer = threading.Timer(0.1, event)
    timer.start()
    with memory.begin(1, Keep.NO, patience_s=20.0):
        waited_s = time.monotonic() - start
    timer.join()
    return waited_s


def test_waiting_clip_begins_as_soon_as_a_fork_ends() -> None:
    memory = new_memory()
    fork = fill(memory)
    assert 0.05 < begin_while(memory, fork.close) < 10


def test_waiting_clip_begins_as_soon_as_a_fork_is_committed() -> None:
    memory = new_memory(reserve=1)
    for step in range(8):
        look(memory, step)
    fork = memory.fork()
    look(fork, 8)
    look(fork, 9)
    assert 0.05 < begin_while(memory, fork.commit_fork) < 10
    assert memory.num_kept == 10


def test_waiting_clip_begins_as_soon_as_another_is_left() -> None:
    memory = new_memory(reserve=1)
    for step in range(9):
        look(memory, step)
    fork = memory.fork()
    transactions = [memory.begin(1, Keep.NO), fork.begin(1, Keep.NO)]
    with memory.fork() as other:
        assert 0.05 < begin_while(other, transactions[1].abandon) < 10
    transactions[0].abandon()
    fork.close()


def test_full_memory_without_forks_does_not_wait() -> None:
    layouts = {name: (layout, KeepAll()) for name, layout in LAYOUTS.items()}
    memory = Memory(
        MemoryRequirements(streams=layouts, first_clip=1).plan(
            4 * sum(layout.bytes_per_frame for layout, _ in layouts.values())
        )
    )
    for step in range(4):
        look(memory, step)
    start = time.monotonic()
    with pytest.raises(MemoryFullError, match="larger budget"):
        memory.begin(1, Keep.YES, patience_s=20.0)
    assert time.monotonic() - start < 10


def test_full_memory_says_how_many_slots_are_held_for_forks() -> None:
    memory = new_memory()
    with (
        fill(memory),
        pytest.raises(MemoryFullError, match=r"needs 5 slots .* but 2 of 38 are free \(3 held for 1 forks\)"),
    ):
        memory.begin(1, Keep.YES)


def test_full_memory_tells_of_forks_that_fill_it_themselves() -> None:
    memory = new_memory(reserve=1)
    with memory.fork() as fork, fork.begin(8, Keep.NO), pytest.raises(MemoryFullError, match="0 held for 1 forks"):
        memory.begin(1, Keep.YES)


def saved_and_restored(memory: Memory, folder: Path, **settings: Any) -> Memory:
    write_tensors(folder / "memory.safetensors", memory.contents(), {})
    twin = new_memory(**settings)
    twin.restore(SavedTensors(folder / "memory.safetensors"))
    return twin


@pytest.mark.parametrize("num_kept", [0, 1, 5, 7, 12])
def test_restored_memory_goes_on_bit_by_bit_and_in_place(num_kept: int, tmp_path: Path) -> None:
    memory = new_memory()
    for step in range(num_kept):
        look(memory, step)
    twin = saved_and_restored(memory, tmp_path)
    assert twin.num_kept == num_kept
    for keep in Keep:
        with twin.begin(1, keep) as transaction:
            for (staged,) in transaction.staged.values():
                assert staged.view.in_place
                assert len(staged.view.blocks) == 1
    for step in range(num_kept, num_kept + 4):
        assert same(look(twin, step, keep=Keep.NO), look(memory, step, keep=Keep.NO))
        assert same(look(twin, step), look(memory, step))


def test_restored_memory_holds_what_its_forks_see(tmp_path: Path) -> None:
    memory = new_memory(reserve=16, retentions=FORGETFUL)
    for step in range(9):
        look(memory, step)
    twin = saved_and_restored(memory, tmp_path, reserve=16, retentions=FORGETFUL)
    with twin.fork() as fork:
        want = look(fork, 55, keep=Keep.NO)
        for step in range(9, 16):
            look(twin, step)
        assert same(look(fork, 55, keep=Keep.NO), want)
        with pytest.raises(ForkError, match="moved on"):
            fork.commit_fork()


def test_contents_are_read_in_place_when_they_are_written_and_not_before() -> None:
    memory = new_memory()
    look(memory, 0, num_frames=2)
    (piece,) = memory.contents()["wide.0.keys"].pieces
    assert piece.data_ptr() == memory._pool.streams["wide"].slab.keys[0].data_ptr()


def test_memory_with_fewer_slots_refuses_what_was_saved(tmp_path: Path) -> None:
    memory = new_memory()
    for step in range(12):
        look(memory, step)
    smaller: dict[str, LockstepPolicy] = {"wide": Window(anchors=0, window=1), "narrow": CAMERA}
    with pytest.raises(SavedSessionError, match="holds 33 tokens of stream 'wide', but there are only 10 slots"):
        saved_and_restored(memory, tmp_path, retentions=smaller)


def test_memory_that_is_just_full_can_be_restored(tmp_path: Path) -> None:
    streams = {name: (layout, KeepAll()) for name, layout in LAYOUTS.items()}
    plans = MemoryRequirements(streams=streams, first_clip=1).plan(
        4 * sum(layout.bytes_per_frame for layout in LAYOUTS.values())
    )
    memory, twin = Memory(plans), Memory(plans)
    for step in range(4):
        look(memory, step)
    assert all(use.free == 0 for use in memory.use().values())
    write_tensors(tmp_path / "memory.safetensors", memory.contents(), {})
    twin.restore(SavedTensors(tmp_path / "memory.safetensors"))
    assert twin.use() == memory.use()


def test_fork_is_not_saved() -> None:
    with new_memory().fork() as fork, pytest.raises(ForkError, match="save the memory it was made from"):
        fork.contents()


def test_only_a_new_memory_is_restored(tmp_path: Path) -> None:
    memory = new_memory()
    look(memory, 0)
    twin = saved_and_restored(memory, tmp_path)
    for used in (memory, twin):
        with pytest.raises(AssertionError, match="only a new memory"):
            used.restore(SavedTensors(tmp_path / "memory.safetensors"))


def test_memory_with_a_clip_staged_is_not_saved() -> None:
    memory = new_memory()
    with memory.begin(1, Keep.YES), pytest.raises(TransactionError, match="before saving"):
        memory.contents()


def test_committed_fork_takes_nothing_from_a_fork_born_meanwhile() -> None:
    memory = new_memory(reserve=20, retentions=FORGETFUL)
    for step in range(9):
        look(memory, step)
    with memory.fork() as committed:
        for step in range(9, 14):
            look(committed, step)
        with memory.fork() as sibling:
            want = look(sibling, 55, keep=Keep.NO)
            committed.commit_fork()
            for step in range(14, 20):
                look(memory, step)
            assert same(look(sibling, 55, keep=Keep.NO), want)
    assert all(use.held == 0 for use in memory.use().values())


def test_parent_reads_in_place_while_a_fork_writes_at_the_top() -> None:
    memory = new_memory(reserve=6)
    for step in range(9):
        look(memory, step)
    with memory.fork() as fork:
        look(fork, 50)
        look(fork, 51)
        for name, plan in memory.plans.items():
            own = fork._live[name][0].own.slot
            assert sorted(own) == list(range(plan.num_slots - len(own), plan.num_slots))
        with memory.begin(1, Keep.YES) as transaction:
            assert all(staged.view.in_place for (staged,) in transaction.staged.values())


def test_fork_committed_after_its_parent_moved_on_is_refused() -> None:
    memory = new_memory(reserve=4)
    look(memory, 0)
    with memory.fork() as fork:
        look(memory, 1)
        with pytest.raises(ForkError, match="moved on"):
            fork.commit_fork()
    with pytest.raises(ForkError, match="ended"):
        look(fork, 2)
    with pytest.raises(ForkError, match="Only a fork"):
        memory.commit_fork()


def test_used_up_reserve_refuses_the_parent_or_makes_it_wait() -> None:
    memory = new_memory(reserve=0)
    for step in range(8):
        look(memory, step)
    fork = memory.fork()
    look(memory, 8)
    before = memory.use()
    with pytest.raises(MemoryFullError, match="end a fork"):
        memory.begin(1, Keep.YES)
    with pytest.raises(MemoryFullError, match="end a fork"):
        memory.begin(1, Keep.YES, patience_s=0.01)
    assert memory.use() == before
    timer = threading.Timer(0.05, fork.close)
    timer.start()
    with memory.begin(1, Keep.YES, patience_s=30.0):
        pass
    timer.join()


def test_memory_without_a_policy_that_forgets_says_when_it_is_full() -> None:
    budget = 4 * sum(layout.bytes_per_frame for layout in LAYOUTS.values())
    streams = {name: (layout, KeepAll()) for name, layout in LAYOUTS.items()}
    memory = Memory(MemoryRequirements(streams=streams, first_clip=1).plan(budget))
    for step in range(4):
        look(memory, step)
    with pytest.raises(MemoryFullError, match="larger budget"):
        look(memory, 4)
    assert memory.num_bytes <= budget


@pytest.mark.parametrize(
    ("misuse", "sentence"),
    [
        (lambda memory: memory.begin(0, Keep.YES), "at least one frame, but 0 were announced"),
        (lambda memory: (memory.begin(1, Keep.YES), memory.begin(1, Keep.YES)), "staged already"),
        (lambda memory: memory.begin(1, Keep.NO).commit(), "declared as not kept"),
        (lambda memory: memory.begin(1, Keep.YES).commit(), "did not write wide layer 0"),
        (lambda memory: (memory.begin(1, Keep.YES), memory.clear()), "A clip is staged"),
        (
            lambda memory: memory.begin(2, Keep.YES).write("wide", 0, torch.zeros(5, 2, 8), torch.zeros(5, 2, 8)),
            "10 slots",
        ),
    ],
)
def test_misuse_is_refused_with_a_sentence(misuse: Callable[[Memory], object], sentence: str) -> None:
    with pytest.raises(TransactionError, match=sentence):
        misuse(new_memory())


def test_ended_transaction_is_refused() -> None:
    memory = new_memory()
    with memory.begin(1, Keep.YES) as transaction:
        pass
    with pytest.raises(TransactionError, match="has ended"):
        transaction.commit()
    assert memory.num_kept == 0


def test_cleared_memory_is_like_new() -> None:
    fresh, used = new_memory(), new_memory()
    for step in range(10):
        look(used, step)
    used.clear()
    for step in range(10):
        assert same(look(used, step), look(fresh, step))


def test_bytes_are_those_of_the_tensors_and_of_the_closed_formula() -> None:
    memory = new_memory(reserve=3)
    wide = max((2 + 3) * 5 + (9 - 5) * 2 + 5, 2 * 5) + 3 * 5
    narrow = (2 + 7) + 1 + 3
    assert memory.num_bytes == 4 * (wide * 2 * 2 * 8 * 3 + narrow * 2 * 1 * 4 * 2)
    slabs = [stream.slab for stream in memory._pool.streams.values()]
    assert memory.num_bytes == sum(t.nbytes for slab in slabs for t in (*slab.keys, *slab.values))
    assert memory._pool.state.tables["wide"].count(SlotState.FREE) == wide
