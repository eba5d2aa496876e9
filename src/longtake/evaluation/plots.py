"""Pictures of a report: the way from above, and errors over time."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from longtake.errors import InputError, SettingError
from longtake.evaluation.figures import DPI, new_figure
from longtake.evaluation.report import EvalReport, TrajectoryErrors
from longtake.extras import import_from_extra

_TRUTH, _FAINT = "#bdc1c6", "#5f6368"
_NEAR, _MIDDLE, _FAR = "#1a6fb0", "#8e4b9e", "#e0301e"
_LONGEST_SIDE, _SHORTEST_SIDE, _COLOURBAR = 6.0, 3.6, 1.3
"""In inches."""
_SMALLEST_RANGE = 1e-9
_LONGEST_DOTTED = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One error over time, and the figure it sums up to."""

    name: str
    seconds: Float[np.ndarray, "points"]
    values: Float[np.ndarray, "points"]
    summary: float
    summary_name: str = "rmse"


def draw_report(report: EvalReport, folder: Path) -> list[Path]:
    """Write `trajectory.png` and `error.png`, as far as there is something to draw; returns what was written."""
    figures: dict[str, Any] = {}
    if report.trajectory is not None:
        figures["trajectory.png"] = _draw_way(report, report.trajectory)
    if curves := _curves(report):
        figures["error.png"] = _draw_curves(report, curves)
    if not figures:
        raise SettingError("There are pictures of trajectories and of depth; measure one of them or ask for no plots.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, figure in figures.items():
            figure.savefig(folder / name, dpi=DPI)
    except OSError as error:
        raise InputError(f"Plots cannot be written to {folder} ({error.strerror}); name another folder.") from error
    return [folder / name for name in figures]


def _draw_way(report: EvalReport, errors: TrajectoryErrors) -> Any:
    """The truth in grey, the aligned result coloured by how far it is off, as seen from above."""
    truth, result = (poses[:, :3, 3].numpy() for poses in (errors.aligned.truth, errors.aligned.result))
    across, along = _axes_from_above(report, truth)
    truth, result = truth[:, [across, along]], result[:, [across, along]]
    figure = new_figure(*_size_for(np.concatenate([truth, result])))
    axes = figure.subplots()
    axes.plot(*truth.T, color=_TRUTH, linewidth=3.5, solid_capstyle="round", solid_joinstyle="round", label="truth")
    off = errors.absolute.translation_by_frame.numpy()
    coloured = axes.add_collection(_coloured_line(result, off))
    axes.plot([], [], color=_NEAR, linewidth=1.8, label="result")
    axes.plot(*truth[0], "o", color="black", markersize=8, markerfacecolor="white", markeredgewidth=1.8, label="start")
    unit, names = _unit(report), "xyz"
    axes.set(xlabel=f"{names[across]}, {unit}", ylabel=f"{names[along]}, {unit}")
    axes.set_aspect("equal", adjustable="datalim")
    axes.margins(0.08)
    axes.legend(frameon=False, fontsize=9)
    bar = figure.colorbar(coloured, ax=axes, shrink=0.8, pad=0.02)
    bar.set_label(f"distance from the truth, {unit}", fontsize=9)
    bar.ax.tick_params(labelsize=8)
    _title(axes, f"{report.result.name} from above, align {report.settings.align}")
    return figure


def _coloured_line(way: Float[np.ndarray, "frames 2"], off: Float[np.ndarray, "frames"]) -> Any:
    """Each step in the colour of its later end, from blue at 0 to red at the largest distance."""
    collections = import_from_extra("matplotlib.collections", "plot", "Drawing")
    colours = import_from_extra("matplotlib.colors", "plot", "Drawing")
    line = collections.LineCollection(
        np.stack([way[:-1], way[1:]], axis=1),
        cmap=colours.LinearSegmentedColormap.from_list("off", [_NEAR, _MIDDLE, _FAR]),
        linewidth=1.8,
        capstyle="round",
    )
    line.set_array(off[1:])
    line.set_clim(0, max(float(off.max()), _SMALLEST_RANGE))
    return line


def _size_for(points: Float[np.ndarray, "points 2"]) -> tuple[float, float]:
    """Inches in which the way fills the picture, neither side much shorter than the other."""
    width, height = np.ptp(points, axis=0) + _SMALLEST_RANGE
    longest = _LONGEST_SIDE / max(width, height)
    return max(width * longest, _SHORTEST_SIDE) + _COLOURBAR, max(height * longest, _SHORTEST_SIDE)


def _axes_from_above(report: EvalReport, truth: Float[np.ndarray, "frames 3"]) -> tuple[int, int]:
    """x and z of a take, whose y points down; else the two axes along which the camera goes farthest."""
    if report.matched is not None and report.matched.truth.take is not None:
        return 0, 2
    first, second = sorted(np.argsort(-np.ptp(truth, axis=0), kind="stable")[:2].tolist())
    return first, second


def _curves(report: EvalReport) -> list[Curve]:
    curves = []
    if (errors := report.trajectory) is not None:
        unit, apart = _unit(report), f"over {errors.relative.delta}"
        absolute_s, relative_s = errors.absolute.timestamp_s.numpy(), errors.relative.timestamp_s.numpy()
        for name, seconds, values, summary in (
            (f"ATE, {unit}", absolute_s, errors.absolute.translation_by_frame, errors.absolute.translation),
            (f"RPE, {unit}\n{apart}", relative_s, errors.relative.translation_by_pair, errors.relative.translation),
            (f"RPE, deg\n{apart}", relative_s, errors.relative.rotation_deg_by_pair, errors.relative.rotation_deg),
        ):
            curves.append(Curve(name=name, seconds=seconds, values=values.numpy(), summary=summary.rmse))
    if (depth := report.depth) is not None:
        curves.append(
            Curve(
                name=f"depth AbsRel\n{depth.chosen}",
                seconds=depth.timestamp_s.numpy(),
                values=np.array(depth.errors.frame_abs_rel),
                summary=depth.errors.abs_rel,
                summary_name="all pixels",
            )
        )
    return curves


def _draw_curves(report: EvalReport, curves: Sequence[Curve]) -> Any:
    """One panel a curve, above each other, with one clock."""
    start_s = min(float(curve.seconds[0]) for curve in curves)
    figure = new_figure(8.0, 0.9 + 1.5 * len(curves))
    panels = figure.subplots(len(curves), sharex=True, squeeze=False)[:, 0]
    for axes, curve in zip(panels, curves, strict=True):
        style = {"marker": "o", "markersize": 2.5} if len(curve.values) <= _LONGEST_DOTTED else {}
        axes.plot(curve.seconds - start_s, curve.values, color=_NEAR, linewidth=1.2, **style)
        axes.axhline(curve.summary, color=_FAINT, linewidth=0.9, linestyle=(0, (4, 3)))
        axes.set_title(f"{curve.summary_name} {curve.summary:.3g}", loc="right", fontsize=8, color=_FAINT, pad=3)
        axes.set_ylabel(curve.name, fontsize=9)
        axes.set_ylim(0, 1.05 * max(float(np.nanmax(curve.values)), _SMALLEST_RANGE))
        axes.margins(x=0.01)
        _tidy(axes)
    panels[-1].set_xlabel(_clock(report, start_s))
    figure.align_ylabels()
    _title(panels[0], f"{report.result.name} against {report.truth.name}")
    return figure


def _clock(report: EvalReport, start_s: float) -> str:
    if report.matched is not None and not report.matched.truth.trajectory.is_timed:
        return "frames"
    return "seconds" if start_s == 0 else f"seconds from {start_s:.15g}"


def _unit(report: EvalReport) -> str:
    assert report.matched is not None
    return report.matched.truth.unit.in_words


def _title(axes: Any, text: str) -> None:
    axes.set_title(text, loc="left", fontsize=11, fontweight="bold")
    _tidy(axes)


def _tidy(axes: Any) -> None:
    axes.grid(visible=True, alpha=0.25, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)
