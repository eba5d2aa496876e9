"""Sizes, devices, parts and choices as people write them."""

import re

from longtake.errors import SettingError
from longtake.video.sampling import FrameSampling, parse_time


def parse_sampling(start: str | None, end: str | None, fps: float | None, stride: int = 1) -> FrameSampling:
    """Which frames of a source, by their times."""
    return FrameSampling(
        start_s=0.0 if start is None else parse_time(start),
        end_s=None if end is None else parse_time(end),
        fps=fps,
        stride=stride,
    )


def parse_size(text: str) -> tuple[int, int]:
    """Height and width from `WIDTHxHEIGHT`."""
    match = re.fullmatch(r"(\d+)x(\d+)", text)
    if match is None:
        raise SettingError(f"Expected a size such as 518x378, width by height, but got '{text}'.")
    return int(match[2]), int(match[1])
