"""A report in plain JSON types, under the keys that docs/evaluation.md lists; what is no number is null."""

import math
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, TypeVar

from longtake.evaluation.answers import AnswerScore, EvidenceScore, Share
from longtake.evaluation.depth import DepthErrors
from longtake.evaluation.matched import Matched
from longtake.evaluation.report import EvalReport, TrajectoryErrors
from longtake.evaluation.scale_drift import ScaleDrift
from longtake.evaluation.take_answers import TakeAnswers
from longtake.evaluation.take_depth import TakeDepth
from longtake.evaluation.take_points import TakePoints

_Value = TypeVar("_Value")

_DEPTH_ERRORS = ("abs_rel", "mae", "rmse", "log_rmse", "delta_1", "delta_2", "delta_3")


def report_json(report: EvalReport) -> dict[str, Any]:
    """Every key is always there, with null for what was not measured."""
    record = {
        "result": str(report.result),
        "truth": str(report.truth),
        "compared": _optional(report.matched, _compared),
        "trajectory": _optional(report.trajectory, _trajectory),
        "depth": _optional(report.depth, _depth),
        "points": _optional(report.points, _points),
        "answers": _optional(report.answers, _answers),
        "not_measured": {str(part): reason for part, reason in report.not_measured.items()},
        "notes": list(report.notes),
    }
    return {name: _finite(value) for name, value in record.items()}


def _compared(matched: Matched) -> dict[str, Any]:
    timestamps = matched.poses.timestamp_s
    return {
        "num_result": len(matched.result.trajectory),
        "num_truth": len(matched.truth.trajectory),
        "num_matched": len(matched.frames),
        "matched_by": "time" if matched.is_timed else "order",
        "start": float(timestamps[0]),
        "end": float(timestamps[-1]),
        "time_unit": "s" if matched.truth.trajectory.is_timed else "frames",
        "path_length": matched.path_length,
        "unit": str(matched.truth.unit),
    }


def _trajectory(errors: TrajectoryErrors) -> dict[str, Any]:
    absolute, relative = errors.absolute, errors.relative
    return {
        "align": str(absolute.alignment_mode),
        "scale": absolute.scale,
        "ate": {
            "translation": asdict(absolute.translation),
            "rotation_deg": asdict(absolute.rotation_deg),
            "share_of_path": absolute.share_of_path,
        },
        "rpe": {
            "delta": relative.delta.length,
            "delta_unit": str(relative.delta.unit),
            "all_pairs": relative.delta.all_pairs,
            "num_pairs": len(relative.timestamp_s),
            "translation": asdict(relative.translation),
            "rotation_deg": asdict(relative.rotation_deg),
        },
        "pose_auc": {
            str(degrees): share for degrees, share in zip(errors.auc.threshold_deg, errors.auc.auc, strict=True)
        },
        "scale_drift": _optional(errors.drift, _drift),
    }


def _drift(drift: ScaleDrift) -> dict[str, Any]:
    return {
        "segment_steps": drift.segment_steps,
        "largest_over_smallest": drift.largest_over_smallest,
        "percent_per_100_frames": drift.percent_per_100_frames,
    }


def _depth(depth: TakeDepth) -> dict[str, Any]:
    return {
        "align": str(depth.chosen),
        "span": str(depth.span),
        "num_frames": depth.errors.num_frames,
        "num_empty_frames": depth.errors.num_empty_frames,
        "num_pixels": depth.errors.num_pixels,
        "resampled_from": _optional(depth.resampled_from, lambda size: {"width": size[1], "height": size[0]}),
        "by_alignment": {str(alignment): _depth_errors(errors) for alignment, errors in depth.by_alignment.items()},
    }


def _depth_errors(errors: DepthErrors) -> dict[str, Any]:
    numbers = asdict(errors)
    return {name: numbers[name] for name in (*_DEPTH_ERRORS, "correction")}


def _points(points: TakePoints) -> dict[str, Any]:
    return asdict(points.errors) | {
        "normal_consistency": points.errors.normal_consistency,
        "voxel": points.voxel,
        "num_frames": points.num_frames,
        "icp_rmse": [points.registration.errors[0], points.registration.errors[-1]],
        "icp_converged": points.registration.has_converged,
    }


def _answers(answers: TakeAnswers) -> dict[str, Any]:
    return {
        "total": _score(answers.scores.total),
        "by_kind": {kind: _score(score) for kind, score in answers.scores.by_kind.items()},
        "num_unasked": answers.num_unasked,
    }


def _score(score: AnswerScore) -> dict[str, Any]:
    return asdict(score) | {"right": _share(score.right), "evidence": _optional(score.evidence, _evidence)}


def _evidence(evidence: EvidenceScore) -> dict[str, Any]:
    return asdict(evidence) | {"met": _share(evidence.met)}


def _share(share: Share) -> dict[str, Any]:
    return asdict(share) | {"value": share.value, "interval": share.interval}


def _optional(value: _Value | None, convert: Callable[[_Value], dict[str, Any]]) -> dict[str, Any] | None:
    return None if value is None else convert(value)


def _finite(value: Any) -> Any:
    """The same without NaN and infinity, which JSON does not have."""
    if isinstance(value, dict):
        return {name: _finite(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
