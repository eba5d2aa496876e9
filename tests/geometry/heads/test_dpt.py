import torch

from longtake.geometry.heads.dense import POSITION_WEIGHT, position_image


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
