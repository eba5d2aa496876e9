"""What a model knows, as statistics beside its file: how its encoder sees worlds for training, and how unseen houses.

A clip is every fourth of 48 frames. Worlds take turns in how they are filmed, for users film as they like: as the
network is trained, at twice the size and resampled, and that as JPEG. Nothing that reads pictures is needed for them.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, TypeAlias

import numpy as np
import torch
import typer
from jaxtyping import Float, UInt8
from rich.table import Table
from torch import Tensor
from torch.nn import functional

from longtake.bench.workers import Workers, open_workers
from longtake.cli.options import AsJson, Families, Processes, split_names
from longtake.cli.progress import counting
from longtake.cli.tables import show, table
from longtake.errors import SettingError
from longtake.geometry.model import GeometryModel
from longtake.hub.load import load_model_once
from longtake.hub.resolve import resolve
from longtake.types import counted
from longtake.weights.familiarity import CLIP_FRAMES, Familiarity, read_familiarity
from longtake.world.camera_effects import jpeg_compressed
from longtake.world.families import HELD_OUT, Family, families_named
from longtake.world.seeds import Split, seeds
from longtake.world.tour import Tour

EVERY = 4
_FIRST_SIZE = (98, 126)
"""Of a model whose file states no sizes."""
_TOLD_SHARE = 0.95
_JPEG_QUALITY = 85.0

Descriptors: TypeAlias = Float[Tensor, "frames channels"]
Pictures: TypeAlias = Iterable[UInt8[np.ndarray, "rows columns 3"]]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldClip:
    """The beginning of the way through a world, in a size that a model was trained on."""

    family: Family
    seed: int
    size: tuple[int, int]
    """Height and width."""
    way: int
    """Of filming, which take turns."""


Describe = Callable[[Sequence[WorldClip]], Sequence[Descriptors]]
"""What clips look like to a model, in their order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedShare:
    """Clips of one sort that a model takes for its own."""

    clips: str
    num_clips: int
    accepted: float
    median: float
    """Unlikeness; 1 is the limit."""


def familiarity(
    model: Annotated[Path, typer.Argument(help="A geometry model's file; the statistics go beside it.")],
    *,
    family: Families = Family.HOUSE.value,
    worlds: Annotated[int, typer.Option(min=2, help="For training, of each family and size.")] = 60,
    houses: Annotated[int, typer.Option(min=20, help="Unseen ones, and held out worlds, of each size.")] = 60,
    processes: Processes = 1,
) -> None:
    """Compute what a model knows from worlds for training, and a limit between unseen houses and what is held out."""
    families = families_named(split_names(family))
    if HELD_OUT in families:
        raise SettingError(f"The family {HELD_OUT} is no part of training; name others.")
    torch.set_num_threads(1)  # the network and its pictures are too small to share
    sizes = _sizes(load_model_once(str(model)))
    with open_workers(processes) as workers:
        describe = partial(_described, str(model), workers)
        found = learn(describe, sizes, families, num_worlds=worlds, num_houses=houses)
    path = found.save(model)
    typer.echo(f"{path}: {counted(path.stat().st_size, 'byte')}, limit {found.limit:.4f}.")


def unlikeness(
    sources: Annotated[list[str] | None, typer.Argument(help="Videos, folders and takes that others made.")] = None,
    *,
    model: Annotated[str, typer.Option(help="A model with statistics beside its file.")] = "micro-map",
    worlds: Annotated[int, typer.Option(min=1, help="Test worlds of each family.")] = 20,
    processes: Processes = 1,
    as_json: AsJson = False,
) -> None:
    """Show how many clips of test worlds a model takes for its own, and how many of other people's videos."""
    torch.set_num_threads(1)
    network, known = load_model_once(model), read_familiarity(resolve(model))
    if known is None:
        raise SettingError(f"There are no statistics beside {resolve(model)}; run: python -m benchmarks familiarity")
    sizes = _sizes(network)
    clips = {kind: _clips(kind, Split.TEST, worlds, sizes) for kind in families_named(["all"])}
    with open_workers(processes) as workers:
        found = iter(_described(model, workers, list(itertools.chain(*clips.values()))))
    rows = [_accepted(known, kind, list(itertools.islice(found, len(some)))) for kind, some in clips.items()]
    if sources:
        from benchmarks.video_clips import video_clips

        rows += [
            _accepted(known, Path(source).name, some)
            for source in sources
            if (some := list(video_clips(network, source)))
        ]
    noise = np.random.default_rng(0).integers(0, 256, (CLIP_FRAMES, *_FIRST_SIZE, 3), dtype=np.uint8)
    rows.append(_accepted(known, "noise", [_descriptors(network, noise[::EVERY], sizes[0])]))
    show([asdict(row) for row in rows], _blocks(model, rows), as_json=as_json)


def learn(
    describe: Describe,
    sizes: Sequence[tuple[int, int]],
    families: Sequence[Family],
    *,
    num_worlds: int,
    num_houses: int,
) -> Familiarity:
    """Statistics of worlds for training, and the limit by houses and held out worlds for validation."""
    training = [_clips(family, Split.TRAINING, num_worlds, sizes) for family in families]
    unseen, strange = (_clips(family, Split.VALIDATION, num_houses, sizes) for family in (Family.HOUSE, HELD_OUT))
    described = iter(describe([*itertools.chain(*training), *unseen, *strange]))
    found = Familiarity.of([torch.cat(list(itertools.islice(described, len(clips)))) for clips in training])
    return limited(found, list(itertools.islice(described, len(unseen))), list(described))


def limited(found: Familiarity, unseen: Sequence[Descriptors], strange: Sequence[Descriptors]) -> Familiarity:
    """With a limit halfway, by ratio, between what most unseen clips stay below and what most strange ones exceed.

    At what 95 % of some houses stay below, fewer of others do: more of them are harder than those. Where the two
    cannot be told apart, it is that nevertheless.
    """
    known, other = (torch.stack([found.distances(clip).mean() for clip in clips]) for clips in (unseen, strange))
    below, above = float(known.quantile(_TOLD_SHARE)), float(other.quantile(1 - _TOLD_SHARE))
    return replace(found, limit=max(below, math.sqrt(below * above)))


def describe_clip(network: GeometryModel, clip: WorldClip) -> Descriptors:
    """What a model sees in a clip of a world."""
    return _descriptors(network, filmed(clip.family, clip.seed, clip.size, clip.way), clip.size)


def _clips(family: Family, split: Split, num_worlds: int, sizes: Sequence[tuple[int, int]]) -> list[WorldClip]:
    """Of each of the first worlds of a split, in every size."""
    return [
        WorldClip(family=family, seed=seed, size=size, way=way)
        for size in sizes
        for way, seed in enumerate(itertools.islice(seeds(split), num_worlds))
    ]


def _described(model: str, workers: Workers, clips: Sequence[WorldClip]) -> list[Descriptors]:
    """By a model of this name, clips handed out one by one."""
    with counting("filming", len(clips)) as advance:
        return workers.in_order(partial(_describe_named, model), clips, advance)


def _describe_named(model: str, clip: WorldClip) -> Descriptors:
    return describe_clip(load_model_once(model), clip)


def filmed(
    family: Family,
    seed: int,
    size: tuple[int, int],
    way: int,
    *,
    num_frames: int = CLIP_FRAMES,
    every: int = EVERY,
) -> Iterator[UInt8[np.ndarray, "rows columns 3"]]:
    """Frames of a clip: as they are, twice as large, or that as JPEG, in turn."""
    height, width = (side * (1 if way % 3 == 0 else 2) for side in size)
    tour = Tour(seed=seed, width=width, height=height, family=family)
    for view in tour.views_at(range(0, num_frames, every)):
        image = (view.image.movedim(0, -1) * 255).round().byte().numpy()
        yield _as_jpeg(image) if way % 3 == 2 else image


def _as_jpeg(image: UInt8[np.ndarray, "rows columns 3"]) -> UInt8[np.ndarray, "rows columns 3"]:
    picture = torch.from_numpy(image).movedim(-1, 0)[None, None] / 255
    back = jpeg_compressed(picture, torch.tensor([_JPEG_QUALITY]))[0, 0]
    return (back * 255).round().byte().movedim(0, -1).numpy()


def _descriptors(network: GeometryModel, images: Pictures, size: tuple[int, int]) -> Descriptors:
    """Of pictures that are scaled to this size, as a session's are."""
    pictures = [torch.from_numpy(image).movedim(-1, 0)[None] for image in images]
    scaled = [functional.interpolate(one, size=size, mode="bicubic", antialias=True) for one in pictures]
    with torch.no_grad():
        return network.descriptor(network.encode(torch.stack(scaled, dim=1) / 255, network.grid(*size)))[0]


def _sizes(network: GeometryModel) -> tuple[tuple[int, int], ...]:
    return network.config.sizes or (_FIRST_SIZE,)


def _accepted(known: Familiarity, clips: str, descriptors: Sequence[Float[Tensor, "frames channels"]]) -> AcceptedShare:
    found = [known.unlikeness(float(known.distances(clip).mean())) for clip in descriptors]
    return AcceptedShare(
        clips=clips,
        num_clips=len(found),
        accepted=float(np.mean([one <= 1 for one in found])),
        median=float(np.median(found)),
    )


def _blocks(model: str, rows: Sequence[AcceptedShare]) -> Iterator[str | Table]:
    cells = ((row.clips, str(row.num_clips), f"{row.accepted:.0%}", f"{row.median:.2f}") for row in rows)
    yield table(("clips of 48 frames", "number", "accepted", "unlikeness"), cells, title=model)
