"""Clouds of takes: they lie on the walls, are bounded, and are laid onto each other as far as they may be moved."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from longtake.evaluation.alignment_mode import AlignmentMode
from longtake.evaluation.matched import read_matched
from longtake.evaluation.registration import in_double
from longtake.evaluation.settings import EvalSettings
from longtake.evaluation.take_points import TakePoints, cloud_of, measure_take_points
from longtake.spatial.similarity import Similarity
from longtake.takes.take import read_take

Film = Callable[..., Path]
STILL = in_double(Similarity.identity(torch.device("cpu")))


def measure(result: Path, truth: Path, rules: EvalSettings) -> TakePoints:
    return measure_take_points(read_matched(result, truth, rules), rules)


@pytest.mark.parametrize("size", [(36, 48), (180, 240)])
def test_cloud_lies_on_the_walls_with_their_normals(
    film_room: Film, half_room: np.ndarray, size: tuple[int, int]
) -> None:
    take = read_take(film_room("truth", size=size, steps=range(4)))
    cloud = cloud_of(take, range(4), STILL, 0.02)
    off = np.abs(np.abs(cloud.points.numpy()) - half_room)
    # A voxel in a corner averages two walls.
    assert np.mean(off.min(axis=1) < 1e-6) > 0.95
    assert off.min(axis=1).max() < 0.02
    assert cloud.normals is not None
    lengths = cloud.normals.norm(dim=1)
    known = lengths > 0.99
    assert float(known.double().mean()) > 0.8
    wall = torch.from_numpy(off.argmin(axis=1))
    inward = -cloud.points.gather(1, wall[:, None]).sign()
    assert float((cloud.normals.gather(1, wall[:, None]) * inward)[known].median()) > 0.999


def test_moved_take_gives_the_moved_cloud(film_room: Film, elsewhere: Similarity) -> None:
    take = read_take(film_room("truth"))
    moved = read_take(film_room("moved", moved=elsewhere))
    one, other = cloud_of(take, [3], STILL, 1e-4), cloud_of(moved, [3], elsewhere.inverse(), 1e-4)
    assert len(one.points) == len(other.points) == 36 * 48
    distance = torch.cdist(one.points, other.points).amin(dim=1)
    assert float(distance.max()) < 1e-5


def test_shifted_take_is_met_only_if_it_may_be_moved(film_room: Film) -> None:
    shifted = replace(STILL, translation=torch.tensor([0.2, 0.1, 0.0], dtype=torch.float64))
    truth, result = film_room("truth"), film_room("result", moved=shifted)
    fixed = measure(result, truth, EvalSettings(align=AlignmentMode.NONE))
    assert fixed.errors.f1 < 0.7
    assert fixed.registration.errors == pytest.approx([fixed.registration.errors[0]])
    free = measure(result, truth, EvalSettings(align=AlignmentMode.SE3))
    assert free.errors.f1 == 1
    assert free.errors.accuracy_mean < 1e-3


def test_icp_puts_right_what_crooked_cameras_left(film_room: Film) -> None:
    truth = film_room("truth", steps=range(24))
    matched = read_matched(truth, truth, EvalSettings())
    crooked = matched.poses.result.clone()
    crooked[::2, 0, 3] += 0.06  # every other camera says it stands 6 cm aside
    rules = EvalSettings(align=AlignmentMode.SE3)
    found = measure_take_points(replace(matched, poses=replace(matched.poses, result=crooked)), rules)
    assert found.registration.errors[0] > 0.01
    assert found.registration.errors[-1] < 1e-3
    assert found.errors.f1 == 1


def test_frames_pixels_and_voxels_are_bounded(film_room: Film) -> None:
    truth = film_room("truth", steps=range(130), size=(10, 14))
    found = measure(truth, truth, EvalSettings(threshold=0.5))
    assert found.num_frames == 100
    assert found.voxel == 0.25
    # 4.02 x 2.82 x 5.22 m in voxels of a quarter of a metre, walls and corners.
    assert found.errors.num_true < 2 * (17 * 12 + 17 * 22 + 12 * 22)
    large = read_take(film_room("large", steps=[0], size=(300, 400)))
    assert len(cloud_of(large, [0], STILL, 1e-4).points) == 75 * 100


def test_takes_of_other_sizes_have_the_same_surface(film_room: Film) -> None:
    found = measure(film_room("small", size=(18, 24)), film_room("truth"), EvalSettings(threshold=0.1))
    assert found.errors.accuracy_median < 0.05
    assert found.errors.precision > 0.9
    assert found.errors.normal_consistency is not None
    assert found.errors.normal_consistency > 0.95
