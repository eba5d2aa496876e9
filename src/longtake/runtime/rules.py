"""Memory rules by name: for the command line, and for the record of a saved session."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from longtake.errors import SavedSessionError, SettingError
from longtake.runtime.evicting import BudgetedMemory, FarthestFramesMemory, KeepBy, LayerwiseMemory, RatioMemory
from longtake.runtime.retention import AnchorsWindow, ContextRetention, KeepEverything, MemoryRule, Trail

KEYS = BudgetedMemory(choice=KeepBy.KEYS)
RULES: Mapping[str, MemoryRule] = {
    "context": ContextRetention(),
    "keep-all": KeepEverything(),
    "window": AnchorsWindow(),
    "managed": BudgetedMemory(),
    "ratio": RatioMemory(),
    "key-diversity": KEYS,
    "farthest-frames": FarthestFramesMemory(),
}
"""Rules that need no further word; the published layer-wise one must be told the number of frames."""

_KINDS: Mapping[str, type[MemoryRule]] = {
    "context": ContextRetention,
    "keep-all": KeepEverything,
    "window": AnchorsWindow,
    "budgeted": BudgetedMemory,
    "ratio": RatioMemory,
    "farthest-frames": FarthestFramesMemory,
    "layerwise": LayerwiseMemory,
}
_ENUMS = {"trail": Trail, "choice": KeepBy}


def rule_named(name: str) -> MemoryRule:
    """`managed`, or `layerwise:300` for a video of 300 frames."""
    kind, colon, frames = name.partition(":")
    if kind == "layerwise" and colon and frames.isdecimal() and int(frames):
        return LayerwiseMemory(num_frames=int(frames))
    if name not in RULES:
        choices = ", ".join((*RULES, "layerwise:N for a video of N frames"))
        raise SettingError(f"There is no memory policy '{name}'; choose one of {choices}.")
    return RULES[name]


def rule_to_record(rule: MemoryRule) -> dict[str, Any]:
    """A rule as plain values."""
    (kind,) = [name for name, made in _KINDS.items() if type(rule) is made]
    return {"kind": kind, **asdict(rule)}  # type: ignore[call-overload]


def rule_from_record(said: Mapping[str, Any]) -> MemoryRule:
    """The rule of a record; records from before there were several kinds are of the context rule."""
    values = {name: _ENUMS[name](value) if name in _ENUMS else value for name, value in said.items() if name != "kind"}
    kind = said.get("kind", "context")
    if kind not in _KINDS:
        raise SavedSessionError(f"The saved session has a memory rule '{kind}', unknown to this longtake; update it.")
    return _KINDS[kind](**values)
