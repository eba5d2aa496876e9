"""What a row of a manifest may say of how its video is mapped: words of `longtake map`, as people write them."""

import re
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from difflib import get_close_matches
from numbers import Integral, Real
from pathlib import Path
from typing import Any

from longtake.api.map_request import MapRequest
from longtake.errors import SettingError
from longtake.geometry.model import GeometryModel

_NOT_OF_MANY = ("follow", "when_full")
"""Of sources that have no end."""
_TRUTHS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
_HINTS = typing.get_type_hints(MapRequest)
PATHS = ("continue_from", "mask", "sky")
"""Settings that are paths."""
_OF_SEVERAL = "format"
"""Which may be several texts."""
NAMES = tuple(field.name for field in fields(MapRequest) if field.name not in _NOT_OF_MANY)
"""What can be set."""


def settings_of(written: Mapping[str, object]) -> dict[str, Any]:
    """The values of these words; one without a value is left to its default."""
    require_known(written)
    return {name: _value(name, value) for name, value in written.items() if value is not None and value != ""}


def require_known(words: Iterable[str], also: Sequence[str] = ()) -> None:
    """Refuse one that is no setting, and none of those `also` that have a meaning there."""
    known = (*also, *NAMES)
    for name in words:
        if name not in known:
            nearest = "".join(f"perhaps you mean '{word}'; " for word in get_close_matches(name, known, n=1))
            raise SettingError(f"There is no setting '{name}'; {nearest}choose among {', '.join(known)}.")


def whole_number(written: object) -> int:
    """A table that has gaps makes 2.0 of 2; a ValueError where it is none."""
    return int(re.sub(r"\.0+$", "", str(written).strip()))


def _value(name: str, value: object) -> Any:
    """Texts become what the setting is; what is that already stays."""
    if isinstance(value, GeometryModel):
        raise SettingError("Expected model as a name or a path, for workers load it themselves, but got a loaded one.")
    if name in PATHS and isinstance(value, str | Path):
        return str(Path(value).absolute())  # the same from every folder, on every worker
    hint = _HINTS[name]
    kinds = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if isinstance(value, str) and str not in kinds:
        return _parsed(name, value, kinds)
    if isinstance(value, float) and value.is_integer() and int in kinds and float not in kinds:
        return int(value)  # a table that has gaps makes numbers of all it has
    if isinstance(value, list | tuple) and name == _OF_SEVERAL and all(isinstance(one, str) for one in value):
        return tuple(value)
    if isinstance(value, bool):
        if bool in kinds:
            return value
    elif isinstance(value, tuple(kind for kind in kinds if isinstance(kind, type))):
        return value
    elif isinstance(value, Real) and float in kinds:
        return float(value)
    elif isinstance(value, Integral) and int in kinds:
        return int(value)
    raise SettingError(f"Expected {name} as {_in_words(kinds)}, but got {value!r:.100}.")


def _parsed(name: str, text: str, kinds: tuple[Any, ...]) -> Any:
    try:
        if bool in kinds:
            return _TRUTHS[text.strip().lower()]
        return whole_number(text) if float not in kinds else float(text)
    except (KeyError, ValueError):
        raise SettingError(f"Expected {name} as {_in_words(kinds)}, but got '{text}'.") from None


def _in_words(kinds: tuple[Any, ...]) -> str:
    words = {str: "a text", int: "a whole number", float: "a number", bool: "true or false", Path: "a path"}
    return " or ".join(dict.fromkeys(words[kind] for kind in kinds if kind in words))
