"""Objects read from JSON, field by field; a wrong field is one sentence that names its file and line."""

import errno
import reprlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from longtake.errors import InputError
from longtake.records import parse_json

_Value = TypeVar("_Value")
_Choice = TypeVar("_Choice", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class JsonObject:
    """An object and where it was read, such as `walk/frames.jsonl line 3`."""

    fields: Mapping[str, Any]
    where: str

    @classmethod
    def parse(cls, text: bytes, where: str) -> "JsonObject":
        try:
            value = parse_json(text)
        except ValueError as error:
            raise InputError(f"Expected a JSON object in {where}, but it cannot be read ({error}).") from error
        if not isinstance(value, dict):
            raise InputError(f"Expected a JSON object in {where}, but got {reprlib.repr(value)}.")
        return cls(value, where)

    def refuse(self, name: str, expected: str) -> InputError:
        """The sentence for a field that is missing or is not what was expected."""
        found = f"got {reprlib.repr(self.fields[name])}" if name in self.fields else "there is none"
        return InputError(f"Expected {expected} as '{name}' in {self.where}, but {found}; make the take again.")

    def optional(self, name: str, read: Callable[[str], _Value]) -> _Value | None:
        """The field as `read` gives it, None where it is missing or null."""
        return None if self.fields.get(name) is None else read(name)

    def integer(self, name: str, least: int = 0) -> int:
        value = self.fields.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise self.refuse(name, f"a whole number from {least}")
        return value

    def number(self, name: str) -> float:
        value = self.fields.get(name)
        if value is None or not _is_finite(value):
            raise self.refuse(name, "a finite number")
        return float(value)

    def positive_number(self, name: str) -> float:
        if self.number(name) <= 0:
            raise self.refuse(name, "a number greater than 0")
        return self.number(name)

    def numbers(self, name: str, count: int) -> tuple[float, ...]:
        values = self.fields.get(name)
        if not isinstance(values, list) or len(values) != count or not all(map(_is_finite, values)):
            raise self.refuse(name, f"{count} finite numbers")
        return tuple(float(value) for value in values)

    def integers(self, name: str) -> tuple[int, ...]:
        values = self._typed(name, list, "a list of whole numbers from 0")
        if not all(isinstance(value, int) and not isinstance(value, bool) and value >= 0 for value in values):
            raise self.refuse(name, "a list of whole numbers from 0")
        return tuple(values)

    def texts(self, name: str) -> tuple[str, ...]:
        values = self._typed(name, list, "a list of texts")
        if not all(isinstance(value, str) for value in values):
            raise self.refuse(name, "a list of texts")
        return tuple(values)

    def boolean(self, name: str) -> bool:
        return bool(self._typed(name, bool, "true or false"))

    def text(self, name: str) -> str:
        return str(self._typed(name, str, "a text"))

    def object(self, name: str) -> "JsonObject":
        return JsonObject(self._typed(name, dict, "an object"), f"'{name}' of {self.where}")

    def objects(self, name: str) -> list["JsonObject"]:
        values = self._typed(name, list, "a list of objects")
        if not all(isinstance(value, dict) for value in values):
            raise self.refuse(name, "a list of objects")
        return [JsonObject(value, f"'{name}' of {self.where}") for value in values]

    def choice(self, name: str, choices: type[_Choice]) -> _Choice:
        value = self.fields.get(name)
        if value not in list(choices):
            raise self.refuse(name, " or ".join(f"'{choice}'" for choice in choices))
        return choices(value)

    def _typed(self, name: str, kind: type, expected: str) -> Any:
        value = self.fields.get(name)
        if not isinstance(value, kind):
            raise self.refuse(name, expected)
        return value


def require_file(path: Path) -> None:
    """An OSError for a pipe or a device, which might never open or end; what is not there may become a file."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise OSError(errno.EINVAL, "it is a pipe or a device")


def content_of(path: Path) -> bytes:
    """What a file holds; an OSError for a pipe or a device."""
    require_file(path)
    try:
        return path.read_bytes()
    except ValueError as error:
        raise OSError(errno.EINVAL, f"it is no path, for it has an {error}") from error


def parse_file(path: Path, parse: Callable[[bytes, str], _Value]) -> _Value | None:
    """What `parse` makes of a file's content and name, None where there is no such file."""
    try:
        content = content_of(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}).") from error
    return parse(content, str(path))


def read_objects(path: Path) -> list[JsonObject] | None:
    """The objects of a JSON list, None where there is no such file."""
    try:
        values = parse_json(content_of(path))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise InputError(f"Expected a JSON list of objects in {path}, but it cannot be read ({error}).") from error
    if not isinstance(values, list) or not all(isinstance(value, dict) for value in values):
        raise InputError(f"Expected a JSON list of objects in {path}, but got something else.")
    return [JsonObject(value, f"entry {number} of {path}") for number, value in enumerate(values, start=1)]


def _is_finite(value: Any) -> bool:
    """Whether it is a number that a float can hold; a comparison with NaN is false."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max
