"""Backends by name."""

from collections.abc import Callable, Mapping
from functools import partial

from longtake.attention.backend import Backend, ReferenceBackend, SdpaBackend
from longtake.attention.flashinfer import FlashInferBackend
from longtake.errors import SettingError

BACKENDS: Mapping[str, Callable[[], Backend]] = {
    "sdpa": SdpaBackend,
    "reference": ReferenceBackend,
    "flashinfer": FlashInferBackend,
    "flashinfer-fa3": partial(FlashInferBackend, "fa3"),
}


def backend_named(name: str) -> Backend:
    """The backend of this name; one whose packages are missing says what to install."""
    if name not in BACKENDS:
        raise SettingError(f"There is no attention backend '{name}'; choose one of {', '.join(BACKENDS)}.")
    return BACKENDS[name]()
