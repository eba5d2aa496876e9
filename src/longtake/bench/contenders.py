"""Memory policies that are compared with each other, by name and budget, and the twin of a policy that goes without
attention."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float32

from longtake.errors import BudgetError, SettingError
from longtake.geometry.config import GeometryConfig
from longtake.memory.policies.budgeted import Budgeted
from longtake.memory.policies.farthest_frames import FarthestFrames
from longtake.memory.policies.layerwise import Layerwise
from longtake.memory.policies.lockstep import ContextRetention, KeepAll
from longtake.memory.policies.ratio import Ratio
from longtake.memory.policy import Clip, EvictionDecision, LayerState, LockstepPolicy, PerLayerPolicy, StreamPolicy
from longtake.memory.registry import stream_policy_named
from longtake.memory.tokens import StreamLayout
from longtake.runtime.build import usual_settings
from longtake.runtime.memory_plan import trunk_layout

KEEP_ALL = "none"
_CONTEXT = "context"
SIZED = (_CONTEXT, "managed", "key-diversity", "farthest-frames", "window")
"""Policies with a budget."""
POLICIES = (KEEP_ALL, "ratio", "layerwise-0.5", "layerwise-0.7", "strict-0.5", *SIZED)
_CHOICES = f"{KEEP_ALL}, ratio, layerwise-R and strict-R with a ratio R such as 0.5, {', '.join(SIZED)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """A policy with its budget in frames a layer, if it has one; a rule, or the sentence that refuses the budget."""

    policy: str
    budget_frames: int | None
    rule: StreamPolicy | None
    refused: str | None = None


def contenders(
    policies: Sequence[str],
    budgets: Sequence[int],
    config: GeometryConfig,
    size: tuple[int, int],
    num_frames: int,
) -> list[Contender]:
    """Each policy once, those with a size once for each budget, for a video of `num_frames` frames."""
    found = []
    for name in policies:
        rule = _context(config, max(num_frames, *budgets, 0)) if name == _CONTEXT else _rule(name, num_frames)
        rule = _camera_for(rule, num_frames)
        if name in SIZED:
            found += [_sized(name, rule, budget, config, size) for budget in budgets]
        else:
            found.append(Contender(policy=name, budget_frames=None, rule=rule))
    return found


def _context(config: GeometryConfig, num_frames: int) -> ContextRetention:
    """The rule of networks with scale frames, which are its anchors; its trail is as long as the video."""
    anchors = usual_settings(config).num_scale_frames
    return ContextRetention(anchors=anchors, window=1, history=max(num_frames, anchors + 1))


def _rule(name: str, num_frames: int) -> StreamPolicy:
    if name == KEEP_ALL:
        return KeepAll()
    if name in ("ratio", *SIZED):
        return stream_policy_named(name)
    match = re.fullmatch(r"(layerwise|strict)-(\d+(?:\.\d+)?)", name)
    if match is None:
        raise SettingError(f"There is no policy '{name}' to compare; choose from {_CHOICES}.")
    return Layerwise(num_frames=num_frames, budget_ratio=float(match[2]), strict=match[1] == "strict")


def _camera_for(rule: StreamPolicy, num_frames: int) -> StreamPolicy:
    """Without room for camera tokens of more frames than will come: the video's length is known here."""
    if isinstance(rule, Budgeted | FarthestFrames | Ratio):
        return replace(rule, camera_frames=min(rule.camera_frames, num_frames))
    return rule


def _sized(name: str, rule: StreamPolicy, budget: int, config: GeometryConfig, size: tuple[int, int]) -> Contender:
    try:
        layout = trunk_layout(config, size)
        sized = rule.of_frames(budget, layout)
        sized.for_stream(layout)
    except (BudgetError, SettingError) as refusal:
        return Contender(policy=name, budget_frames=budget, rule=None, refused=str(refusal))
    return Contender(policy=name, budget_frames=budget, rule=sized)


@dataclass(frozen=True, slots=True)
class EvenAttention(PerLayerPolicy):
    """A policy that decides as if every query had looked at all keys alike, and so asks for no statistics."""

    policy: PerLayerPolicy

    def for_stream(self, layout: StreamLayout) -> "EvenAttention":
        return EvenAttention(self.policy.for_stream(layout))

    def camera(self) -> LockstepPolicy:
        return self.policy.camera()

    @property
    def num_token_stats(self) -> int:
        return self.policy.num_token_stats

    @property
    def num_layer_stats(self) -> int:
        return self.policy.num_layer_stats

    @property
    def wants_keys(self) -> bool:
        return self.policy.wants_keys

    def decide(self, layers: Sequence[LayerState], clip: Clip) -> list[EvictionDecision]:
        even = [replace(state, attention_mass=_even(len(state.tokens), clip)) for state in layers]
        return self.policy.decide(even, clip)

    def most_tokens(self, layout: StreamLayout, *, clip_frames: int = 1) -> int:
        return self.policy.most_tokens(layout, clip_frames=clip_frames)


def _even(num_keys: int, clip: Clip) -> Float32[np.ndarray, " keys"]:
    given = clip.num_frames * clip.tokens_per_frame * clip.num_heads
    return np.full(num_keys, given / num_keys, dtype=np.float32)


def even_attention_twin(rule: StreamPolicy) -> EvenAttention | None:
    """The same policy without statistics, or none where it asks for none anyway."""
    return EvenAttention(rule) if isinstance(rule, PerLayerPolicy) and rule.wants_attention_mass else None
