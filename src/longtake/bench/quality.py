"""How well a model maps ways through worlds it has never seen, in streaming mode, against the truth.

Each world is filmed once, and all variants see the same frames; a shorter walk is a longer one's beginning.
"""

import itertools
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from longtake.errors import SettingError
from longtake.evaluation.agreement import ClipGeometry
from longtake.evaluation.scoring import Summary, summary_over_worlds
from longtake.evaluation.walk_quality import FilmedWalk, MappedWalk, WorldQuality, score_walk
from longtake.geometry.model import GeometryModel
from longtake.runtime.build import SessionSettings, open_session
from longtake.types import Geometry
from longtake.world.families import Family
from longtake.world.seeds import Split, seeds
from longtake.world.tour import Tour

FEWEST_FRAMES = 3
"""Which an alignment with scale needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MapVariant:
    """Settings of a session, by name."""

    name: str
    session: SessionSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class QualitySettings:
    """What is mapped, and how."""

    variants: tuple[MapVariant, ...]
    frames: tuple[int, ...]
    """Lengths of the walks."""
    num_worlds: int
    size: tuple[int, int]
    """Height and width."""
    split: Split = Split.TEST
    family: Family = Family.HOUSE

    def __post_init__(self) -> None:
        if not self.variants or not self.frames or self.num_worlds < 1:
            raise SettingError("Expected a variant, a length and a world at least; name one of each.")
        if min(self.frames) < FEWEST_FRAMES:
            raise SettingError(f"Expected walks of {FEWEST_FRAMES} frames at least, but got {min(self.frames)}.")

    @property
    def num_steps(self) -> int:
        """Frames filmed and frames watched."""
        return self.num_worlds * (max(self.frames) + len(self.variants) * sum(self.frames))


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityRow:
    """All worlds, mapped for so many frames by one variant."""

    variant: MapVariant
    num_frames: int
    worlds: tuple[WorldQuality, ...]

    @property
    def frame_ms(self) -> float:
        """Mean time that the session took for a frame."""
        return 1e3 * sum(world.watched_s for world in self.worlds) / (len(self.worlds) * self.num_frames)

    def summaries(self) -> Mapping[str, Summary | None]:
        """Every figure over worlds, by name."""
        columns = [world.figures() for world in self.worlds]
        return {name: summary_over_worlds([figures[name] for figures in columns]) for name in columns[0]}

    def better_share(self, name: str) -> float | None:
        """Share of worlds in which the model beats a baseline, by the name of a `times_` figure."""
        known = [times for world in self.worlds if (times := world.figures()[name]) is not None]
        return sum(times > 1 for times in known) / len(known) if known else None


@dataclass(frozen=True, slots=True)
class QualityCase:
    """Worlds of one family, filmed in one size, and what came of them."""

    settings: QualitySettings
    rows: tuple[QualityRow, ...]


def measure_quality(
    model: GeometryModel, settings: QualitySettings, progress: Callable[[int], None]
) -> list[QualityRow]:
    """A row for each length and variant, over the first worlds of the split."""
    cases = list(itertools.product(settings.frames, settings.variants))
    found: list[list[WorldQuality]] = [[] for _ in cases]
    for variant in settings.variants:
        open_session(model, variant.session, settings.size)  # a setting that is refused is refused before the work
    for seed in itertools.islice(seeds(settings.split), settings.num_worlds):
        device = next(model.parameters()).device
        film = film_world(seed, max(settings.frames), settings.size, device, progress, family=settings.family)
        for (num_frames, variant), worlds in zip(cases, found, strict=True):
            worlds.append(_map_world(model, variant, seed, film.first(num_frames)))
            progress(num_frames)
    return [
        QualityRow(variant=variant, num_frames=num_frames, worlds=tuple(worlds))
        for (num_frames, variant), worlds in zip(cases, found, strict=True)
    ]


def film_world(
    seed: int,
    num_frames: int,
    size: tuple[int, int],
    device: torch.device,
    progress: Callable[[int], None],
    *,
    family: Family = Family.HOUSE,
) -> FilmedWalk:
    """The first frames of a tour; images stay where they were drawn, the truth goes to the host."""
    height, width = size
    tour = Tour(seed=seed, width=width, height=height, family=family)
    images, depths, poses = [], [], []
    for view in itertools.islice(tour.views(device), num_frames):
        images.append(view.image)
        depths.append(view.depth.cpu())
        poses.append(view.world_from_camera)
        progress(1)
    return FilmedWalk(
        images=torch.stack(images),
        truth=ClipGeometry(torch.stack(depths), torch.stack(poses)),
        intrinsics=tour.intrinsics(),
    )


def _map_world(model: GeometryModel, variant: MapVariant, seed: int, film: FilmedWalk) -> WorldQuality:
    height, width = film.images.shape[-2:]
    session = open_session(model, variant.session, (height, width))
    start = time.perf_counter()
    found = MappedWalk.of(Geometry.join(list(session.run(film.images))))
    return score_walk(found, film, seed=seed, watched_s=time.perf_counter() - start)
