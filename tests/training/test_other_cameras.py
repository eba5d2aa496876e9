"""Clips as other cameras would have taken them: other pictures of the same things."""

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from training.footage import Footage
from training.other_cameras import recoloured, through_cameras


def test_other_colours_stay_within_range_and_leave_the_truth_alone(filmed: Footage) -> None:
    image = filmed.beginnings(6).image[[0, 0]]
    before = image.clone()
    torch.manual_seed(0)
    changed = recoloured(image)
    assert torch.equal(image, before)
    assert changed.shape == before.shape
    assert float(changed.amin()) >= 0
    assert float(changed.amax()) <= 1
    assert float((changed - before).abs().mean()) > 0.01
    assert not torch.allclose(changed[0], changed[1], atol=0.01)


def test_other_colours_show_the_same_things(filmed: Footage) -> None:
    image = filmed.beginnings(6).image[[0, 1] * 10]
    pairs = torch.stack([recoloured(image).flatten(1), image.flatten(1)], dim=1)
    assert min(float(torch.corrcoef(pair)[0, 1]) for pair in pairs) > 0.9


def test_other_cameras_show_the_same_things_within_range(filmed: Footage) -> None:
    image = filmed.beginnings(6).image[[0, 1] * 10]
    torch.manual_seed(0)
    for seed in range(8):  # with and without a loss of quality
        changed = through_cameras(image, np.random.default_rng(seed))
        assert float(changed.amin()) >= 0
        assert float(changed.amax()) <= 1
        pairs = torch.stack([_luminance(changed), _luminance(image)], dim=1)
        assert min(float(torch.corrcoef(pair)[0, 1]) for pair in pairs) > 0.8


def test_some_clips_are_grey(filmed: Footage) -> None:
    image = filmed.beginnings(6).image[[0, 1] * 32]
    torch.manual_seed(1)
    changed = through_cameras(image, np.random.default_rng(0))
    # a tint is all the colour that a grey picture has: its channels are multiples of each other
    alike = [float(torch.corrcoef(clip.transpose(0, 1).flatten(1)).amin()) for clip in changed]
    assert 3 <= sum(one > 0.97 for one in alike) <= 20


def test_some_clips_are_softer() -> None:
    stripes = torch.tensor([0.2, 0.8]).repeat(8).expand(64, 2, 3, 16, 16)
    torch.manual_seed(2)
    changed = through_cameras(stripes, np.random.default_rng(0))
    contrast = changed.std(dim=(1, 2, 3, 4)) / changed.mean(dim=(1, 2, 3, 4))
    assert float((contrast < 0.3).float().mean()) > 0.1, "0.3 as drawn"
    assert float((contrast > 0.45).float().mean()) > 0.3


def _luminance(image: Float[Tensor, "clips frames 3 height width"]) -> Float[Tensor, "clips values"]:
    return image.mean(dim=2).flatten(1)
