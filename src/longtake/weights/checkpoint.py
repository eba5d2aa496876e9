"""Files of weights as lazy mappings: names, shapes and types at once, values when asked for.

A file is told by its first bytes:

    PK 03 04                        an archive as torch.save writes it; its pickle may name tensors and nothing else
    length (8 bytes) {"a": …        safetensors
    80                              a bare pickle, never opened: it could run code, and cannot be mapped into memory
"""

import pickle
import struct
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import torch
from jaxtyping import Shaped
from safetensors import SafetensorError, safe_open
from torch import Tensor

from longtake.errors import CheckpointError
from longtake.weights.archive import UnsafePickleError, require_tensors_only
from longtake.weights.files import is_index, locate, read_index

_DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
_ARCHIVE = b"PK\x03\x04"
_PICKLE = b"\x80"
_POINTER = b"version https://git-lfs"
# what reading a damaged archive was seen to raise, besides UnpicklingError; its pickle can be broken in any way
_DAMAGE = (
    RuntimeError,
    OSError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    ArithmeticError,
    EOFError,
    MemoryError,
    zipfile.BadZipFile,
    struct.error,
)


@dataclass(frozen=True, slots=True)
class Stored:
    """One tensor of a file."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    read: Callable[[], Tensor]
    """The tensor, mapped: its pages belong to the file, so copy it before the file may change."""

    @property
    def num_parameters(self) -> int:
        return torch.Size(self.shape).numel()

    @property
    def num_bytes(self) -> int:
        return self.num_parameters * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A file of weights, or several that one index joins."""

    path: Path
    tensors: Mapping[str, Stored]
    metadata: Mapping[str, str] = field(default_factory=dict)


def open_checkpoint(path: Path | str) -> Checkpoint:
    """Open weights without reading their values; no code in the file is ever run."""
    file = locate(Path(path))
    if is_index(file):
        return _open_shards(file)
    start = _first_bytes(file)
    if start.startswith(_ARCHIVE):
        return _open_archive(file)
    if start[8:9] == b"{":
        return _open_safetensors(file)
    if start.startswith(_PICKLE):
        raise CheckpointError(
            f"{file} is a bare pickle, which can run code when it is opened, and was refused unopened; "
            "ask for the weights as safetensors, or save them again with torch.save."
        )
    if start == _POINTER:
        raise CheckpointError(f"{file} is a Git LFS pointer in place of the weights; run `git lfs pull` beside it.")
    raise _damaged(file, "its first bytes are of no known format")


def _first_bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as content:
            return content.read(len(_POINTER))
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read ({error.strerror}); check who may read it.") from error


def _open_safetensors(path: Path) -> Checkpoint:
    try:
        file = safe_open(path, framework="pt", device="cpu")
        headers = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
        tensors = {
            name: Stored(tuple(header.get_shape()), _DTYPES[header.get_dtype()], partial(file.get_tensor, name))
            for name, header in headers.items()
        }
    except KeyError as error:
        raise CheckpointError(
            f"{path} holds numbers of type {error}, which longtake does not read; convert them to floats first."
        ) from error
    except (OSError, SafetensorError) as error:
        raise _damaged(path, error) from error
    return Checkpoint(path, tensors, file.metadata() or {})


def _open_shards(index: Path) -> Checkpoint:
    places = read_index(index)
    shards = {name: open_checkpoint(index.parent / name) for name in sorted(set(places.values()))}
    absent = [name for name, shard in places.items() if name not in shards[shard].tensors]
    if absent:
        raise CheckpointError(
            f"{index} promises {len(absent)} tensors that its files do not hold ({some(absent)}); fetch them again."
        )
    return Checkpoint(index, {name: shards[shard].tensors[name] for name, shard in places.items()})


def _open_archive(path: Path) -> Checkpoint:
    state = _unpickle(path)
    if isinstance(state, dict) and "model" in state:
        state = state["model"]
    if not isinstance(state, dict) or not all(isinstance(value, Tensor) for value in state.values()):
        raise CheckpointError(
            f"Expected tensors by name in {path}, at the top or under 'model', but got {_outline(state)}; "
            "save the model's state_dict alone."
        )
    return Checkpoint(path, {str(name): _mapped(tensor) for name, tensor in state.items()})


def _unpickle(path: Path) -> object:
    """What an archive holds, storages mapped; refused before anything is made if it asks for more than tensors."""
    try:
        require_tensors_only(path)
        content: object = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except UnsafePickleError as error:
        raise CheckpointError(
            f"{path} was refused because its pickle asks for {error}, which is no tensor and could run code on this "
            "machine; ask for the weights as safetensors."
        ) from error
    except pickle.UnpicklingError as error:
        raise CheckpointError(
            f"{path} was refused because its pickle is damaged or asks for more than tensors; "
            "fetch it again, or ask for the weights as safetensors."
        ) from error
    except _DAMAGE as error:
        raise _damaged(path, error) from error
    return content


def _mapped(tensor: Shaped[Tensor, "..."]) -> Stored:
    return Stored(tuple(tensor.shape), tensor.dtype, tensor.detach)


def _outline(content: object) -> str:
    if not isinstance(content, dict):
        return f"one {type(content).__name__}"
    return f"other things under {some([str(name) for name, value in content.items() if not isinstance(value, Tensor)])}"


def _damaged(path: Path, why: object) -> CheckpointError:
    reason = str(why).strip().splitlines() or [type(why).__name__]
    return CheckpointError(
        f"{path} is damaged, cut short or no file of weights ({reason[0].split('. ')[0].rstrip('.')}); "
        "expected safetensors, or what torch.save writes, so fetch it again."
    )


def some(names: list[str], most: int = 3) -> str:
    """The first few of many names."""
    return ", ".join(sorted(names)[:most]) + (" and others" if len(names) > most else "")
