"""Memory policies by name, for the command line and for saved sessions; a user's own are named `module:Class`."""

import importlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, is_dataclass
from typing import Any, TypeGuard, TypeVar

from longtake.errors import LongtakeError, SavedSessionError, SettingError
from longtake.memory.policies.budgeted import KeyDiversity, Managed
from longtake.memory.policies.farthest_frames import FarthestFrames
from longtake.memory.policies.layerwise import Layerwise
from longtake.memory.policies.lockstep import ContextRetention, KeepAll, Window
from longtake.memory.policies.ratio import Ratio
from longtake.memory.policies.thinned import Novel, Thinned
from longtake.memory.policy import Policy, SegmentPolicy, StreamPolicy
from longtake.records import record_from

POLICIES: Mapping[str, type[Policy]] = {
    "context": ContextRetention,
    "keep-all": KeepAll,
    "window": Window,
    "managed": Managed,
    "ratio": Ratio,
    "key-diversity": KeyDiversity,
    "farthest-frames": FarthestFrames,
    "layerwise": Layerwise,
    "thinned": Thinned,
    "novel": Novel,
}

Values = Mapping[str, Any]
Role = TypeVar("Role", bound=Policy)


def stream_policy_named(name: str) -> StreamPolicy:
    """For a map: `managed`, `layerwise:300` for a video of 300 frames, or `my_package.policies:KeepEveryTenth`."""
    kind, values = _find(name, StreamPolicy, "map")  # type: ignore[type-abstract]
    return kind(**values)


def segment_policy_named(name: str) -> SegmentPolicy:
    """For a dialogue: `window`, `thinned`, `novel`, `keep-all`, or one's own."""
    kind, _ = _find(name, SegmentPolicy, "dialogue")  # type: ignore[type-abstract]
    return kind.for_dialogue()


def policy_names(role: type[Policy]) -> list[str]:
    """Names of the policies of one role, as they are typed."""
    return [
        name if kind.argument is None else f"{name}:N for a video of N frames"
        for name, kind in POLICIES.items()
        if issubclass(kind, role)
    ]


def policy_record(policy: Policy) -> dict[str, Any]:
    """A policy as plain values, its name among them."""
    kind = type(policy)
    names = [name for name, known in POLICIES.items() if known is kind]
    values = asdict(policy)  # type: ignore[call-overload]
    return {"kind": names[0] if names else f"{kind.__module__}:{kind.__qualname__}", **values}


def stream_policy_of(record: Values) -> StreamPolicy:
    """The policy of a map that a record tells of, also as earlier versions wrote it."""
    return _recorded(record, StreamPolicy)  # type: ignore[type-abstract]


def segment_policy_of(record: Values) -> SegmentPolicy:
    """The policy of a dialogue that a record tells of, also as earlier versions wrote it."""
    return _recorded(record, SegmentPolicy)  # type: ignore[type-abstract]


def _recorded(record: Values, role: type[Role]) -> Role:
    """Nothing is imported because a file says so."""
    name, values = _current(record)
    kind = POLICIES[name] if name in POLICIES else _imported_already(name)
    if not issubclass(kind, role):
        raise SavedSessionError(
            f"The saved session has the memory policy '{name}', which is for another kind of session; save it again."
        )
    try:
        return record_from(kind, values)
    except (ValueError, LongtakeError) as error:
        raise SavedSessionError(
            f"The saved session's memory policy '{name}' does not fit this longtake ({error}); resume it with the "
            "longtake that wrote it."
        ) from error


def _find(name: str, role: type[Role], purpose: str) -> tuple[type[Role], Values]:
    word, _, argument = name.partition(":")
    kind = POLICIES.get(word)
    if kind is None and argument:
        kind = _own(name)
        argument = ""
    if kind is None or not issubclass(kind, role) or not _is_complete(kind, argument):
        choices = ", ".join(policy_names(role))
        raise SettingError(
            f"There is no memory policy '{name}' for a {purpose}; choose one of {choices}, or your own as module:Class."
        )
    return kind, {} if kind.argument is None else {kind.argument: int(argument)}


def _is_complete(kind: type[Policy], argument: str) -> bool:
    if kind.argument is None:
        return not argument
    return argument.isdecimal() and len(argument) <= 16 and int(argument) > 0


def _own(name: str) -> type[Policy]:
    """A user's policy, imported from where it says."""
    module_name, _, class_name = name.partition(":")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # whatever a module does when it is imported
        raise SettingError(
            f"The memory policy '{name}' cannot be imported ({type(error).__name__}: {error}); expected module:Class, "
            "such as my_package.policies:KeepEveryTenth, of a module that Python finds."
        ) from error
    kind = vars(module).get(class_name)
    if _is_policy(kind):
        return kind
    found = "it is not" if class_name in vars(module) else "the module has no such name"
    raise SettingError(
        f"Expected '{name}' to be a memory policy, a frozen dataclass that extends one of longtake.memory.policy, but "
        f"{found}."
    )


def _is_policy(kind: object) -> TypeGuard[type[Policy]]:
    return isinstance(kind, type) and issubclass(kind, Policy) and is_dataclass(kind)


def _imported_already(name: str) -> type[Policy]:
    module_name, colon, class_name = name.partition(":")
    if not colon:
        raise SavedSessionError(f"The saved session has a memory policy '{name}', unknown to this longtake; update it.")
    kind = vars(sys.modules[module_name]).get(class_name) if module_name in sys.modules else None
    if not _is_policy(kind):
        raise SavedSessionError(
            f"The saved session has a memory policy of your own, '{name}'; import {module_name} before you resume it."
        )
    return kind


def _current(record: Values) -> tuple[str, Values]:
    """Name and values of a record; those of earlier versions translated."""
    values = {name: value for name, value in record.items() if name not in ("kind", "name")}
    name = record.get("kind", record.get("name", "context"))
    if not isinstance(name, str):
        raise SavedSessionError(f"The saved session's memory policy has no name but {name!r}; save it again.")
    if name in _EARLIER:
        return _EARLIER[name](values)
    return name, values


def _budgeted(values: Values) -> tuple[str, Values]:
    rest = {name: value for name, value in values.items() if name != "choice"}
    if values.get("choice") != "keys":
        return "managed", rest
    return "key-diversity", {name: value for name, value in rest.items() if name != "decay"}


def _recent_frames(values: Values) -> tuple[str, Values]:
    return "window", {"anchors": 0, "window": values.get("most")}


def _thinned_past(values: Values) -> tuple[str, Values]:
    rest = {name: value for name, value in values.items() if name != "by_novelty"}
    return ("novel" if values.get("by_novelty") else "thinned"), rest


_EARLIER: Mapping[str, Callable[[Values], tuple[str, Values]]] = {
    "budgeted": _budgeted,
    "keep-until-full": lambda values: ("keep-all", values),
    "recent-frames": _recent_frames,
    "thinned-past": _thinned_past,
}
"""Policies as earlier versions named them in files, and what they are called now."""
