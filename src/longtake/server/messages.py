"""Binary messages of a session's socket, in both directions: a fixed header, fields as JSON, and the payload.

byte  0      1      2       4          8                16                16 + header
      ┌──────┬──────┬───────┬──────────┬────────────────┬─────────────────┬─────────────
      │ kind │codec │header │ sequence │ time in us     │ fields, JSON    │ payload
      │ u8   │ u8   │ u16   │ u32      │ i64            │ `header` bytes  │ the rest
      └──────┴──────┴───────┴──────────┴────────────────┴─────────────────┴─────────────

Numbers are little-endian. Fields may be absent (`header` is 0).
"""

import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from longtake.errors import InputError
from longtake.records import parse_json
from longtake.server.problems import RequestError

_HEADER = struct.Struct("<BBHIq")
HEADER_BYTES = _HEADER.size
_LAST_US = 2**63 - 1


class MessageKind(IntEnum):
    """What a binary message holds."""

    FRAME = 1
    """A picture, to the server."""
    GEOMETRY = 2
    """All that became known with a frame, to the client."""
    POINTS = 3
    """Some points of a frame, to viewers."""
    PREVIEW = 4
    """A small picture of what is seen now, to viewers."""


class Codec(IntEnum):
    """How the payload is to be read."""

    RAW = 0
    """Rows of pixels, three bytes each, red first; the fields say `width` and `height`."""
    JPEG = 1
    PNG = 2
    SAFETENSORS = 3
    POINTS = 4
    """Rows of ten bytes, as `points` draws them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BinaryMessage:
    """One message."""

    kind: MessageKind
    codec: Codec
    sequence: int
    time_us: int
    payload: bytes
    fields: Mapping[str, Any] = field(default_factory=dict)

    @property
    def time_s(self) -> float:
        """The field `time_s`, a double, where there is one; else the header's, to the microsecond."""
        exact = finite(self.fields.get("time_s", self.time_us / 1e6))
        if exact is None:
            raise RequestError("bad_message", "Expected the field time_s as a finite number of seconds.")
        return exact

    def pack(self) -> bytes:
        """The bytes of the message."""
        fields = json.dumps(self.fields).encode() if self.fields else b""
        return _HEADER.pack(self.kind, self.codec, len(fields), self.sequence, self.time_us) + fields + self.payload


def microseconds(time_s: float) -> int:
    """A time for the header; one that is beyond all clocks is the last that fits."""
    return int(max(-_LAST_US, min(_LAST_US, time_s * 1e6)))


def unpack(content: bytes) -> BinaryMessage:
    """The message of these bytes; what is none is refused in one sentence."""
    if len(content) < HEADER_BYTES:
        raise RequestError("bad_message", f"Expected a header of {HEADER_BYTES} bytes, but got {len(content)} in all.")
    kind, codec, header, sequence, time_us = _HEADER.unpack_from(content)
    if kind not in list(MessageKind) or codec not in list(Codec):
        raise RequestError("bad_message", f"Expected a known kind and codec, but got {kind} and {codec}.")
    start = HEADER_BYTES + header
    if len(content) < start:
        raise RequestError("bad_message", f"Expected {header} bytes of fields, but got {len(content) - HEADER_BYTES}.")
    return BinaryMessage(
        kind=MessageKind(kind),
        codec=Codec(codec),
        sequence=sequence,
        time_us=time_us,
        fields=_fields(content[HEADER_BYTES:start]),
        payload=content[start:],
    )


def parse_text(text: str | bytes) -> dict[str, Any]:
    """The object of a text message."""
    try:
        value = parse_json(text.encode() if isinstance(text, str) else text)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise RequestError("bad_message", f"Expected a JSON object, but it breaks at {where}: {error.msg}.") from error
    except (ValueError, InputError, RecursionError) as error:
        raise RequestError("bad_message", "Expected a JSON object, but this cannot be read as one.") from error
    if not isinstance(value, dict):
        raise RequestError("bad_message", f"Expected a JSON object, but got {type(value).__name__}.")
    return value


def finite(given: Any) -> float | None:
    """A number of a message as a double; None for what is none, or too large for one."""
    if isinstance(given, bool) or not isinstance(given, int | float):
        return None
    try:
        number = float(given)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _fields(content: bytes) -> dict[str, Any]:
    return parse_text(content) if content else {}
