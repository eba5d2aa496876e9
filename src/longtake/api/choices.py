"""Devices, backends and other choices by the words people write."""

from collections.abc import Sequence

import torch

from longtake.attention.backend import Backend
from longtake.attention.choose import backend_named
from longtake.errors import SettingError

AUTO = "auto"


def one_of(what: str, given: str, known: Sequence[str]) -> str:
    """One of several words."""
    if given not in known:
        raise SettingError(f"Expected {what} as {', '.join(known)}, but got '{given}'.")
    return given


def choose_device(name: str) -> torch.device:
    """A device by name; `auto` is the GPU where torch sees one."""
    if name == AUTO:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name not in ("cpu", "cuda"):
        raise SettingError(f"There is no device '{name}'; choose one of cpu, cuda, auto.")
    if name == "cuda" and not torch.cuda.is_available():
        raise SettingError("Torch sees no CUDA device here; choose cpu, or install a CUDA build of torch.")
    return torch.device(name)


def choose_backend(name: str) -> Backend | None:
    """An attention backend by name; `auto` leaves the choice to the session."""
    return None if name == AUTO else backend_named(name)
