"""What an archive of torch.save asks for, read before torch opens it; nothing in it is called, and nothing inflated.

torch calls whatever makes a tensor or a number with whatever a file says, `bytearray(5_000_000_000)` too. Here a pickle
may name tensors and what they are made of, and call only what puts a tensor onto a storage of the same file.
"""

import pickle
import pickletools
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import torch

_LARGEST_PICKLE = 4 * 2**20
"""Bytes; one of a thousand tensors has a tenth of a megabyte."""
_PUTS = ("PUT", "BINPUT", "LONG_BINPUT")


class UnsafePickleError(Exception):
    """A pickle asks for more than tensors; the text is the name of what it asks for."""


class _Thing:
    """In place of what would be made."""


def _make(*_: object) -> _Thing:
    return _Thing()


_CALLED: dict[str, Callable[..., object]] = {
    "collections.OrderedDict": OrderedDict,
    "torch._utils._rebuild_tensor": _make,
    "torch._utils._rebuild_tensor_v2": _make,
    "torch._utils._rebuild_parameter": _make,
    "torch.Size": _make,
    "torch.device": _make,
}


def require_tensors_only(path: Path) -> None:
    """Raise an UnsafePickleError for an archive that asks for more, or one of many errors for a damaged one."""
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        if any(member.compress_type != zipfile.ZIP_STORED for member in members):
            raise ValueError("it is compressed, which torch.save never does")
        (record,) = [member for member in members if member.filename.endswith("/data.pkl")]
        if record.file_size > _LARGEST_PICKLE:
            raise ValueError(f"its pickle has {record.file_size} bytes, more than the names of tensors take")
        pickled = archive.read(record)
    _require_true_lengths(pickled)
    _Reader(BytesIO(pickled)).load()


def _require_true_lengths(pickled: bytes) -> None:
    """Before a reader makes room for them: of texts, which pickletools checks, and of the table of what comes again."""
    for opcode, argument, _ in pickletools.genops(pickled):
        if opcode.name in _PUTS and isinstance(argument, int) and argument > len(pickled):
            raise ValueError("its pickle counts more things than it has bytes")


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str, /) -> object:
        full_name = f"{module}.{name}"
        if full_name in _CALLED:
            return _CALLED[full_name]
        is_type = name.endswith("Storage") or isinstance(vars(torch).get(name), torch.dtype)
        if module in ("torch", "torch.storage") and is_type:
            return _Thing()  # which cannot be called
        raise UnsafePickleError(full_name)

    def persistent_load(self, _: object, /) -> object:
        return _Thing()
