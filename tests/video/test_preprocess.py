"""Frames as the models' own code prepares them."""

import io

import numpy as np
import PIL
import pytest
import torch
from PIL import Image

from longtake.errors import InputError
from longtake.video.preprocess import Preprocessor
from longtake.video.resize import Fit, match_sizes, resize_image, upright_rgb


@pytest.mark.skipif(not PIL.__version__.startswith("13."), reason="golden pixels were made with Pillow 13")
@pytest.mark.parametrize("fit", [Fit.CROP, Fit.PAD])
@pytest.mark.parametrize("name", ["land", "port", "rgba"])
def test_frames_equal_golden(golden, fit, name):
    want = golden("preprocess")
    buffer = io.BytesIO()
    Image.fromarray(want[f"src_{name}"].numpy()).save(buffer, "png")
    frame = np.asarray(upright_rgb(Image.open(buffer)))
    assert torch.equal(Preprocessor(fit=fit, size=56)(frame).pixels, want[f"{fit}_{name}"])


@pytest.mark.skipif(not PIL.__version__.startswith("13."), reason="golden pixels were made with Pillow 13")
@pytest.mark.parametrize("fit", [Fit.CROP, Fit.PAD])
def test_frames_for_the_vggt_family_equal_golden(vggt_golden, fit):
    want = vggt_golden("preprocess")
    prepared = {}
    for name in ("landscape", "portrait", "rgba"):
        frame = upright_rgb(Image.fromarray(want[f"src/{name}"].numpy()))
        prepared[name] = resize_image(frame, fit, size=70)
        assert torch.equal(prepared[name].pixels, want[f"{fit}_70/{name}"])
    together = match_sizes([prepared["landscape"], prepared["portrait"]])
    assert torch.equal(torch.stack([one.pixels for one in together]), want[f"{fit}_70/mixed_batch"])
    published = resize_image(Image.fromarray(want["src/landscape"].numpy()), Fit.CROP, size=518).pixels
    assert torch.equal(want.thin("crop_518/landscape", published), want["crop_518/landscape"])


@pytest.mark.parametrize("fit", Fit)
@pytest.mark.parametrize("size", [(48, 64), (90, 40), (47, 63), (1, 1)])
def test_frames_of_one_size_give_pixels_of_one_size_in_one_place(fit: Fit, size: tuple[int, int]) -> None:
    prepare = Preprocessor(fit=fit, size=56)
    frames = np.random.default_rng(3).integers(0, 256, (3, *size, 3), dtype=np.uint8)
    prepared = [prepare(frame) for frame in frames]
    assert len({(one.pixels.shape, one.placement) for one in prepared}) == 1
    assert not torch.equal(prepared[0].pixels, prepared[1].pixels)
    assert torch.equal(prepared[0].pixels, resize_image(Image.fromarray(frames[0]), fit, size=56).pixels)


def test_sides_are_whole_patches() -> None:
    pixels = Preprocessor(size=96, patch=16)(np.zeros((50, 70, 3), np.uint8)).pixels
    assert pixels.shape == (3, 64, 96)


@pytest.mark.parametrize(("size", "suggested"), [(512, 504), (5, 14), (0, 14)])
def test_size_must_be_whole_patches_before_there_is_a_frame(size: int, suggested: int) -> None:
    with pytest.raises(InputError, match=f"a multiple of 14, got {size}; try {suggested}"):
        Preprocessor(size=size)
