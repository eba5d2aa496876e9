from dataclasses import replace

import pytest
import torch

from longtake.geometry.tokens import (
    PatchEmbed,
    SpecialTokens,
    diagonal_positions,
    grid_positions,
    normalize,
    resize_positions,
)
from longtake.layers.block import attend_within
from longtake.layers.rotary import leave_unrotated


def test_first_frame_and_scale_block_have_their_own_variants(tiny_config):
    tokens = SpecialTokens(tiny_config)
    frames = tokens((0, 1, 2, 7), num_scale_frames=2)
    assert frames.shape == (4, 6, 128)
    for frame, (later, after_scale) in zip(frames, [(0, 0), (1, 0), (1, 1), (1, 1)], strict=True):
        assert torch.equal(frame[:1], tokens.camera[0, later])
        assert torch.equal(frame[1:5], tokens.registers[0, later])
        assert torch.equal(frame[5:], tokens.scale[0, after_scale])


def test_scale_token_may_be_absent(tiny_config):
    config = replace(tiny_config, trunk=replace(tiny_config.trunk, scale_token=False))
    tokens = SpecialTokens(config)
    assert tokens((0, 1), num_scale_frames=1).shape == (2, 5, 128)
    assert set(tokens.state_dict()) == {"camera", "registers"}


def test_grid_positions_put_special_tokens_at_the_origin():
    assert grid_positions(2, 2, 3).tolist() == [[0, 0], [0, 0], [1, 1], [1, 2], [1, 3], [2, 1], [2, 2], [2, 3]]


def test_diagonal_positions_put_patches_after_special_tokens():
    assert diagonal_positions(2, 2, 2).tolist() == [[0, 0], [1, 1], [2, 2], [2, 3], [3, 2], [3, 3]]


@pytest.mark.parametrize("size", ["42x70", "56x56"])
def test_patch_tokens_match_golden(tiny_model, golden, size):
    want = golden("vit")
    rows, columns = (int(side) // 14 for side in size.split("x"))
    encoder = tiny_model.encoder
    want.check(f"patch_tokens_{size}", encoder(want[f"in_{size}"], encoder.positions_on(rows, columns)))


def test_tokens_before_the_last_norm_match_golden(tiny_model, golden):
    want = golden("vit")
    encoder = tiny_model.encoder
    x = encoder.embed(want["in_42x70"], encoder.positions_on(3, 5))
    for block in encoder.blocks:
        x = block(x, leave_unrotated, attend_within)
    want.check("x_prenorm_42x70", x)


@pytest.mark.parametrize("size", ["42x70", "70x42", "98x126", "28x28", "56x56"])
def test_resampled_positions_match_golden(tiny_model, golden, size):
    rows, columns = (int(side) // 14 for side in size.split("x"))
    golden("vit").check(f"pos_embed_{size}", tiny_model.encoder.positions_on(rows, columns))


def test_normalising_takes_the_exact_constants():
    images = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1).expand(2, 3, 4, 5)
    assert torch.equal(normalize(images), torch.zeros(2, 3, 4, 5))
    white = normalize(torch.ones(3, 1, 1, dtype=torch.float64)).flatten()
    want = [(1 - 0.485) / 0.229, (1 - 0.456) / 0.224, (1 - 0.406) / 0.225]
    torch.testing.assert_close(white, torch.tensor(want, dtype=torch.float64))


def test_patches_come_row_by_row():
    embed = PatchEmbed(2, 4)
    images = torch.randn(1, 3, 4, 6)
    tokens = embed(images)
    assert tokens.shape == (1, 6, 4)
    alone = embed(images[:, :, 2:4, 0:2])
    torch.testing.assert_close(tokens[:, 3:4], alone)


def test_learned_grid_is_taken_as_it_is():
    table = torch.randn(16, 8)
    assert resize_positions(table, 4, 4, 4) is table


def test_rows_of_the_table_are_image_rows():
    by_row = torch.arange(4.0).repeat_interleave(4)[:, None]
    resized = resize_positions(by_row, 4, 2, 6).view(2, 6)
    torch.testing.assert_close(resized, resized[:, :1].expand(2, 6))
    assert resized[0, 0] < resized[1, 0]
