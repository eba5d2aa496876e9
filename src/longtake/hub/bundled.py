"""Weights that come with the package, by name."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

import longtake
from longtake.errors import CheckpointError

FOLDER = Path(longtake.__file__).parent / "models"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundled:
    """One file of the package."""

    name: str
    file: str
    num_parameters: int
    num_bytes: int
    """Of the tensors; the file is a little larger."""
    licence: str
    about: str

    @property
    def path(self) -> Path:
        return FOLDER / self.file


MICRO_MAP = Bundled(
    name="micro-map",
    file="micro-map.safetensors",
    num_parameters=5_482_100,
    num_bytes=10_964_200,
    licence="Apache-2.0, as longtake itself",
    about="the default; runs on a laptop, and knows procedural houses and nothing else",
)
BUNDLED = (MICRO_MAP,)
DEFAULT_MODEL = MICRO_MAP.name
"""What commands map with if no model is named."""


def fingerprint(name: str) -> str | None:
    """SHA-256 of a bundled file, by which figures say whose they are; none for other names."""
    path = bundled_file(name)
    return None if path is None else hashlib.sha256(path.read_bytes()).hexdigest()


def bundled_file(name: str) -> Path | None:
    """Where the weights of this name lie; none for a name that is not of the package."""
    bundled = next((one for one in BUNDLED if one.name == name), None)
    if bundled is None:
        return None
    if not bundled.path.is_file():
        raise CheckpointError(
            f"Expected the weights of {name} in the package, but there is no {bundled.path}; install longtake again, "
            "or name another --model."
        )
    return bundled.path
