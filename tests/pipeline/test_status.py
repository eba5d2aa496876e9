import json
import math
from itertools import islice

import numpy as np
import pytest
import torch
from selected import rest_in_extra
from torch import Tensor

from longtake.exports.frame import FrameStatus
from longtake.pipeline.status import PictureSummary, StatusJudge
from longtake.world.tour import Tour

Frame = tuple[np.ndarray, Tensor, np.ndarray]


def walk(seed: int, count: int) -> list[Frame]:
    views = islice(Tour(seed=seed, width=64, height=48).views(), count)
    sure = np.full((48, 64), 3.0, np.float32)
    return [((view.image.movedim(0, -1) * 255).byte().numpy(), view.world_from_camera, sure) for view in views]


@pytest.fixture(scope="module")
def frames() -> list[Frame]:
    return walk(3, 120)


def see(judge: StatusJudge, image: np.ndarray, pose: Tensor, sure: np.ndarray) -> FrameStatus:
    return judge.judge(PictureSummary.of(image), pose, sure)


def judged(judge: StatusJudge, frames: list[Frame]) -> list[FrameStatus]:
    return [see(judge, *frame) for frame in frames]


@pytest.mark.parametrize("seed", rest_in_extra([3, 7, 9], keep=1))
def test_a_walk_is_fine_throughout(seed: int) -> None:
    assert set(judged(StatusJudge(), walk(seed, 120))) == {FrameStatus.OK}


def test_the_same_picture_again_is_repeated_even_with_the_noise_of_an_encoder(frames: list[Frame]) -> None:
    judge = StatusJudge()
    judged(judge, frames[:20])
    image, pose, sure = frames[19]
    noisy = (image.astype(int) + np.random.default_rng(0).integers(-1, 2, image.shape)).clip(0, 255).astype(np.uint8)
    assert see(judge, image, pose, sure) is FrameStatus.REPEATED
    assert see(judge, noisy, pose, sure) is FrameStatus.REPEATED
    assert see(judge, *frames[20]) is FrameStatus.OK


def drifting(step_px: float, count: int) -> list[Frame]:
    """A textured square that glides over a plain wall, seen by a camera that stands still."""
    columns = np.arange(64) + 0.5
    sure = np.full((48, 64), 3.0, np.float32)
    frames = []
    for place in range(count):
        covered = np.clip(columns - 20 - step_px * place + 0.5, 0, 1) * np.clip(36 + step_px * place - columns, 0, 1)
        image = np.full((48, 64, 3), 90.0)
        image[16:32] += 100 * covered[:, None]
        frames.append((image.round().astype(np.uint8), torch.eye(4, dtype=torch.float64), sure))
    return frames


def test_slow_motion_adds_up_until_it_counts() -> None:
    frames = drifting(0.01, 400)  # by half a level a frame where it moves, and none elsewhere
    counted = [place for place, status in enumerate(judged(StatusJudge(), frames)) if status is FrameStatus.OK]
    assert max(np.diff(counted)) <= 4
    assert counted[-1] >= 395


def test_small_thing_that_moves_is_no_repetition() -> None:
    assert set(judged(StatusJudge(), drifting(0.1, 100))) == {FrameStatus.OK}


def test_repetition_is_one_however_long_it_lasts(frames: list[Frame]) -> None:
    judge = StatusJudge()
    judged(judge, frames[:20])
    assert set(judged(judge, [frames[19]] * 50)) == {FrameStatus.REPEATED}
    assert see(judge, *frames[20]) is FrameStatus.OK


def test_another_house_is_a_cut(frames: list[Frame]) -> None:
    cuts = 0
    for other in range(10, 20):
        judge = StatusJudge()
        judged(judge, frames[:20])
        cuts += see(judge, walk(other, 1)[0][0], frames[20][1], frames[20][2]) is FrameStatus.CUT
    assert cuts >= 9  # two rooms may look alike by chance


def test_a_leap_or_a_spin_is_a_jump(frames: list[Frame]) -> None:
    judge = StatusJudge()
    judged(judge, frames[:20])
    image, pose, sure = frames[20]
    far = pose.clone()
    far[0, 3] += 3
    assert see(judge, image, far, sure) is FrameStatus.JUMP
    spun = far.clone()
    cos, sin = math.cos(math.radians(70)), math.sin(math.radians(70))
    spun[:3, :3] = torch.tensor([[cos, 0, sin], [0, 1, 0], [-sin, 0, cos]], dtype=torch.float64) @ far[:3, :3]
    assert see(judge, frames[21][0], spun, sure) is FrameStatus.JUMP


def test_unusually_low_confidence_is_weak_and_does_not_become_usual(frames: list[Frame]) -> None:
    judge = StatusJudge()
    judged(judge, frames[:20])
    unsure = np.full((48, 64), 1.5, np.float32)
    for image, pose, _ in frames[20:80]:
        assert see(judge, image, pose, unsure) is FrameStatus.WEAK
    assert see(judge, *frames[80]) is FrameStatus.OK


@pytest.mark.parametrize("cut", [0, 1, 4, 30])
def test_a_restored_judge_goes_on_as_if_never_stopped(frames: list[Frame], cut: int) -> None:
    odd = [*frames[:30], frames[29], *walk(12, 2), *frames[30:60]]
    whole = judged(StatusJudge(), odd)
    first, second = StatusJudge(), StatusJudge()
    before = judged(first, odd[:cut])
    second.restore(json.loads(json.dumps(first.state())))
    assert before + judged(second, odd[cut:]) == whole
    assert len(set(whole)) >= 3
