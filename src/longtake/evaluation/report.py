"""All measures of a result against the truth, in one record."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from longtake.errors import InputError, MissingExtraError
from longtake.evaluation.absolute import AbsoluteError, absolute_error
from longtake.evaluation.alignment_mode import AlignmentMode, move_onto_truth
from longtake.evaluation.association import PosePairs
from longtake.evaluation.matched import Matched, read_matched
from longtake.evaluation.pose_auc import PoseAuc, pose_auc
from longtake.evaluation.relative import RelativeError, relative_error
from longtake.evaluation.scale_drift import ScaleDrift, scale_drift
from longtake.evaluation.settings import EvalSettings, Part
from longtake.evaluation.steps import BeginSteps, uncounted
from longtake.evaluation.take_answers import TakeAnswers, measure_take_answers
from longtake.evaluation.take_depth import TakeDepth, measure_take_depth
from longtake.evaluation.take_points import TakePoints, measure_take_points
from longtake.takes.header import Unit

_Measured = TypeVar("_Measured")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrajectoryErrors:
    """Where the camera was, against where it should have been."""

    absolute: AbsoluteError
    relative: RelativeError
    auc: PoseAuc
    drift: ScaleDrift | None
    """None where the truth or the result goes nowhere."""
    aligned: PosePairs
    """The matched poses, the result moved onto the truth."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class EvalReport:
    """What was compared, what came out, and why some of it did not."""

    result: Path
    truth: Path
    settings: EvalSettings
    matched: Matched | None
    """None where only answers were asked for, which need no poses."""
    trajectory: TrajectoryErrors | None
    depth: TakeDepth | None
    points: TakePoints | None
    answers: TakeAnswers | None
    not_measured: Mapping[Part, str]
    """The reason for each part that was wanted and could not be had."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the figures should know, a sentence each."""
        found: list[str] = []
        if self.matched is not None:
            if self.matched.warning is not None:
                found.append(self.matched.warning)
            if self.matched.result.unit is Unit.MODEL and self.settings.align is not AlignmentMode.SIM3:
                found.append(
                    f"The result is in a unit of its own, and align '{self.settings.align}' counts that as an error."
                )
        if self.answers is not None and self.answers.num_unasked:
            found.append(f"Of the answers, {self.answers.num_unasked} belong to no question and do not count.")
        return tuple(found)

    def __repr__(self) -> str:
        """A figure for each part that was measured."""
        figures: list[str] = []
        if self.matched is not None and self.trajectory is not None:
            absolute = self.trajectory.absolute
            ate = f"{absolute.translation.rmse:.4g} {self.matched.truth.unit.in_words}"
            figures.append(f"ATE {ate} of {len(self.matched.frames)} poses")
        if self.depth is not None:
            figures.append(f"depth off by {self.depth.errors.abs_rel:.1%}")
        if self.points is not None:
            figures.append(f"points F1 {self.points.errors.f1:.3f}")
        if self.answers is not None:
            figures.append(f"{self.answers.scores.total.right} answers right")
        return f"EvalReport({self.result} against {self.truth}: {', '.join(figures)})"


class _Attempts:
    """Runs what is wanted; what fails is remembered, or ends it all where it was asked for by name."""

    def __init__(self, settings: EvalSettings) -> None:
        self._settings = settings
        self.failures: dict[Part, str] = {}

    def run(self, part: Part, measure: Callable[[], _Measured]) -> _Measured | None:
        if not self._settings.wants(part):
            return None
        try:
            return measure()
        except (InputError, MissingExtraError) as error:
            if self._settings.only is not None or part is Part.TRAJECTORY:
                raise
            self.failures[part] = str(error)
            return None


def evaluate(
    result: Path, truth: Path, settings: EvalSettings, *, progress: Callable[[Part], BeginSteps] = lambda _: uncounted
) -> EvalReport:
    """Measure what both sides have, trajectory files or takes; `progress` is told of the steps of long parts.

    Trajectories must be comparable, unless only answers are asked for. What else cannot be measured is explained in
    the report, or an error if `settings.only` names it.
    """
    attempts = _Attempts(settings)
    matched = read_matched(result, truth, settings) if settings.needs_poses else None
    trajectory = depth = points = None
    if matched is not None:
        trajectory = attempts.run(Part.TRAJECTORY, lambda: measure_trajectory(matched.poses, settings))
        depth = attempts.run(Part.DEPTH, lambda: measure_take_depth(matched, settings, progress(Part.DEPTH)))
        points = attempts.run(Part.POINTS, lambda: measure_take_points(matched, settings, progress(Part.POINTS)))
    return EvalReport(
        result=result,
        truth=truth,
        settings=settings,
        matched=matched,
        trajectory=trajectory,
        depth=depth,
        points=points,
        answers=attempts.run(Part.ANSWERS, lambda: measure_take_answers(result, truth)),
        not_measured=attempts.failures,
    )


def measure_trajectory(pairs: PosePairs, settings: EvalSettings) -> TrajectoryErrors:
    return TrajectoryErrors(
        absolute=absolute_error(pairs, alignment_mode=settings.align),
        relative=relative_error(pairs, delta=settings.delta, alignment_mode=settings.align),
        auc=pose_auc(pairs),
        drift=scale_drift(pairs, alignment_mode=settings.align),
        aligned=move_onto_truth(pairs, settings.align),
    )
