"""The order of a live set: retained tokens keep their place, holes are filled from the back, the rest waits behind."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtake.memory.live_set import LiveSet
from longtake.memory.policies.lockstep import ContextRetention, KeepAll, Window
from longtake.memory.policy import Keep, LockstepPolicy
from longtake.memory.tokens import Tokens

TOKENS = 2
RULE = ContextRetention(anchors=1, window=2, trail=1, history=5)
NOTHING = np.empty(0, dtype=np.int64)

Place = tuple[int, int]


def clip(first: int, num_frames: int, first_slot: int = 0) -> Tokens:
    slot = np.arange(first_slot, first_slot + num_frames * TOKENS)
    return Tokens.of_frames(range(first, first + num_frames), TOKENS, slot)


def places(tokens: Tokens) -> list[Place]:
    return list(zip(tokens.frame.tolist(), tokens.index.tolist(), strict=True))


def played(retention: LockstepPolicy, clips: list[int]) -> tuple[LiveSet, int]:
    """A live set after these clips, every token in a slot of its own that tells when it came."""
    live, num_kept = LiveSet.empty(), 0
    for num_frames in clips:
        staged = clip(num_kept, num_frames, first_slot=num_kept * TOKENS)
        num_kept += num_frames
        live, _ = live.after_commit(staged, retention, num_kept=num_kept)
    return live, num_kept


def test_order_drawn_frame_by_frame() -> None:
    drawn = {
        # frame and index of each retained token, then of each that is evicted next
        1: ("00 01", ""),
        2: ("00 01 10 11", ""),
        3: ("00 01 10 21 20", "11"),  # 11 is evicted next, and the token at the back takes its place
        4: ("00 01 10 31 20 30", "21"),
        5: ("00 01 40 41 20 30", "10 31"),
        6: ("00 01 40 50 51 30", "41 20"),
    }
    for num_kept, (retained, evict_next) in drawn.items():
        live, _ = played(RULE, [1] * num_kept)
        assert " ".join(f"{frame}{index}" for frame, index in places(live.retained)) == retained
        assert " ".join(f"{frame}{index}" for frame, index in places(live.evict_next)) == evict_next


retentions = st.builds(
    lambda anchors, window, trail, extra: ContextRetention(
        anchors=anchors, window=window, trail=trail, history=None if extra is None else anchors + window + extra
    ),
    st.integers(0, 3),
    st.integers(1, 4),
    st.integers(0, TOKENS),
    st.none() | st.integers(0, 4),
)
schedules = st.lists(st.integers(1, 3), min_size=1, max_size=10)


@given(retentions, schedules, st.integers(1, 3))
def test_commit_keeps_what_stays_and_gives_up_the_rest(
    retention: LockstepPolicy, schedule: list[int], num_frames: int
) -> None:
    before, num_kept = played(retention, schedule)
    staged = clip(num_kept, num_frames, first_slot=num_kept * TOKENS)
    num_kept += num_frames
    after, left = before.after_commit(staged, retention, num_kept=num_kept)
    all_tokens = clip(0, num_kept)
    stays = all_tokens.take(retention.stays(all_tokens, num_kept=num_kept))
    assert sorted(places(after.own)) == places(stays)
    assert sorted([*left.tolist(), *after.own.slot.tolist()]) == sorted(
        [*before.own.slot.tolist(), *staged.slot.tolist()]
    )


@given(retentions, schedules)
def test_evicted_next_is_what_the_next_kept_clip_will_not_see(retention: LockstepPolicy, schedule: list[int]) -> None:
    live, num_kept = played(retention, schedule)
    for part, seen in ((live.retained, True), (live.evict_next, False)):
        flags = retention.sees(part, num_kept=num_kept, num_coming=1, keep=Keep.YES)
        assert np.all(flags == seen)
    staged = clip(num_kept, 1, first_slot=num_kept * TOKENS)
    after, left = live.after_commit(staged, retention, num_kept=num_kept + 1)
    assert set(live.evict_next.slot) <= set(left) <= set(live.evict_next.slot) | set(staged.slot)
    assert set(live.retained.slot) <= set(after.own.slot)


@given(retentions, schedules)
def test_retained_tokens_do_not_move_and_holes_are_filled_from_the_back(
    retention: LockstepPolicy, schedule: list[int]
) -> None:
    before, num_kept = played(retention, schedule)
    staged = clip(num_kept, 1, first_slot=num_kept * TOKENS)
    after, _ = before.after_commit(staged, retention, num_kept=num_kept + 1)
    queue = [*before.retained.slot.tolist(), *staged.slot.tolist(), *before.evict_next.slot.tolist()]
    retained = after.retained.slot.tolist()
    kept = set(retained)
    expected = [slot if slot in kept else None for slot in queue[: len(retained)]]
    back = iter([slot for slot in queue[len(retained) :] if slot in kept])
    assert retained == [next(back) if slot is None else slot for slot in expected]
    assert after.evict_next.slot.tolist() == [slot for slot in queue if slot in set(after.evict_next.slot.tolist())]


def test_kept_clip_reads_retained_and_itself_any_other_those_evicted_next_too() -> None:
    live, num_kept = played(RULE, [1] * 5)
    staged = np.array([90, 91])
    retained, evict_next = live.retained.slot.tolist(), live.evict_next.slot.tolist()
    assert evict_next
    for keep, want in {
        Keep.YES: [*retained, 90, 91],
        Keep.NO: [*retained, 90, 91, *evict_next],
        Keep.DEFERRED: [*retained, 90, 91, *evict_next],
    }.items():
        (block,) = live.seen_slots(RULE, staged, num_kept=num_kept, num_coming=1, keep=keep)
        assert block.tolist() == want


def test_clip_of_several_frames_is_blind_to_all_its_commit_evicts() -> None:
    live, num_kept = played(KeepAll(), [4])
    rule = Window(anchors=1, window=3)
    (block,) = live.seen_slots(rule, np.array([90]), num_kept=num_kept, num_coming=2, keep=Keep.YES)
    assert block.tolist() == [0, 1, 6, 7, 90]


def test_fork_borrows_every_section_and_reads_a_block_for_each() -> None:
    parent, num_kept = played(RULE, [1] * 5)
    fork = parent.as_birth_of_fork()
    assert fork.borrowed == (parent.retained, parent.evict_next)
    assert len(fork.own) == 0
    assert len(fork) == len(parent)
    blocks = fork.seen_slots(RULE, np.array([90, 91]), num_kept=num_kept, num_coming=1, keep=Keep.NO)
    assert [block.tolist() for block in blocks] == [
        parent.retained.slot.tolist(),
        parent.evict_next.slot.tolist(),
        [90, 91],
    ]
    blocks = fork.seen_slots(RULE, np.array([90, 91]), num_kept=num_kept, num_coming=1, keep=Keep.YES)
    assert [block.tolist() for block in blocks] == [parent.retained.slot.tolist(), [], [90, 91]]


def test_fork_forgets_what_it_borrowed_but_gives_up_only_its_own_slots() -> None:
    parent, num_kept = played(RULE, [1] * 5)
    fork = parent.as_birth_of_fork()
    for step in range(1, 4):
        staged = clip(num_kept, 1, first_slot=100 + step * TOKENS)
        num_kept += 1
        fork, left = fork.after_commit(staged, RULE, num_kept=num_kept)
        all_tokens = clip(0, num_kept)
        assert sorted(places(Tokens.join(fork.sections))) == places(
            all_tokens.take(RULE.stays(all_tokens, num_kept=num_kept))
        )
        assert all(slot >= 100 for slot in left)
    assert len(fork.own)
    assert set(fork.borrowed[0].slot) < set(parent.retained.slot)


def test_fork_merged_into_its_parent_leaves_what_the_parent_borrowed_borrowed() -> None:
    root, num_kept = played(RULE, [1] * 5)
    parent, _ = root.as_birth_of_fork().after_commit(clip(num_kept, 1, 100), RULE, num_kept=num_kept + 1)
    child, _ = parent.as_birth_of_fork().after_commit(clip(num_kept + 1, 1, 200), RULE, num_kept=num_kept + 2)
    merged = child.as_merged_into(parent)
    assert len(merged.borrowed) == len(parent.borrowed) == 2
    assert merged.borrowed == child.borrowed[:2]
    assert merged.retained.slot.tolist() == [slot for part in child.sections[2:] for slot in part.slot]
    assert len(merged.evict_next) == 0
    assert len(merged) == len(child)


@pytest.mark.parametrize(
    ("num_slots", "packed"),
    [(11, [0, 1, 2, 3, 6, 7]), (8, [0, 1, 2, 3, 6, 7]), (7, [0, 1, 2, 3, 5, 6]), (6, [0, 1, 2, 3, 4, 5])],
)
def test_packed_tokens_leave_a_gap_for_one_frame_before_those_evicted_next(num_slots: int, packed: list[int]) -> None:
    live = LiveSet((), clip(0, 2, 20), clip(2, 1, 40))
    slot = live.packed_slots(frame=TOKENS, num_slots=num_slots)
    assert slot.tolist() == packed
    moved = live.at(slot)
    assert places(moved.own) == places(live.own)
    assert moved.retained.slot.tolist() == packed[:4]
    assert moved.evict_next.slot.tolist() == packed[4:]


def test_empty_live_set_sees_its_clip_alone() -> None:
    empty = LiveSet.empty()
    assert len(empty) == 0
    (block,) = empty.seen_slots(RULE, np.array([3, 4]), num_kept=0, num_coming=1, keep=Keep.YES)
    assert block.tolist() == [3, 4]
    assert empty.packed_slots(frame=TOKENS, num_slots=4).tolist() == NOTHING.tolist()
