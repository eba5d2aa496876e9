"""What whoever hears of corrections knows of a walk: each frame's camera and depth as they were told last."""

from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Float64
from torch import Tensor

from longtake.evaluation.motion import rotation_angle_deg
from longtake.spatial.similarity import Similarity, best_similarity
from longtake.types import Geometry


@dataclass(slots=True)
class Followed:
    """Frames by their numbers."""

    every: int = 0
    """Of one in so many frames all is kept; 0 keeps cameras alone."""
    cameras: dict[int, Float64[Tensor, "4 4"]] = field(default_factory=dict)
    kept: dict[int, Geometry] = field(default_factory=dict)
    """One frame each."""

    def hear(self, geometry: Geometry) -> None:
        """One step's result, with what it moved."""
        moved = geometry.moved
        if moved is not None:
            for span in moved.spans:
                self._move(span.first_frame, span.last_frame, Similarity.of_matrix(span.now_from_before.double()))
            self._tell(moved.geometry)
        self._tell(geometry)

    def copy(self) -> "Followed":
        """That hears something else from here on."""
        return replace(self, cameras=dict(self.cameras), kept=dict(self.kept))

    def trajectory(self) -> Float64[Tensor, "frames 4 4"]:
        """All cameras in order."""
        return torch.stack([self.cameras[frame] for frame in sorted(self.cameras)])

    def _move(self, first: int, last: int, now_from_before: Similarity) -> None:
        for frame in range(first, last + 1):
            if frame in self.cameras:
                self.cameras[frame] = now_from_before.of_cameras(self.cameras[frame])
            if frame in self.kept:
                one = self.kept[frame]
                self.kept[frame] = replace(one, depth=float(now_from_before.scale) * one.depth)

    def _tell(self, geometry: Geometry) -> None:
        for place, frame in enumerate(geometry.frame_index):
            self.cameras[frame] = geometry.world_from_camera[place].double()
            if self.every and frame % self.every == 0:
                self.kept[frame] = replace(geometry.frames(place, place + 1), moved=None)


@dataclass(frozen=True, slots=True)
class PoseErrors:
    """Of a trajectory after one similarity."""

    metres: float
    """Root mean square of positions."""
    degrees: float
    """Median of rotations."""
    metres_from_unit: Similarity


def pose_errors(poses: Float64[Tensor, "frames 4 4"], truth: Float64[Tensor, "frames 4 4"]) -> PoseErrors:
    """Against where the cameras truly were."""
    metres_from_unit = best_similarity(poses[:, :3, 3].contiguous(), truth[:, :3, 3].contiguous())
    moved = metres_from_unit.of_cameras(poses)
    apart = (moved[:, :3, 3] - truth[:, :3, 3]).norm(dim=1)
    turns = rotation_angle_deg(truth[:, :3, :3].transpose(1, 2) @ moved[:, :3, :3])
    return PoseErrors(float(apart.square().mean().sqrt()), float(turns.median()), metres_from_unit)
