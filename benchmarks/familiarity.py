"""What a model knows, as statistics beside its file: how its encoder sees worlds for training, and how unseen houses.

A clip is every fourth of 48 frames. Worlds take turns in how they are filmed, for users film as they like: as the
network is trained, at twice the size and resampled, and that as JPEG.
"""

import io
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer
from jaxtyping import Float, UInt8
from PIL import Image
from rich.table import Table
from torch import Tensor

import longtake
from longtake.cli.options import AsJson, Families, split_names
from longtake.cli.progress import counting
from longtake.cli.tables import show, table
from longtake.errors import SettingError
from longtake.geometry.model import GeometryModel
from longtake.hub.load import load_model
from longtake.hub.resolve import resolve
from longtake.runtime.build import usual_settings
from longtake.types import counted
from longtake.video.resize import Preprocessor
from longtake.weights.familiarity import CLIP_FRAMES, FEWEST_FRAMES, Familiarity, read_familiarity
from longtake.weights.load import load_geometry
from longtake.world.families import HELD_OUT, Family, families_named
from longtake.world.seeds import Split, seeds
from longtake.world.tour import Tour

_EVERY = 4
_FIRST_SIZE = (98, 126)
"""Of a model whose file states no sizes."""
_ACCEPTED_SHARE = 0.95
_JPEG_QUALITY = 85


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
    houses: Annotated[int, typer.Option(min=20, help="Unseen ones of each size, for the limit.")] = 60,
) -> None:
    """Compute what a model knows from worlds for training, and the limit that 95 % of unseen houses stay below."""
    families = families_named(split_names(family))
    if HELD_OUT in families:
        raise SettingError(f"The family {HELD_OUT} is no part of training; name others.")
    torch.set_num_threads(1)  # the network and its pictures are too small to share
    network = load_geometry(model)
    count = len(_sizes(network)) * (len(families) * worlds + houses)
    with counting("filming", count) as advance:
        found = learn(network, families, num_worlds=worlds, num_houses=houses, progress=advance)
    path = found.save(model)
    typer.echo(f"{path}: {counted(path.stat().st_size, 'byte')}, limit {found.limit:.4f}.")


def unlikeness(
    sources: Annotated[list[str] | None, typer.Argument(help="Videos, folders and takes that others made.")] = None,
    *,
    model: Annotated[str, typer.Option(help="A model with statistics beside its file.")] = "micro-map",
    worlds: Annotated[int, typer.Option(min=1, help="Test worlds of each family.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Show how many clips of test worlds a model takes for its own, and how many of other people's videos."""
    torch.set_num_threads(1)
    network, known = load_model(model), read_familiarity(resolve(model))
    if known is None:
        raise SettingError(f"There are no statistics beside {resolve(model)}; run: python -m benchmarks familiarity")
    rows = [
        _accepted(known, kind, descriptors)
        for kind in families_named(["all"])
        if (descriptors := list(_described(network, kind, Split.TEST, worlds, lambda _: None)))
    ]
    rows += [
        _accepted(known, Path(source).name, clips)
        for source in sources or ()
        if (clips := list(video_clips(network, source)))
    ]
    noise = np.random.default_rng(0).integers(0, 256, (CLIP_FRAMES, *_FIRST_SIZE, 3), dtype=np.uint8)
    rows.append(_accepted(known, "noise", [_descriptors(network, noise[::_EVERY])]))
    show([asdict(row) for row in rows], _blocks(model, rows), as_json=as_json)


def learn(
    network: GeometryModel,
    families: Sequence[Family],
    *,
    num_worlds: int,
    num_houses: int,
    progress: Callable[[int], None],
) -> Familiarity:
    """Statistics of worlds for training, and the limit by houses for validation."""
    trained = [
        torch.cat(list(_described(network, family, Split.TRAINING, num_worlds, progress))) for family in families
    ]
    found = Familiarity.of(trained)
    unseen = _described(network, Family.HOUSE, Split.VALIDATION, num_houses, progress)
    distances = torch.stack([found.distances(clip).mean() for clip in unseen])
    return replace(found, limit=float(distances.quantile(_ACCEPTED_SHARE)))


def video_clips(network: GeometryModel, source: str) -> Iterator[Float[Tensor, "frames channels"]]:
    """Descriptors of a video's stretches of 48 frames; of the rest where it is all there is."""
    frames = (frame.image for frame in longtake.open_video(source) if frame.image is not None)
    for number, clip in enumerate(iter(lambda: list(itertools.islice(frames, CLIP_FRAMES)), [])):
        if len(clip) == CLIP_FRAMES or (number == 0 and len(clip) >= FEWEST_FRAMES):
            yield _descriptors(network, clip[::_EVERY])


def _described(
    network: GeometryModel, family: Family, split: Split, num_worlds: int, progress: Callable[[int], None]
) -> Iterator[Float[Tensor, "frames channels"]]:
    """Of each clip of the first worlds of a split, in every size that the model was trained on."""
    for size in _sizes(network):
        for number, seed in enumerate(itertools.islice(seeds(split), num_worlds)):
            yield _descriptors(network, list(filmed(family, seed, size, number)))
            progress(1)


def filmed(
    family: Family,
    seed: int,
    size: tuple[int, int],
    way: int,
    *,
    num_frames: int = CLIP_FRAMES,
    every: int = _EVERY,
) -> Iterator[UInt8[np.ndarray, "rows columns 3"]]:
    """Frames of a clip: as they are, twice as large, or that as JPEG, in turn."""
    height, width = (side * (1 if way % 3 == 0 else 2) for side in size)
    tour = Tour(seed=seed, width=width, height=height, family=family)
    for view in tour.views_at(range(0, num_frames, every)):
        image = (view.image.movedim(0, -1) * 255).round().byte().numpy()
        yield _as_jpeg(image) if way % 3 == 2 else image


def _as_jpeg(image: UInt8[np.ndarray, "rows columns 3"]) -> UInt8[np.ndarray, "rows columns 3"]:
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "jpeg", quality=_JPEG_QUALITY)
    return np.asarray(Image.open(buffer))


def _descriptors(
    network: GeometryModel, images: Sequence[UInt8[np.ndarray, "rows columns 3"]] | UInt8[np.ndarray, "..."]
) -> Float[Tensor, "frames channels"]:
    """Of pictures that are placed and scaled as a session's are."""
    settings = usual_settings(network.config)
    prepare = Preprocessor(size=settings.image_size, patch=network.config.patch, sizes=settings.sizes)
    pixels = torch.stack([prepare(image).pixels for image in images])[None] / 255
    with torch.no_grad():
        return network.descriptor(network.encode(pixels, network.grid(*pixels.shape[-2:])))[0]


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
