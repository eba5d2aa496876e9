"""Messages to a session's socket that mean nothing or no good, of every kind, drawn at random."""

import io
import json
import random
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from PIL import Image

from longtake.server.messages import BinaryMessage, Codec, MessageKind

NEXT_SEQUENCE = 10
"""Of the session that is attacked: it has taken so many frames of 126x98."""
_LATER_S = 99.0
_WIDTH, _HEIGHT = 126, 98
_OTHER_SIDE = 100
"""Pictures of this size are refused even where what was broken in them can still be read."""
_HUGE = 10**400
_WORDS = "Where is the red ball now?"


@dataclass(frozen=True, slots=True)
class Malformed:
    """A message that must end in an `error` event or a closed socket."""

    name: str
    content: str | bytes


_Draw = Callable[[random.Random], str | bytes]


def malformed(rng: random.Random) -> Malformed:
    """One at random, each kind as likely as another."""
    name = rng.choice(list(_DRAWS))
    return Malformed(name, _DRAWS[name](rng))


def all_wrong_fields() -> Iterator[Malformed]:
    """Every text message with every field in turn replaced by every wrong value, or left out where it is needed."""
    for kind, fields in _TEXT_MESSAGES.items():
        for name, (_, wrong) in fields.items():
            good = {other: value for other, (value, _) in fields.items()}
            for value in wrong:
                yield Malformed(f"field {kind}.{name}", json.dumps({"type": kind, **good, name: value}))
            if name in _NEEDED.get(kind, ()):
                left = {other: value for other, value in good.items() if other != name}
                yield Malformed(f"field {kind}.{name}", json.dumps({"type": kind, **left}))


def frame_message(
    fields: Mapping[str, Any] | None = None,
    payload: bytes | None = None,
    *,
    codec: int = Codec.RAW,
    sequence: int = NEXT_SEQUENCE,
) -> bytes:
    """A frame that would be taken, but for what is given."""
    message = BinaryMessage(
        kind=MessageKind.FRAME,
        codec=Codec(codec),
        sequence=sequence,
        time_us=round(_LATER_S * 1e6),
        fields=_GOOD_FIELDS if fields is None else fields,
        payload=bytes(_WIDTH * _HEIGHT * 3) if payload is None else payload,
    )
    return message.pack()


_GOOD_FIELDS = {"width": _WIDTH, "height": _HEIGHT, "time_s": _LATER_S}
_NO_TEXT: list[Any] = [None, 5, 1.5, True, [], {}, "", ["x"], {"x": "y"}]
_NO_NUMBER: list[Any] = [None, "1", True, [], {}, -1, -1e300, float("nan"), float("inf"), _HUGE, -_HUGE]
_NO_WHOLE: list[Any] = ["5", True, 1.5, 0, -1, 1_000_000, [], {}, _HUGE, float("nan")]
_NO_BOOLEAN: list[Any] = [None, 0, 1, "true", [], {}, 1.0]
_NO_AMOUNT: list[Any] = ["x", [], {}, True, -1, 1.5, float("nan")]
_TEXT_MESSAGES: dict[str, dict[str, tuple[Any, list[Any]]]] = {
    "response.create": {
        "question": (_WORDS, [*_NO_TEXT, " ", "x" * 4001, "x" * 200_000]),
        "response": ("r", _NO_TEXT),
        "temperature": (0.0, [*_NO_NUMBER, 100.5]),
        "max_tokens": (5, _NO_WHOLE),
    },
    "response.cancel": {"response": ("none", [*_NO_TEXT, "none"])},
    "watch.create": {
        "question": (_WORDS, [*_NO_TEXT, " "]),
        "expected": ("left", [*_NO_TEXT, " "]),
        "watch": ("w", _NO_TEXT),
        "every_s": (1.0, [*_NO_NUMBER, 0]),
        "hold_s": (0.0, _NO_NUMBER),
    },
    "watch.delete": {"watch": ("none", [*_NO_TEXT, "none"])},
    "session.update": {"paused": (False, _NO_BOOLEAN)},
    "view.budget": {
        "points": (1000, _NO_AMOUNT),
        "previews": (False, ["yes", 5, [], {}]),
        "preview_px": (320, _NO_AMOUNT),
    },
    "credit": {"bytes": (1000, _NO_AMOUNT)},
}
_NEEDED = {
    "response.create": ("question",),
    "response.cancel": ("response",),
    "watch.create": ("question", "expected"),
    "watch.delete": ("watch",),
    "session.update": ("paused",),
}
_WRONG_FIELDS = list(all_wrong_fields())


def _cut_header(rng: random.Random) -> bytes:
    return frame_message()[: rng.randrange(16)]


def _wrong_kind(rng: random.Random) -> bytes:
    return bytes([rng.choice([0, *range(2, 256)])]) + frame_message()[1:]


def _wrong_codec(rng: random.Random) -> bytes:
    good = frame_message()
    return good[:1] + bytes([rng.randrange(3, 256)]) + good[2:]


def _wrong_header_length(rng: random.Random) -> bytes:
    good = frame_message()
    (length,) = struct.unpack_from("<H", good, 2)
    wrong = rng.choice([0, 1, length - 1, length + 1, length + rng.randint(2, 60_000), 65535])
    return good[:2] + struct.pack("<H", wrong) + good[4:]


def _wrong_length(rng: random.Random) -> bytes:
    good = frame_message()
    if rng.random() < 0.5:
        return good[: -rng.randint(1, _WIDTH * _HEIGHT * 3)]
    return good + bytes(rng.randint(1, 1000))


def _garbled_fields(rng: random.Random) -> bytes:
    fields = rng.choice([rng.randbytes(rng.randint(1, 200)), b"[" * 60_000, b'{"width":' * 7_000, b"[1]", b'"x"', b"{"])
    return struct.pack("<BBHIq", 1, 0, len(fields), NEXT_SEQUENCE, 99_000_000) + fields


def _wrong_fields(rng: random.Random) -> bytes:
    name = rng.choice(["width", "height", "time_s"])
    wrong = rng.choice(_NO_NUMBER if name == "time_s" else [*_NO_WHOLE, None, 2**31, 127, 16_000_000])
    return frame_message({**_GOOD_FIELDS, name: wrong})


def _wrong_order(rng: random.Random) -> bytes:
    return frame_message(sequence=rng.choice([NEXT_SEQUENCE + rng.randint(1, 5), 2**32 - 1, rng.randint(11, 2**31)]))


def _wrong_time(rng: random.Random) -> bytes:
    if rng.random() < 0.5:
        return frame_message({**_GOOD_FIELDS, "time_s": rng.choice([0.0, -5.0, 0.1, -1e300, 5e-324])})
    header = struct.pack("<BBHIq", 1, 0, 0, NEXT_SEQUENCE, rng.choice([0, -1, -(2**63), 100_000]))
    fields = json.dumps({"width": _WIDTH, "height": _HEIGHT}).encode()
    return header[:2] + struct.pack("<H", len(fields)) + header[4:] + fields + bytes(_WIDTH * _HEIGHT * 3)


def _other_size(rng: random.Random) -> bytes:
    width, height = rng.choice([(1, 1), (3, 1000), (40, 40), (_HEIGHT, _WIDTH), (252, 196)])
    return frame_message({"width": width, "height": height, "time_s": _LATER_S}, bytes(width * height * 3))


def _broken_picture(rng: random.Random) -> bytes:
    codec = rng.choice([Codec.JPEG, Codec.PNG])
    content = bytearray(_picture(codec))
    match rng.randrange(4):
        case 0:
            content = content[: rng.randrange(len(content))]
        case 1:
            for _ in range(rng.randint(1, 20)):
                content[rng.randrange(len(content))] = rng.randrange(256)
        case 2:
            codec = Codec.PNG if codec is Codec.JPEG else Codec.JPEG
        case _:
            content = bytearray(rng.randbytes(rng.randint(0, 500)))
    return frame_message({"time_s": _LATER_S}, bytes(content), codec=codec)


def _bomb(rng: random.Random) -> bytes:
    """Small messages that would be large pictures."""
    side = rng.choice([4_001, 9_000, 12_000, 30_000, 65_500])
    match rng.randrange(5):
        case 0:
            payload, codec = _png(side, side, _zeros(200_000)), Codec.PNG
        case 1:
            payload, codec = _jpeg_of_size(side), Codec.JPEG
        case 2:
            text = _chunk(rng.choice([b"zTXt", b"iCCP"]), b"x\0\0" + _zeros(80_000_000))
            payload, codec = _png(_OTHER_SIDE, _OTHER_SIDE, _zeros(30_100), text), Codec.PNG
        case 3:
            payload, codec = _png(2_000, 2_000, _zeros(12_002_000)), Codec.PNG
        case _:
            payload, codec = _png(_OTHER_SIDE, _OTHER_SIDE, _zeros(80_000_000)), Codec.PNG
    return frame_message({"time_s": _LATER_S}, payload, codec=codec)


def _text_as_bytes(rng: random.Random) -> bytes:
    return _wrong_field(rng).encode()[: rng.randint(0, 60)]


def _no_json(rng: random.Random) -> str:
    depth = rng.choice([10, 1_000, 100_000])
    return rng.choice(
        [
            "",
            "nonsense",
            "[" * depth,
            '{"type":' * depth,
            '{"type": ' + "[" * depth + "]" * depth + "}",
            "9" * 100_000,
            '{"type": ' + "9" * 100_000 + "}",
            '{"type": 1e999999}',
            "\x00" * 50,
            "[1, 2]",
            "null",
            '"response.create"',
            '{"type": "session.save"',
            rng.randbytes(100).decode("latin-1"),
        ]
    )


def _unknown_type(rng: random.Random) -> str:
    types: list[Any] = [None, 5, True, [], {}, "", "x" * 10_000, "session.delete", "RESPONSE.CREATE", _HUGE, "\ud800"]
    about = rng.choice(["r", None, 5, {"a": [1] * 100}, "x" * 10_000, _HUGE])
    return json.dumps({"type": rng.choice(types), "request": about})


def _wrong_field(rng: random.Random) -> str:
    content = rng.choice(_WRONG_FIELDS).content
    assert isinstance(content, str)
    return content


_DRAWS: dict[str, _Draw] = {
    "cut header": _cut_header,
    "wrong kind": _wrong_kind,
    "wrong codec": _wrong_codec,
    "wrong header length": _wrong_header_length,
    "wrong length": _wrong_length,
    "garbled fields": _garbled_fields,
    "wrong fields": _wrong_fields,
    "wrong order": _wrong_order,
    "wrong time": _wrong_time,
    "other size": _other_size,
    "broken picture": _broken_picture,
    "bomb": _bomb,
    "text as bytes": _text_as_bytes,
    "no JSON": _no_json,
    "unknown type": _unknown_type,
    "wrong field": _wrong_field,
}


def _picture(codec: Codec) -> bytes:
    pixels = np.arange(_OTHER_SIDE * _OTHER_SIDE * 3, dtype=np.uint8).reshape(_OTHER_SIDE, _OTHER_SIDE, 3)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, codec.name)
    return file.getvalue()


def _jpeg_of_size(side: int) -> bytes:
    """A small JPEG that says it is larger: the lengths stand 5 bytes behind the marker of its frame."""
    content = bytearray(_picture(Codec.JPEG))
    place = content.index(b"\xff\xc0") + 5
    content[place : place + 4] = struct.pack(">HH", side, side)
    return bytes(content)


def _png(width: int, height: int, packed: bytes, more: bytes = b"") -> bytes:
    header = _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + more + _chunk(b"IDAT", packed) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


@cache
def _zeros(num_bytes: int) -> bytes:
    packer = zlib.compressobj(9)
    block = bytes(1_000_000)
    parts = [packer.compress(block[: min(num_bytes - start, len(block))]) for start in range(0, num_bytes, len(block))]
    return b"".join([*parts, packer.flush()])
