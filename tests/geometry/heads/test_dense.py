import pytest
import torch

from longtake.geometry.heads.dense import FRAMES_AT_ONCE, POSITION_WEIGHT, position_image


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


def whole_image(channels, size):
    image = position_image(channels, size, 70 / 42, device=torch.device("cpu"), dtype=torch.float32)
    return image.add_to(torch.zeros(1, channels, *size))[0].permute(1, 2, 0) / POSITION_WEIGHT


def test_position_images_match_golden(golden):
    want = golden("dpt")
    want.check("uvembed_3x5_16", whole_image(16, (3, 5)))
    want.check("uvembed_4x7_32", whole_image(32, (4, 7)))


def test_residual_unit_adds_the_rectified_input(tiny_model, golden):
    want = golden("dpt")
    given = want["rcu_in"].clone()
    want.check("rcu_out", tiny_model.depth_head.dpt.fuse[0].sum(given))
    assert torch.equal(given, want["rcu_in"])
