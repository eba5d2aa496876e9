"""Ways and motions against plain matrices."""

from collections.abc import Callable

import torch

from longtake.evaluation.association import PosePairs
from longtake.evaluation.motion import motion, path_length, step_length


def test_path_is_the_sum_of_steps(make_pairs: Callable[..., PosePairs]) -> None:
    poses = make_pairs(0, num_frames=4).truth
    steps = [float((poses[k + 1, :3, 3] - poses[k, :3, 3]).norm()) for k in range(3)]
    torch.testing.assert_close(step_length(poses), torch.tensor(steps).double())
    torch.testing.assert_close(path_length(poses), torch.tensor([0, steps[0], sum(steps[:2]), sum(steps)]).double())


def test_motion_is_the_later_camera_as_the_earlier_sees_it(make_pairs: Callable[..., PosePairs]) -> None:
    poses = make_pairs(0, num_frames=5).truth
    start, end = torch.tensor([0, 1, 4]), torch.tensor([3, 2, 0])
    torch.testing.assert_close(motion(poses, start, end), torch.linalg.inv(poses[start]) @ poses[end])
