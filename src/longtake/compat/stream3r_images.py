"""`load_and_preprocess_images` as STream3R and VGGT have it."""

from collections.abc import Sequence
from pathlib import Path

import torch
from jaxtyping import Float32
from torch import Tensor

from longtake.errors import InputError, SettingError
from longtake.video.resize import Fit, match_sizes, open_image, resize_image

_MODES = (Fit.CROP, Fit.PAD)


def load_and_preprocess_images(
    image_path_list: Sequence[Path | str], mode: str = "crop"
) -> Float32[Tensor, "images 3 height width"]:
    """Pictures as model pixels from 0 to 1: 518 wide and cut (`crop`), or padded to a square (`pad`)."""
    if mode not in _MODES:
        raise SettingError(f"Expected the mode {' or '.join(_MODES)}, but got '{mode}'.")
    if not image_path_list:
        raise InputError("Expected at least one picture, but the list of paths is empty.")
    pictures = match_sizes([resize_image(open_image(Path(path)), Fit(mode)) for path in image_path_list])
    return torch.stack([picture.pixels for picture in pictures]).float() / 255
