"""How good a network in training is by now, on walks through houses that it does not learn from."""

import torch
from jaxtyping import Float
from torch import Tensor

from longtake.geometry.model import GeometryModel, Grid
from longtake.spatial.similarity import best_similarity
from training.footage import Footage
from training.learning import ClipTrainer
from training.losses import depth_losses, targets
from training.stream_pattern import StreamPattern

_DEPTH_EVERY = 6
"""Frames: depth of one is much like that of the next."""


def judge(model: GeometryModel, grid: Grid, footage: Footage, num_frames: int) -> dict[str, float]:
    """On the first frames of each house: error of the path over its length, and of depth over depth."""
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


def path_errors(
    predicted: Float[Tensor, "clips frames 9"], truth: Float[Tensor, "clips frames 9"]
) -> Float[Tensor, " clips"]:
    """Root mean square distance after the best similarity, over the length of the true path."""
    errors = []
    for estimated, true in zip(predicted[..., :3].double().cpu(), truth[..., :3].double().cpu(), strict=True):
        away = best_similarity(estimated, true).of_points(estimated) - true
        errors.append(away.square().sum(dim=-1).mean().sqrt() / true.diff(dim=0).norm(dim=-1).sum())
    return torch.stack(errors)
