"""The same for a language model that answers about houses: how its vision tower sees those for training."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer
from jaxtyping import Float, UInt8
from torch import Tensor

import longtake
from benchmarks.familiarity import filmed, limited
from longtake.cli.progress import counting
from longtake.hub.load import load_language_model
from longtake.language.frames import pixel_rows
from longtake.language.load import LanguageModel
from longtake.language.prompt_builder import grid_descriptors
from longtake.types import counted
from longtake.weights.familiarity import CLIP_GRIDS, FEWEST_GRIDS, Familiarity, read_familiarity
from longtake.world.families import HELD_OUT, Family
from longtake.world.seeds import Split, seeds

_SIZE = (112, 168)
_EVERY = 5
"""Of ten frames a second: two a second, as it is asked."""
_NUM_FRAMES = 2 * CLIP_GRIDS * _EVERY


def answer_familiarity(
    model: Annotated[Path, typer.Argument(help="A language model's folder; the statistics go beside its weights.")],
    sources: Annotated[list[str] | None, typer.Argument(help="Videos to judge by what was learned.")] = None,
    *,
    worlds: Annotated[int, typer.Option(min=2, help="Houses for training.")] = 60,
    houses: Annotated[int, typer.Option(min=20, help="Unseen ones, and held out worlds; as many are tested.")] = 40,
) -> None:
    """Compute what a language model knows from houses for training, and a limit between unseen ones and others."""
    torch.set_num_threads(1)
    language = load_language_model(model)
    with counting("filming", worlds + 3 * houses) as advance:
        found = learn_answers(language, num_worlds=worlds, num_houses=houses, progress=advance)
        path = found.save(model / "model.safetensors")
        known = read_familiarity(model / "model.safetensors")
        assert known is not None
        tested = list(_described(language, Family.HOUSE, Split.TEST, houses, advance))
    typer.echo(f"{path}: {counted(path.stat().st_size, 'byte')}, limit {found.limit:.4f}.")
    typer.echo(_told("test houses", known, tested))
    for source in sources or ():
        typer.echo(_told(Path(source).name, known, list(answer_clips(language, source))))


def learn_answers(
    language: LanguageModel, *, num_worlds: int, num_houses: int, progress: Callable[[int], None]
) -> Familiarity:
    """Statistics of houses for training, and the limit by houses and held out worlds for validation."""
    found = Familiarity.of([torch.cat(list(_described(language, Family.HOUSE, Split.TRAINING, num_worlds, progress)))])
    unseen, strange = (
        list(_described(language, family, Split.VALIDATION, num_houses, progress))
        for family in (Family.HOUSE, HELD_OUT)
    )
    return limited(found, unseen, strange)


def answer_clips(language: LanguageModel, source: str) -> Iterator[Float[Tensor, "grids width"]]:
    """What a video looks like, in stretches of as many pairs of frames as it is judged by, two frames a second."""
    frames = (frame.image for frame in longtake.open_video(source, fps=2.0) if frame.image is not None)
    for number, clip in enumerate(iter(lambda: list(itertools.islice(frames, 2 * CLIP_GRIDS)), [])):
        if len(clip) == 2 * CLIP_GRIDS or (number == 0 and len(clip) >= 2 * FEWEST_GRIDS):
            yield _descriptors(language, clip[: len(clip) // 2 * 2])


def _described(
    language: LanguageModel, family: Family, split: Split, num_worlds: int, progress: Callable[[int], None]
) -> Iterator[Float[Tensor, "grids width"]]:
    for number, seed in enumerate(itertools.islice(seeds(split), num_worlds)):
        frames = filmed(family, seed, _SIZE, number, num_frames=_NUM_FRAMES, every=_EVERY)
        yield _descriptors(language, list(frames))
        progress(1)


def _descriptors(
    language: LanguageModel, images: Sequence[UInt8[np.ndarray, "rows columns 3"]]
) -> Float[Tensor, "grids width"]:
    """Of pictures that are resized as a session's are."""
    frames = torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2).contiguous()
    pixels = pixel_rows(frames, language.picture_format.fit(*frames.shape[-2:]))
    return grid_descriptors(language.network.see(pixels.values, pixels.grid), pixels.grid[0]).cpu()


def _told(name: str, known: Familiarity, clips: Sequence[Float[Tensor, "grids width"]]) -> str:
    found = [known.unlikeness(float(known.distances(clip).mean())) for clip in clips]
    accepted = sum(one <= 1 for one in found)
    return f"{name}: {accepted} of {counted(len(found), 'clip')} accepted, unlikeness {float(np.median(found)):.2f}."
