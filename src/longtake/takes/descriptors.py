"""Lines of `descriptors.txt`: one for each frame, what a keyframe looks like; empty for a frame that was forgotten.

A line is base64 of little-endian half floats: 384 letters for the 144 numbers of micro-map.
"""

import base64
import binascii
from pathlib import Path

import numpy as np
from jaxtyping import Float, Float16, Float32

from longtake.errors import InputError

_LARGEST_HALF = float(np.finfo(np.float16).max)


def descriptor_line(descriptor: Float[np.ndarray, " channels"] | None) -> bytes:
    """With its end."""
    if descriptor is None:
        return b"\n"
    halves: Float16[np.ndarray, " channels"] = descriptor.clip(-_LARGEST_HALF, _LARGEST_HALF).astype("<f2")
    return base64.b64encode(halves.tobytes()) + b"\n"


def parse_descriptor(line: bytes, channels: int, where: Path, number: int) -> Float32[np.ndarray, " channels"] | None:
    """What a line without its end says; None for a frame that was forgotten."""
    if not line:
        return None
    try:
        halves = np.frombuffer(base64.b64decode(line, validate=True), "<f2")
    except (binascii.Error, ValueError):
        halves = np.empty(0, "<f2")
    if len(halves) != channels or not np.isfinite(halves).all():
        raise InputError(
            f"Expected {channels} finite numbers of 16 bits as base64 in {where} line {number}, but got "
            f"{line[:40]!r}; make the take again."
        )
    return halves.astype(np.float32)
