"""The forward pass of a map network over whole clips, masked as a stream would be, and its losses."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from longtake.attention.recall import Recall
from longtake.geometry.model import GeometryModel, Grid
from training.losses import depth_losses, pose_losses, weighted
from training.recording import TrainStep
from training.stream_pattern import StreamPattern


@dataclass(frozen=True, slots=True, kw_only=True)
class ClipPrediction:
    """Poses of all frames of some clips; depth and its confidence of some frames."""

    poses: Float[Tensor, "iterations clips frames 9"]
    depth: Float[Tensor, "clips deep height width"]
    confidence: Float[Tensor, "clips deep height width"]


class ClipTrainer:
    """Predicts and learns from clips of one length under one stream pattern."""

    def __init__(self, model: GeometryModel, pattern: StreamPattern, grid: Grid, *, sparse: bool = False) -> None:
        """`sparse` passes over what is not seen: faster where it is compiled, slower where it is not."""
        self.pattern = pattern
        self._model, self._grid = model, grid
        recall_of = pattern.sparse_recall if sparse else pattern.recall
        self._recall: Recall = recall_of(model.config, (grid.height, grid.width), grid.positions.device)
        self._rotate_clip = model.clip_rotation(self._recall, grid)
        self._step = TrainStep(self._compute)

    def learn(self, inputs: Sequence[Tensor], weights: Sequence[Tensor], pool: Any) -> Float[Tensor, " parts"]:
        """Recorded where there is a pool for it, else plainly."""
        return self._step.learn(inputs, weights, pool)

    def _compute(
        self,
        images: Float[Tensor, "clips frames 3 height width"],
        pose: Float[Tensor, "clips frames 9"],
        is_known: Bool[Tensor, "clips frames"],
        depth: Float[Tensor, "clips deep height width"],
        deep: Int64[Tensor, " deep"],
    ) -> tuple[Float[Tensor, ""], Float[Tensor, " parts"]]:
        prediction = self.predict(images, deep)
        of_depth = depth_losses(prediction.depth, prediction.confidence, depth)
        parts = torch.stack([*pose_losses(prediction.poses, pose, is_known), *of_depth])
        return weighted(parts), parts

    def predict(
        self, images: Float[Tensor, "clips frames 3 height width"], deep: Int64[Tensor, " deep"]
    ) -> ClipPrediction:
        """Poses of all frames of these clips, and depth of the `deep` frames of each."""
        model, grid = self._model, self._grid
        # of all that a grid holds, only the encoder's positions are learned
        learned = model.encoder.positions_on(*model.config.patches(grid.height, grid.width))
        with torch.autocast(images.device.type, torch.bfloat16, cache_enabled=False):
            features = model.features(images, self._recall, replace(grid, positions=learned), self._rotate_clip)
            levels = [level[:, deep, model.config.special_tokens :] for level in features]
            dense = model.depth_head(levels, grid.dense, frames_at_once=len(images) * len(deep))
        poses = model.camera_head(features[-1][:, :, 0].float(), self._recall)
        return ClipPrediction(poses=poses, depth=dense.values.squeeze(-1).float(), confidence=dense.confidence.float())
