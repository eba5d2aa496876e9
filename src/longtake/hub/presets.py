"""Published weights by name: where they are and what is known of them."""

import re
from dataclasses import dataclass
from pathlib import Path

from longtake.errors import CheckpointError
from longtake.weights.files import existing


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """One published file of weights."""

    name: str
    repo: str
    file: str
    num_parameters: int
    num_bytes: int
    """Of the tensors; the file is a little larger."""
    licence: str
    about: str
    model: str | None = None
    """Which of the networks it is that have the same names, where the file alone may not tell."""


PRESETS = (
    Preset(
        name="lingbot-map-long",
        repo="robbyant/lingbot-map",
        file="lingbot-map-long.pt",
        num_parameters=1_157_943_540,
        num_bytes=4_631_774_160,
        licence="no tag seen; check before use",
        about="recommended for long videos",
    ),
    Preset(
        name="lingbot-map",
        repo="robbyant/lingbot-map",
        file="lingbot-map.pt",
        num_parameters=1_157_943_540,
        num_bytes=4_631_774_160,
        licence="no tag seen; check before use",
        about="balanced",
    ),
    Preset(
        name="stream3r",
        repo="yslan/STream3R",
        file="model.safetensors",
        num_parameters=1_190_596_120,
        num_bytes=4_762_384_480,
        licence="S-Lab License 1.0, non-commercial",
        about="streams; keeps every frame, or what a memory policy keeps",
        model="stream3r",
    ),
    Preset(
        name="streamvggt",
        repo="lch01/StreamVGGT",
        file="checkpoints.pth",
        num_parameters=1_256_537_516,
        num_bytes=5_026_150_064,
        licence="CC BY-NC-SA 4.0, non-commercial",
        about="streams; keeps every frame, or what a memory policy keeps; its track head is not loaded",
        model="streamvggt",
    ),
    Preset(
        name="vggt",
        repo="facebook/VGGT-1B",
        file="model.safetensors",
        num_parameters=1_256_537_516,
        num_bytes=5_026_150_064,
        licence="research only, non-commercial; the repository VGGT-1B-Commercial has other terms",
        about="sees a whole clip at once and cannot stream; its track head is not loaded",
        model="vggt",
    ),
)

_REVISION = re.compile(r"([^@]+)@(\w[\w./-]*)")
_MODELS = frozenset(preset.model for preset in PRESETS if preset.model)


@dataclass(frozen=True, slots=True)
class Named:
    """What a user calls some weights: a path or name, the model they say it is of, and the commit, if they do."""

    weights: Path | str
    model: str | None = None
    revision: str | None = None


def parse_name(name_or_path: Path | str) -> Named:
    """`streamvggt:weights.pth` is a file and its model; a preset's name or repository tells the model by itself.

    `organisation/repository@1a2b3c` is a repository of the hub as of one commit, tag or branch.
    """
    text = str(name_or_path)
    if existing(text) is not None:
        return Named(name_or_path)
    model, colon, weights = text.partition(":")
    if not (colon and weights and model in _MODELS):
        model, weights = "", text
    if existing(weights) is None and (found := _REVISION.fullmatch(weights)):
        weights, revision = found.groups()
    else:
        revision = None
    if model:
        return Named(weights, model, revision)
    of_preset = [
        preset.model
        for preset in PRESETS
        if weights in (preset.name, preset.repo) or weights.startswith(f"{preset.repo}/")
    ]
    return Named(name_or_path if revision is None else weights, of_preset[0] if of_preset else None, revision)


def require_name(name_or_path: Path | str) -> None:
    """Refuse an empty text, which as a path would be the current folder."""
    if name_or_path == "":
        raise CheckpointError("Expected a model's name or path, but got an empty text; `longtake models` lists names.")


def alone_in(repo: str) -> Preset | None:
    """The one preset of a repository, if it has one only."""
    found = [preset for preset in PRESETS if preset.repo == repo]
    return found[0] if len(found) == 1 else None
