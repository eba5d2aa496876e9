"""Effects of real cameras: what they are made to do, the same for the same generator, and JPEG as Pillow writes it."""

from io import BytesIO

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from longtake.world.camera_effects import (
    jpeg_compressed,
    motion_blurred,
    neighbour_blurred,
    with_drifting_exposure,
    with_sensor_noise,
    with_vignette,
)
from longtake.world.families import Family
from longtake.world.tour import Tour


@pytest.fixture(scope="module")
def picture() -> Tensor:
    return next(Tour(seed=3, width=140, height=84, family=Family.TABLE).views()).image


def clips_of(picture: Tensor, clips: int = 2, frames: int = 3) -> Tensor:
    return picture.expand(clips, frames, -1, -1, -1).clone()


@pytest.mark.parametrize("quality", [20, 50, 80, 95])
def test_jpeg_is_that_of_pillow(picture: Tensor, quality: int) -> None:
    """Within 40 dB of what Pillow's encoder and decoder give, and no farther from the truth than theirs by 0.3 dB."""
    ours = jpeg_compressed(picture[None, None], torch.tensor([float(quality)]))[0, 0]
    file = BytesIO()
    levels = (picture.movedim(0, -1) * 255).round().byte().numpy()
    Image.fromarray(levels).save(file, "JPEG", quality=quality, subsampling="4:2:0")
    theirs = torch.from_numpy(np.array(Image.open(file))).movedim(-1, 0) / 255
    assert psnr(ours, theirs) > 40
    assert psnr(ours, picture) > psnr(theirs, picture) - 0.3


def psnr(one: Tensor, other: Tensor) -> float:
    return float(-10 * (one - other).square().mean().log10())


def test_each_clip_has_its_own_quality(picture: Tensor) -> None:
    both = jpeg_compressed(clips_of(picture), torch.tensor([10.0, 90.0]))
    assert both.shape == (2, 3, *picture.shape)
    assert psnr(both[0, 0], picture) < psnr(both[1, 0], picture) - 5
    assert torch.equal(both[1:2, :1], jpeg_compressed(picture[None, None], torch.tensor([90.0])))


def test_blur_is_the_mean_of_light_while_the_shutter_is_open() -> None:
    subframes = torch.zeros(1, 1, 4, 3, 8, 8)
    subframes[:, :, :2] = 1
    assert motion_blurred(subframes).mean() == pytest.approx(0.5 ** (1 / 2.2), abs=1e-4)
    still = torch.rand(2, 4, 3, 8, 8)[:, :1].expand(-1, 4, -1, -1, -1)
    assert torch.allclose(neighbour_blurred(still, torch.tensor([0.3, 0.5])), still, atol=2e-3)
    moving = torch.stack([torch.zeros(3, 8, 8), torch.ones(3, 8, 8)])[None]
    mixed = neighbour_blurred(moving, torch.tensor([0.5]))
    assert mixed[0, 1].mean() == pytest.approx(0.5 ** (1 / 2.2), abs=1e-4)


def test_noise_grows_with_light_and_is_drawn_anew_for_each_frame() -> None:
    dark, bright = torch.full((1, 2, 3, 64, 64), 0.2), torch.full((1, 2, 3, 64, 64), 0.7)
    shot, read = torch.tensor([0.05]), torch.tensor([0.002])
    noisy = [with_sensor_noise(one, shot=shot, read=read, generator=seeded()) for one in (dark, bright)]
    in_light = [(one**2.2).std() for one in noisy]
    assert in_light[1] > 2 * in_light[0]
    assert not torch.equal(noisy[0][:, 0], noisy[0][:, 1])
    assert torch.equal(noisy[0], with_sensor_noise(dark, shot=shot, read=read, generator=seeded()))


def test_exposure_drifts_smoothly_and_differently_in_each_clip() -> None:
    grey = torch.full((3, 40, 3, 4, 4), 0.5)
    drifted = with_drifting_exposure(grey, stops=torch.tensor([0.0, 0.3, 0.3]), generator=seeded())
    level = drifted.mean(dim=(2, 3, 4))
    assert torch.allclose(level[0], torch.full((40,), 0.5), atol=1e-3)
    assert (level[1:].std(dim=1) > 0.005).all()
    assert level.diff(dim=1).abs().max() < 0.04
    assert not torch.allclose(level[1], level[2])


def test_a_vignette_darkens_corners_alone(picture: Tensor) -> None:
    white = with_vignette(torch.ones(2, 1, 3, 31, 41), torch.tensor([0.0, 0.4]))
    assert torch.allclose(white[0], torch.ones(()), atol=1e-4)
    assert white[1, 0, 0, 15, 20] == pytest.approx(1)
    assert white[1, 0, 0, 0, 0] == pytest.approx(0.6 ** (1 / 2.2), abs=1e-3)


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(4)
