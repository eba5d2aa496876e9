"""How good a network in training is by now, on ways through worlds that it does not learn from."""

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from longtake.geometry.model import GeometryModel, Grid
from longtake.spatial.similarity import best_similarity
from training.cutting import Cutter
from training.footage import Clips, Footage
from training.learning import ClipPrediction, ClipTrainer
from training.losses import depth_losses, targets
from training.stream_pattern import StreamPattern

_DEPTH_EVERY = 6
"""Frames: depth of one is much like that of the next."""
_SHORTEST_PATH = 1e-3
"""Of a camera that stands still, in mean depths."""
_STRETCH = 8
"""Frames of a place, and of the same place again."""


def judge(model: GeometryModel, grid: Grid, footage: Footage, num_frames: int) -> dict[str, float]:
    """On the first frames of each world: error of the path over its length, and of depth over depth."""
    trainer = ClipTrainer(model, StreamPattern(num_frames=num_frames, num_scale_frames=4, window=16, interval=1), grid)
    clips = footage.beginnings(num_frames)
    truth = targets(clips, trainer.pattern.num_scale_frames)
    deep = torch.arange(0, num_frames, _DEPTH_EVERY, device=clips.image.device)
    with torch.no_grad(), torch.compiler.set_stance("force_eager"):
        prediction = trainer.predict(clips.image, deep)
    _, _, depth_error = depth_losses(prediction.depth, prediction.confidence, truth.depth[:, deep])
    return {
        f"path_error_{num_frames}": float(path_errors(prediction.poses[-1], truth.pose).median()),
        f"depth_error_{num_frames}": float(depth_error),
    }


def judge_places(model: GeometryModel, grid: Grid, footage: Footage, cutter: Cutter) -> dict[str, float]:
    """Shown some frames, and then some of the same place much later: by how many degrees the camera is turned wrongly,
    in the median and below which 90 % lie; and of pairs that share nothing, which share is less sure of its depth than
    90 % of those that do."""
    pattern = StreamPattern(num_frames=2 * _STRETCH, num_scale_frames=_STRETCH, window=2 * _STRETCH, interval=1)
    trainer = ClipTrainer(model, pattern, grid)
    later = torch.arange(_STRETCH, 2 * _STRETCH, device=grid.positions.device)

    def shown(*, strange: bool) -> tuple[Clips, ClipPrediction]:
        clips = footage.pairs(_STRETCH, np.random.default_rng([3, strange]), cutter, strange=strange)
        with torch.no_grad(), torch.compiler.set_stance("force_eager"):
            return clips, trainer.predict(clips.image, later)

    again, said = shown(strange=False)
    if not len(again.image):
        return {}
    _, strange = shown(strange=True)
    turned = turn_errors_deg(said.poses[-1][:, later], targets(again, _STRETCH).pose[:, later]).median(dim=1).values
    sure, unsure = (each.confidence.log().mean(dim=(1, 2, 3)) for each in (said, strange))
    return {
        "place_turn_deg": float(turned.median()),
        "place_turn_90_deg": float(turned.quantile(0.9)),
        "strange_told": float((unsure < sure.quantile(0.1)).float().mean()),
    }


def turn_errors_deg(
    predicted: Float[Tensor, "clips frames 9"], truth: Float[Tensor, "clips frames 9"]
) -> Float[Tensor, "clips frames"]:
    """Between the cameras' rotations."""
    said, true = (functional.normalize(pose[..., 3:7], dim=-1) for pose in (predicted, truth))
    cosine = (said * true).sum(dim=-1).abs().clamp_max(1)
    return torch.rad2deg(2 * cosine.acos())


def path_errors(
    predicted: Float[Tensor, "clips frames 9"], truth: Float[Tensor, "clips frames 9"]
) -> Float[Tensor, " clips"]:
    """Root mean square distance after the best similarity, over the length of the true path."""
    errors = []
    for estimated, true in zip(predicted[..., :3].double().cpu(), truth[..., :3].double().cpu(), strict=True):
        away = best_similarity(estimated, true).of_points(estimated) - true
        errors.append(
            away.square().sum(dim=-1).mean().sqrt() / true.diff(dim=0).norm(dim=-1).sum().clamp_min(_SHORTEST_PATH)
        )
    return torch.stack(errors)
