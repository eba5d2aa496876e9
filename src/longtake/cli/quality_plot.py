"""The picture of `longtake bench quality`: true and estimated ways from above."""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from longtake.bench.quality import QualityRow
from longtake.evaluation.spacing import evenly_spaced
from longtake.evaluation.walk_quality import WorldQuality
from longtake.extras import import_from_extra

_SHOWN = 6
_TRUE, _FOUND, _VELOCITY = "#9aa0a6", "#1a6fb0", "#e0a21e"
_PANEL_INCHES = 3.2


def draw_quality(path: Path, rows: Sequence[QualityRow], *, title: str) -> None:
    """The same six worlds in each row, from the first row's best ATE to its worst and evenly between: nobody's pick."""
    places = _spread_places(rows[0])
    columns = min(len(places), _SHOWN // 2 if len(rows) == 1 else _SHOWN)
    lines = len(rows) * -(-len(places) // columns)
    figure = import_from_extra("matplotlib.figure", "plot", "Drawing").Figure(
        (columns * _PANEL_INCHES, 0.8 + lines * _PANEL_INCHES), layout="constrained"
    )
    figure.suptitle(title, fontsize=11)
    for index, (row, place) in enumerate(itertools.product(rows, places), start=1):
        _draw_world(figure.add_subplot(lines, columns, index), row, row.worlds[place])
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    figure.savefig(path, dpi=130)


def _spread_places(row: QualityRow) -> list[int]:
    ordered = sorted(range(len(row.worlds)), key=lambda place: row.worlds[place].score.ate_share or 0.0)
    return [ordered[rank] for rank in evenly_spaced(len(ordered), _SHOWN).tolist()]


def _draw_world(axes: Any, row: QualityRow, world: WorldQuality) -> None:
    ways = world.ways
    axes.plot(*ways.true.T.numpy(), color=_TRUE, linewidth=3.5, solid_capstyle="round", label="truth")
    axes.plot(*ways.velocity.T.numpy(), color=_VELOCITY, linewidth=1, linestyle=":", label="constant velocity")
    axes.plot(*ways.found.T.numpy(), color=_FOUND, linewidth=1.6, label="model")
    axes.plot(*ways.true[0].numpy(), "o", color="black", markersize=6, markerfacecolor="white", label="start")
    ate = "" if world.score.ate_share is None else f", ATE {world.score.ate_share:.1%}"
    axes.set_title(f"seed {world.seed}, {world.path_m:.1f} m{ate}", fontsize=9)
    axes.set_xlabel(f"{row.watch.name}, {row.num_frames} frames", fontsize=8)
    axes.set_aspect("equal", adjustable="datalim")
    axes.tick_params(labelsize=7)
    axes.grid(visible=True, alpha=0.25, linewidth=0.6)
