"""Frames as viewers' points are made of, without a network: a camera before a wavy wall."""

import json
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from longtake.exports.frame import FrameStatus, MappedFrame
from longtake.server.points import ROW
from longtake.spatial.placement import Placement
from longtake.types import FrameKind


def mapped_frame(
    index: int = 0,
    *,
    size: tuple[int, int] = (98, 126),
    depth: float = 2.0,
    wave: float = 0.4,
    centre: tuple[float, float, float] = (0.0, 0.0, 0.0),
    turn_rad: float = 0.0,
) -> MappedFrame:
    """A wall so far away, seen from a place, the camera turned about the vertical."""
    height, width = size
    row, column = np.mgrid[:height, :width].astype(np.float64)
    random = np.random.default_rng(index)
    focal = width * 0.62
    cos, sin = np.cos(turn_rad), np.sin(turn_rad)
    pose = torch.eye(4, dtype=torch.float64)
    pose[:3, :3] = torch.tensor([[cos, 0, sin], [0, 1, 0], [-sin, 0, cos]])
    pose[:3, 3] = torch.tensor(centre)
    return MappedFrame(
        index=index,
        timestamp_s=index / 10,
        status=FrameStatus.OK,
        kind=FrameKind.KEYFRAME,
        window=0,
        world_from_camera=pose,
        intrinsics=torch.tensor([[focal, 0, width / 2], [0, focal, height / 2], [0, 0, 1]], dtype=torch.float64),
        depth=(depth * (1 + wave * np.sin(row / height * 5) * np.cos(column / width * 7))).astype(np.float32),
        confidence=(1 + random.gamma(2.0, 2.0, size)).astype(np.float32),
        image=random.integers(0, 256, (*size, 3), dtype=np.uint8),
        source_image=np.zeros((*size, 3), np.uint8),
        placement=Placement(width, height, 1.0, 1.0),
    )


@dataclass(frozen=True)
class Shown:
    """A binary message, read as the page about the server says and by none of its code."""

    kind: int
    codec: int
    sequence: int
    time_us: int
    fields: dict[str, Any]
    payload: bytes

    @classmethod
    def read(cls, message: bytes) -> "Shown":
        kind, codec, header, sequence, time_us = struct.unpack_from("<BBHIq", message)
        return cls(kind, codec, sequence, time_us, json.loads(message[16 : 16 + header]), message[16 + header :])

    @property
    def positions(self) -> np.ndarray:
        """Of points, before the camera."""
        rows = np.frombuffer(self.payload, np.uint8).reshape(-1, ROW.itemsize)
        steps = np.ascontiguousarray(rows[:, :6]).view("<u2")
        return np.array(self.fields["origin"]) + steps * self.fields["scale"]

    @property
    def colours(self) -> np.ndarray:
        return np.frombuffer(self.payload, np.uint8).reshape(-1, ROW.itemsize)[:, 6:9]
