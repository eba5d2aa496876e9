"""The figures of `longtake bench quality` for people."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from longtake.bench.quality import QualityRow
from longtake.bench.scoring import Summary

_PERCENT = 100.0
_FIGURES = (
    ("ATE, % of path", "ate_share", _PERCENT),
    ("  constant velocity", "velocity_ate_share", _PERCENT),
    ("  times better", "times_velocity", 1.0),
    ("  straight line", "straight_ate_share", _PERCENT),
    ("  times better", "times_straight", 1.0),
    ("  standing still", "still_ate_share", _PERCENT),
    ("  velocity, not aligned", "unaligned_velocity_ate_share", _PERCENT),
    ("  straight, not aligned", "unaligned_straight_ate_share", _PERCENT),
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
)
_COMPARED = ("ate_share", "times_velocity", "rotation_deg", "scale_range", "depth_abs_rel", "times_mean_depth")
_HEADINGS = (
    "ATE\n%",
    "times\nvelocity",
    "rotation\ndeg",
    "scale\nrange",
    "depth\nAbsRel",
    "times\nmean",
    "a frame\nms",
)
_COLUMNS = "Over worlds: the median, its 95 % confidence interval, quartiles, and the share that beats the baseline."
_MEANING = "Cameras are aligned by Sim(3) on their centres, depth by one scale for the walk, and the baselines alike."


def print_quality(rows: Sequence[QualityRow], contract: Mapping[str, Any]) -> None:
    """All figures of one way to watch; of several, those by which they are compared."""
    console = Console()
    if len({row.watch for row in rows}) == 1:
        for row in rows:
            _say(console, f"{_title(row, contract)}, {row.frame_ms:.1f} ms a frame\n")
            console.print(_table_of(row))
            _say(console, "")
        _say(console, _COLUMNS)
    else:
        _say(console, f"{_setting(contract)}; medians\n")
        console.print(_comparison(rows))
        _say(console, "")
    _say(console, _MEANING)
    if contract["is_random"]:
        _say(console, "The weights are random: the figures show how this is measured, and no quality.")


def _title(row: QualityRow, contract: Mapping[str, Any]) -> str:
    return f"{row.num_frames} frames, {row.watch.name} settings, {_setting(contract)}"


def _setting(contract: Mapping[str, Any]) -> str:
    size, count = f"{contract['width']}x{contract['height']}", contract["num_worlds"]
    worlds = f"{count} {contract['split']} world{'s' * (count > 1)}"
    return f"{contract['weights']}, {worlds} at {size}, {contract['device']}"


def _table_of(row: QualityRow) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("", no_wrap=True)
    for heading in ("median", "95 %", "quartiles", "better"):
        table.add_column(heading, justify="right", no_wrap=True)
    summaries = row.summaries()
    for label, name, factor in _FIGURES:
        share = row.better_share(name) if name.startswith("times_") else None
        table.add_row(label, *_cells(summaries[name], factor), "" if share is None else f"{share:.0%}")
    return table


def _cells(summary: Summary | None, factor: float) -> tuple[str, str, str]:
    if summary is None:
        return "", "", ""
    return (
        _number(factor * summary.median),
        _interval(summary, factor),
        f"{_number(factor * summary.lower_quartile)}-{_number(factor * summary.upper_quartile)}",
    )


def _comparison(rows: Sequence[QualityRow]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("settings")
    for heading in ("frames", *_HEADINGS):
        table.add_column(heading, justify="right", no_wrap=True)
    factors = {name: factor for _, name, factor in _FIGURES}
    for row in rows:
        summaries = row.summaries()
        medians = [_median(summaries[name], factors[name]) for name in _COMPARED]
        table.add_row(row.watch.name, str(row.num_frames), *medians, f"{row.frame_ms:.1f}")
    return table


def _median(summary: Summary | None, factor: float) -> str:
    return "" if summary is None else _number(factor * summary.median)


def _interval(summary: Summary, factor: float) -> str:
    if summary.low is None or summary.high is None:
        return ""
    return f"{_number(factor * summary.low)}-{_number(factor * summary.high)}"


def _number(value: float) -> str:
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"


def _say(console: Console, text: str) -> None:
    console.print(text, highlight=False, soft_wrap=True, markup=False)
