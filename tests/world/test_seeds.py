"""Seeds of houses belong to one split each."""

from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtake.errors import SettingError
from longtake.world.seeds import Split, seeds, split_of


def first(split: Split, number: int, start: int = 0) -> list[int]:
    return list(islice(seeds(split, start), number))


def test_rule_never_changes_or_published_numbers_would_lose_their_meaning() -> None:
    training, validation, test = Split.TRAINING, Split.VALIDATION, Split.TEST
    assert [split_of(seed) for seed in range(20)] == [*(training,) * 8, validation, test] * 2


def test_splits_share_no_seed_and_leave_none_out() -> None:
    drawn = first(Split.TRAINING, 800) + first(Split.VALIDATION, 100) + first(Split.TEST, 100)
    assert sorted(drawn) == list(range(1000))


@given(st.integers(0, 10**30), st.sampled_from(Split))
def test_seeds_from_anywhere_stay_in_their_split(start: int, split: Split) -> None:
    drawn = first(split, 12, start)
    assert drawn == sorted(set(drawn))
    assert min(drawn) >= start
    assert {split_of(seed) for seed in drawn} == {split}


@pytest.mark.parametrize("seed", [-1, -10])
def test_negative_seeds_are_refused_at_once(seed: int) -> None:
    with pytest.raises(SettingError, match=f"Expected a seed of 0 or more, but got {seed}"):
        split_of(seed)
    with pytest.raises(SettingError, match=f"Expected a seed of 0 or more, but got {seed}"):
        seeds(Split.TEST, seed)
