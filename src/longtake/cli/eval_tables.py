"""The report of `longtake eval` for people: what was compared in a line, then a small table for each part."""

import math
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from longtake.evaluation.answers import AnswerScore, Share
from longtake.evaluation.depth_alignment import AlignmentSpan
from longtake.evaluation.matched import Matched
from longtake.evaluation.relative import Delta
from longtake.evaluation.report import EvalReport, TrajectoryErrors
from longtake.evaluation.take_answers import TakeAnswers
from longtake.evaluation.take_depth import TakeDepth
from longtake.evaluation.take_points import TakePoints

_SMALL, _LARGE, _HUGE = 1e-3, 1e3, 1e7
_NOTHING = 1e-9
"""Rounding leaves errors below this where there are none."""


def print_report(report: EvalReport, drawn: list[Path]) -> None:
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"[bold]{escape(str(report.result))}[/] against [bold]{escape(str(report.truth))}[/]")
    for block in _blocks(report):
        console.print(block)
    for note in report.notes:
        console.print(f"\n[yellow]note:[/] {escape(note)}")
    if report.not_measured:
        console.print()
    for reason in dict.fromkeys(report.not_measured.values()):
        parts = [part for part, why in report.not_measured.items() if why == reason]
        console.print(f"[dim]{', '.join(parts)} not measured: {escape(reason)}[/]")
    if drawn:
        console.print(f"\nsee {escape(' and '.join(map(str, drawn)))}")


def _blocks(report: EvalReport) -> Iterator[Table | str]:
    unit = "" if report.matched is None else str(report.matched.truth.unit)
    if report.matched is not None:
        yield _compared(report.matched)
    if report.trajectory is not None:
        yield from _trajectory(report.trajectory, unit)
    if report.depth is not None:
        yield _depth(report.depth, unit)
    if report.points is not None:
        yield from _points(report.points, unit)
    if report.answers is not None:
        yield _answers(report.answers)


def _compared(matched: Matched) -> str:
    start, end = float(matched.poses.timestamp_s[0]), float(matched.poses.timestamp_s[-1])
    when = f"{start:.2f} to {end:.2f} s" if matched.truth.trajectory.is_timed else f"frames {start:.0f} to {end:.0f}"
    how = "" if matched.is_timed else " one by one"
    return (
        f"{len(matched.frames)} of {len(matched.result.trajectory)} poses matched{how} with the truth's "
        f"{len(matched.truth.trajectory)}, {when}, on a path of {number(matched.path_length)} {matched.truth.unit}"
    )


def _trajectory(errors: TrajectoryErrors, unit: str) -> Iterator[Table | str]:
    absolute, relative = errors.absolute, errors.relative
    apart = _distance(relative.delta)
    table = _table(
        f"trajectory, align {absolute.alignment_mode}, scale {number(absolute.scale)}", "rmse mean median max"
    )
    for name, row in (
        (f"ATE, {unit}", absolute.translation),
        ("ATE, deg", absolute.rotation_deg),
        (f"RPE over {apart}, {unit}", relative.translation),
        (f"RPE over {apart}, deg", relative.rotation_deg),
    ):
        table.add_row(name, *map(number, (row.rmse, row.mean, row.median, row.max)))
    yield table
    shares = [f"{share:.3f} at {limit}°" for limit, share in zip(errors.auc.threshold_deg, errors.auc.auc, strict=True)]
    yield f"pose AUC: {', '.join(shares)}"
    if errors.drift is None:
        yield "scale drift: none can be told, for a side stands still"
    else:
        yield (
            f"scale drift: largest local scale over smallest {number(errors.drift.largest_over_smallest)}, "
            f"{round(errors.drift.percent_per_100_frames, 2) + 0.0:+g} % per 100 frames"
        )


def _distance(delta: Delta) -> str:
    return f"{delta.length:g} {delta.unit if delta.length != 1 else delta.unit.removesuffix('s')}"


def _depth(depth: TakeDepth, unit: str) -> Table:
    errors = depth.errors
    whose = "each frame" if depth.span is AlignmentSpan.FRAME else "all frames together"
    title = f"depth of {errors.num_frames} frames, {errors.num_pixels:,} pixels, aligned for {whose}"
    if errors.num_empty_frames:
        title += f", {errors.num_empty_frames} empty frames skipped"
    if depth.resampled_from is not None:
        title += f", resampled from {depth.resampled_from[1]}x{depth.resampled_from[0]}"
    table = _table(title, f"AbsRel RMSE,_{unit} log_RMSE δ1 δ2 δ3 scale shift")
    for alignment, row in depth.by_alignment.items():
        correction = (None, None) if row.correction is None else (row.correction.scale, row.correction.shift)
        figures = (row.abs_rel, row.rmse, row.log_rmse, row.delta_1, row.delta_2, row.delta_3, *correction)
        table.add_row(str(alignment), *map(number, figures))
    return table


def _points(points: TakePoints, unit: str) -> Iterator[Table | str]:
    errors, icp = points.errors, points.registration
    title = f"points of {points.num_frames} frames, one a voxel of {points.voxel:g} {unit}"
    table = _table(title, f"mean,_{unit} median,_{unit} within_{errors.threshold:g}_{unit} normals points")
    for name, mean, median, share, normals, count in (
        (
            "accuracy",
            errors.accuracy_mean,
            errors.accuracy_median,
            errors.precision,
            errors.normal_accuracy,
            errors.num_predicted,
        ),
        (
            "completeness",
            errors.completeness_mean,
            errors.completeness_median,
            errors.recall,
            errors.normal_completeness,
            errors.num_true,
        ),
    ):
        table.add_row(name, number(mean), number(median), f"{share:.1%}", number(normals), f"{count:,}")
    yield table
    settled = "" if icp.has_converged else ", not settled"
    yield (
        f"F1 {errors.f1:.3f}, normal consistency {number(errors.normal_consistency)}; ICP from {number(icp.errors[0])} "
        f"to {number(icp.errors[-1])} {unit} in {len(icp.errors) - 1} steps{settled}"
    )


def _answers(answers: TakeAnswers) -> Table:
    table = _table(
        "answers, with intervals of 95 % confidence", "right share interval commonest chance unanswered evidence"
    )
    for kind, score in answers.scores.by_kind.items():
        table.add_row(kind, *_score(score))
    table.add_row("all", *_score(answers.scores.total))
    return table


def _score(score: AnswerScore) -> Iterator[str]:
    low, high = score.right.interval
    yield f"{score.right.hits} of {score.right.total}"
    yield f"{score.right.value:.1%}"
    yield f"{low:.0%} to {high:.0%}"
    yield f"{score.commonest:.1%}"
    yield "-" if score.chance is None else f"{score.chance:.1%}"
    yield str(score.num_unanswered)
    yield "-" if score.evidence is None else _share(score.evidence.met)


def _share(share: Share) -> str:
    return f"{share.hits} of {share.total}"


def _table(title: str, headings: str) -> Table:
    """Headings are separated by spaces; an underscore is a space within one."""
    table = Table(title=f"\n[bold]{escape(title)}[/]", box=None, title_justify="left", title_style="", pad_edge=False)
    table.add_column("", no_wrap=True)
    for heading in headings.split(" "):
        table.add_column(heading.replace("_", " "), justify="right", no_wrap=True)
    return table


def number(value: float | None) -> str:
    """Four digits behind the point, one of large numbers, an exponent where those say nothing."""
    if value is None or math.isnan(value):
        return "-"
    if abs(value) < _NOTHING:
        return "0"
    if not _SMALL <= abs(value) < _HUGE:
        return f"{value:.2g}"
    return f"{value:.4f}" if abs(value) < _LARGE else f"{value:.1f}"
