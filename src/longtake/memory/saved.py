"""Files of tensors, written piece by piece: safetensors with one JSON record in its metadata.

The file is complete or absent: it is written beside its name, flushed to disk, then renamed. Its metadata begin with a
SHA-256 of the whole file, in which the digits of the checksum itself count as zeros.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Shaped
from safetensors import SafetensorError, safe_open
from torch import Tensor

from longtake.errors import SavedSessionError, StorageError
from longtake.records import parse_json

_DTYPE_NAMES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.uint8: "U8",
}
_RECORD = "longtake"
_CHECKSUM = "sha256"
_NO_DIGITS = "0" * 64
_DIGITS_FROM = 8 + len(f'{{"__metadata__": {{"{_CHECKSUM}": "')
"""Where the digits lie: after the length of the header and its first words, which never change."""
_CHUNK_BYTES = 2**20


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

    def copied(self) -> "Pieces":
        """The same on its own, in the host's memory: what it was made of may change from now on."""
        return replace(self, pieces=tuple(piece.detach().to("cpu", copy=True) for piece in self.pieces))


@dataclass(frozen=True, slots=True)
class TensorFile:
    """What `write_tensors` writes, before it is written."""

    tensors: Mapping[str, Pieces]
    record: Mapping[str, Any]

    def save(self, path: str | Path) -> None:
        """Write it; the file is complete or absent."""
        write_tensors(Path(path), self.tensors, self.record)

    def copied(self) -> "TensorFile":
        """The same on its own, to be saved at any time, in any thread."""
        return TensorFile({name: pieces.copied() for name, pieces in self.tensors.items()}, self.record)


def write_tensors(path: Path, tensors: Mapping[str, Pieces], record: Mapping[str, Any]) -> None:
    """Write the file; host memory grows by one piece at a time."""
    try:
        _replace(path, tensors, record)
    except OSError as error:
        fault = f"{path} cannot be written ({error.strerror or error})"
        raise StorageError(f"{fault}; make room there or name another folder.", fault=fault) from error


def _replace(path: Path, tensors: Mapping[str, Pieces], record: Mapping[str, Any]) -> None:
    unfinished = path.with_name(path.name + ".unfinished")
    try:
        with unfinished.open("wb") as file:
            digest = hashlib.sha256()
            for part in _parts(tensors, record):
                digest.update(part)
                file.write(part)
            file.seek(_DIGITS_FROM)
            file.write(digest.hexdigest().encode())
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    except BaseException:
        with suppress(OSError):
            unfinished.unlink()
        raise


class SavedTensors:
    """A file written by `write_tensors`, mapped into memory; tensors are read when asked for.

    Its checksum is compared at once. Files of earlier versions have none, and are taken as they are.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            if path.exists() and not path.is_file():
                raise ValueError("it is no file")
            self._file = safe_open(path, framework="pt", device="cpu")
            metadata = self._file.metadata()
            if metadata.keys() != {_RECORD} and metadata[_CHECKSUM] != _checksum(path):
                raise ValueError("its checksum is another, so it was damaged or changed")
            record = parse_json(metadata[_RECORD])
            if not isinstance(record, dict):
                raise ValueError("its record is no object")
        except FileNotFoundError as error:
            raise _missing(path) from error
        except KeyError as error:
            raise _incomplete(path, f"it has no {error} in its metadata") from error
        except (OSError, SafetensorError, AttributeError, ValueError) as error:
            raise _incomplete(path, error) from error
        self.record: Mapping[str, Any] = record

    @property
    def names(self) -> Sequence[str]:
        """Of all tensors."""
        return tuple(self._file.keys())

    def __getitem__(self, name: str) -> Shaped[Tensor, "..."]:
        try:
            tensor = self._file.get_tensor(name)
        except SafetensorError as error:
            raise SavedSessionError(f"The saved session has no tensor '{name}'; save it again.") from error
        assert isinstance(tensor, Tensor)
        return tensor

    def read(self, name: str, dtype: torch.dtype | None, shape: tuple[int | None, ...] = ()) -> Shaped[Tensor, "..."]:
        """A tensor of this type and shape, else a sentence; None stands for any type or length."""
        tensor = self[name]
        fits = len(shape) == tensor.ndim and all(
            want in (None, length) for want, length in zip(shape, tensor.shape, strict=True)
        )
        if not fits or dtype not in (None, tensor.dtype):
            lengths = " x ".join("any" if length is None else str(length) for length in shape) or "one number"
            kind = "" if dtype is None else f" of {dtype}"
            raise SavedSessionError(
                f"Expected '{name}' of the saved session as {lengths}{kind}, but got "
                f"{tuple(tensor.shape)} of {tensor.dtype}; save it again."
            )
        return tensor


def stated_checksum(path: Path) -> str:
    """What a file says of its own content, which `SavedTensors` compares; other text where it says nothing."""
    if not path.is_file():
        raise _missing(path)
    try:
        with path.open("rb") as file:
            file.seek(_DIGITS_FROM)
            return file.read(len(_NO_DIGITS)).decode("ascii", errors="replace")
    except OSError as error:
        raise _incomplete(path, error) from error


def _missing(path: Path) -> SavedSessionError:
    return SavedSessionError(f"There is no saved session at {path}; check the path.")


def _incomplete(path: Path, why: object) -> SavedSessionError:
    return SavedSessionError(f"{path} is not a complete saved session ({why}); save it again.")


def _checksum(path: Path) -> str:
    """Of a whole file, its own digits as zeros."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        digest.update(file.read(_DIGITS_FROM) + _NO_DIGITS.encode())
        file.seek(len(_NO_DIGITS), os.SEEK_CUR)
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def _parts(tensors: Mapping[str, Pieces], record: Mapping[str, Any]) -> Iterator[bytes | memoryview]:
    yield _header(tensors, record)
    for content in tensors.values():
        yield from map(_raw_bytes, content.pieces)


def _raw_bytes(piece: Shaped[Tensor, "..."]) -> memoryview:
    flat = piece.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().data if len(flat) else memoryview(b"")


def _header(tensors: Mapping[str, Pieces], record: Mapping[str, Any]) -> bytes:
    """Eight bytes of length, then JSON with every tensor's type, shape and place, padded to eight bytes."""
    entries: dict[str, Any] = {"__metadata__": {_CHECKSUM: _NO_DIGITS, _RECORD: json.dumps(record)}}
    offset = 0
    for name, content in tensors.items():
        end = offset + content.num_bytes
        entries[name] = {"dtype": _DTYPE_NAMES[content.dtype], "shape": content.shape, "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(entries).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text
