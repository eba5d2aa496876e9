"""Sizes of the published checkpoints, and of a tiny network for demonstrations and benchmarks."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from longtake.geometry.config import Attention, CameraConfig, DenseConfig, EncoderConfig, GeometryConfig, TrunkConfig

LINGBOT_MAP = GeometryConfig(
    width=1024,
    patch=14,
    encoder=EncoderConfig(depth=24, heads=16, registers=4, side=37),
    trunk=TrunkConfig(depth=24, heads=16, registers=4, selected=(4, 11, 17, 23)),
    camera=CameraConfig(depth=4, heads=16, iterations=4),
    dense=DenseConfig(features=256, channels=(256, 512, 1024, 1024)),
)
"""lingbot-map, lingbot-map-long: 1.16 billion parameters, depth and poses."""

VGGT = GeometryConfig(
    width=1024,
    patch=14,
    encoder=EncoderConfig(depth=24, heads=16, registers=4, side=37),
    trunk=TrunkConfig(
        depth=24, heads=16, registers=4, selected=(4, 11, 17, 23), scale_token=False, temporal_rotary=False
    ),
    camera=CameraConfig(depth=4, heads=16, iterations=4, camera_from_world=True),
    dense=DenseConfig(features=256, channels=(256, 512, 1024, 1024), points=True),
    attention=Attention.FULL,
)
"""VGGT-1B without its track head: 1.19 billion parameters, depth, poses and points; every frame sees every frame."""

STREAM3R = replace(VGGT, attention=Attention.CAUSAL)
"""The same network, trained to stream; also with a window, `replace(STREAM3R, attention=Attention.WINDOW)`, or full."""

STREAMVGGT = replace(VGGT, attention=Attention.CAUSAL, camera=replace(VGGT.camera, shared_memory=True))
"""The same network, trained to stream; as published its camera head remembers all iterations together."""

BY_NAME: Mapping[str, GeometryConfig] = MappingProxyType({"stream3r": STREAM3R, "streamvggt": STREAMVGGT, "vggt": VGGT})
"""Networks that a file alone may not tell apart, by the name that tells them."""

PUBLISHED_SIZE = (378, 518)
"""Height and width for which the published figures on speed and memory are given."""

TINY = GeometryConfig(
    width=48,
    patch=14,
    encoder=EncoderConfig(depth=1, heads=2, registers=1, side=5),
    trunk=TrunkConfig(depth=4, heads=2, registers=1, selected=(0, 1, 2, 3)),
    camera=CameraConfig(depth=1, heads=2, iterations=2),
    dense=DenseConfig(features=16, channels=(8, 16, 24, 24)),
)
"""A network of the same make that runs in milliseconds on a laptop; it has no trained weights."""

TINY_CAUSAL = replace(
    TINY,
    trunk=replace(TINY.trunk, scale_token=False, temporal_rotary=False),
    camera=replace(TINY.camera, camera_from_world=True),
    dense=replace(TINY.dense, points=True),
    attention=Attention.CAUSAL,
)
"""STream3R in small, without trained weights."""

MICRO = GeometryConfig(
    width=144,
    patch=14,
    encoder=EncoderConfig(depth=2, heads=3, registers=1, side=9, stem=32),
    trunk=TrunkConfig(depth=6, heads=3, registers=1, selected=(1, 3, 4, 5)),
    camera=CameraConfig(depth=1, heads=3, iterations=4),
    dense=DenseConfig(features=32, channels=(32, 64, 96, 96)),
)
"""micro-map, 5.5 million parameters: as much as a laptop runs in real time."""
