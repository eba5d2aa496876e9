"""Figures of walks over worlds as tables for people."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.table import Table

from longtake.bench.quality import QualityRow
from longtake.cli.tables import table
from longtake.evaluation.scoring import Summary

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


def quality_blocks(rows: Sequence[QualityRow], contract: Mapping[str, Any]) -> Iterator[str | Table]:
    """All figures of one way to watch; of several, those by which they are compared."""
    if len({row.watch for row in rows}) == 1:
        for row in rows:
            yield f"{_title(row, contract)}, {row.frame_ms:.1f} ms a frame\n"
            yield _table_of(row)
            yield ""
        yield _COLUMNS
    else:
        yield f"{_setting(contract)}; medians\n"
        yield _comparison(rows)
        yield ""
    yield _MEANING
    if contract["is_random"]:
        yield "The weights are random: the figures show how this is measured, and no quality."


def _title(row: QualityRow, contract: Mapping[str, Any]) -> str:
    return f"{row.num_frames} frames, {row.watch.name} settings, {_setting(contract)}"


def _setting(contract: Mapping[str, Any]) -> str:
    size, count = f"{contract['width']}x{contract['height']}", contract["num_worlds"]
    worlds = f"{count} {contract['split']} world{'s' * (count > 1)}"
    return f"{contract['weights']}, {worlds} at {size}, {contract['device']}"


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


def _comparison(rows: Sequence[QualityRow]) -> Table:
    return table(("settings", "frames", *_HEADINGS), map(_compared_cells, rows))


def _compared_cells(row: QualityRow) -> tuple[str, ...]:
    factors, summaries = {name: factor for _, name, factor in _FIGURES}, row.summaries()
    medians = [_median(summaries[name], factors[name]) for name in _COMPARED]
    return row.watch.name, str(row.num_frames), *medians, f"{row.frame_ms:.1f}"


def _median(summary: Summary | None, factor: float) -> str:
    return "" if summary is None else _number(factor * summary.median)


def _interval(summary: Summary, factor: float) -> str:
    if summary.low is None or summary.high is None:
        return ""
    return f"{_number(factor * summary.low)}-{_number(factor * summary.high)}"


def _number(value: float) -> str:
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"
