"""How far tokens have moved, by a rule and by a table of every token; and keys that are turned once for all of it."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from longtake.language.model_config import TextConfig
from longtake.language.rope_shift import KeyRotation, ShiftedRun, closed_up, moved_back_by
from longtake.memory.policy import Segment

FACTS = TextConfig(
    num_layers=1,
    num_heads=2,
    num_kv_heads=2,
    head_dim=16,
    vocabulary_size=8,
    max_positions=128_000,
    rope_theta=1e6,
    mrope_section=(2, 3, 3),
    tokens_per_second=2.0,
)
CPU = torch.device("cpu")


def segment(first: int, num_tokens: int, extent: int) -> Segment:
    return Segment(first=first, num_tokens=num_tokens, time_s=float(first), novelty=1.0, extent=extent)


def rotated(raw: Tensor, position: int) -> Tensor:
    """A key at a position, channel by channel, in float64."""
    out = raw.double().clone()
    for channel in range(8):
        angle = torch.tensor(position * 1e6 ** (-2 * channel / 16), dtype=torch.float64)
        one, two = raw[..., channel].double(), raw[..., channel + 8].double()
        out[..., channel], out[..., channel + 8] = (
            one * angle.cos() - two * angle.sin(),
            two * angle.cos() + one * angle.sin(),
        )
    return out


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_runs_say_what_a_table_of_all_tokens_says(data: st.DataObject) -> None:
    """Turns and words come and turns leave in any order; what comes later never moves for what left before it."""
    turns: list[Segment] = []
    runs: tuple[ShiftedRun, ...] = ()
    table: dict[int, int] = dict.fromkeys(range(4), 0)  # the sink
    next_token = 4
    for _ in range(data.draw(st.integers(1, 12))):
        num_tokens = data.draw(st.integers(1, 5))
        if data.draw(st.booleans()):
            turns.append(segment(next_token, num_tokens, data.draw(st.integers(1, 9))))
        table |= dict.fromkeys(range(next_token, next_token + num_tokens), 0)
        next_token += num_tokens
        leaving = [turn for turn in turns if data.draw(st.integers(0, 3)) == 0]
        for turn in leaving:
            turns.remove(turn)
            for token in range(turn.first, turn.first + turn.num_tokens):
                del table[token]
        for turn in leaving:
            table = {token: back + (turn.extent if token > turn.first else 0) for token, back in table.items()}
        left = np.array(list(table), dtype=np.int64)
        order = np.random.default_rng(next_token).permutation(len(left))
        if leaving:
            runs = closed_up(runs, leaving, left[order], next_token=next_token)
        assert moved_back_by(runs, left[order]).tolist() == [table[token] for token in left[order]]
        assert moved_back_by(runs, np.array([next_token, next_token + 7])).tolist() == [0, 0]
        assert len(runs) <= len(table)


def test_nothing_has_moved_where_nothing_left_and_grids_of_a_clip_move_nothing() -> None:
    tokens = np.arange(6)
    assert moved_back_by((), tokens).tolist() == [0] * 6
    assert closed_up((), [segment(2, 2, 0)], np.array([0, 1, 4, 5]), next_token=6) == ()
    assert KeyRotation.back(np.zeros(6, dtype=np.int64), FACTS, CPU) is None


def test_keys_that_moved_are_those_written_at_the_new_place() -> None:
    raw = torch.randn(5, 2, 16, generator=torch.Generator().manual_seed(0))
    places, back = [40, 41, 900, 30_000, 7], np.array([0, 3, 850, 29_000, 12])
    written = torch.stack([rotated(key, place) for key, place in zip(raw, places, strict=True)]).float()
    wanted = torch.stack([rotated(key, place - int(by)) for key, place, by in zip(raw, places, back, strict=True)])
    turn = KeyRotation.back(back, FACTS, CPU)
    assert turn is not None
    assert (turn(0, written) - wanted).abs().max() < 1e-6
    assert torch.equal(torch.cat([turn(0, written[:2]), turn(2, written[2:])]), turn(0, written))
    assert torch.equal(turn(0, written)[0], written[0])  # what has not moved is as it was, to the bit


@pytest.mark.extra
def test_thousand_departures_drift_no_more_than_one() -> None:
    """The key of words behind a thousand turns that leave one by one, in float32 and in bfloat16."""
    raw = torch.randn(1, 2, 16, generator=torch.Generator().manual_seed(1))
    extent, words, runs = 11, 9 + 1000, ()
    start = 9 + 1000 * extent
    errors: dict[torch.dtype, list[float]] = {torch.float32: [], torch.bfloat16: []}
    for gone in range(1, 1001):
        staying = np.array([*range(9), *range(9 + gone, words + 1)])
        runs = closed_up(runs, [segment(9 + gone - 1, 1, extent)], staying, next_token=words + 1)
        back = moved_back_by(runs, np.array([words]))
        assert back.tolist() == [gone * extent]
        turn = KeyRotation.back(back, FACTS, CPU)
        assert turn is not None
        for dtype, found in errors.items():
            read = turn(0, rotated(raw, start).to(dtype))
            found.append(float((read - rotated(raw, start - gone * extent)).abs().max()))
    assert max(errors[torch.float32]) < 1e-6
    assert max(errors[torch.bfloat16]) < 2 * max(errors[torch.bfloat16][:20]) < 0.05
    assert len(runs) == 2  # of the words, and of what comes
