"""What `longtake demo` adds to the report of its map: the true path and figures, and questions asked on the way."""

import numpy as np

from longtake.attention.backend import Backend
from longtake.bench.answers import GivenAnswer, ask_world
from longtake.bench.answers_policies import KEEP_ALL, MemoryVariant
from longtake.evaluation.alignment_mode import AlignmentMode, truth_from_result
from longtake.evaluation.asked_walk import (
    WITHIN,
    QuestionPlan,
    WalkFrames,
    film_walk,
    is_right,
    met_by_chance,
    pose_questions,
)
from longtake.evaluation.scoring import depth_errors, paired
from longtake.evaluation.take_quality import depth_of
from longtake.evaluation.walk_quality import FilmedWalk, WorldQuality
from longtake.exports.report.asked import Asked, AskedQuestion
from longtake.exports.report.truth import Figure, Truth
from longtake.language.load import LanguageModel
from longtake.takes.take import Take
from longtake.world.families import HELD_OUT, Family
from longtake.world.question import QuestionKind
from longtake.world.question_sampler import QuestionSampler

_EVERY_FRAME = MemoryVariant(policy=KEEP_ALL, memory=None)


def truth_for_report(result: Take, film: FilmedWalk, quality: WorldQuality, family: Family = Family.HOUSE) -> Truth:
    """The true way where it lies best in the result's world, and the figures in words."""
    pairs = paired(result.trajectory.world_from_camera, film.truth.world_from_camera)
    aligned = truth_from_result(pairs, AlignmentMode.SIM3)
    depth = depth_errors(depth_of(result), film.truth.depth).correction
    assert depth is not None
    apart = float(aligned.scale) / depth.scale
    return Truth(
        about=(
            f"A walk of {quality.path_m:.1f} m {_place(family, quality.seed)}. Cameras are aligned by Sim(3) on their "
            "centres, depth by one scale for the whole walk; what is said without looking is aligned alike."
        ),
        centres=aligned.inverse().of_points(film.truth.world_from_camera[:, :3, 3]).numpy(),
        figures=(
            *_figures(quality),
            Figure(name="Scale of the way over that of depth", result=f"{apart:.3g}, 1 is right"),
        ),
    )


def _place(family: Family, seed: int) -> str:
    if family is HELD_OUT:
        return f"around {family} {seed}, of a kind that no training has seen"
    return f"through {family} {seed}, which no training has seen"


def ask_on_the_way(
    language: LanguageModel,
    seed: int,
    asking: QuestionPlan,
    size: tuple[int, int],
    *,
    name: str,
    backend: Backend | None = None,
) -> Asked:
    """The walk through a house, watched frame by frame and asked about at several moments, against the truth."""
    film = film_walk(seed, asking, size, lambda _: None)
    posed = pose_questions(QuestionSampler(np.random.default_rng([seed, 4])), film.seen, asking)
    given = ask_world(language, _EVERY_FRAME, film, posed, backend).given
    return Asked(
        about=(
            f"{name} watched the same walk at {asking.fps:g} frames a second and {size[1]}x{size[0]} pixels, and "
            "answered from what it had seen by then. Seconds are right within 2 s. Bars are the video up to the "
            "question: the span that the answer attended to most, and lines where the truth can be seen."
        ),
        questions=tuple(_judged(one, film) for one in given),
    )


def _judged(given: GivenAnswer, film: WalkFrames) -> AskedQuestion:
    question, times_s = given.posed.question, film.times_s
    kind = WITHIN if question.kind is QuestionKind.WHEN else str(question.kind)
    return AskedQuestion(
        time_s=question.timestamp_s,
        kind=str(question.kind),
        question=question.text,
        answer=given.text,
        truth=question.answer,
        is_right=is_right(kind, question, given.text),
        looked_s=None if given.span is None else (times_s[given.span[0]], times_s[given.span[1]]),
        moments_s=tuple(times_s[frame] for frame in question.moments),
        met_by_chance=0.0 if given.span is None else met_by_chance(question, given.span),
    )


def _figures(quality: WorldQuality) -> tuple[Figure, ...]:
    score, baselines = quality.score, quality.baselines
    return (
        Figure(
            name="Error of the way (ATE), of its length",
            result=_percent(score.ate_share),
            baseline=f"constant velocity {_percent(baselines.velocity_ate_share)}",
        ),
        Figure(name="Rotation error, median", result=f"{score.rotation_deg:.1f}°"),
        Figure(name="Error of the turn since the first frame, median", result=f"{score.rotation_since_first_deg:.1f}°"),
        Figure(name="Scale along the way, largest over smallest", result=_number(score.scale_range)),
        Figure(name="Scale drift in 100 frames", result=_number(score.scale_drift_percent, " %")),
        Figure(
            name="Depth, mean relative error (AbsRel)",
            result=f"{score.depth_abs_rel:.3f}",
            baseline=f"mean depth {baselines.mean_depth_abs_rel:.3f}",
        ),
        Figure(name="Depth within a factor of 1.25", result=_percent(score.depth_delta_1)),
        Figure(name="Field of view, mean error", result=f"{quality.fov_deg:.1f}°"),
    )


def _percent(share: float | None) -> str:
    return _number(None if share is None else 100 * share, " %")


def _number(value: float | None, unit: str = "") -> str:
    return "cannot be told" if value is None else f"{value:.3g}{unit}"
