"""What a geometry session remembers, in frames, and how that becomes a memory within a budget."""

from bisect import bisect_right
from dataclasses import dataclass, replace
from enum import StrEnum

import torch

from longtake.errors import BudgetError, SettingError
from longtake.geometry.config import CAMERA, TRUNK, GeometryConfig
from longtake.memory.budget import Needs, format_bytes
from longtake.memory.layout import StreamLayout
from longtake.memory.retention import AnchorsWindowTrail, KeepAll, Retention

STORED_DTYPES = (torch.float32, torch.float16, torch.bfloat16)


class Trail(StrEnum):
    """What a frame leaves behind when it falls out of the window."""

    SPECIAL = "special"
    CAMERA = "camera"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextRetention:
    """The published rule: anchors and a window of whole frames, a trail of small tokens, all camera tokens.

    `history` bounds how many kept frames leave a trail and a camera token, anchors included; None, the rule as
    published, lets both grow and needs a budget.
    """

    anchors: int = 8
    window: int = 64
    trail: Trail = Trail.SPECIAL
    history: int | None = 4096

    def __post_init__(self) -> None:
        AnchorsWindowTrail(anchors=self.anchors, window=self.window, history=self.history)

    def trunk(self, config: GeometryConfig) -> Retention:
        """The policy of the trunk's stream."""
        trail_tokens = {Trail.SPECIAL: config.special_tokens, Trail.CAMERA: 1, Trail.NONE: 0}[self.trail]
        return AnchorsWindowTrail(
            anchors=self.anchors, window=self.window, trail_tokens=trail_tokens, history=self.history
        )

    def camera(self) -> Retention:
        """The policy of the camera head's stream: every frame within the history."""
        if self.history is None:
            return KeepAll()
        return AnchorsWindowTrail(anchors=self.anchors, window=self.history - self.anchors)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPlan:
    """All that decides a geometry session's memory before its first frame."""

    config: GeometryConfig
    size: tuple[int, int]
    """Height and width of the images."""
    retention: ContextRetention
    num_scale_frames: int
    reserve_frames: int = 0
    trunk_dtype: torch.dtype = torch.float32

    def __post_init__(self) -> None:
        if self.num_scale_frames < 1 or self.reserve_frames < 0:
            raise SettingError(
                "Expected at least 1 scale frame and no negative reserve for forks, but got "
                f"{self.num_scale_frames} and {self.reserve_frames}."
            )
        if self.trunk_dtype not in STORED_DTYPES:
            choices = ", ".join(str(dtype) for dtype in STORED_DTYPES)
            raise SettingError(f"Expected keys and values stored as one of {choices}, but got {self.trunk_dtype}.")

    @property
    def needs(self) -> Needs:
        config = self.config
        trunk = StreamLayout(
            num_layers=config.trunk.depth,
            num_heads=config.trunk.heads,
            head_dim=config.head_dim,
            tokens_per_frame=config.tokens_per_frame(*self.size),
            dtype=self.trunk_dtype,
        )
        camera = StreamLayout(
            num_layers=config.camera_layers,
            num_heads=config.camera.heads,
            head_dim=config.camera_head_dim,
            tokens_per_frame=1,
        )
        return Needs(
            streams={TRUNK: (trunk, self.retention.trunk(config)), CAMERA: (camera, self.retention.camera())},
            first_clip=self.num_scale_frames,
            reserve=self.reserve_frames,
        )

    def fit(self, budget_bytes: int) -> "MemoryPlan":
        """This plan within a budget: the history gives way first, then the window; refused below one frame of it."""
        retention = self.retention
        if retention.history is None or self._bytes(retention) <= budget_bytes:
            return self
        whole = retention.anchors + retention.window
        histories = range(whole, retention.history + 1)
        fitting = bisect_right(
            histories, budget_bytes, key=lambda history: self._bytes(replace(retention, history=history))
        )
        if fitting:
            return replace(self, retention=replace(retention, history=histories[fitting - 1]))
        windows = range(1, retention.window + 1)
        fitting = bisect_right(windows, budget_bytes, key=lambda window: self._bytes(_only_window(retention, window)))
        if not fitting:
            least = format_bytes(self._bytes(_only_window(retention, 1)))
            raise BudgetError(
                f"A budget of {format_bytes(budget_bytes)} cannot hold {retention.anchors} anchors, "
                f"{self.num_scale_frames} scale frames and a window of one; the smallest that works is {least}."
            )
        return replace(self, retention=_only_window(retention, windows[fitting - 1]))

    def _bytes(self, retention: ContextRetention) -> int:
        needs = replace(self, retention=retention).needs
        assert needs.full_after is not None
        return needs.num_bytes(needs.full_after)


def _only_window(retention: ContextRetention, window: int) -> ContextRetention:
    return replace(retention, window=window, history=retention.anchors + window)
