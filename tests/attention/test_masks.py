"""Masks of whole clips against the published rule, written out frame by frame."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from longtake.attention.masks import Arrival, arrivals, clip_mask, clip_ordinals
from longtake.memory.policies.lockstep import ContextRetention, KeepAll
from longtake.memory.policy import Keep

TOKENS = 3


def by_hand(rule: ContextRetention, sequence: tuple[Arrival, ...]) -> Tensor:
    """For every pair of tokens: is it the same arrival, or an earlier kept frame that is still remembered?"""
    frames: list[tuple[int, int]] = []  # arrival and ordinal of each frame of the clip
    kept_before: list[int] = []
    num_kept = 0
    for step, arrival in enumerate(sequence):
        kept_before.append(num_kept)
        frames += [(step, num_kept + offset) for offset in range(arrival.num_frames)]
        num_kept += arrival.num_frames if arrival.kept else 0
    mask = torch.zeros(len(frames) * TOKENS, len(frames) * TOKENS, dtype=torch.bool)
    for row in range(len(mask)):
        step, _ = frames[row // TOKENS]
        arrival = sequence[step]
        moment = kept_before[step] + (arrival.num_frames if arrival.keep is Keep.YES else 0)
        for column in range(len(mask)):
            other_step, ordinal = frames[column // TOKENS]
            if other_step == step:
                mask[row, column] = True
            elif other_step < step and sequence[other_step].kept:
                in_trail = rule.history is None or ordinal >= moment - (rule.history - rule.anchors)
                mask[row, column] = (
                    ordinal < rule.anchors
                    or ordinal >= moment - rule.window
                    or (column % TOKENS < rule.trail_tokens and in_trail)
                )
    return mask


@st.composite
def rules(draw: st.DrawFn) -> ContextRetention:
    anchors, window = draw(st.integers(0, 3)), draw(st.integers(1, 3))
    history = draw(st.none() | st.integers(anchors + window, anchors + window + 3))
    return ContextRetention(anchors=anchors, window=window, trail=draw(st.integers(0, TOKENS)), history=history)


@settings(max_examples=60, deadline=None)
@given(rules(), st.integers(1, 4), st.lists(st.booleans(), max_size=7), st.booleans())
def test_mask_equals_the_rule_written_out(
    rule: ContextRetention, num_scale_frames: int, kept: list[bool], judged_later: bool
) -> None:
    sequence = arrivals(num_scale_frames, kept, judged_later=judged_later)
    assert torch.equal(clip_mask(rule, sequence, TOKENS), by_hand(rule, sequence))


several_at_once = st.lists(
    st.builds(
        lambda num_frames, keep, accept: Arrival(
            num_frames, keep, kept=keep is Keep.YES or (accept and keep is Keep.DEFERRED)
        ),
        st.integers(1, 3),
        st.sampled_from(Keep),
        st.booleans(),
    ),
    min_size=1,
    max_size=5,
).map(tuple)


@settings(max_examples=40, deadline=None)
@given(rules(), several_at_once)
def test_mask_equals_the_rule_when_several_frames_come_at_once(
    rule: ContextRetention, sequence: tuple[Arrival, ...]
) -> None:
    assert torch.equal(clip_mask(rule, sequence, TOKENS), by_hand(rule, sequence))


def drawn(mask: Tensor) -> list[str]:
    return ["".join(".#"[int(flag)] for flag in row) for row in mask]


def test_mask_of_one_token_per_frame_drawn() -> None:
    rule = ContextRetention(anchors=1, window=2, trail=0, history=None)
    sequence = arrivals(2, [True, False, True, True])
    assert drawn(clip_mask(rule, sequence, 1)) == [
        "##....",  # the scale block sees itself, forwards too
        "##....",
        "###...",
        "####..",  # not kept: sees all that is remembered
        "#.#.#.",  # kept: a window of two with itself; nobody sees the frame that was not kept
        "#...##",
    ]


def test_frame_judged_later_sees_what_its_commit_evicts() -> None:
    rule = ContextRetention(anchors=0, window=1, trail=0, history=None)
    assert drawn(clip_mask(rule, arrivals(1, [True, True]), 1)) == ["#..", ".#.", "..#"]
    assert drawn(clip_mask(rule, arrivals(1, [True, True], judged_later=True), 1)) == ["#..", "##.", ".##"]


def test_keep_all_is_causal_by_frame() -> None:
    mask = clip_mask(KeepAll(), arrivals(2, [True, True]), 2)
    assert drawn(mask) == [
        "####....",
        "####....",
        "####....",
        "####....",
        "######..",
        "######..",
        "########",
        "########",
    ]


def test_arrivals_are_a_scale_block_then_single_frames() -> None:
    assert arrivals(3, [True, False]) == (
        Arrival(3, Keep.YES, kept=True),
        Arrival(1, Keep.YES, kept=True),
        Arrival(1, Keep.NO, kept=False),
    )
    assert arrivals(1, [True, False], judged_later=True)[1:] == (
        Arrival(1, Keep.DEFERRED, kept=True),
        Arrival(1, Keep.DEFERRED, kept=False),
    )


@pytest.mark.parametrize(
    ("kept", "ordinals"),
    [([], (0, 1)), ([True, True], (0, 1, 2, 3)), ([False, False, True, False, True], (0, 1, 2, 2, 2, 3, 3))],
)
def test_ordinals_count_the_frames_kept_before(kept: list[bool], ordinals: tuple[int, ...]) -> None:
    assert clip_ordinals(arrivals(2, kept)) == ordinals
