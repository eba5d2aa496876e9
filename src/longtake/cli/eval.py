"""`longtake eval`: a result against the truth, as tables or JSON, with plots if wanted."""

import math
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from longtake.api.evaluating import choose_word, parse_delta, parse_parts
from longtake.api.progress import plain_console
from longtake.cli.options import AsJson, command_app
from longtake.cli.progress import TaskProgress
from longtake.cli.tables import show, table
from longtake.evaluation.alignment_mode import AlignmentMode
from longtake.evaluation.answers import AnswerScore
from longtake.evaluation.depth_alignment import AlignmentSpan, DepthAlignment
from longtake.evaluation.figures import require_plots
from longtake.evaluation.matched import Matched
from longtake.evaluation.plots import draw_report
from longtake.evaluation.report import EvalReport, TrajectoryErrors, evaluate
from longtake.evaluation.report_json import report_json
from longtake.evaluation.settings import EvalSettings, Part
from longtake.evaluation.steps import BeginSteps
from longtake.evaluation.take_answers import TakeAnswers
from longtake.evaluation.take_depth import TakeDepth
from longtake.evaluation.take_points import TakePoints
from longtake.types import counted

_SMALL, _LARGE, _HUGE = 1e-3, 1e3, 1e7
_NOTHING = 1e-9
"""Rounding leaves errors below this where there are none."""

app = command_app()


@app.command("eval")
def evaluate_(
    result: Annotated[Path, typer.Argument(help="A take's folder, or a TUM or KITTI file.")],
    truth: Annotated[Path, typer.Argument(help="A take's folder, or a TUM or KITTI file.")],
    align: Annotated[str, typer.Option(help="How the result may be moved: sim3, se3 or none.")] = "sim3",
    max_gap: Annotated[float, typer.Option(help="Largest gap between matched timestamps, in seconds.")] = 0.02,
    offset: Annotated[float, typer.Option(help="Seconds to add to the result's timestamps.")] = 0.0,
    delta: Annotated[str, typer.Option(help="Between the frames of a relative error: 1f, 10f, 0.5m.")] = "1f",
    all_pairs: Annotated[bool, typer.Option("--all-pairs", help="Let a relative error begin at every frame.")] = False,
    depth_align: Annotated[str, typer.Option(help="metric, scale or scale-shift; the one that is drawn.")] = "scale",
    depth_span: Annotated[str, typer.Option(help="Align depth over the sequence, or frame by frame.")] = "sequence",
    threshold: Annotated[float, typer.Option(help="Distance at which points count as met, in metres.")] = 0.05,
    only: Annotated[str | None, typer.Option(help="Some of trajectory,depth,points,answers.")] = None,
    times: Annotated[Path | None, typer.Option(help="Timestamps of a KITTI file, one a line.")] = None,
    fps: Annotated[float | None, typer.Option(help="Frame rate of a KITTI file.")] = None,
    as_json: AsJson = False,
    plots: Annotated[Path | None, typer.Option(help="Also draw into this folder.")] = None,
) -> None:
    """Compare a result with the truth: trajectory, depth, points and answers, as far as both have them."""
    settings = EvalSettings(
        align=choose_word(align, AlignmentMode, "alignment"),
        max_gap_s=max_gap,
        offset_s=offset,
        delta=parse_delta(delta, all_pairs=all_pairs),
        depth_align=choose_word(depth_align, DepthAlignment, "depth alignment"),
        depth_span=choose_word(depth_span, AlignmentSpan, "span of a depth alignment"),
        threshold=threshold,
        only=None if only is None else parse_parts(only),
        times=times,
        fps=fps,
    )
    if plots is not None:
        require_plots()
    with TaskProgress(plain_console(stderr=True)) as progress:
        report = evaluate(result, truth, settings, progress=partial(_counting, progress))
    drawn = [] if plots is None else draw_report(report, plots)
    show(report_json(report), _blocks(report, drawn), as_json=as_json)


def _counting(progress: TaskProgress, part: Part) -> BeginSteps:
    def begin(num_steps: int) -> Callable[[], None]:
        task = progress.begin(f"measuring {part}", num_steps)
        return lambda: progress.advance(task)

    return begin


def _blocks(report: EvalReport, drawn: list[Path]) -> Iterator[str | Text | Table]:
    """What was compared in a line, a small table for each part, and what a reader of them should know."""
    yield Text.assemble((str(report.result), "bold"), " against ", (str(report.truth), "bold"))
    unit = "" if report.matched is None else report.matched.truth.unit.in_words
    if report.matched is not None:
        yield _compared(report.matched)
    if report.trajectory is not None:
        yield from _trajectory(report.trajectory, unit)
    if report.depth is not None:
        yield from _depth(report.depth, unit)
    if report.points is not None:
        yield from _points(report.points, unit)
    if report.answers is not None:
        yield from _answers(report.answers)
    for note in report.notes:
        yield Text.assemble("\n", ("note:", "yellow"), f" {note}")
    if report.not_measured:
        yield ""
    for reason in dict.fromkeys(report.not_measured.values()):
        parts = [part for part, why in report.not_measured.items() if why == reason]
        yield Text(f"{', '.join(parts)} not measured: {reason}", style="dim")
    if drawn:
        yield f"\nsee {' and '.join(map(str, drawn))}"


def _compared(matched: Matched) -> str:
    start, end = float(matched.poses.timestamp_s[0]), float(matched.poses.timestamp_s[-1])
    when = f"{start:.2f} to {end:.2f} s" if matched.truth.trajectory.is_timed else f"frames {start:.0f} to {end:.0f}"
    how = "" if matched.is_timed else " one by one"
    path = f"{_number(matched.path_length)} {matched.truth.unit.in_words}"
    return (
        f"{len(matched.frames)} of {len(matched.result.trajectory)} poses matched{how} with the truth's "
        f"{len(matched.truth.trajectory)}, {when}, on a path of {path}"
    )


def _trajectory(errors: TrajectoryErrors, unit: str) -> Iterator[str | Table]:
    absolute, relative = errors.absolute, errors.relative
    rows = (
        (f"ATE, {unit}", absolute.translation),
        ("ATE, deg", absolute.rotation_deg),
        (f"RPE over {relative.delta}, {unit}", relative.translation),
        (f"RPE over {relative.delta}, deg", relative.rotation_deg),
    )
    yield ""
    yield table(
        ("", "rmse", "mean", "median", "max"),
        ((name, *map(_number, (row.rmse, row.mean, row.median, row.max))) for name, row in rows),
        title=f"trajectory, align {absolute.alignment_mode}, scale {_number(absolute.scale)}",
    )
    shares = [f"{share:.3f} at {limit}°" for limit, share in zip(errors.auc.threshold_deg, errors.auc.auc, strict=True)]
    yield f"pose AUC: {', '.join(shares)}"
    if errors.drift is None:
        yield "scale drift: none can be told, for a side stands still"
    else:
        yield (
            f"scale drift: largest local scale over smallest {_number(errors.drift.largest_over_smallest)}, "
            f"{round(errors.drift.percent_per_100_frames, 2) + 0.0:+g} % per 100 frames"
        )


def _depth(depth: TakeDepth, unit: str) -> Iterator[str | Table]:
    errors = depth.errors
    whose = "each frame" if depth.span is AlignmentSpan.FRAME else "all frames together"
    title = f"depth of {counted(errors.num_frames, 'frame')}, {errors.num_pixels:,} pixels, aligned for {whose}"
    if errors.num_empty_frames:
        title += f", {errors.num_empty_frames} empty frames skipped"
    if depth.resampled_from is not None:
        title += f", resampled from {depth.resampled_from[1]}x{depth.resampled_from[0]}"
    rows = []
    for alignment, row in depth.by_alignment.items():
        correction = (None, None) if row.correction is None else (row.correction.scale, row.correction.shift)
        figures = (row.abs_rel, row.rmse, row.log_rmse, row.delta_1, row.delta_2, row.delta_3, *correction)
        rows.append((str(alignment), *map(_number, figures)))
    yield ""
    yield table(("", "AbsRel", f"RMSE, {unit}", "log RMSE", "δ1", "δ2", "δ3", "scale", "shift"), rows, title=title)


def _points(points: TakePoints, unit: str) -> Iterator[str | Table]:
    errors, icp = points.errors, points.registration
    accuracy = (errors.accuracy_mean, errors.accuracy_median, errors.precision, errors.normal_accuracy)
    completeness = (errors.completeness_mean, errors.completeness_median, errors.recall, errors.normal_completeness)
    rows = (
        (name, _number(mean), _number(median), f"{share:.1%}", _number(normals), f"{count:,}")
        for name, (mean, median, share, normals), count in (
            ("accuracy", accuracy, errors.num_predicted),
            ("completeness", completeness, errors.num_true),
        )
    )
    yield ""
    yield table(
        ("", f"mean, {unit}", f"median, {unit}", f"within {errors.threshold:g} {unit}", "normals", "points"),
        rows,
        title=f"points of {counted(points.num_frames, 'frame')}, one a voxel of {points.voxel:g} {unit}",
    )
    settled = "" if icp.has_converged else ", not settled"
    yield (
        f"F1 {errors.f1:.3f}, normal consistency {_number(errors.normal_consistency)}; "
        f"ICP from {_number(icp.errors[0])} to {_number(icp.errors[-1])} {unit} in {len(icp.errors) - 1} steps{settled}"
    )


def _answers(answers: TakeAnswers) -> Iterator[str | Table]:
    scores = {**answers.scores.by_kind, "all": answers.scores.total}
    yield ""
    yield table(
        ("", "right", "share", "interval", "commonest", "chance", "unanswered", "evidence"),
        ((kind, *_score(score)) for kind, score in scores.items()),
        title="answers, with intervals of 95 % confidence",
    )


def _score(score: AnswerScore) -> Iterator[str]:
    low, high = score.right.interval
    yield str(score.right)
    yield f"{score.right.value:.1%}"
    yield f"{low:.0%} to {high:.0%}"
    yield f"{score.commonest:.1%}"
    yield "-" if score.chance is None else f"{score.chance:.1%}"
    yield str(score.num_unanswered)
    yield "-" if score.evidence is None else str(score.evidence.met)


def _number(value: float | None) -> str:
    """Four digits behind the point, one of large numbers, an exponent where those say nothing."""
    if value is None or math.isnan(value):
        return "-"
    if abs(value) < _NOTHING:
        return "0"
    if not _SMALL <= abs(value) < _HUGE:
        return f"{value:.2g}"
    return f"{value:.4f}" if abs(value) < _LARGE else f"{value:.1f}"
