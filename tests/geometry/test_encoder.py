import pytest
import torch

from longtake.geometry.tokens import normalize
from longtake.layers.block import attend_within
from longtake.layers.rotary import leave_unrotated


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
