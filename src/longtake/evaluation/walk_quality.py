"""One walk against the truth: a run's cameras and depth, scored beside baselines that never look at the frames."""

from dataclasses import asdict, dataclass

from jaxtyping import Float, Float64
from torch import Tensor

from longtake.evaluation.agreement import ClipGeometry
from longtake.evaluation.alignment_mode import AlignmentMode, move_onto_truth
from longtake.evaluation.baselines import BaselineScore, constant_velocity, score_baselines
from longtake.evaluation.motion import path_length
from longtake.evaluation.scoring import Score, focal_error_share, fov_error_deg, paired, score
from longtake.types import Geometry


@dataclass(frozen=True, slots=True, kw_only=True)
class FilmedWalk:
    """The frames of a walk and what is true of them."""

    images: Float[Tensor, "frames 3 height width"]
    truth: ClipGeometry
    intrinsics: Float[Tensor, "3 3"]

    def first(self, num_frames: int) -> "FilmedWalk":
        truth = ClipGeometry(self.truth.depth[:num_frames], self.truth.world_from_camera[:num_frames])
        return FilmedWalk(images=self.images[:num_frames], truth=truth, intrinsics=self.intrinsics)


@dataclass(frozen=True, slots=True)
class MappedWalk:
    """Depth, cameras and intrinsics of a whole run, on the host."""

    clip: ClipGeometry
    intrinsics: Float[Tensor, "frames 3 3"]

    @classmethod
    def of(cls, geometry: Geometry) -> "MappedWalk":
        return cls(ClipGeometry.of(geometry), geometry.intrinsics.cpu())


@dataclass(frozen=True, slots=True, kw_only=True)
class PathsFromAbove:
    """Camera centres from above, x and z of the true world; all but the true ones are aligned by Sim(3)."""

    true: Float64[Tensor, "frames 2"]
    found: Float64[Tensor, "frames 2"]
    velocity: Float64[Tensor, "frames 2"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldQuality:
    """How well one walk was mapped."""

    seed: int
    path_m: float
    score: Score
    baselines: BaselineScore
    fov_deg: float
    focal_share: float
    watched_s: float
    paths: PathsFromAbove

    @property
    def times_velocity(self) -> float | None:
        """How many times better than constant velocity; none where nothing is wrong, or nothing moved."""
        return _times_better(self.score.ate_share, self.baselines.velocity_ate_share)

    @property
    def times_straight(self) -> float | None:
        return _times_better(self.score.ate_share, self.baselines.straight_ate_share)

    @property
    def times_still(self) -> float | None:
        return _times_better(self.score.ate_m, self.baselines.still_ate_m)

    @property
    def times_mean_depth(self) -> float | None:
        return _times_better(self.score.depth_abs_rel, self.baselines.mean_depth_abs_rel)

    def figures(self) -> dict[str, float | None]:
        """All of them by name."""
        return {
            **asdict(self.score),
            **asdict(self.baselines),
            "times_velocity": self.times_velocity,
            "times_straight": self.times_straight,
            "times_still": self.times_still,
            "times_mean_depth": self.times_mean_depth,
            "fov_deg": self.fov_deg,
            "focal_share": self.focal_share,
            "path_m": self.path_m,
        }


def score_walk(found: MappedWalk, film: FilmedWalk, *, seed: int, watched_s: float) -> WorldQuality:
    """A run against the truth of its walk."""
    height, width = film.images.shape[-2:]
    cameras, truth = found.clip.world_from_camera, film.truth.world_from_camera
    return WorldQuality(
        seed=seed,
        path_m=float(path_length(truth)[-1]),
        score=score(found.clip, film.truth),
        baselines=score_baselines(film.truth),
        fov_deg=fov_error_deg(found.intrinsics, film.intrinsics, height=height, width=width),
        focal_share=focal_error_share(found.intrinsics, film.intrinsics),
        watched_s=watched_s,
        paths=PathsFromAbove(
            true=_from_above(truth),
            found=_from_above(_aligned(cameras, truth)),
            velocity=_from_above(_aligned(constant_velocity(truth), truth)),
        ),
    )


def _aligned(
    cameras: Float64[Tensor, "frames 4 4"], truth: Float64[Tensor, "frames 4 4"]
) -> Float64[Tensor, "frames 4 4"]:
    return move_onto_truth(paired(cameras, truth), AlignmentMode.SIM3).result


def _from_above(cameras: Float64[Tensor, "frames 4 4"]) -> Float64[Tensor, "frames 2"]:
    return cameras[:, [0, 2], 3]


def _times_better(error: float | None, baseline: float | None) -> float | None:
    return baseline / error if error and baseline is not None else None
