"""Sizes of the published checkpoints, and of a tiny network for demonstrations and benchmarks."""

from longtake.geometry.config import CameraConfig, DenseConfig, EncoderConfig, GeometryConfig, TrunkConfig

LINGBOT_MAP = GeometryConfig(
    width=1024,
    patch=14,
    encoder=EncoderConfig(depth=24, heads=16, registers=4, side=37),
    trunk=TrunkConfig(depth=24, heads=16, registers=4, selected=(4, 11, 17, 23)),
    camera=CameraConfig(depth=4, heads=16, iterations=4),
    dense=DenseConfig(features=256, channels=(256, 512, 1024, 1024)),
)
"""lingbot-map, lingbot-map-long: 1.16 billion parameters, depth and poses."""

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

MICRO = GeometryConfig(
    width=160,
    patch=14,
    encoder=EncoderConfig(depth=3, heads=4, registers=1, side=9),
    trunk=TrunkConfig(depth=4, heads=4, registers=1, selected=(0, 1, 2, 3)),
    camera=CameraConfig(depth=1, heads=4, iterations=4),
    dense=DenseConfig(features=32, channels=(32, 64, 96, 96)),
)
"""5.5 million parameters: as much as a laptop runs in real time."""
