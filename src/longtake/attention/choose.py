"""Backends by name; a user's own are named `module:attribute`."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from longtake.attention.backend import Backend, ReferenceBackend, SdpaBackend
from longtake.attention.flashinfer import FlashInferBackend
from longtake.attention.triton import TritonBackend
from longtake.errors import SavedSessionError, SettingError
from longtake.extras import import_own

BACKENDS: Mapping[str, Callable[[], Backend]] = {
    "sdpa": SdpaBackend,
    "reference": ReferenceBackend,
    "triton": TritonBackend,
    "flashinfer": FlashInferBackend,
    "flashinfer-fa3": partial(FlashInferBackend, "fa3"),
}


def backend_named(name: str) -> Backend:
    """The backend of this name; one whose packages are missing says what to install.

    `my_package.kernels:Fast` is a class, or a function without arguments, that gives a `Backend`.
    """
    if name in BACKENDS:
        return BACKENDS[name]()
    require_backend(name, tuple(BACKENDS))
    kind = import_own(name, "an attention backend")
    backend = kind() if callable(kind) else kind
    if not isinstance(backend, Backend):
        raise SettingError(
            f"Expected a longtake.attention.backend.Backend from '{name}', but got {type(backend).__name__}."
        )
    return backend


def recorded_backend(name: str) -> Backend:
    """The backend that a saved session names; nothing is imported because a file says so."""
    if ":" in name:
        raise SavedSessionError(
            f"The saved session was made with an attention backend of your own, '{name}'; name it when you resume."
        )
    return backend_named(name)


def require_backend(name: str, known: Sequence[str]) -> None:
    """Refuse a name that is neither among these nor of a user's own."""
    if name not in known and ":" not in name:
        raise SettingError(
            f"There is no attention backend '{name}'; choose one of {', '.join(known)}, or your own as "
            "module:attribute."
        )
