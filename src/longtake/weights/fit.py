"""Whether a checkpoint is of a geometry model: every name there, none left over, every shape right."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from longtake.errors import CheckpointError
from longtake.geometry.config import Attention, GeometryConfig
from longtake.geometry.model import GeometryModel
from longtake.records import parse_json
from longtake.weights import presets
from longtake.weights.checkpoint import Checkpoint, Stored, some
from longtake.weights.published import (
    LINGBOT_MAP,
    LONGTAKE,
    STREAM3R,
    STREAMVGGT,
    UNKNOWN,
    UNUSED,
    VGGT,
    VGGT_OR_STREAMVGGT,
    Family,
    our_name,
    published_name,
    recognise,
)

RECORD = "longtake"
"""Metadata entry under which a file of ours says what it is."""


@dataclass(frozen=True, slots=True)
class Fitted:
    """A checkpoint that a model takes as it is."""

    family: Family
    skeleton: GeometryModel
    """The model on the meta device: shapes without values."""
    tensors: Mapping[str, Stored]
    """By our names; the skeleton's, no more and no fewer."""


def fit_geometry(checkpoint: Checkpoint, config: GeometryConfig | None = None, family: Family | None = None) -> Fitted:
    """Match a checkpoint with a model of this configuration and family, or of those that the file itself implies."""
    family = family or recognise(checkpoint.tensors.keys(), checkpoint.path.name)
    config = config or _implied_config(checkpoint, family)
    if family == VGGT_OR_STREAMVGGT:
        family = VGGT if config.attention is Attention.FULL else STREAMVGGT
    with torch.device("meta"):
        skeleton = GeometryModel(config)
    shapes = {name: tuple(tensor.shape) for name, tensor in skeleton.state_dict().items()}
    keys = [key for key in checkpoint.tensors if key not in UNUSED and not family.skips(key)]
    ours = {key: family.our_name(key) for key in keys}
    _require_names(checkpoint.path, family, ours, shapes)
    tensors = {name: checkpoint.tensors[key] for key, name in ours.items() if name is not None}
    _require_shapes(checkpoint.path, family, tensors, shapes)
    return Fitted(family, skeleton, tensors)


def _implied_config(checkpoint: Checkpoint, family: Family) -> GeometryConfig:
    """What a file of ours says of itself, else what its names tell."""
    if family == LONGTAKE:
        return _recorded_config(checkpoint)
    if family == LINGBOT_MAP:
        return _lingbot_config(checkpoint)
    if family == STREAM3R:
        return presets.STREAM3R
    if family == VGGT_OR_STREAMVGGT:
        raise CheckpointError(
            f"{checkpoint.path} is of VGGT or of StreamVGGT, whose names and shapes are the same; say which it is, as "
            f"vggt:{checkpoint.path} or streamvggt:{checkpoint.path}, or pass the configuration."
        )
    known = f" ({some(list(checkpoint.tensors))})" if family == UNKNOWN else ""
    raise CheckpointError(
        "Expected the weights of LingBot-Map, STream3R, StreamVGGT, VGGT or of a model that longtake saved, but "
        f"{checkpoint.path} looks like {family.title}{known}; give another file."
    )


def _lingbot_config(checkpoint: Checkpoint) -> GeometryConfig:
    """LingBot-Map with exactly the point heads that the file has."""
    heads = {key.partition(".")[0] for key in checkpoint.tensors}
    dense = replace(presets.LINGBOT_MAP.dense, points="point_head" in heads, camera_points="local_point_head" in heads)
    return replace(presets.LINGBOT_MAP, dense=dense)


def _recorded_config(checkpoint: Checkpoint) -> GeometryConfig:
    try:
        record: Mapping[str, Any] = parse_json(checkpoint.metadata[RECORD])
        text = str(record["config"])
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"{checkpoint.path} has longtake's names but does not say which configuration they belong to; "
            "pass the configuration, or save the model again with save_geometry."
        ) from error
    return GeometryConfig.from_json(text)


def _require_names(
    path: Path, family: Family, ours: Mapping[str, str | None], shapes: Mapping[str, tuple[int, ...]]
) -> None:
    """Refuse any difference, in a sentence that names some of it and in notes that name all."""
    missing = [_in_file(name, family) for name in shapes.keys() - set(ours.values())]
    surplus = [key for key, name in ours.items() if name not in shapes]
    if not missing and not surplus:
        return
    wrong = [f"{len(missing)} tensors are missing ({some(missing)})"] if missing else []
    wrong += [f"{len(surplus)} have no place in the model ({some(surplus)})"] if surplus else []
    error = CheckpointError(
        f"{path} looks like {family.title}, but {' and '.join(wrong)}; "
        "fetch the file again, or pass the configuration it was made with."
    )
    for title, names in (("missing", missing), ("without a place", surplus)):
        error.add_note(f"{title}: {', '.join(sorted(names)) or 'none'}")
    raise error


def _require_shapes(
    path: Path, family: Family, tensors: Mapping[str, Stored], shapes: Mapping[str, tuple[int, ...]]
) -> None:
    for name, stored in tensors.items():
        if stored.shape != shapes[name]:
            wrong = sum(stored.shape != shapes[name] for name, stored in tensors.items())
            others = f", as have {wrong - 1} others" if wrong > 1 else ""
            raise CheckpointError(
                f"{path} looks like {family.title}, but {_in_file(name, family)} has the wrong shape{others}: expected "
                f"{_by(shapes[name])}, came {_by(stored.shape)}; pass the configuration the file was made with."
            )
        if not stored.dtype.is_floating_point:
            raise CheckpointError(
                f"Expected floats in {path}, but {_in_file(name, family)} holds {str(stored.dtype)[6:]}; "
                "give the weights before they were quantised."
            )


def _in_file(name: str, family: Family) -> str:
    return (published_name(name) or name) if family.our_name is our_name else name


def _by(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape)) or "a single number"
