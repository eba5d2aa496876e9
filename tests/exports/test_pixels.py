"""What the network's pixels show of the source, against pictures that were really resized."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from longtake.exports.pixels import seen_by_network, shows_source
from longtake.video.resize import Fit, resize_image


@pytest.mark.parametrize("fit", Fit)
@pytest.mark.parametrize("size", [(40, 30), (30, 40), (77, 31), (20, 90)])
def test_pixels_show_the_source_where_it_was_put(fit: Fit, size: tuple[int, int]) -> None:
    grey = Image.new("RGB", size, (128, 128, 128))
    resized = resize_image(grey, fit, size=56, patch=14)
    is_source = (resized.pixels == 128).all(dim=0).numpy()
    blended = ~is_source & ~(resized.pixels == resized.pixels[0, 0, 0]).all(dim=0).numpy()
    differs = shows_source(resized.placement, is_source.shape) != is_source
    # resampling blends the border of a picture with black beside it
    assert not (differs & ~blended).any()
    assert blended.mean() < 0.3


@settings(deadline=None, max_examples=30)
@given(
    fit=st.sampled_from([Fit.CROP, Fit.PAD]),
    width=st.integers(8, 90),
    height=st.integers(8, 90),
    finer=st.integers(1, 3),
)
def test_picture_is_seen_where_the_network_sees_it(fit: Fit, width: int, height: int, finer: int) -> None:
    ramp = np.add.outer(np.linspace(0, 120, height), np.linspace(0, 120, width))
    resized = resize_image(Image.fromarray(np.repeat(ramp[..., None], 3, -1).astype(np.uint8)), fit, size=42, patch=14)
    fine = np.repeat(np.repeat(ramp, finer, axis=0), finer, axis=1)
    got = seen_by_network(fine, resized.placement, tuple(resized.pixels.shape[1:]))
    shown = shows_source(resized.placement, got.shape)
    step = 120 / (height - 1) + 120 / (width - 1)
    assert shown.any()
    assert np.abs(got - resized.pixels[0].numpy())[shown].max() <= 2 + step
