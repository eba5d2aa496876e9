"""A training saved and resumed: weights in full, moments in short, in files small enough to send anywhere."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from longtake.errors import InputError
from training.optimise import Optimisers

MOST_BYTES = 15_000_000
"""Of one file."""
_HEADER_BYTES = 200_000
"""Enough for the names of all tensors."""
_WEIGHTS = "weights/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """How far a training is."""

    step: int
    worlds: int
    """For training, filmed so far."""


def is_training(folder: Path) -> bool:
    """Whether a training was saved here."""
    return _part(folder, 0).exists()


def save_training(folder: Path, model: nn.Module, optimisers: Optimisers, reached: Reached) -> None:
    """Write all parts, each of which says how far it is; the last training stays until they are all there."""
    parts = list(_parts(_weights(model) | optimisers.stored()))
    metadata = {"record": json.dumps(asdict(reached) | {"parts": len(parts)})}
    files = [(_part(folder, at), folder / f"training-{at}.new") for at in range(len(parts))]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for part, (_, new) in zip(parts, files, strict=True):
            save_file({name: tensor.cpu().contiguous() for name, tensor in part.items()}, new, metadata)
        for path, new in files:
            new.replace(path)
    except (OSError, SafetensorError) as error:
        raise InputError(
            f"The training cannot be put away in {folder} ({error}); the last one there stays, make room and go on."
        ) from error


@torch.no_grad()
def resume_training(folder: Path, model: nn.Module, optimisers: Optimisers) -> Reached:
    """Give model and optimisers what was saved; where that cannot be, they stay as they are."""
    record, tensors = _read(_part(folder, 0))
    for at in range(1, record["parts"]):
        other, more = _read(_part(folder, at))
        if other != record:
            raise InputError(f"The parts of the training in {folder} are of different steps; begin anew elsewhere.")
        tensors |= more
    places = _weights(model) | optimisers.live()
    if {name: place.shape for name, place in places.items()} != {name: one.shape for name, one in tensors.items()}:
        raise InputError(f"The training in {folder} is of another network; go on with that, or begin anew elsewhere.")
    for name, place in places.items():
        place.copy_(tensors[name])
    return Reached(step=record["step"], worlds=record["worlds"])


def _weights(model: nn.Module) -> dict[str, Tensor]:
    """Each once, where several names are tied to one."""
    by_place = {weight.data_ptr(): (name, weight) for name, weight in reversed(model.state_dict().items())}
    return {_WEIGHTS + name: weight.detach() for name, weight in reversed(by_place.values())}


def _read(path: Path) -> tuple[dict[str, int], dict[str, Tensor]]:
    try:
        with safe_open(path, framework="pt") as file:
            stored = json.loads(file.metadata()["record"])
            record = {name: int(stored[name]) for name in ("step", "worlds", "parts")}
            return record, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"Expected a part of a training in {path}, but it cannot be read as one ({error}); begin anew elsewhere."
        ) from error


def _part(folder: Path, at: int) -> Path:
    return folder / f"training-{at}.safetensors"


def _parts(tensors: dict[str, Tensor]) -> Iterator[dict[str, Tensor]]:
    """In order, as many in each as fit."""
    part, size = dict[str, Tensor](), 0
    for name, tensor in tensors.items():
        num_bytes = tensor.numel() * tensor.dtype.itemsize
        if part and size + num_bytes > MOST_BYTES - _HEADER_BYTES:
            yield part
            part, size = {}, 0
        part[name] = tensor
        size += num_bytes
    yield part
