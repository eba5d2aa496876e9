"""What a geometry session remembers, in frames, and how that becomes a memory within a budget."""

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum

import torch

from longtake.errors import BudgetError, SettingError
from longtake.geometry.config import CAMERA, TRUNK, Attention, GeometryConfig
from longtake.memory.budget import MemoryRequirements, format_bytes
from longtake.memory.eviction import Eviction
from longtake.memory.layout import StreamLayout
from longtake.memory.retention import AnchorsWindowTrail, KeepAll, Retention

STORED_DTYPES = (torch.float32, torch.float16, torch.bfloat16)


class Trail(StrEnum):
    """What a frame leaves behind when it falls out of the window."""

    SPECIAL = "special"
    CAMERA = "camera"
    NONE = "none"


class MemoryRule(ABC):
    """What a session remembers, before it is known of which network and at which size; a value."""

    @abstractmethod
    def trunk(self, config: GeometryConfig, size: tuple[int, int]) -> Retention | Eviction:
        """The policy of the trunk's stream, for images of this height and width."""

    @abstractmethod
    def camera(self) -> Retention:
        """The policy of the camera head's stream."""

    @abstractmethod
    def of_frames(self, num_frames: int, config: GeometryConfig, size: tuple[int, int]) -> "MemoryRule":
        """This rule with as much memory in the trunk as so many whole frames take."""

    def fitted(self, budget_bytes: int, num_bytes: "Callable[[MemoryRule], int]") -> "MemoryRule":  # noqa: ARG002
        """This rule within a budget, as far as it can give way; what it takes in all is what `num_bytes` says."""
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextRetention(MemoryRule):
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

    def trunk(self, config: GeometryConfig, size: tuple[int, int]) -> Retention:  # noqa: ARG002
        trail_tokens = {Trail.SPECIAL: config.special_tokens, Trail.CAMERA: 1, Trail.NONE: 0}[self.trail]
        return AnchorsWindowTrail(
            anchors=self.anchors, window=self.window, trail_tokens=trail_tokens, history=self.history
        )

    def camera(self) -> Retention:
        """Every frame within the history."""
        if self.history is None:
            return KeepAll()
        return AnchorsWindowTrail(anchors=self.anchors, window=self.history - self.anchors)

    def of_frames(self, num_frames: int, config: GeometryConfig, size: tuple[int, int]) -> "ContextRetention":  # noqa: ARG002
        """Anchors and window together; the trail comes on top."""
        _require_more_frames(num_frames, self.anchors)
        return replace(self, window=num_frames - self.anchors)

    def fitted(self, budget_bytes: int, num_bytes: Callable[[MemoryRule], int]) -> "ContextRetention":
        """The history gives way first, then the window; refused below one frame of it."""
        if self.history is None or num_bytes(self) <= budget_bytes:
            return self
        histories = range(self.anchors + self.window, self.history + 1)
        fitting = bisect_right(histories, budget_bytes, key=lambda history: num_bytes(replace(self, history=history)))
        if fitting:
            return replace(self, history=histories[fitting - 1])
        windows = range(1, self.window + 1)
        fitting = bisect_right(windows, budget_bytes, key=lambda window: num_bytes(self._only_window(window)))
        if not fitting:
            least = format_bytes(num_bytes(self._only_window(1)))
            raise BudgetError(
                f"A budget of {format_bytes(budget_bytes)} cannot hold {self.anchors} anchors, the first clip and a "
                f"window of one; the smallest that works is {least}."
            )
        return self._only_window(windows[fitting - 1])

    def _only_window(self, window: int) -> "ContextRetention":
        """As little as anchors and a window can be: no history beyond them."""
        return replace(self, window=window, history=self.anchors + window)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepEverything(MemoryRule):
    """Every token of every kept frame, until the budget is full."""

    def trunk(self, config: GeometryConfig, size: tuple[int, int]) -> Retention:  # noqa: ARG002
        return KeepAll()

    def camera(self) -> Retention:
        return KeepAll()

    def of_frames(self, num_frames: int, config: GeometryConfig, size: tuple[int, int]) -> MemoryRule:  # noqa: ARG002
        raise SettingError("A memory that keeps all takes its budget in bytes, such as 4GB, not in frames.")


@dataclass(frozen=True, slots=True, kw_only=True)
class AnchorsWindow(MemoryRule):
    """The first frames and the last ones, whole, in both streams; a frame counts itself to the window."""

    anchors: int = 1
    window: int = 5

    def __post_init__(self) -> None:
        self.camera()

    def trunk(self, config: GeometryConfig, size: tuple[int, int]) -> Retention:  # noqa: ARG002
        return self.camera()

    def camera(self) -> Retention:
        return AnchorsWindowTrail(anchors=self.anchors, window=self.window)

    def of_frames(self, num_frames: int, config: GeometryConfig, size: tuple[int, int]) -> "AnchorsWindow":  # noqa: ARG002
        _require_more_frames(num_frames, self.anchors)
        return replace(self, window=num_frames - self.anchors)

    def fitted(self, budget_bytes: int, num_bytes: Callable[[MemoryRule], int]) -> "AnchorsWindow":
        """As long a window as fits, up to what was asked for."""
        windows = range(1, self.window + 1)
        fitting = bisect_right(windows, budget_bytes, key=lambda window: num_bytes(replace(self, window=window)))
        return replace(self, window=windows[max(0, fitting - 1)])


def _require_more_frames(num_frames: int, anchors: int) -> None:
    if num_frames <= anchors:
        raise BudgetError(
            f"A memory of {num_frames} frames cannot hold {anchors} anchors and a window of one; the smallest that "
            f"works is {anchors + 1} frames."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPlan:
    """All that decides a geometry session's memory before its first frame."""

    config: GeometryConfig
    size: tuple[int, int]
    """Height and width of the images."""
    retention: MemoryRule
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
        config = self.config
        trunk = StreamLayout(
            num_layers=config.trunk.depth,
            num_heads=config.trunk.heads,
            head_dim=config.head_dim,
            tokens_per_frame=config.tokens_per_frame(*self.size),
            dtype=self.trunk_dtype,
        )
        passes = config.camera.iterations if config.camera.shared_memory else 1
        camera = StreamLayout(
            num_layers=config.camera_layers,
            num_heads=config.camera.heads,
            head_dim=config.camera_head_dim,
            tokens_per_frame=passes,
            passes=passes,
        )
        policies = {TRUNK: self.retention.trunk(config, self.size), CAMERA: self.retention.camera()}
        return MemoryRequirements(
            streams={TRUNK: (trunk, policies[TRUNK]), CAMERA: (camera, policies[CAMERA])},
            first_clip=self.num_scale_frames,
            reserve=self.reserve_frames,
        )

    def fit(self, budget_bytes: int) -> "MemoryPlan":
        """This plan within a budget, as far as its rule can give way."""
        return replace(self, retention=self.retention.fitted(budget_bytes, self._bytes))

    def _bytes(self, retention: MemoryRule) -> int:
        requirements = replace(self, retention=retention).requirements
        assert requirements.full_after is not None
        return requirements.num_bytes(requirements.full_after)
