"""What closing loops is worth: walks through unseen worlds as they were said, and as they are known by loops."""

import itertools
import time
from dataclasses import asdict, dataclass
from typing import Annotated

import numpy as np
import torch
import typer
from jaxtyping import Float64
from torch import Tensor

from longtake.cli.options import AsJson, Families, split_names
from longtake.cli.progress import counting
from longtake.cli.tables import show, table
from longtake.errors import SettingError
from longtake.evaluation.motion import rotation_angle_deg
from longtake.geometry.model import GeometryModel
from longtake.hub.load import load_model, loop_card_of
from longtake.places.loop_card import LoopCard
from longtake.places.looped_session import LoopedSession
from longtake.places.verification import Verifier
from longtake.places.walk import Walk
from longtake.runtime.build import open_session, usual_settings
from longtake.runtime.steps import VideoSession
from longtake.spatial.similarity import Similarity, best_similarity
from longtake.types import Geometry
from longtake.world.families import Family, families_named
from longtake.world.seeds import Split, seeds
from longtake.world.tour import Tour

_SIZE = (98, 126)
_WRONG_M, _WRONG_DEG = 0.5, 8.0
"""How far a loop may be from the truth between the first cameras of its two nodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WalkFigures:
    """Of one walk, against the truth after one similarity."""

    family: str
    seed: int
    said_m: float
    known_m: float
    """Root mean square of positions, without loops and with them."""
    said_deg: float
    known_deg: float
    """Median of rotations."""
    loops: int
    withdrawn: int
    wrong: int
    """Of those that were not withdrawn."""
    said_ms: float
    known_ms: float
    """Of the processor, a frame, without loops and with them: two sessions that take each frame in turn."""
    megabytes: float
    """Kept for loops."""


def loop_walks(
    *,
    family: Families = Family.HOUSE.value,
    worlds: Annotated[int, typer.Option(min=1, help="Unseen ones of each family.")] = 4,
    frames: Annotated[int, typer.Option(min=64, help="Of each walk.")] = 1000,
    split: Annotated[Split, typer.Option(help="Which worlds.")] = Split.VALIDATION,
    model: Annotated[str, typer.Option(help="A geometry model with a card of loops.")] = "micro-map",
    as_json: AsJson = False,
) -> None:
    """Walk through unseen worlds and come back: errors without loops and with them."""
    torch.set_num_threads(1)
    card = required_card(model)
    network, families, figures = load_model(model).eval(), families_named(split_names(family)), []
    with counting("walking", len(families) * worlds) as advance:
        for one in families:
            for seed in itertools.islice(seeds(split), worlds):
                tour = Tour(seed=seed, width=_SIZE[1], height=_SIZE[0], family=one)
                figures.append(walk_with_loops(network, card, tour, frames))
                advance(1)
    rows = [
        [
            *(one.family, str(one.seed), f"{one.said_m:.3f}", f"{one.known_m:.3f}"),
            *(f"{one.said_deg:.1f}", f"{one.known_deg:.1f}"),
            f"{one.loops}, {one.withdrawn}, {one.wrong}",
            *(f"{one.said_ms:.1f}", f"{one.known_ms:.1f}", f"{one.known_ms / one.said_ms - 1:.1%}"),
            f"{one.megabytes:.0f}",
        ]
        for one in figures
    ]
    headings = [
        *("family", "seed", "m without", "m with", "degrees without", "with", "loops, withdrawn, wrong"),
        *("ms a frame without", "ms with", "more", "MB"),
    ]
    show([asdict(one) for one in figures], [table(headings, rows)], as_json=as_json)


def required_card(model: str) -> LoopCard:
    """By which it knows places again; refused where there is none."""
    card = loop_card_of(model)
    if card is None:
        raise SettingError(f"Expected a model with a card of loops, but {model} has none; choose one with loop-pairs.")
    return card


def walk_with_loops(network: GeometryModel, card: LoopCard, tour: Tour, frames: int) -> WalkFigures:
    """One walk to its end."""
    plain, inner = (open_session(network, usual_settings(network.config), _SIZE) for _ in range(2))
    session = LoopedSession(inner, Verifier(card))
    truth, seconds = [], {plain: 0.0, session: 0.0}
    followed: dict[VideoSession, dict[int, Tensor]] = {plain: {}, session: {}}
    for number, view in enumerate(itertools.islice(tour.views(), frames)):
        truth.append(view.world_from_camera.double())
        image = (view.image * 255).round().byte()
        for one in (plain, session) if number % 2 else (session, plain):
            started_s = time.process_time()
            geometry = one.step(image, view.timestamp_s)
            seconds[one] += time.process_time() - started_s
            follow(followed[one], geometry)
    for one, known in followed.items():
        follow(known, one.finish())
    walk, true = session.walk, torch.stack(truth)
    assert walk.graph is not None
    loops = walk.graph.loops
    before, after = (
        pose_errors(torch.stack([known[frame] for frame in range(frames)]), true) for known in followed.values()
    )
    return WalkFigures(
        family=tour.family.value,
        seed=tour.seed,
        said_m=before.metres,
        known_m=after.metres,
        said_deg=before.degrees,
        known_deg=after.degrees,
        loops=len(loops),
        withdrawn=int(loops.is_withdrawn.sum()),
        wrong=_num_wrong(walk, true, after.metres_per_unit),
        said_ms=1000 * seconds[plain] / frames,
        known_ms=1000 * seconds[session] / frames,
        megabytes=walk.num_bytes / 1e6,
    )


@dataclass(frozen=True, slots=True)
class PoseErrors:
    metres: float
    degrees: float
    metres_per_unit: float


def follow(known: dict[int, Tensor], geometry: Geometry) -> None:
    """Poses as whoever hears of corrections has them."""
    moved = geometry.moved
    if moved is not None:
        for span in moved.spans:
            now_from_before = Similarity.of_matrix(span.now_from_before.double())
            for frame in range(span.first_frame, min(span.last_frame + 1, len(known))):
                known[frame] = now_from_before.of_cameras(known[frame])
        known |= dict(zip(moved.geometry.frame_index, moved.geometry.world_from_camera.double(), strict=True))
    known |= dict(zip(geometry.frame_index, geometry.world_from_camera.double(), strict=True))


def pose_errors(poses: Float64[Tensor, "frames 4 4"], truth: Float64[Tensor, "frames 4 4"]) -> PoseErrors:
    metres_from_unit = best_similarity(poses[:, :3, 3], truth[:, :3, 3])
    moved = metres_from_unit.of_cameras(poses)
    apart = (moved[:, :3, 3] - truth[:, :3, 3]).norm(dim=1)
    turns = rotation_angle_deg(truth[:, :3, :3].transpose(1, 2) @ moved[:, :3, :3])
    return PoseErrors(float(apart.square().mean().sqrt()), float(turns.median()), float(metres_from_unit.scale))


def _num_wrong(walk: Walk, truth: Float64[Tensor, "frames 4 4"], metres_per_unit: float) -> int:
    """Loops that are believed and are not so."""
    assert walk.graph is not None
    loops, wrong = walk.graph.loops, 0
    for loop in np.flatnonzero(~loops.is_withdrawn).tolist():
        first, second = (walk.starts[int(node[loop])] for node in (loops.first, loops.second))
        true, measured = torch.linalg.inv(truth[first]) @ truth[second], loops.measured.one(loop)
        metres = float((metres_per_unit * measured.translation - true[:3, 3]).norm())
        degrees = float(rotation_angle_deg(true[:3, :3].T @ measured.rotation))
        wrong += metres > _WRONG_M or degrees > _WRONG_DEG
    return wrong
