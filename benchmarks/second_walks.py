"""Second walks through houses that were mapped before: where they are known, how exactly; never in a strange one."""

import itertools
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import torch
import typer
from jaxtyping import Float64
from rich.table import Table
from torch import Tensor

import longtake
from longtake.api.locating import verifier_of
from longtake.cli.options import AsJson
from longtake.cli.progress import counting
from longtake.cli.tables import show, table
from longtake.evaluation.motion import rotation_angle_deg
from longtake.places.finding import Way, find_way
from longtake.places.known_take import KnownTake
from longtake.places.laying import lay
from longtake.places.verification import Verifier
from longtake.spatial.similarity import best_similarity
from longtake.takes.corrections import Corrections
from longtake.takes.take import Take, read_take
from longtake.world.seeds import Split, seeds
from longtake.world.tour import Tour

_SIZE = (98, 126)
_FORMATS = "tum,depth,confidence,images"
_SOON, _NEAR_M, _NEAR_DEG = 30, 0.3, 6.0
"""Frames within which a walk is to be located, and how exactly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SecondWalk:
    """A second walk in a house that the first one knows; errors where it was located first."""

    seed: int
    known_at: int | None
    """The frame with which it was; None where it never was."""
    metres: float | None = None
    degrees: float | None = None
    """From the place that it was known by, against the truth."""
    metres_in_world: float | None = None
    degrees_in_world: float | None = None
    """In the whole world of the first walk, what that drifted included."""
    num_places: int = 0
    first_m: float
    """Root mean square of the first walk's positions, after one similarity."""
    merged_m: float | None = None
    """Of both walks, merged."""
    together_m: float | None = None
    """Of one walk with as many frames as both."""

    @property
    def is_soon(self) -> bool:
        return self.known_at is not None and self.known_at < _SOON

    @property
    def is_near(self) -> bool:
        """At the place that it was known by."""
        return _is_near(self.metres, self.degrees)

    @property
    def is_near_in_world(self) -> bool:
        return _is_near(self.metres_in_world, self.degrees_in_world)


def _is_near(metres: float | None, degrees: float | None) -> bool:
    return metres is not None and degrees is not None and metres <= _NEAR_M and degrees <= _NEAR_DEG


def second_walks(
    *,
    worlds: Annotated[int, typer.Option(min=1, help="Unseen houses.")] = 20,
    frames: Annotated[int, typer.Option(min=16, help="Of each first walk.")] = 600,
    second_frames: Annotated[int, typer.Option(min=8, help="Of each second walk.")] = 120,
    strange: Annotated[int, typer.Option(min=0, help="Other houses in which each second walk is looked for.")] = 3,
    together: Annotated[
        bool, typer.Option(help="Also map each house by one walk as long as both, beside the two merged.")
    ] = False,
    split: Annotated[Split, typer.Option(help="Which houses.")] = Split.TEST,
    model: Annotated[str, typer.Option(help="A geometry model with a card of loops.")] = "micro-map",
    keep: Annotated[Path | None, typer.Option(help="Folder for the takes; those that are there are not made.")] = None,
    as_json: AsJson = False,
) -> None:
    """Look for second walks in the maps of first ones, and in maps of other houses."""
    torch.set_num_threads(1)
    chosen = list(itertools.islice(seeds(split), worlds))
    with ExitStack() as opened:
        folder = keep or Path(opened.enter_context(tempfile.TemporaryDirectory()))
        takes = _Takes(folder, model)
        figures, num_strange, num_claimed = [], 0, 0
        with counting("walking", worlds) as advance:
            for place, seed in enumerate(chosen):
                first, second = takes.known(seed, 0, frames), takes.known(seed, 1, second_frames)
                verifier = verifier_of(first.network)
                figures.append(_compared(takes, seed, first, second, verifier, together=together))
                for other in range(1, min(strange, len(chosen) - 1) + 1):
                    elsewhere = takes.known(chosen[(place + other) % len(chosen)], 1, second_frames)
                    num_strange += 1
                    num_claimed += find_way(first, elsewhere, verifier) is not None
                advance(1)
    record = {
        "walks": [asdict(one) for one in figures],
        "soon": sum(one.is_soon for one in figures),
        "soon_and_near": sum(one.is_soon and one.is_near for one in figures),
        "soon_and_near_in_world": sum(one.is_soon and one.is_near_in_world for one in figures),
        "strange": num_strange,
        "claimed": num_claimed,
    }
    show(record, [_table(figures), _line(record, len(figures))], as_json=as_json)


class _Takes:
    """Walks by seed and number, mapped when they are wanted first."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name = folder, name

    def known(self, seed: int, walk: int, frames: int) -> KnownTake:
        out = self._folder / f"{seed}_{walk}_{frames}"
        source = f"world:{seed}?frames={frames}&size={_SIZE[1]}x{_SIZE[0]}&walk={walk}"
        longtake.map(source, out, model=self._name, format=_FORMATS, skip_done=True, overwrite=True)
        return KnownTake.finished(read_take(out))


def _compared(
    takes: _Takes, seed: int, first: KnownTake, second: KnownTake, verifier: Verifier, *, together: bool
) -> SecondWalk:
    true = [_truth(seed, 0, len(first.take)), _truth(seed, 1, len(second.take))]
    cameras = first.take.trajectory.world_from_camera
    first_m = _error_m(cameras, true[0])
    way = find_way(first, second, verifier)
    if way is None:
        return SecondWalk(seed=seed, known_at=None, first_m=first_m)
    near, whole = _located(way, cameras, true)
    laid = lay(first, second, way.links, moves_old=True)
    merged = None if laid is None else torch.cat([_moved(first.take, laid.old), _moved(second.take, laid.new)])
    one_walk = takes.known(seed, 0, len(first.take) + len(second.take)).take if together else None
    return SecondWalk(
        seed=seed,
        known_at=way.known_at,
        metres=near[0],
        degrees=near[1],
        metres_in_world=whole[0],
        degrees_in_world=whole[1],
        num_places=0 if laid is None else laid.num_links,
        first_m=first_m,
        merged_m=None if merged is None else _error_m(merged, torch.cat(true)),
        together_m=None
        if one_walk is None
        else _error_m(one_walk.trajectory.world_from_camera, _truth(seed, 0, len(one_walk))),
    )


def _located(
    way: Way, cameras: Float64[Tensor, "frames 4 4"], true: Sequence[Float64[Tensor, "frames 4 4"]]
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Metres and degrees by which the camera is off: from the old one that it was known by, and in the whole world."""
    link = way.at_first[-1]
    camera, old_true, new_true = link.old_from_new.of_cameras(link.new_camera), true[0], true[1][link.new_frame]
    metres_from_unit = best_similarity(cameras[:, :3, 3].contiguous(), old_true[:, :3, 3])
    from_old = torch.linalg.inv(link.old_camera) @ camera
    from_old[:3, 3] *= metres_from_unit.scale
    return (
        _apart(from_old, torch.linalg.inv(old_true[link.old_frame]) @ new_true),
        _apart(metres_from_unit.of_cameras(camera), new_true),
    )


def _apart(one: Float64[Tensor, "4 4"], other: Float64[Tensor, "4 4"]) -> tuple[float, float]:
    turn_deg = float(rotation_angle_deg(one[:3, :3].T @ other[:3, :3]))
    return float((one[:3, 3] - other[:3, 3]).norm()), turn_deg


def _truth(seed: int, walk: int, frames: int) -> Float64[Tensor, "frames 4 4"]:
    return Tour(seed=seed, width=_SIZE[1], height=_SIZE[0], walk=walk).cameras(frames)


def _moved(take: Take, corrections: Corrections | None) -> Float64[Tensor, "frames 4 4"]:
    poses = take.trajectory.world_from_camera
    if corrections is None:
        return poses
    return torch.stack([corrections.of_pose(frame, pose) for frame, pose in enumerate(poses)])


def _error_m(poses: Float64[Tensor, "frames 4 4"], truth: Float64[Tensor, "frames 4 4"]) -> float:
    metres_from_unit = best_similarity(poses[:, :3, 3].contiguous(), truth[:, :3, 3].contiguous())
    apart = metres_from_unit.of_points(poses[:, :3, 3]) - truth[:, :3, 3]
    return float(apart.norm(dim=1).square().mean().sqrt())


def _table(figures: Sequence[SecondWalk]) -> Table:
    def shown(number: float | None, digits: int = 2) -> str:
        return "" if number is None else f"{number:.{digits}f}"

    rows = [
        [
            *(str(one.seed), "never" if one.known_at is None else str(one.known_at)),
            *(shown(one.metres), shown(one.degrees, 1), shown(one.metres_in_world), shown(one.degrees_in_world, 1)),
            *(str(one.num_places), shown(one.first_m), shown(one.merged_m), shown(one.together_m)),
        ]
        for one in figures
    ]
    headings = [
        *("seed", "known at", "m", "degrees", "m in world", "degrees in world"),
        *("places", "first walk, m", "merged, m", "one walk, m"),
    ]
    return table(headings, rows)


def _line(record: dict[str, object], worlds: int) -> str:
    return (
        f"{record['soon']} of {worlds} known within {_SOON} frames, {record['soon_and_near']} within {_NEAR_M} m and "
        f"{_NEAR_DEG:.0f} degrees of the place they were known by ({record['soon_and_near_in_world']} in the whole "
        f"world); {record['claimed']} of {record['strange']} claimed in a strange house"
    )
