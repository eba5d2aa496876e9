"""How a memory policy becomes a geometry session's memory, within a budget."""

from dataclasses import dataclass, replace

import torch

from longtake.errors import SettingError
from longtake.geometry.config import CAMERA, TRUNK, Attention, GeometryConfig
from longtake.memory.budget import MemoryRequirements
from longtake.memory.policy import StreamPolicy
from longtake.memory.tokens import StreamLayout

STORED_DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def trunk_layout(config: GeometryConfig, size: tuple[int, int], dtype: torch.dtype = torch.float32) -> StreamLayout:
    """The stream of the trunk's global blocks, for images of this height and width."""
    return StreamLayout(
        num_layers=config.trunk.depth,
        num_heads=config.trunk.heads,
        head_dim=config.head_dim,
        tokens_per_frame=config.tokens_per_frame(*size),
        special_tokens=config.special_tokens,
        dtype=dtype,
    )


def camera_layout(config: GeometryConfig) -> StreamLayout:
    """The stream of the camera head's blocks and refinements."""
    passes = config.camera.iterations if config.camera.shared_memory else 1
    return StreamLayout(
        num_layers=config.camera_layers,
        num_heads=config.camera.heads,
        head_dim=config.camera_head_dim,
        tokens_per_frame=passes,
        passes=passes,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPlan:
    """All that decides a geometry session's memory before its first frame."""

    config: GeometryConfig
    size: tuple[int, int]
    """Height and width of the images."""
    retention: StreamPolicy
    num_scale_frames: int
    reserve_frames: int = 0
    trunk_dtype: torch.dtype = torch.float32

    def __post_init__(self) -> None:
        if self.config.attention is Attention.FULL:
            raise SettingError(
                "In this network every frame sees every other, so it cannot watch frame by frame and forget; give it "
                "whole clips with `watch_clip`, or stream with stream3r, streamvggt or lingbot-map."
            )
        if self.num_scale_frames < 1 or self.reserve_frames < 0:
            raise SettingError(
                "Expected at least 1 scale frame and no negative reserve for forks, but got "
                f"{self.num_scale_frames} and {self.reserve_frames}."
            )
        if self.trunk_dtype not in STORED_DTYPES:
            choices = ", ".join(str(dtype) for dtype in STORED_DTYPES)
            raise SettingError(f"Expected keys and values stored as one of {choices}, but got {self.trunk_dtype}.")

    @property
    def requirements(self) -> MemoryRequirements:
        """What the memory must hold, stream by stream."""
        trunk = trunk_layout(self.config, self.size, self.trunk_dtype)
        camera = camera_layout(self.config)
        return MemoryRequirements(
            streams={
                TRUNK: (trunk, self.retention.for_stream(trunk)),
                CAMERA: (camera, self.retention.camera().for_stream(camera)),
            },
            first_clip=self.num_scale_frames,
            reserve=self.reserve_frames,
        )

    def fit(self, budget_bytes: int) -> "MemoryPlan":
        """This plan within a budget, as far as its policy can give way."""
        return replace(self, retention=self.retention.fitted(budget_bytes, self._bytes))

    def _bytes(self, retention: StreamPolicy) -> int:
        requirements = replace(self, retention=retention).requirements
        assert requirements.full_after is not None
        return requirements.num_bytes(requirements.full_after)
