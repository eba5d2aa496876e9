import torch

from longtake.geometry.tokens import PatchEmbed, resize_positions


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
