import pytest
import torch

from longtake.geometry.tokens import diagonal_positions
from longtake.layers.rotary import (
    AdjacentRotation,
    HalvesRotation,
    axial_split,
    axis_phases,
    grid_phases,
    join_axes,
    repeat_over_frames,
    spread_over_frames,
)


def axial_rotation(frames, special, patches, head_dim):
    """Adjacent pairs turned by (time, row, column)."""
    channels = axial_split(head_dim)
    rows, columns = diagonal_positions(special, *patches).unbind(dim=-1)
    image = join_axes(axis_phases(rows, channels[1], theta=1e4), axis_phases(columns, channels[2], theta=1e4))
    return spread_over_frames(axis_phases(torch.tensor(frames), channels[0], theta=1e4), image)


def test_grid_rotation_matches_golden(golden):
    want = golden("rope")
    phases = grid_phases(want["pos2d"][0], 64, theta=100.0)
    want.check("out2d", HalvesRotation(phases)(want["tok2d"].transpose(1, 2)).transpose(1, 2))


def test_axial_rotation_matches_golden(golden):
    want = golden("rope")
    phases = axial_rotation([5, 6], 6, (3, 5), 64)
    want.check("cos3d", phases.cos)
    want.check("sin3d", phases.sin)
    want.check("out3d", AdjacentRotation(phases)(want["tok3d"].transpose(1, 2)).transpose(1, 2))


def test_camera_rotation_matches_golden(golden):
    want = golden("rope")
    times = torch.tensor([4, 5, 6])
    positions = (times, torch.zeros_like(times), torch.zeros_like(times))
    axes = zip(positions, axial_split(128), strict=True)
    phases = join_axes(*(axis_phases(at, channels, theta=1e4) for at, channels in axes))
    want.check("coscam", phases.cos)
    want.check("sincam", phases.sin)
    want.check("outcam", AdjacentRotation(phases)(want["tokcam"].transpose(1, 2)).transpose(1, 2))


def test_channels_are_split_in_pairs_over_three_axes():
    assert axial_split(64) == (20, 22, 22)
    assert axial_split(128) == (40, 44, 44)
    assert axial_split(32) == (8, 12, 12)
    for head_dim in (6, *range(10, 258, 2)):
        split = axial_split(head_dim)
        assert sum(split) == head_dim
        assert all(channels > 0 and channels % 2 == 0 for channels in split)


@pytest.mark.parametrize("head_dim", [16, 32, 64, 128])
def test_rotation_preserves_norms(head_dim):
    tokens = torch.randn(2, 14, 3, head_dim)
    adjacent = AdjacentRotation(axial_rotation([3, 900], 1, (2, 3), head_dim))
    halves = HalvesRotation(grid_phases(torch.randint(0, 40, (14, 2)), head_dim, theta=100.0))
    for rotate in (adjacent, halves):
        torch.testing.assert_close(rotate(tokens).norm(dim=-1), tokens.norm(dim=-1))


def test_position_zero_turns_nothing():
    tokens = torch.randn(1, 2, 3, 64)
    assert torch.equal(
        HalvesRotation(grid_phases(torch.zeros(2, 2, dtype=torch.long), 64, theta=100.0))(tokens), tokens
    )


@pytest.mark.parametrize("offset", [1, 17, 100_000])
def test_logits_depend_on_relative_position_only(offset):
    q, k = torch.randn(2, 1, 2, 3, 64, dtype=torch.float64)

    def logits(times, cells):
        time = axis_phases(times, 20, theta=1e4, dtype=torch.float64)
        rows, columns = (axis_phases(axis, 22, theta=1e4, dtype=torch.float64) for axis in cells.unbind(dim=-1))
        adjacent = AdjacentRotation(join_axes(time, rows, columns))
        halves = HalvesRotation(grid_phases(cells, 64, theta=100.0, dtype=torch.float64))
        return [torch.einsum("bqhd,bkhd->bhqk", rotate(q), rotate(k)) for rotate in (adjacent, halves)]

    times, cells = torch.tensor([2, 9]), torch.tensor([[0, 3], [4, 1]])
    for here, there in zip(logits(times, cells), logits(times + offset, cells + offset), strict=True):
        torch.testing.assert_close(here, there, rtol=1e-9, atol=1e-9)


def test_far_frames_have_exact_phases():
    phases = axis_phases(torch.tensor([1_000_003]), 2, theta=1e4)
    torch.testing.assert_close(phases.cos.double(), torch.tensor([[1_000_003.0]]).double().cos(), rtol=0, atol=1e-7)


def test_image_phases_repeat_for_each_frame():
    image = grid_phases(torch.tensor([[0, 1], [2, 3]]), 8, theta=100.0)
    repeated = repeat_over_frames(image, 3)
    assert torch.equal(repeated.cos.unflatten(0, (3, 2)), image.cos.expand(3, 2, 4))
