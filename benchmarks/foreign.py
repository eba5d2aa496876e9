"""Scenes that nobody here wrote, mapped by a model and compared with the truth; nothing is tuned on them."""

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.table import Table

import longtake
from benchmarks.bullet import BULLET_SCENES, write_bullet
from benchmarks.castle import write_castle
from longtake.cli.options import AsJson, Size, parse_size, split_names
from longtake.cli.tables import show, table
from longtake.errors import SettingError
from longtake.evaluation.depth_alignment import DepthAlignment
from longtake.hub.bundled import DEFAULT_MODEL, fingerprint
from longtake.hub.load import load_model
from longtake.takes.header import is_take
from longtake.takes.take import read_take

CASTLE = "castle"
FOREIGN_SCENES = (CASTLE, *BULLET_SCENES)
_CASTLE_FOLDER = Path(".oracles/visp/Castle-simu")


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignScore:
    """One scene, mapped."""

    scene: str
    num_frames: int
    auc_5: float
    """Share of pairs of frames whose pose is right to 1, 2, … 5 degrees, averaged; 0 to 1."""
    auc_15: float
    auc_30: float
    ate_share: float | None
    abs_rel: float
    """Of depth, with one scale for the sequence."""
    delta_1: float
    """Share of pixels within a factor of 1.25."""


def foreign(
    *,
    model: Annotated[str, typer.Option(help="A checkpoint, or a name of longtake models.")] = DEFAULT_MODEL,
    scenes: Annotated[str, typer.Option(help=f"Some of {', '.join(FOREIGN_SCENES)}, with commas, or all.")] = "all",
    folder: Annotated[
        Path, typer.Option(help="Where scenes are made into takes; those that are there are used again.")
    ] = Path("out/foreign"),
    castle: Annotated[Path, typer.Option(help="Castle-simu, as make castle fetches it.")] = _CASTLE_FOLDER,
    frames: Annotated[int, typer.Option(min=3, help="Of each scene of pybullet.")] = 48,
    size: Size = "320x240",
    as_json: AsJson = False,
) -> None:
    """Score a model on scenes that others made: pose AUC at 5, 15 and 30 degrees, and depth."""
    names = FOREIGN_SCENES if scenes == "all" else split_names(scenes)
    for name in names:
        if name not in FOREIGN_SCENES:
            raise SettingError(
                f"There is no foreign scene '{name}'; choose some of {', '.join(FOREIGN_SCENES)}, or all."
            )
    takes = [foreign_take(name, folder, castle=castle, num_frames=frames, size=parse_size(size)) for name in names]
    torch.set_num_threads(1)  # as benchmarks of small networks do
    scores = score_scenes(model, takes)
    record = {"weights": model, "weights_sha256": fingerprint(model), "scenes": [asdict(score) for score in scores]}
    show(record, _blocks(model, scores), as_json=as_json)


def foreign_take(name: str, folder: Path, *, castle: Path, num_frames: int, size: tuple[int, int]) -> Path:
    """The take of a scene, made where there is none as yet."""
    if name == CASTLE:
        out = folder / CASTLE
        if not is_take(out):
            write_castle(castle, out)
        return out
    height, width = size
    out = folder / f"{name}-{num_frames}-{width}x{height}"
    if not is_take(out) or len(read_take(out)) < num_frames:
        write_bullet(BULLET_SCENES[name], out, num_frames=num_frames, size=size, overwrite=True)
    return out


def score_scenes(model: str, takes: Sequence[Path]) -> list[ForeignScore]:
    """Each mapped as `longtake map` does, and compared as `longtake eval` does."""
    network, scores = load_model(model), []
    for take in takes:
        with tempfile.TemporaryDirectory() as out:
            result = longtake.map(take, out, model=network, format="depth-npz")
            report = longtake.evaluate(result, take, only=("trajectory", "depth"))
        assert report.trajectory is not None
        assert report.depth is not None
        depth = report.depth.by_alignment[DepthAlignment.SCALE]
        auc = dict(zip(report.trajectory.auc.threshold_deg, report.trajectory.auc.auc, strict=True))
        scores.append(
            ForeignScore(
                scene=take.name.partition("-")[0],
                num_frames=len(result),
                auc_5=auc[5],
                auc_15=auc[15],
                auc_30=auc[30],
                ate_share=report.trajectory.absolute.share_of_path,
                abs_rel=depth.abs_rel,
                delta_1=depth.delta_1,
            )
        )
    return scores


def _blocks(model: str, scores: Sequence[ForeignScore]) -> Iterator[str | Table]:
    headings = (
        "scene",
        "frames",
        "AUC\n5 deg",
        "AUC\n15 deg",
        "AUC\n30 deg",
        "ATE\n%",
        "depth\nAbsRel",
        "within\n1.25",
    )
    yield f"{model}, scenes that others made\n"
    yield table(headings, map(_cells, scores))


def _cells(score: ForeignScore) -> tuple[str, ...]:
    return (
        score.scene,
        str(score.num_frames),
        *(f"{auc:.3f}" for auc in (score.auc_5, score.auc_15, score.auc_30)),
        "" if score.ate_share is None else f"{100 * score.ate_share:.3g}",
        f"{score.abs_rel:.3f}",
        f"{score.delta_1:.0%}",
    )
