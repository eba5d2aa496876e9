"""Sizes of the published checkpoints."""

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
