"""Rules under which each layer of the trunk forgets on its own, while the camera head keeps anchors and a history.

What a rule protects is counted in frames, what it keeps in tokens of all layers together or in frames.
"""

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum

from longtake.errors import BudgetError, SettingError
from longtake.geometry.config import GeometryConfig
from longtake.memory.budget import format_bytes
from longtake.memory.eviction import Eviction
from longtake.memory.evictions.budgeted import Budgeted
from longtake.memory.evictions.farthest_frames import FarthestFrames
from longtake.memory.evictions.key_diversity import KeyDiversity
from longtake.memory.evictions.layerwise import Layerwise
from longtake.memory.evictions.managed import Managed
from longtake.memory.evictions.ratio import Ratio
from longtake.memory.retention import AnchorsWindowTrail, Retention
from longtake.runtime.retention import MemoryRule

CAMERA_FRAMES = 1024
"""Kept frames whose camera tokens are remembered, anchors included: 256 KiB each in a published network."""
_MOST_TOKENS = 2**40


class KeepBy(StrEnum):
    """By what a constant budget chooses."""

    ATTENTION = "attention"
    """What a token received of the attention, over its life."""
    KEYS = "keys"
    """How unlike a key is to the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetedMemory(MemoryRule):
    """A constant number of tokens, for a video without an end: `managed`, or chosen by the diversity of keys."""

    choice: KeepBy = KeepBy.ATTENTION
    num_tokens: int | None = None
    """Over all layers; None for as many as `num_frames` whole frames have."""
    num_frames: int = 16
    anchors: int = 1
    recent: int = 1
    special_frames: int = 64
    camera_frames: int = CAMERA_FRAMES
    decay: float = 1.0

    def trunk(self, config: GeometryConfig, size: tuple[int, int]) -> Budgeted:
        tokens_per_frame = config.tokens_per_frame(*size)
        of_frames = self.num_frames * config.trunk.depth * tokens_per_frame
        total_tokens = of_frames if self.num_tokens is None else self.num_tokens
        if self.choice is KeepBy.KEYS:
            return KeyDiversity(
                total_tokens=total_tokens,
                special_tokens=config.special_tokens,
                anchors=self.anchors,
                recent=self.recent,
                special_frames=self.special_frames,
            )
        return Managed(
            total_tokens=total_tokens,
            special_tokens=config.special_tokens,
            anchors=self.anchors,
            recent=self.recent,
            special_frames=self.special_frames,
            decay=self.decay,
        )

    def camera(self) -> Retention:
        return _anchors_and_history(self.anchors, self.camera_frames)

    def of_frames(self, num_frames: int, config: GeometryConfig, size: tuple[int, int]) -> "BudgetedMemory":
        rule = replace(self, num_frames=num_frames, num_tokens=None)
        protected = rule.trunk(config, size).protection.most_tokens(config.tokens_per_frame(*size))
        least = -(-protected // config.tokens_per_frame(*size))
        if num_frames < least:
            raise BudgetError(
                f"A memory of {num_frames} frames cannot hold {self.anchors} anchors, {self.recent} recent frames and "
                f"the special tokens of {self.special_frames}; the smallest that works is {least} frames."
            )
        return rule

    def fitted(self, budget_bytes: int, num_bytes: Callable[[MemoryRule], int]) -> "BudgetedMemory":
        """As many tokens as the budget holds; refused where it does not hold what is protected."""

        def taken(num_tokens: int) -> int:
            try:
                return num_bytes(replace(self, num_tokens=num_tokens))
            except BudgetError:
                return 0  # fewer than are protected: too few, whatever they take

        candidates = range(1, _MOST_TOKENS)
        num_tokens = bisect_right(candidates, budget_bytes, key=taken)
        if num_tokens == 0 or taken(num_tokens) == 0:
            least = bisect_right(candidates, 0, key=taken) + 1
            raise BudgetError(
                f"A budget of {format_bytes(budget_bytes)} cannot hold {self.anchors} anchors, {self.recent} recent "
                f"frames and the special tokens of {self.special_frames}; the smallest that works is "
                f"{format_bytes(taken(least))}."
            )
        return replace(self, num_tokens=num_tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class FarthestFramesMemory(MemoryRule):
    """Whole frames, as unlike each other as can be, chosen layer by layer."""

    num_frames: int = 16
    anchors: int = 1
    recent: int = 1
    camera_frames: int = CAMERA_FRAMES

    def trunk(self, config: GeometryConfig, size: tuple[int, int]) -> Eviction:  # noqa: ARG002
        return FarthestFrames(num_frames=self.num_frames, anchors=self.anchors, recent=self.recent)

    def camera(self) -> Retention:
        return _anchors_and_history(self.anchors, self.camera_frames)

    def of_frames(self, num_frames: int, config: GeometryConfig, size: tuple[int, int]) -> "FarthestFramesMemory":  # noqa: ARG002
        return replace(self, num_frames=num_frames)

    def fitted(self, budget_bytes: int, num_bytes: Callable[[MemoryRule], int]) -> "FarthestFramesMemory":
        """As many frames as fit, or the fewest there can be."""
        counts = range(self.anchors + self.recent, _MOST_TOKENS)
        fitting = bisect_right(counts, budget_bytes, key=lambda count: num_bytes(replace(self, num_frames=count)))
        return replace(self, num_frames=counts[max(0, fitting - 1)])


@dataclass(frozen=True, slots=True, kw_only=True)
class RatioMemory(MemoryRule):
    """A fixed part of what is not protected leaves after every frame."""

    drop: float = 0.3
    anchors: int = 1
    special_frames: int = 64
    camera_frames: int = CAMERA_FRAMES

    def trunk(self, config: GeometryConfig, size: tuple[int, int]) -> Eviction:  # noqa: ARG002
        return Ratio(
            drop=self.drop,
            anchors=self.anchors,
            special_frames=self.special_frames,
            special_tokens=config.special_tokens,
        )

    def camera(self) -> Retention:
        return _anchors_and_history(self.anchors, self.camera_frames)

    def of_frames(self, num_frames: int, config: GeometryConfig, size: tuple[int, int]) -> MemoryRule:  # noqa: ARG002
        raise _refuse_budget("ratio")


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerwiseMemory(MemoryRule):
    """The published layer-wise eviction, which must know the number of frames; `strict` keeps what it protects."""

    num_frames: int
    budget_ratio: float = 0.5
    temperature: float = 0.5
    strict: bool = True

    def trunk(self, config: GeometryConfig, size: tuple[int, int]) -> Eviction:  # noqa: ARG002
        return Layerwise(
            budget_ratio=self.budget_ratio,
            temperature=self.temperature,
            num_frames=self.num_frames,
            special_tokens=config.special_tokens,
            strict=self.strict,
        )

    def camera(self) -> Retention:
        return _anchors_and_history(1, self.num_frames)

    def of_frames(self, num_frames: int, config: GeometryConfig, size: tuple[int, int]) -> MemoryRule:  # noqa: ARG002
        raise _refuse_budget("layerwise")


def _anchors_and_history(anchors: int, num_frames: int) -> Retention:
    return AnchorsWindowTrail(anchors=anchors, window=max(1, num_frames - anchors))


def _refuse_budget(name: str) -> SettingError:
    return SettingError(
        f"The policy '{name}' has no size to set: it keeps what its ratio says; choose managed for a memory of so many "
        "frames."
    )
