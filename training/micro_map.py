"""Training of micro-map: clips of ways through worlds, watched as a stream would be, scored against truth."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from itertools import islice
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
from longtake.world.families import HELD_OUT, Family
from longtake.world.seeds import Split, seeds
from training.cutting import Cutter
from training.footage import Reels, Size
from training.fusing import fuse
from training.learning import ClipTrainer
from training.losses import PARTS, targets, weighted
from training.optimise import initialise
from training.other_cameras import through_cameras
from training.recipe import Recipe
from training.stream_pattern import random_pattern
from training.trainer import Line, Piece, Training
from training.validation import judge, judge_places
from training.walkers import AT_ONCE, Group, Trip, in_groups

_STREAM_PATTERNS = 2
"""For each size and length of clips, each recorded once, which takes a second; others are drawn for the next piece of a
training."""


@dataclass(frozen=True, slots=True)
class Kind:
    """What is judged apart."""

    family: Family
    size: Size


class MicroMapTraining(Training[Reels]):
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
            fuse(self.model)
        super().__init__(recipe, piece, tell, self.model)
        self._recipe = recipe
        with torch.no_grad():
            self._grids = {size: self.model.grid(*size) for size in recipe.film.sizes}
        self._cutter = Cutter(
            num_filmed=recipe.film.world_frames,
            longest_stride=recipe.film.longest_stride,
            returning=recipe.cut.returning,
            strange=recipe.cut.strange,
        )
        self._trainers: dict[tuple[Size, int], list[ClipTrainer]] = {}

    def export(self, path: Path) -> None:
        """Write the model as it is by now, in half precision, with the sizes of pictures it was trained on."""
        sizes = tuple(dict.fromkeys(self._recipe.film.sizes))
        model = GeometryModel(replace(self.model.config, sizes=sizes))
        model.load_state_dict(self.model.state_dict())
        save_geometry(model.half(), path)

    def _judged(self) -> list[Group]:
        some_seeds = list(islice(seeds(Split.VALIDATION), self._recipe.judge.worlds))
        return [
            group for kind in self._kinds() for group in in_groups([Trip(kind.family, seed) for seed in some_seeds])
        ]

    def _kinds(self) -> list[Kind]:
        """Every family in the first size, the one that is never learned from too, and houses in the other sizes."""
        film = self._recipe.film
        usual, *others = dict.fromkeys(film.sizes)
        families = dict.fromkeys([Family.HOUSE, *map(Family, film.families), HELD_OUT])
        return [*(Kind(family, usual) for family in families), *(Kind(Family.HOUSE, size) for size in others)]

    def _room_for_judging(self) -> Reels:
        order = [(kind, kind.size) for kind in self._kinds() for _ in range(self._recipe.judge.worlds)]
        return Reels(order, self._recipe.film.world_frames, self._device)

    def _room(self) -> Reels:
        """What is drawn in one go has one size."""
        film = self._recipe.film
        sizes = [film.sizes[number // AT_ONCE % len(film.sizes)] for number in range(film.worlds)]
        return Reels([(size, size) for size in sizes], film.world_frames, self._device)

    def _learn(self, footage: Reels) -> Float[Tensor, " parts"]:
        """One step; returns the parts of the loss."""
        recipe = self._recipe
        num_frames = int(self._rng.choice(recipe.stage_at(self.step).clip_frames))
        filmed = list(footage.filmed().values())
        shares = np.array([each.num_worlds for each in filmed])
        reel = filmed[int(self._rng.choice(len(filmed), p=shares / shares.sum()))]
        trainer = self._trainer(reel.size, num_frames)
        num_clips = max(1, recipe.frames_per_step // num_frames)
        num_deep = min(num_frames, max(1, recipe.depth_frames_per_step // num_clips))
        clips = reel.cut(num_clips, num_frames, self._rng, self._cutter, trainer.pattern.whole)
        truth = targets(clips, trainer.pattern.num_scale_frames)
        deep = torch.from_numpy(np.sort(self._rng.permutation(num_frames)[:num_deep])).to(self._device)
        inputs = [through_cameras(clips.image, self._rng), truth.pose, truth.is_known, truth.depth[:, deep], deep]
        parts = trainer.learn(inputs, self._weights, self._pool)
        self._follow_gradients()
        return parts

    def _trainer(self, size: Size, num_frames: int) -> ClipTrainer:
        """A trainer for clips of this size and length, with one of several stream patterns."""
        trainers = self._trainers.setdefault((size, num_frames), [])
        if len(trainers) < _STREAM_PATTERNS:
            pattern, is_gpu = random_pattern(num_frames, self._rng), self._device.type == "cuda"
            trainers.append(ClipTrainer(self.model, pattern, self._grids[size], sparse=is_gpu))
            return trainers[-1]
        return trainers[int(self._rng.integers(len(trainers)))]

    def _judge(self, known: Reels) -> dict[str, float]:
        figures: dict[str, float] = {}
        for kind, footage in known.filmed().items():
            for length in self._recipe.judge.clip_frames:
                of_kind = judge(self.model, self._grids[footage.size], footage, length)
                figures |= {f"{self._prefix(kind)}{name}": value for name, value in of_kind.items()}
        houses = known.filmed()[self._kinds()[0]]
        return figures | judge_places(self.model, self._grids[houses.size], houses, self._cutter)

    def _prefix(self, kind: Hashable) -> str:
        """Of the figures of a kind; those of houses in the first size need none."""
        if kind == (usual := self._kinds()[0]):
            return ""
        assert isinstance(kind, Kind)
        height, width = kind.size
        return f"{kind.family}_" if kind.size == usual.size else f"{kind.family}_{width}x{height}_"

    def _figures(self, values: Float[Tensor, " parts"]) -> dict[str, float]:
        """The loss, and its parts."""
        named = {f"loss_{name}": value for name, value in zip(PARTS, values.tolist(), strict=True)}
        return {"loss": float(weighted(values))} | named
