"""What `longtake bench quality` shows: figures over worlds as tables, and true and estimated ways from above."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from longtake.bench.quality import QualityCase, QualityRow, QualitySettings
from longtake.cli.tables import table
from longtake.evaluation.figures import new_figure, save_figure
from longtake.evaluation.scoring import Summary
from longtake.evaluation.spacing import evenly_spaced
from longtake.evaluation.walk_quality import WorldQuality
from longtake.types import counted
from longtake.world.families import Family

_PERCENT = 100.0
_FIGURES = (
    ("ATE, % of path", "ate_share", _PERCENT),
    ("  constant velocity", "velocity_ate_share", _PERCENT),
    ("  times better", "times_velocity", 1.0),
    ("  straight line", "straight_ate_share", _PERCENT),
    ("  times better", "times_straight", 1.0),
    ("  standing still", "still_ate_share", _PERCENT),
    ("  times better", "times_still", 1.0),
    ("  velocity, not aligned", "unaligned_velocity_ate_share", _PERCENT),
    ("  straight, not aligned", "unaligned_straight_ate_share", _PERCENT),
    ("ATE, m", "ate_m", 1.0),
    ("  standing still", "still_ate_m", 1.0),
    ("  length of the path", "path_m", 1.0),
    ("rotation, deg", "rotation_deg", 1.0),
    ("  since the first frame", "rotation_since_first_deg", 1.0),
    ("step, deg", "step_rotation_deg", 1.0),
    ("step, % of its length", "step_share", _PERCENT),
    ("scale, largest / smallest", "scale_range", 1.0),
    ("scale, % in 100 frames", "scale_drift_percent", 1.0),
    ("depth AbsRel", "depth_abs_rel", 1.0),
    ("  mean depth", "mean_depth_abs_rel", 1.0),
    ("  times better", "times_mean_depth", 1.0),
    ("depth within 1.25, %", "depth_delta_1", _PERCENT),
    ("field of view, deg", "fov_deg", 1.0),
    ("focal length, %", "focal_share", _PERCENT),
)
_COMPARED = {
    "ate_m": "ATE\nm",
    "times_still": "times\nstill",
    "ate_share": "ATE\n%",
    "times_velocity": "times\nvelocity",
    "rotation_deg": "rotation\ndeg",
    "scale_range": "scale\nrange",
    "depth_abs_rel": "depth\nAbsRel",
    "times_mean_depth": "times\nmean",
    "focal_share": "focal\n%",
}
_COLUMNS = "Over worlds: the median, its 95 % confidence interval, quartiles, and the share that beats the baseline."
_MEANING = "Cameras are aligned by Sim(3) on their centres, depth by one scale for the walk, and the baselines alike."
_SHOWN = 6
_TRUE, _FOUND, _VELOCITY = "#9aa0a6", "#1a6fb0", "#e0a21e"
_PANEL_INCHES = 3.2


def quality_blocks(cases: Sequence[QualityCase], contract: Mapping[str, Any]) -> Iterator[str | Table]:
    """All figures of one variant in one sort of worlds; of several, those by which they are compared."""
    if len(cases) == 1 and len({row.variant for row in cases[0].rows}) == 1:
        for row in cases[0].rows:
            yield f"{_title(row, cases[0].settings, contract)}, {row.frame_ms:.1f} ms a frame\n"
            yield _table_of(row)
            yield ""
        yield _COLUMNS
    else:
        where = _setting(cases[0].settings, contract) if len(cases) == 1 else _weights(cases[0].settings, contract)
        yield f"{where}; medians\n"
        yield _comparison(cases)
        yield ""
    yield _MEANING
    if contract["is_random"]:
        yield "The weights are random: the figures show how this is measured, and no quality."


def _title(row: QualityRow, settings: QualitySettings, contract: Mapping[str, Any]) -> str:
    return f"{row.num_frames} frames, {row.variant.name} settings, {_setting(settings, contract)}"


def _setting(settings: QualitySettings, contract: Mapping[str, Any]) -> str:
    family = "" if settings.family is Family.HOUSE else f" of the family {settings.family}"
    return f"{contract['weights']}, {_worlds(settings)}{family} at {_size(settings)}, {contract['device']}"


def _weights(settings: QualitySettings, contract: Mapping[str, Any]) -> str:
    return f"{contract['weights']}, {_worlds(settings)} each, {contract['device']}"


def _worlds(settings: QualitySettings) -> str:
    return counted(settings.num_worlds, f"{settings.split} world")


def _size(settings: QualitySettings) -> str:
    return f"{settings.size[1]}x{settings.size[0]}"


def _table_of(row: QualityRow) -> Table:
    summaries = row.summaries()
    shares = {name: row.better_share(name) for _, name, _ in _FIGURES if name.startswith("times_")}
    rows = (
        (label, *_cells(summaries[name], factor), "" if (share := shares.get(name)) is None else f"{share:.0%}")
        for label, name, factor in _FIGURES
    )
    return table(("", "median", "95 %", "quartiles", "better"), rows)


def _cells(summary: Summary | None, factor: float) -> tuple[str, str, str]:
    if summary is None:
        return "", "", ""
    return (
        _number(factor * summary.median),
        _interval(summary, factor),
        f"{_number(factor * summary.lower_quartile)}-{_number(factor * summary.upper_quartile)}",
    )


def _comparison(cases: Sequence[QualityCase]) -> Table:
    """A line for each row of each case, which says what differs between them."""
    rows = [(case.settings, row) for case in cases for row in case.rows]
    told: dict[str, list[str]] = {
        "worlds": [settings.family.value for settings, _ in rows],
        "size": [_size(settings) for settings, _ in rows],
        "settings": [row.variant.name for _, row in rows],
    }
    differing = {heading: cells for heading, cells in told.items() if len(set(cells)) > 1}
    lines = zip(*differing.values(), (_compared_cells(row) for _, row in rows), strict=True)
    headings = (*differing, "frames", *_COMPARED.values(), "a frame\nms")
    return table(headings, ((*cells[:-1], *cells[-1]) for cells in lines))


def _compared_cells(row: QualityRow) -> tuple[str, ...]:
    factors, summaries = {name: factor for _, name, factor in _FIGURES}, row.summaries()
    medians = [_median(summaries[name], factors[name]) for name in _COMPARED]
    return str(row.num_frames), *medians, f"{row.frame_ms:.1f}"


def _median(summary: Summary | None, factor: float) -> str:
    return "" if summary is None else _number(factor * summary.median)


def _interval(summary: Summary, factor: float) -> str:
    if summary.low is None or summary.high is None:
        return ""
    return f"{_number(factor * summary.low)}-{_number(factor * summary.high)}"


def _number(value: float) -> str:
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"


def draw_quality(path: Path, rows: Sequence[QualityRow], *, title: str) -> None:
    """The same six worlds in each row, from the first row's best ATE to its worst and evenly between, unpicked."""
    places = _spread_places(rows[0])
    columns = min(len(places), _SHOWN // 2 if len(rows) == 1 else _SHOWN)
    lines = len(rows) * -(-len(places) // columns)
    figure = new_figure(columns * _PANEL_INCHES, 0.8 + lines * _PANEL_INCHES)
    figure.suptitle(title, fontsize=11)
    for index, (row, place) in enumerate(itertools.product(rows, places), start=1):
        _draw_world(figure.add_subplot(lines, columns, index), row, row.worlds[place])
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    save_figure(figure, path)


def _spread_places(row: QualityRow) -> list[int]:
    ordered = sorted(range(len(row.worlds)), key=lambda place: row.worlds[place].score.ate_share or 0.0)
    return [ordered[rank] for rank in evenly_spaced(len(ordered), _SHOWN).tolist()]


def _draw_world(axes: Any, row: QualityRow, world: WorldQuality) -> None:
    paths = world.paths
    axes.plot(*paths.true.T.numpy(), color=_TRUE, linewidth=3.5, solid_capstyle="round", label="truth")
    axes.plot(*paths.velocity.T.numpy(), color=_VELOCITY, linewidth=1, linestyle=":", label="constant velocity")
    axes.plot(*paths.found.T.numpy(), color=_FOUND, linewidth=1.6, label="model")
    axes.plot(*paths.true[0].numpy(), "o", color="black", markersize=6, markerfacecolor="white", label="start")
    ate = "" if world.score.ate_share is None else f", ATE {world.score.ate_share:.1%}"
    axes.set_title(f"seed {world.seed}, {world.path_m:.1f} m{ate}", fontsize=9)
    axes.set_xlabel(f"{row.variant.name}, {row.num_frames} frames", fontsize=8)
    axes.set_aspect("equal", adjustable="datalim")
    axes.tick_params(labelsize=7)
    axes.grid(visible=True, alpha=0.25, linewidth=0.6)
