import pytest
import torch

from longtake.geometry.heads.dense import FRAMES_AT_ONCE


@pytest.fixture
def levels(golden):
    want = golden("dpt")
    return [want[f"tok{level}"][None, :, 6:] for level in range(4)]


def test_depth_matches_golden(tiny_model, golden, levels):
    depth = tiny_model.depth_head(levels, tiny_model.grid(42, 70).dense)
    golden("dpt").check("depth", depth.values[0, ..., 0])
    golden("dpt").check("depth_conf", depth.confidence[0])


def test_points_match_golden(tiny_model, golden, levels):
    points = tiny_model.points_head(levels, tiny_model.grid(42, 70).dense)
    golden("dpt").check("points", points.values[0])
    golden("dpt").check("points_conf", points.confidence[0])


def test_more_frames_than_one_chunk_give_the_same(tiny_model, levels):
    num_frames = FRAMES_AT_ONCE + 1
    repeated = [level[:, torch.arange(num_frames) % 3] for level in levels]
    positions = tiny_model.grid(42, 70).dense
    few, many = tiny_model.depth_head(levels, positions), tiny_model.depth_head(repeated, positions)
    torch.testing.assert_close(many.values[:, -3:], few.values[:, [0, 1, 2]], rtol=1e-5, atol=1e-6)
