"""Backends by name."""

from collections.abc import Mapping

from longtake.attention.backend import Backend
from longtake.attention.reference import ReferenceBackend
from longtake.attention.sdpa import SdpaBackend
from longtake.errors import SettingError

BACKENDS: Mapping[str, type[Backend]] = {"sdpa": SdpaBackend, "reference": ReferenceBackend}


def backend_named(name: str) -> Backend:
    """The backend of this name."""
    if name not in BACKENDS:
        raise SettingError(f"There is no attention backend '{name}'; choose one of {', '.join(BACKENDS)}.")
    return BACKENDS[name]()
