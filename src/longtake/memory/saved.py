"""Files of tensors, written piece by piece: safetensors with one JSON record in its metadata.

The file is complete or absent: it is written beside its name, flushed to disk, then renamed.
"""

import json
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Shaped
from safetensors import SafetensorError, safe_open
from torch import Tensor

from longtake.errors import InputError, SavedSessionError

_DTYPE_NAMES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.uint8: "U8",
}
_RECORD = "longtake"


@dataclass(frozen=True, slots=True)
class Pieces:
    """A tensor given as consecutive pieces of its first axis, made one at a time."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    pieces: Iterable[Tensor]

    @classmethod
    def of(cls, tensor: Shaped[Tensor, "..."]) -> "Pieces":
        return cls(tensor.dtype, tuple(tensor.shape), (tensor,))

    @property
    def num_bytes(self) -> int:
        return torch.Size(self.shape).numel() * self.dtype.itemsize


def write_tensors(path: Path, tensors: Mapping[str, Pieces], record: Mapping[str, Any]) -> None:
    """Write the file; host memory grows by one piece at a time."""
    try:
        _replace(path, tensors, record)
    except OSError as error:
        raise InputError(
            f"{path} cannot be written ({error.strerror or error}); make room there or name another folder."
        ) from error


def _replace(path: Path, tensors: Mapping[str, Pieces], record: Mapping[str, Any]) -> None:
    unfinished = path.with_name(path.name + ".unfinished")
    try:
        with unfinished.open("wb") as file:
            file.write(_header(tensors, record))
            for content in tensors.values():
                for piece in content.pieces:
                    file.write(_raw_bytes(piece))
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    except BaseException:
        with suppress(OSError):
            unfinished.unlink()
        raise


class SavedTensors:
    """A file written by `write_tensors`, mapped into memory; tensors are read when asked for."""

    def __init__(self, path: Path) -> None:
        try:
            self._file = safe_open(path, framework="pt", device="cpu")
            self.record: Mapping[str, Any] = json.loads(self._file.metadata()[_RECORD])
        except FileNotFoundError as error:
            raise SavedSessionError(f"There is no saved session at {path}; check the path.") from error
        except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
            raise SavedSessionError(f"{path} is not a complete saved session ({error}); save it again.") from error

    def __getitem__(self, name: str) -> Shaped[Tensor, "..."]:
        try:
            tensor = self._file.get_tensor(name)
        except SafetensorError as error:
            raise SavedSessionError(f"The saved session has no tensor '{name}'; save it again.") from error
        assert isinstance(tensor, Tensor)
        return tensor


def _raw_bytes(piece: Shaped[Tensor, "..."]) -> memoryview:
    flat = piece.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().data if len(flat) else memoryview(b"")


def _header(tensors: Mapping[str, Pieces], record: Mapping[str, Any]) -> bytes:
    """Eight bytes of length, then JSON with every tensor's type, shape and place, padded to eight bytes."""
    entries: dict[str, Any] = {"__metadata__": {_RECORD: json.dumps(record)}}
    offset = 0
    for name, content in tensors.items():
        end = offset + content.num_bytes
        entries[name] = {"dtype": _DTYPE_NAMES[content.dtype], "shape": content.shape, "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(entries).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text
