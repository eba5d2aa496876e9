from dataclasses import replace

import torch

from longtake.geometry.tokens import SpecialTokens, diagonal_positions, grid_positions


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
