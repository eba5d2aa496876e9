"""A geometry model on a GPU in a half type: blocks are fused, and the camera head works beside the dense heads."""

import copy
import threading
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from longtake.attention.recall import Recall
from longtake.geometry.heads.dense import DenseMap
from longtake.geometry.model import GeometryModel, Grid, Prediction
from longtake.layers.fused import FusedBlock


class FusedModel:
    """Shares all weights with the model that it stands for, which computes the same one operation after another."""

    def __init__(self, model: GeometryModel, dtype: torch.dtype) -> None:
        def fused(blocks: Any) -> nn.ModuleList:
            return nn.ModuleList(FusedBlock(block, dtype) for block in blocks)

        self._model: GeometryModel = with_parts(
            model,
            encoder=with_parts(model.encoder, blocks=fused(model.encoder.blocks)),
            trunk=with_parts(
                model.trunk,
                frame_blocks=fused(model.trunk.frame_blocks),
                global_blocks=fused(model.trunk.global_blocks),
            ),
        )
        device = next(model.parameters()).device
        self._aside = stream_aside(torch.device("cuda", device.index or 0)) if device.type == "cuda" else None

    def __call__(self, images: Float[Tensor, "batch frames 3 height width"], recall: Recall, grid: Grid) -> Prediction:
        return self.predict(self.encode(images, grid), recall, grid)

    def encode(
        self, images: Float[Tensor, "batch frames 3 height width"], grid: Grid
    ) -> Float[Tensor, "batch frames patches channels"]:
        """Tokens of all patches, which nothing remembered can change."""
        return self._model.encode(images, grid)

    def predict(
        self, patches: Float[Tensor, "batch frames patches channels"], recall: Recall, grid: Grid
    ) -> Prediction:
        """All that the heads say. Dense maps of several frames are made one by one: they are large."""
        model = self._model
        features = model.features_of(patches, recall, grid, model.clip_rotation(recall, grid))
        with torch.autocast(patches.device.type, enabled=False):
            try:
                with self._beside():
                    poses = model.poses(features, recall)
                one_by_one = [
                    model.dense_maps([level[:, frame : frame + 1] for level in features], grid)
                    for frame in range(patches.shape[1])
                ]
            finally:
                if self._aside is not None:
                    torch.cuda.current_stream().wait_stream(self._aside)
            dense_maps = [_joined(frames) for frames in zip(*one_by_one, strict=True)]
            return model.prediction(poses, *dense_maps, descriptor=model.descriptor(patches))

    def _beside(self) -> AbstractContextManager[object]:
        """What is launched inside runs from now on at the same time as what is launched after it."""
        if self._aside is None:
            return nullcontext()
        self._aside.wait_stream(torch.cuda.current_stream())
        return torch.cuda.stream(self._aside)


def _joined(frames: tuple[DenseMap | None, ...]) -> DenseMap | None:
    """What one head says of all frames of a clip; None of one that there is not."""
    maps = [each for each in frames if each is not None]
    if len(maps) < 2:
        return frames[0]
    return DenseMap(torch.cat([each.values for each in maps], 1), torch.cat([each.confidence for each in maps], 1))


COMPUTING = threading.Lock()
"""Held by each step on a GPU: one records at a time in a process, and all share the stream aside."""


@cache
def stream_aside(device: torch.device) -> torch.cuda.Stream:
    """One for all models of a device: each stream has a workspace of its own for products, tens of megabytes."""
    return torch.cuda.Stream(device)


def with_parts(module: Any, **parts: nn.Module) -> Any:
    """A module with the same weights, some parts of which are others."""
    twin = copy.copy(module)
    twin._modules = module._modules | parts
    return twin


def products_in(dtype: torch.dtype, device: torch.device) -> torch.autocast:
    """Products in this type, whatever surrounds them; norms, residuals, phases and heads stay float32."""
    halved = dtype != torch.float32
    return torch.autocast(device.type, dtype=dtype if halved else None, enabled=halved, cache_enabled=False)
