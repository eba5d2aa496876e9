"""An index of places: what it finds on a way that comes back, what leaves when it is full, bytes and bits."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from longtake.errors import InputError, SavedSessionError, SettingError
from longtake.places.index import IndexRule, PlaceIndex
from longtake.places.steady_product import steady_product
from longtake.places.whitening import MOST_CHANNELS, Whitening

RULE = IndexRule(every_frames=2, max_places=64, gap_frames=40)


def looks(seed: int, count: int, channels: int = 24) -> NDArray[np.float64]:
    """Of a way: what is seen changes little by little, around something that all of it shares."""
    random = np.random.default_rng(seed)
    steps = 0.3 * random.normal(size=(count, channels)) * np.linspace(2, 0.2, channels)
    way = np.zeros((count, channels))
    for frame in range(1, count):
        way[frame] = 0.97 * way[frame - 1] + steps[frame]
    return way + 5 * random.normal(size=channels)


def indexed(frames: NDArray[np.float64], rule: IndexRule = RULE, start: int = 0) -> PlaceIndex:
    index = PlaceIndex.empty(frames.shape[1], rule)
    return added(index, frames, start)


def added(index: PlaceIndex, frames: NDArray[np.float64], start: int) -> PlaceIndex:
    for frame, look in enumerate(frames, start=start):
        index = index.with_keyframe(look, frame=frame, window=frame // 10, timestamp_s=frame / 10)
    return index


@pytest.mark.parametrize("is_backwards", [False, True])
def test_place_is_found_again_forwards_and_backwards(is_backwards: bool) -> None:
    way = looks(1, 100)
    again = way[20:41][::-1] if is_backwards else way[20:41]
    index = indexed(np.concatenate([way, again + 0.02 * looks(2, 21) / 5]))
    best, *others = index.candidates()
    assert best.frame == 118
    assert best.old_frame == (22 if is_backwards else 38)
    assert (best.window, best.old_window) == (11, best.old_frame // 10)
    assert best.is_backwards is is_backwards
    assert best.similarity > 0.8
    assert all(best.similarity >= other.similarity for other in others)
    assert all(abs(best.old_frame - other.old_frame) > 2 for other in others)


def test_neighbours_decide_between_two_places_that_look_the_same() -> None:
    way = looks(3, 120)
    way[70] = way[30]  # of the same look, but what is around it is another
    index = indexed(np.concatenate([way, way[20:33]]))
    assert index.judged is not None
    assert index.frame[index.judged] == 130
    best, second = index.candidates(2)
    assert best.old_frame == 30
    assert best.own_similarity == pytest.approx(1, abs=1e-3)
    assert second.similarity < best.similarity - 0.2


def test_nothing_nearer_than_the_gap_is_a_candidate() -> None:
    way = looks(4, 60)
    assert indexed(way[:40]).candidates() == []
    for candidate in indexed(way).candidates(50):
        assert candidate.frame - candidate.old_frame >= RULE.gap_frames
    slow = indexed(way, IndexRule(every_frames=2, max_places=64, gap_frames=1, gap_s=4.0))
    assert {candidate.old_frame for candidate in slow.candidates(50)} <= set(range(17))
    assert slow.candidates(50)


def test_keyframes_a_few_frames_apart_become_places() -> None:
    assert indexed(looks(5, 11)).frame.tolist() == [0, 2, 4, 6, 8, 10]
    rare = PlaceIndex.empty(3, IndexRule(every_frames=4))
    for frame in (0, 2, 6, 7, 12):
        rare = rare.with_keyframe(np.eye(3)[frame % 3], frame=frame, window=0, timestamp_s=float(frame))
    assert rare.frame.tolist() == [0, 6, 12]
    assert PlaceIndex.empty(3).candidates() == []


def test_full_index_loses_what_differs_least_from_its_neighbours() -> None:
    way = looks(6, 124)
    way[40:60] = way[40]  # standing still
    index = indexed(way, IndexRule(every_frames=2, max_places=54, gap_frames=40))
    left = set(range(0, 124, 2)) - set(index.frame.tolist())
    assert len(index) == 54
    assert len(left) == 8
    assert left <= set(range(40, 60))


@settings(deadline=None, max_examples=15)
@given(seed=st.integers(0, 1000), count=st.integers(0, 120), every=st.integers(1, 4), room=st.integers(4, 30))
def test_index_stays_within_its_bytes_and_in_order(seed: int, count: int, every: int, room: int) -> None:
    rule = IndexRule(every_frames=every, max_places=room, gap_frames=10)
    index = indexed(looks(seed, count, channels=5), rule)
    assert len(index) == min(room, -(-count // every))
    assert (np.diff(index.frame) > 0).all()
    held = (index.descriptor, index.key, index.frame, index.window, index.timestamp_s)
    held += (index.whitening.mean, index.whitening.factor)
    assert index.num_bytes == sum(array.nbytes for array in held) <= rule.num_bytes(5)
    assert np.isin(index.frame[-3:], np.arange(0, count, every)[-3:]).all()  # the newest stay


def test_rule_for_a_budget_takes_no_more_than_it() -> None:
    for budget in (400_000, 1_000_000, 3_000_001):
        assert budget - 888 < IndexRule.within(budget, 144).num_bytes(144) <= budget
    assert IndexRule.within(10**9, 144) == IndexRule()
    with pytest.raises(SettingError, match="bytes at least, but got 1000"):
        IndexRule.within(1000, 144)


def test_adding_makes_another_index_and_leaves_this_one() -> None:
    index = indexed(looks(7, 100))
    before = {name: tensor.clone() for name, tensor in index.tensors().items()}
    added(index, looks(8, 90), 100)
    for name, tensor in index.tensors().items():
        assert torch.equal(tensor, before[name]), name


def test_saved_index_goes_on_to_the_same_bits() -> None:
    way = looks(9, 260)
    index = indexed(way[:133])
    again = PlaceIndex.of_tensors(index.tensors(), RULE)
    here, there = (added(one, way[133:], 133) for one in (index, again))
    assert here.candidates() == there.candidates() != []
    for name, tensor in here.tensors().items():
        assert torch.equal(tensor, there.tensors()[name]), name


def test_damaged_indices_are_refused_in_a_sentence() -> None:
    whole = indexed(looks(10, 50)).tensors()
    damages = {
        "key": whole["key"][:3],
        "descriptor": whole["descriptor"] * torch.inf,
        "frame": whole["frame"].flip(0),
        "factor": whole["factor"].float(),
    }
    for name, damage in damages.items():
        with pytest.raises(SavedSessionError, match=r"save it again\.$"):
            PlaceIndex.of_tensors({**whole, name: damage}, RULE)
    with pytest.raises(SavedSessionError, match="too many places"):
        PlaceIndex.of_tensors(whole, IndexRule(max_places=5))


def test_what_cannot_be_is_refused() -> None:
    index = indexed(looks(11, 20))
    with pytest.raises(InputError, match="descriptor of 24 finite numbers"):
        index.with_keyframe(np.zeros(23), frame=30, window=0, timestamp_s=0.0)
    with pytest.raises(InputError, match="finite"):
        index.with_keyframe(np.full(24, np.nan), frame=30, window=0, timestamp_s=0.0)
    with pytest.raises(InputError, match="in order of time after frame 18"):
        index.with_keyframe(np.zeros(24), frame=3, window=0, timestamp_s=0.0)
    with pytest.raises(InputError, match="descriptors of 24 numbers"):
        index.matches(np.zeros((1, 23)))
    for wrong in ({"every_frames": 0}, {"gap_s": -1.0}, {"max_places": 3}):
        with pytest.raises(SettingError):
            IndexRule(**wrong)  # type: ignore[arg-type]
    with pytest.raises(SettingError):
        PlaceIndex.empty(0)


def test_frames_of_another_take_are_matched() -> None:
    way = looks(12, 120)
    index = indexed(way)
    assert index.matches(way[50:51])[0].frame == 50
    assert index.matches(way[46:55:2])[0].frame == 50
    assert index.matches(way[46:55:2][::-1])[0].frame == 50
    strange = index.matches(looks(13, 121)[46:55:2])
    assert strange[0].similarity < index.matches(way[46:55:2])[0].similarity - 0.3


def test_whitened_keys_vary_alike_in_all_directions() -> None:
    frames = np.random.default_rng(0).normal(size=(4000, 6)) * [1, 1, 1, 1, 1, 30]
    whitening = Whitening.of(frames.astype(np.float16))
    spread = ((frames - whitening.mean) @ whitening.factor.T).std(axis=0)
    assert spread[:5].max() < 0.3  # a tenth of the mean variance, 15, is much more than theirs
    assert spread[5] == pytest.approx(1, abs=0.1)
    np.testing.assert_allclose(np.linalg.norm(whitening.keys(frames.astype(np.float16)), axis=1), 1, atol=1e-5)


def test_wide_descriptors_are_folded_and_places_still_found() -> None:
    way = looks(14, 120, channels=500)
    index = indexed(np.concatenate([way, way[20:41]]))
    assert index.key.shape[1] == MOST_CHANNELS
    assert index.candidates(1)[0].old_frame == 38


def test_descriptors_that_are_all_the_same_say_nothing_and_break_nothing() -> None:
    index = indexed(np.ones((80, 24)))
    assert index.candidates()[0].similarity == pytest.approx(1)
    assert indexed(np.zeros((80, 24))).candidates()[0].similarity == 0


def test_products_are_those_of_matrices() -> None:
    random = np.random.default_rng(1)
    for rows, inner, columns in ((1, 1, 1), (56, 56, 56), (57, 130, 3), (200, 5, 60)):
        a, b = random.normal(size=(rows, inner)), random.normal(size=(inner, columns))
        np.testing.assert_allclose(steady_product(a, b), a @ b, atol=1e-12)
