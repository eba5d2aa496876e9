"""Weights that come with the package, by name."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

import longtake
from longtake.errors import CheckpointError

FOLDER = Path(longtake.__file__).parent / "models"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundled:
    """Weights of the package, in one file."""

    name: str
    file: str
    """Below `FOLDER`; that of a language model lies in a folder of the hub's layout, which is of this name."""
    num_parameters: int
    num_bytes: int
    """Of the tensors; the file is a little larger."""
    licence: str
    about: str
    trained_on: str
    """Beside which it knows nothing."""
    instead: str
    """What to name for video of the real world."""

    @property
    def path(self) -> Path:
        return FOLDER / self.file

    @property
    def is_language(self) -> bool:
        return Path(self.file).parent.name == self.name


MICRO_MAP = Bundled(
    name="micro-map",
    file="micro-map.safetensors",
    num_parameters=5_482_100,
    num_bytes=10_964_200,
    licence="Apache-2.0, as longtake itself",
    about="the default; runs on a laptop, and knows procedural scenes and nothing else",
    trained_on="procedural scenes",
    instead="lingbot-map-long",
)
MICRO_VQA = Bundled(
    name="micro-vqa",
    file="micro-vqa/model.safetensors",
    num_parameters=3_966_080,
    num_bytes=7_932_160,
    licence="Apache-2.0, as longtake itself",
    about="the default for questions; a Qwen2.5-VL in small that knows procedural houses and 90 words",
    trained_on="procedural houses",
    instead="Qwen/Qwen2.5-VL-3B-Instruct",
)
BUNDLED = (MICRO_MAP, MICRO_VQA)
DEFAULT_MODEL = MICRO_MAP.name
"""What commands map with if no model is named."""
DEFAULT_LANGUAGE = MICRO_VQA.name
"""What commands ask if no language model is named."""
RANDOM_NAMES = ("tiny", "micro")
"""Networks without trained weights: for tests of the machinery, where what comes out does not matter."""


def model_notes(name: str, *, shows_world: bool, naming: str = "--model {}") -> tuple[str, ...]:
    """What to know before trusting what this model says of a video that shows one of our worlds, or something else.

    `naming` is how whoever reads it names another model.
    """
    if name in RANDOM_NAMES:
        return (f"The weights are random: what {name} says shows how longtake works, and no geometry.",)
    bundled = _named(name)
    if bundled is None or shows_world:
        return ()
    return (
        f"{name} was trained on {bundled.trained_on} and knows nothing else; for real video type "
        f"{naming.format(bundled.instead)}.",
    )


def unlike_note(name: str, command: str, what: str = "its map") -> str:
    """What to say of a video that is unlike those which a model knows; `{}` is by how much, `command` what to use."""
    known = _named(name)
    instead = "name another model" if known is None else f"name a published model: {command.format(known.instead)}"
    return (
        f"{name} knows procedural houses; this video is unlike them ({{}} times as far as nearly all unseen ones), "
        f"{what} may mean nothing; for real video {instead}"
    )


def fingerprint(name: str) -> str | None:
    """SHA-256 of a bundled file, by which figures say whose they are; none for other names."""
    path = bundled_file(name)
    return None if path is None else hashlib.sha256(path.read_bytes()).hexdigest()


def bundled_file(name: str) -> Path | None:
    """Where the weights of this name lie; none for a name that is not of the package."""
    bundled = _named(name)
    if bundled is None:
        return None
    if not bundled.path.is_file():
        raise CheckpointError(
            f"Expected the weights of {name} in the package, but there is no {bundled.path}; install longtake again, "
            "or name another model."
        )
    return bundled.path


def bundled_folder(name: str) -> Path | None:
    """The folder of a language model of this name; none for a name that is not of the package."""
    bundled, path = _named(name), bundled_file(name)
    if bundled is None or path is None:
        return None
    if not bundled.is_language:
        raise CheckpointError(
            f"Expected a model that answers questions, but {name} maps; name {DEFAULT_LANGUAGE}, or the folder of a "
            "Qwen2.5-VL."
        )
    return path.parent


def _named(name: str) -> Bundled | None:
    return next((one for one in BUNDLED if one.name == name), None)
