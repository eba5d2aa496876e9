"""Models by name: files, the package's, presets and places on the hub, and two networks without trained weights."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType

import torch

from longtake.errors import SettingError
from longtake.extras import import_own
from longtake.geometry.config import GeometryConfig
from longtake.geometry.model import GeometryModel
from longtake.hub.bundled import RANDOM_NAMES, bundled_file, bundled_folder, unlike_note
from longtake.hub.presets import PRESETS, parse_name, require_name
from longtake.hub.resolve import find, resolve
from longtake.language.load import LanguageModel, load_language
from longtake.pipeline.unlikeness import Knowledge
from longtake.places.loop_card import LoopCard, read_loop_card
from longtake.places.loop_choice import LoopChoice, choose_loops
from longtake.weights.checkpoint import open_checkpoint
from longtake.weights.familiarity import Familiarity, read_familiarity
from longtake.weights.files import existing
from longtake.weights.fit import fit_geometry
from longtake.weights.load import load_geometry
from longtake.weights.presets import BY_NAME, LINGBOT_MAP, MICRO, TINY
from longtake.weights.published import Family

_LANGUAGE_WEIGHTS = "model.safetensors"
RANDOM: Mapping[str, GeometryConfig] = MappingProxyType(dict(zip(RANDOM_NAMES, (TINY, MICRO), strict=True)))
"""With random weights, the same each time."""
_TOLD_BY_FILE = frozenset(preset.name for preset in PRESETS if preset.model is None)
"""Presets that are all LingBot-Map; which heads a file of it has, it says itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedNetwork:
    """A network that is not among ours; it lies in a module of a user's, who names it as `module:attribute`."""

    weights: Path | str
    """Its file, or its place on the Hugging Face hub as organisation/repository/file."""
    config: GeometryConfig
    family: Family
    """Whose the file is, and its names as ours."""


def load_model(
    name_or_path: Path | str, *, device: torch.device | str = "cpu", trunk_dtype: torch.dtype = torch.float32
) -> GeometryModel:
    """A model ready to answer, from a path, a preset's name or a place on the hub; `tiny` and `micro` are `RANDOM`.

    Products are computed in `trunk_dtype`, so their weights are held in it. VGGT and StreamVGGT have the same names and
    shapes: a file of either is given as `vggt:path` or `streamvggt:path`. A `PublishedNetwork` of a user's is given as
    `module:attribute`.
    """
    require_name(name_or_path)
    if name_or_path in RANDOM:
        model = random_model(RANDOM[str(name_or_path)], torch.device(device))
        return model if trunk_dtype == torch.float32 else model.cast_products(trunk_dtype)
    if (own := _own_network(name_or_path)) is not None:
        return load_geometry(resolve(own.weights), own.config, own.family, device=device, trunk_dtype=trunk_dtype)
    config = told_config(name_or_path)
    return load_geometry(resolve(name_or_path), config, device=device, trunk_dtype=trunk_dtype)


@lru_cache(maxsize=1)
def load_model_once(name_or_path: str) -> GeometryModel:
    """The same on the CPU, once a process: for one that is given work piece by piece."""
    return load_model(name_or_path)


def skeleton_of(name_or_path: Path | str) -> GeometryModel | None:
    """The same without its weights, shapes on the meta device; None where only a download could tell them."""
    require_name(name_or_path)
    own = None if name_or_path in RANDOM else _own_network(name_or_path)
    config = RANDOM.get(str(name_or_path)) or (told_config(name_or_path) if own is None else own.config)
    if config is None and (path := find(name_or_path)) is not None:
        return fit_geometry(open_checkpoint(path)).skeleton
    if config is None and str(name_or_path) in _TOLD_BY_FILE:
        config = LINGBOT_MAP
    if config is None:
        return None
    with torch.device("meta"):
        return GeometryModel(config)


def familiarity_of(name_or_path: Path | str) -> Familiarity | None:
    """Statistics of what a model was trained on, where they lie beside its file; nothing is downloaded for them."""
    path = existing(name_or_path) or bundled_file(str(name_or_path))
    if path is not None and path.is_dir():  # of a language model
        path = path / _LANGUAGE_WEIGHTS
    return None if path is None or not path.is_file() else read_familiarity(path)


def loop_card_of(name_or_path: Path | str) -> LoopCard | None:
    """By what loops of a geometry model are believed, likewise; none for a model that closes no loops."""
    path = existing(name_or_path) or bundled_file(str(name_or_path))
    return None if path is None or not path.is_file() else read_loop_card(path)


def loops_of(name_or_path: Path | str, *, are_wanted: bool = True) -> LoopChoice:
    """Whether sessions of a geometry model close loops, and why."""
    return choose_loops(loop_card_of(name_or_path) if are_wanted else None, are_wanted=are_wanted)


def knowledge_of(name_or_path: Path | str, command: str) -> Knowledge | None:
    """The same, and what to say of a video that is unlike it: to type `command`, whose `{}` is another model."""
    familiarity = familiarity_of(name_or_path)
    if familiarity is None:
        return None
    return Knowledge(familiarity=familiarity, note=unlike_note(str(name_or_path), command))


def random_model(config: GeometryConfig, device: torch.device) -> GeometryModel:
    """Random weights, the same each time."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return GeometryModel(config).eval().requires_grad_(requires_grad=False).to(device)


def load_language_model(
    name_or_path: Path | str, *, device: torch.device | str = "cpu", dtype: torch.dtype | None = None
) -> LanguageModel:
    """A model ready to be asked, from its folder, by the name of one in the package, or from the hub."""
    require_name(name_or_path)
    named = str(name_or_path)
    folder = None if existing(named) is not None else bundled_folder(named)
    return load_language(folder or name_or_path, device=device, dtype=dtype)


def told_config(name_or_path: Path | str) -> GeometryConfig | None:
    """The network that a name tells, or none where the file is to tell."""
    model = parse_name(name_or_path).model
    return None if model is None else BY_NAME[model]


def _own_network(name_or_path: Path | str) -> PublishedNetwork | None:
    """The network of a user's that `module:attribute` names; None for a path and for other names."""
    text = str(name_or_path)
    if not re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", text) or parse_name(text).model or existing(text) is not None:
        return None
    found = import_own(text, "weights, or a published network,")
    if not isinstance(found, PublishedNetwork):
        raise SettingError(
            f"Expected a longtake.hub.load.PublishedNetwork at '{text}', but got {type(found).__name__}."
        )
    return found
