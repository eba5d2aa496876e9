"""Damage to files and texts: bits flipped, bytes cut, values of JSON replaced by nasty ones, keys dropped."""

import json
from collections.abc import Callable
from random import Random
from typing import Any

_DEEP = 20_000
_DEEP_LIST, _DEEP_OBJECT, _LONG_NUMBER = "@deep-list@", "@deep-object@", "@long-number@"
_SPELLED_OUT = {
    json.dumps(_DEEP_LIST): "[" * _DEEP + "]" * _DEEP,
    json.dumps(_DEEP_OBJECT): '{"a":' * _DEEP + "0" + "}" * _DEEP,
    json.dumps(_LONG_NUMBER): "9" * 400,
}
"""What Python itself cannot write as JSON, or not as a plain value."""
NASTY: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 7, 2**31, 2**63, -(2**63), 10**12, 1e308, -1e308, 0.5, float("nan"), float("inf")),
    *("", "x", "x" * 5000, "../../outside/kept.txt", "/etc/hostname", "\0", "[/x]", "é\udcff", "1e999", "9" * 400),
    *([], {}, [[]], [None], {"": 0}, _DEEP_LIST, _DEEP_OBJECT, _LONG_NUMBER),
)
_TEXTS = tuple(str(value) for value in NASTY if isinstance(value, int | float | str) and "@" not in str(value))


def mutated(content: bytes, random: Random) -> bytes:
    """The content of a file with a little damage; where it holds JSON, mostly to its values."""
    if content[8:9] == b"{" and random.random() < 0.7:
        return _safetensors(content, random)
    if random.random() < 0.7 and (changed := _json_lines(content, random)) is not None:
        return changed
    if random.random() < 0.3 and (changed := _words(content, random)) is not None:
        return changed
    change: Callable[[bytearray, Random], bytes] = random.choice((_flipped, _cut, _overwritten, _doubled, _emptied))
    return change(bytearray(content), random)


def mutated_text(text: str, random: Random) -> str:
    """An address or an option with a part replaced, dropped or doubled."""
    places = [place for place, letter in enumerate(text) if letter in ":?&=x,/ "] or [0]
    first = random.choice([0, *(place + 1 for place in places)])
    last = next((place for place in places if place > first), len(text))
    part = random.choice((random.choice(_TEXTS), "", text[first:last] * 2, "-" + text[first:last]))
    return text[:first] + part + text[last:]


def _safetensors(content: bytes, random: Random) -> bytes:
    """With its header changed, or the record in it; the lengths agree again."""
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    metadata = header.get("__metadata__", {})
    if "longtake" in metadata and random.random() < 0.7:
        metadata["longtake"] = _dumped(_changed(json.loads(metadata["longtake"]), random))
        text = json.dumps(header)
    else:
        text = _dumped(_changed(header, random))
    changed = text.encode("utf-8", "replace")
    return len(changed).to_bytes(8, "little") + changed + content[8 + length :]


def _json_lines(content: bytes, random: Random) -> bytes | None:
    """One object of JSON, or one in a line, with a value changed; None where there is none."""
    try:
        return _dumped(_changed(json.loads(content), random)).encode("utf-8", "replace")
    except (ValueError, RecursionError):
        pass
    lines = content.splitlines()
    if not lines:
        return None
    place = random.randrange(len(lines))
    try:
        lines[place] = _dumped(_changed(json.loads(lines[place]), random)).encode("utf-8", "replace")
    except (ValueError, RecursionError):
        return None
    return b"\n".join(lines) + b"\n"


def _words(content: bytes, random: Random) -> bytes | None:
    """A text with a word replaced; None where it is none."""
    try:
        words = content.decode().split(" ")
    except UnicodeDecodeError:
        return None
    words[random.randrange(len(words))] = random.choice(_TEXTS)
    return " ".join(words).encode("utf-8", "replace")


def _dumped(value: Any) -> str:
    text = json.dumps(value)
    for placeholder, spelled_out in _SPELLED_OUT.items():
        text = text.replace(placeholder, spelled_out)
    return text


def _changed(value: Any, random: Random) -> Any:
    """The value with one part of it, anywhere, replaced, dropped or doubled."""
    if not isinstance(value, dict | list) or not value or random.random() < 0.02:
        return random.choice(NASTY)
    copy = value.copy()
    key: Any = random.choice(list(copy)) if isinstance(copy, dict) else random.randrange(len(copy))
    chance = random.random()
    if chance < 0.1:
        del copy[key]
    elif chance < 0.15 and isinstance(copy, list):
        copy.insert(key, copy[key])
    elif chance < 0.2 and isinstance(copy, dict):
        copy[random.choice(("x", "", "longtake"))] = copy[key]
    elif chance < 0.4:
        copy[key] = random.choice(NASTY)
    else:
        copy[key] = _changed(copy[key], random)
    return copy


def _flipped(content: bytearray, random: Random) -> bytes:
    for _ in range(random.choice((1, 1, 2, 8, 64)) if content else 0):
        content[random.randrange(len(content))] ^= 1 << random.randrange(8)
    return bytes(content)


def _cut(content: bytearray, random: Random) -> bytes:
    first = random.randrange(len(content) + 1)
    last = random.choice((len(content), min(len(content), first + random.randrange(1, 200))))
    del content[first:last]
    return bytes(content)


def _overwritten(content: bytearray, random: Random) -> bytes:
    first = random.randrange(len(content) + 1)
    num_bytes = random.choice((1, 4, 8, 100))
    content[first : first + num_bytes] = random.choice((b"\0", b"\xff", b"\x7f", random.randbytes(1))) * num_bytes
    return bytes(content)


def _doubled(content: bytearray, random: Random) -> bytes:
    first = random.randrange(len(content) + 1)
    return bytes(content[:first] + content[first : first + random.randrange(1, 500)] * 2 + content[first:])


def _emptied(content: bytearray, random: Random) -> bytes:
    return b""
