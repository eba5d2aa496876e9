"""Alignment of two windows: golden cases, known answers, and what the robust rule withstands."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from longtake.errors import SettingError
from longtake.runtime.alignment import (
    Alignment,
    Anchoring,
    ScaleEstimate,
    place,
    trimmed_mean,
    weighted_median,
)
from longtake.spatial.pose import decode_pose, matrix_from_quaternion
from longtake.spatial.similarity import Similarity
from longtake.types import FrameKind, Geometry


def make_geometry(
    pose: Tensor, depth: Tensor, *, keyframes: list[bool] | None = None, points: Tensor | None = None
) -> Geometry:
    num_frames = len(pose)
    flags = keyframes or [False] * num_frames
    world_from_camera, intrinsics = decode_pose(pose, depth.shape[1], depth.shape[2])
    return Geometry(
        frame_index=tuple(range(num_frames)),
        timestamp_s=tuple(map(float, range(num_frames))),
        kind=tuple(FrameKind.KEYFRAME if flag else FrameKind.PASSING for flag in flags),
        window=(0,) * num_frames,
        provisional=(False,) * num_frames,
        pose_encoding=pose,
        world_from_camera=world_from_camera,
        intrinsics=intrinsics,
        depth=depth,
        depth_confidence=torch.ones_like(depth),
        points=points,
    )


@pytest.mark.parametrize("case", range(4))
def test_alignment_and_warp_reproduce_the_golden_case(case: int, golden: Callable[[str], Any]) -> None:
    want = golden("alignment")

    def window(name: str) -> Geometry:
        key = f"c{case}_{name}_"
        depth = want[key + "depth"].squeeze(-1)
        flags = want[key + "is_keyframe"].tolist() if key + "is_keyframe" in want.tensors else None
        return make_geometry(
            want[key + "pose_enc"],
            torch.where(depth == -12345, torch.inf, depth),
            keyframes=flags,
            points=want[key + "world_points"],
        )

    a, b = window("a"), window("b")
    overlap = int(want[f"c{case}_overlap"])
    first = len(a) - min(overlap, len(a))
    shared = min(overlap, len(a), len(b))
    found = Alignment().align(a.frames(first, first + shared), b.frames(0, shared))
    want.check(f"c{case}_scale", found.scale[None])
    want.check(f"c{case}_R", found.rotation[None])
    want.check(f"c{case}_t", found.translation[None])
    placed = place(b, found)
    want.check(f"c{case}_warped_pose_enc", placed.pose_encoding)
    warped = want[f"c{case}_warped_depth"].squeeze(-1)
    finite = torch.isfinite(placed.depth)
    torch.testing.assert_close(placed.depth[finite], warped[finite], rtol=2e-5, atol=2e-5)
    assert placed.points is not None
    want.check(f"c{case}_warped_world_points", placed.points)


def moved_apart(seed: int, num_frames: int = 6) -> tuple[Geometry, Geometry, Similarity]:
    """Two windows on the same frames that differ by a known similarity."""
    generator = torch.Generator().manual_seed(seed)
    pose = torch.randn(num_frames, 9, generator=generator)
    pose[:, 7:] = 1.0
    b = make_geometry(pose, 1 + torch.rand(num_frames, 8, 9, generator=generator), keyframes=[True] * num_frames)
    truth = Similarity(torch.tensor(1.7), matrix_from_quaternion(torch.randn(4, generator=generator)), torch.randn(3))
    return place(b, truth), b, truth


@pytest.mark.parametrize("anchoring", Anchoring)
@pytest.mark.parametrize("scale", ScaleEstimate)
def test_every_rule_finds_the_similarity_two_windows_differ_by(anchoring: Anchoring, scale: ScaleEstimate) -> None:
    a, b, truth = moved_apart(1)
    found = Alignment(anchoring, scale).align(a, b)
    torch.testing.assert_close(found.matrix, truth.matrix, rtol=1e-4, atol=1e-4)


def test_robust_rule_withstands_a_bad_last_frame_and_pixels_nobody_trusts() -> None:
    a, b, truth = moved_apart(2, num_frames=7)
    camera = a.world_from_camera.clone()
    camera[-1, :3, 3] += 5
    depth = a.depth.clone()
    depth[:, :6] *= 9
    confidence = torch.ones_like(depth)
    confidence[:, :6] = 1e-3
    spoiled = replace(a, world_from_camera=camera, depth=depth, depth_confidence=confidence)
    robust = Alignment(Anchoring.ROBUST).align(spoiled, b)
    plain = Alignment(Anchoring.KEYFRAME_PAIRS).align(spoiled, b)
    assert float((robust.translation - truth.translation).norm()) < 1e-3
    assert float((robust.scale - truth.scale).abs()) < 1e-3
    assert float((plain.translation - truth.translation).norm()) > 1
    assert float((plain.scale - truth.scale).abs()) > 1


def test_windows_without_a_usable_pixel_keep_their_scale() -> None:
    a, b, _ = moved_apart(3)
    blind = replace(b, depth=torch.zeros_like(b.depth))
    assert float(Alignment().align(a, blind).scale) == 1
    endless = replace(a, depth=a.depth * 1e9)
    assert float(Alignment().align(endless, b).scale) == 1e3


def test_weighted_median_of_equal_weights_is_the_lower_median() -> None:
    for values in ([3.0, 1.0, 2.0], [4.0, 1.0, 3.0, 2.0], [7.0]):
        tensor = torch.tensor(values)
        assert weighted_median(tensor, torch.ones_like(tensor)) == tensor.median()
    assert weighted_median(torch.tensor([1.0, 2.0, 9.0]), torch.tensor([1.0, 1.0, 5.0])) == 9


def test_trimmed_mean_leaves_out_a_tenth_on_each_side() -> None:
    values = torch.tensor([-1000.0, *range(1, 9), 1000.0])
    assert float(trimmed_mean(values, torch.ones(10))) == pytest.approx(4.5)
    assert float(trimmed_mean(torch.tensor([5.0]), torch.ones(1))) == 5


def test_rules_are_found_by_name_and_unknown_names_refused_with_the_choices() -> None:
    assert Alignment.named("robust", "trimmed_mean") == Alignment(Anchoring.ROBUST, ScaleEstimate.TRIMMED_MEAN)
    with pytest.raises(SettingError, match="no alignment rule 'last-frame'; choose one of first-frame"):
        Alignment.named("last-frame")
    with pytest.raises(SettingError, match="no scale estimate 'median_all'; choose one of median"):
        Alignment.named("robust", "median_all")
