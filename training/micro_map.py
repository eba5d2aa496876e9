"""Training of micro-map: clips of walks through training houses, watched as a stream would be, scored against truth."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from longtake.errors import InputError
from longtake.geometry.config import GeometryConfig
from longtake.geometry.model import GeometryModel
from longtake.weights.load import load_geometry, save_geometry
from longtake.weights.presets import MICRO
from training.cutting import Cutter
from training.footage import Footage, recoloured
from training.learning import ClipTrainer, compile_parts
from training.losses import PARTS, targets, weighted
from training.optimise import initialise
from training.recipe import Recipe
from training.stream_pattern import random_pattern
from training.trainer import Line, Piece, Training
from training.validation import judge

_STREAM_PATTERNS = 6
"""For each clip length; others are drawn for the next piece of a training."""


class MicroMapTraining(Training[Footage]):
    """A geometry model that learns poses and depth."""

    def __init__(
        self,
        recipe: Recipe,
        piece: Piece,
        tell: Callable[[Line], None],
        *,
        network: GeometryConfig = MICRO,
    ) -> None:
        """Begun anew, or resumed from its checkpoint; `tell` is given every figure as it comes."""
        torch.manual_seed(0)
        self.model = GeometryModel(network)
        initialise(self.model)
        if piece.begin_with is not None:
            known = load_geometry(piece.begin_with)
            if known.config != network:
                raise InputError(f"The model in {piece.begin_with} is another network than the one that is trained.")
            self.model.load_state_dict(known.state_dict())
        self.model.to(piece.device)
        if piece.device.type == "cuda":
            torch.set_float32_matmul_precision("high")
            compile_parts(self.model)
        super().__init__(recipe, piece, tell, self.model)
        self._recipe = recipe
        with torch.no_grad():
            self._grid = self.model.grid(recipe.film.height, recipe.film.width)
        self._cutter = Cutter(
            num_filmed=recipe.film.house_frames,
            longest_stride=recipe.film.longest_stride,
            returning=recipe.cut.returning,
            strange=recipe.cut.strange,
        )
        self._trainers: dict[int, list[ClipTrainer]] = {}

    def export(self, path: Path) -> None:
        """Write the model as it is by now, in half precision."""
        model = GeometryModel(self.model.config)
        model.load_state_dict(self.model.state_dict())
        save_geometry(model.half(), path)

    def _room_for(self, num_houses: int) -> Footage:
        film = self._recipe.film
        return Footage(num_houses, film.house_frames, (film.height, film.width), self._device)

    def _learn(self, footage: Footage) -> Float[Tensor, " parts"]:
        """One step; returns the parts of the loss."""
        recipe = self._recipe
        num_frames = int(self._rng.choice(recipe.stage_at(self.step).clip_frames))
        trainer = self._trainer(num_frames)
        num_clips = max(1, recipe.frames_per_step // num_frames)
        num_deep = min(num_frames, max(1, recipe.depth_frames_per_step // num_clips))
        clips = footage.cut(num_clips, num_frames, self._rng, self._cutter)
        truth = targets(clips, trainer.pattern.num_scale_frames)
        deep = torch.from_numpy(np.sort(self._rng.permutation(num_frames)[:num_deep])).to(self._device)
        inputs = [recoloured(clips.image), truth.pose, truth.is_known, truth.depth[:, deep], deep]
        parts = trainer.learn(inputs, self._weights, self._pool)
        self._follow_gradients()
        return parts

    def _trainer(self, num_frames: int) -> ClipTrainer:
        """A trainer for clips of this length, with one of several stream patterns."""
        trainers = self._trainers.setdefault(num_frames, [])
        if len(trainers) < _STREAM_PATTERNS:
            trainers.append(ClipTrainer(self.model, random_pattern(num_frames, self._rng), self._grid))
            return trainers[-1]
        return trainers[int(self._rng.integers(len(trainers)))]

    def _judge(self, known: Footage) -> dict[str, float]:
        figures = [judge(self.model, self._grid, known, length) for length in self._recipe.judge.clip_frames]
        return {name: value for one in figures for name, value in one.items()}

    def _figures(self, values: Float[Tensor, " parts"]) -> dict[str, float]:
        """The loss, and its parts."""
        named = {f"loss_{name}": value for name, value in zip(PARTS, values.tolist(), strict=True)}
        return {"loss": float(weighted(values))} | named
