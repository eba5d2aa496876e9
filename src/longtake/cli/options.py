"""Sizes, devices and choices as people write them."""

import re

from longtake.api.choices import choose_device as choose_device
from longtake.api.choices import one_of as one_of
from longtake.errors import SettingError


def parse_size(text: str) -> tuple[int, int]:
    """Height and width from `WIDTHxHEIGHT`."""
    match = re.fullmatch(r"(\d+)x(\d+)", text)
    if match is None:
        raise SettingError(f"Expected a size such as 518x378, width by height, but got '{text}'.")
    return int(match[2]), int(match[1])
