"""Which poses belong together: against a slow version, at other rates, with an offset, and where none do."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from longtake.errors import InputError, SettingError
from longtake.evaluation.association import PosePairs, associate
from longtake.takes.trajectory import Trajectory


def trajectory(timestamp_s: list[float], *, is_timed: bool = True) -> Trajectory:
    """At time t the camera is at x = t."""
    poses = torch.eye(4, dtype=torch.float64).repeat(len(timestamp_s), 1, 1)
    poses[:, 0, 3] = torch.tensor(timestamp_s, dtype=torch.float64)
    return Trajectory(timestamp_s=poses[:, 0, 3].clone(), world_from_camera=poses, is_timed=is_timed)


def index_pairs(result: list[float], truth: list[float], max_gap_s: float, offset_s: float = 0.0) -> list[list[int]]:
    found = associate(trajectory(result), trajectory(truth), max_gap_s=max_gap_s, offset_s=offset_s)
    return torch.stack([found.result_index, found.truth_index], dim=1).tolist()


def slow_index_pairs(result: list[float], truth: list[float], max_gap_s: float) -> list[list[int]]:
    if len(truth) < len(result):
        return [[r, t] for t, r in slow_index_pairs(truth, result, max_gap_s)]
    taken: dict[int, tuple[float, int]] = {}
    for r, result_s in enumerate(result):
        gap_s, t = min((abs(result_s - truth_s), t) for t, truth_s in enumerate(truth))
        if gap_s <= max_gap_s and (t not in taken or gap_s < taken[t][0]):
            taken[t] = (gap_s, r)
    return [[r, t] for t, (_, r) in sorted(taken.items())]


times = st.lists(st.integers(0, 60), min_size=2, max_size=15, unique=True).map(
    lambda ticks: sorted(t / 8 for t in ticks)
)


@given(times, times, st.integers(0, 8).map(lambda ticks: ticks / 8))
@settings(deadline=None, max_examples=200)
def test_pairs_are_those_of_the_slow_version(result: list[float], truth: list[float], max_gap_s: float) -> None:
    expected = slow_index_pairs(result, truth, max_gap_s)
    if len(expected) >= 2:
        assert index_pairs(result, truth, max_gap_s) == expected
    else:
        with pytest.raises(InputError, match=f"{'only 1' if expected else 'no'} pair of poses is"):
            index_pairs(result, truth, max_gap_s)


def test_ten_frames_a_second_find_theirs_among_thirty() -> None:
    slow, fast = [frame / 10 + 0.002 for frame in range(20)], [frame / 30 for frame in range(60)]
    assert index_pairs(slow, fast, 0.01) == [[frame, 3 * frame] for frame in range(20)]
    assert index_pairs(fast, slow, 0.01) == [[3 * frame, frame] for frame in range(20)]


def test_offset_is_added_to_the_result() -> None:
    truth = [100.0 + frame for frame in range(5)]
    assert index_pairs([0.0, 1, 2], truth, 0.01, offset_s=102.0) == [[0, 2], [1, 3], [2, 4]]
    with pytest.raises(InputError, match="time offset"):
        index_pairs([0.0, 1, 2], truth, 0.01)


def test_paired_poses_are_those_of_the_same_moments() -> None:
    result, truth = trajectory([0.5, 1.0, 2.0, 2.6]), trajectory([0.0, 1.004, 1.5, 2.0])
    pairs = associate(result, truth).poses_of(result, truth)
    assert pairs.timestamp_s.tolist() == [1.004, 2.0]
    assert pairs.result[:, 0, 3].tolist() == [1.0, 2.0]
    assert pairs.truth[:, 0, 3].tolist() == [1.004, 2.0]


def test_no_overlap_is_told_with_both_ranges() -> None:
    with pytest.raises(
        InputError,
        match=r"result runs from 0\.000000 to 2\.000000 s and the truth from 50\.000000 to 51\.000000 s, but no pair "
        r".* 0\.02 s apart.* offset or a larger tolerance",
    ):
        associate(trajectory([0.0, 1, 2]), trajectory([50.0, 51]))


def test_single_pose_is_too_little() -> None:
    with pytest.raises(InputError, match="only 1 pair of poses"):
        associate(trajectory([1.0]), trajectory([1.0]))
    with pytest.raises(InputError, match="1 pose each"):
        associate(trajectory([0.0], is_timed=False), trajectory([0.0]))


@pytest.mark.parametrize("timed", [(False, False), (True, False), (False, True)])
def test_without_times_poses_are_paired_in_order(timed: tuple[bool, bool]) -> None:
    result, truth = trajectory([0.0, 1, 2], is_timed=timed[0]), trajectory([7.0, 8, 9], is_timed=timed[1])
    found = associate(result, truth)
    assert found.result_index.tolist() == found.truth_index.tolist() == [0, 1, 2]
    with pytest.raises(InputError, match=r"result has 3 poses and the truth 2,.*file of times or a frame rate"):
        associate(result, trajectory([0.0, 1], is_timed=False))


@pytest.mark.parametrize(("max_gap_s", "offset_s"), [(-0.1, 0.0), (float("nan"), 0.0), (0.01, float("inf"))])
def test_meaningless_settings_are_refused(max_gap_s: float, offset_s: float) -> None:
    with pytest.raises(SettingError, match="seconds"):
        associate(trajectory([0.0, 1]), trajectory([0.0, 1]), max_gap_s=max_gap_s, offset_s=offset_s)


def test_pairs_are_finite_and_two_at_least() -> None:
    poses = torch.eye(4, dtype=torch.float64).repeat(2, 1, 1)
    with pytest.raises(InputError, match="2 poses at least, but 1 came"):
        PosePairs(timestamp_s=torch.zeros(1).double(), result=poses[:1], truth=poses[:1])
    for result, truth in ((poses * torch.nan, poses), (poses, poses * torch.inf)):
        with pytest.raises(InputError, match="finite"):
            PosePairs(timestamp_s=torch.arange(2).double(), result=result, truth=truth)
