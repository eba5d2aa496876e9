"""A filmed walk that was mapped: the result's take against the truth's, and what a report says of it."""

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from longtake.bench.agreement import Seen
from longtake.bench.quality import Film, Found, WorldQuality, judge
from longtake.bench.scoring import depth_errors, paired
from longtake.errors import InputError
from longtake.evaluate.alignment_mode import AlignmentMode, truth_from_result
from longtake.export.report.truth import Figure, Truth
from longtake.takes.take import Take


def film_of(truth: Take) -> Film:
    """All frames of a filmed walk, in memory."""
    images = torch.from_numpy(np.stack(list(truth.images()))).permute(0, 3, 1, 2)
    return Film(images=images.float() / 255, truth=_seen(truth), intrinsics=truth.intrinsics[0].float())


def judge_walk(result: Take, film: Film, *, seed: int, watched_s: float) -> WorldQuality:
    """What was written of a walk against what is true of it."""
    if len(result) != len(film.images):
        raise InputError(
            f"Expected a result for each of {len(film.images)} frames, but {result.folder} has {len(result)}."
        )
    found = Found(_seen(result), result.intrinsics.float())
    return judge(found, film, seed=seed, watched_s=watched_s)


def truth_for_report(result: Take, film: Film, quality: WorldQuality) -> Truth:
    """The true way where it lies best in the result's world, and the figures in words."""
    pairs = paired(result.trajectory.world_from_camera, film.truth.world_from_camera)
    aligned = truth_from_result(pairs, AlignmentMode.SIM3)
    depth = depth_errors(_depth(result), film.truth.depth).correction
    assert depth is not None
    apart = float(aligned.scale) / depth.scale
    return Truth(
        about=(
            f"A walk of {quality.path_m:.1f} m through house {quality.seed}, which no training has seen. Cameras are "
            "aligned by Sim(3) on their centres, depth by one scale for the whole walk; what is said without looking "
            "is aligned alike."
        ),
        centres=aligned.inverse().of_points(film.truth.world_from_camera[:, :3, 3]).numpy(),
        figures=(
            *_figures(quality),
            Figure(name="Scale of the way over that of depth", result=f"{apart:.3g}, 1 is right"),
        ),
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


def _seen(take: Take) -> Seen:
    return Seen(_depth(take), take.trajectory.world_from_camera)


def _depth(take: Take) -> Float[Tensor, "frames height width"]:
    return torch.stack([torch.from_numpy(take.depth(position)) for position in range(len(take))])


def _percent(share: float | None) -> str:
    return _number(None if share is None else 100 * share, " %")


def _number(value: float | None, unit: str = "") -> str:
    return "cannot be told" if value is None else f"{value:.3g}{unit}"
