"""Objects as JSON that tells whether it was changed: a SHA-256 of all other fields is one of them."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from longtake.errors import InputError
from longtake.takes.fields import JsonObject

_CHECKSUM = "sha256"


def sealed(record: Mapping[str, Any]) -> bytes:
    """The content of a file."""
    return (json.dumps({**record, _CHECKSUM: _checksum(record)}, indent=1) + "\n").encode()


def unsealed(record: JsonObject) -> JsonObject:
    """The object without its checksum, which must be right."""
    rest = {name: value for name, value in record.fields.items() if name != _CHECKSUM}
    if record.fields.get(_CHECKSUM) != _checksum(rest):
        raise InputError(f"{record.where} was damaged or changed, for its checksum is another.")
    return JsonObject(rest, record.where)


def _checksum(record: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()
