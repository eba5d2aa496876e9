"""Training of micro-map: clips of walks through training houses, watched as a stream would be, scored against truth."""

import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from longtake.errors import SettingError
from longtake.geometry.config import GeometryConfig
from longtake.geometry.model import GeometryModel
from longtake.training.checkpoint import Reached, is_training, resume_training, save_training
from longtake.training.footage import Footage, Walkers, in_groups, recoloured
from longtake.training.judging import judge
from longtake.training.learning import Way, compile_parts
from longtake.training.losses import PARTS, targets, weighted
from longtake.training.optimise import Optimisers, initialise
from longtake.training.recipe import Recipe
from longtake.training.recording import prepare_gradients
from longtake.training.watching import any_watching
from longtake.weights.load import save_geometry
from longtake.weights.presets import MICRO
from longtake.world.seeds import Split, seeds

CURVE = "curve.jsonl"
Line = dict[str, int | float]
"""Of the curve: the step, the seconds since the piece began, and some figures."""
_WAYS_TO_WATCH = 6
"""For each clip length; others are drawn for the next piece of a training."""
_LOG_EVERY = 100
_FIRST_LOGS = (1, 10, 30)


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """As much of a training as is done in one go."""

    folder: Path
    seconds: float
    device: torch.device
    processes: int | None = None
    """That build houses; by default one for each processor but two."""


class MicroMapTraining:
    """A model, its optimisers, and how far they are."""

    def __init__(
        self,
        recipe: Recipe,
        piece: Piece,
        tell: Callable[[Line], None],
        *,
        network: GeometryConfig = MICRO,
    ) -> None:
        """Begun anew, or taken up where it was put away; `tell` hears every figure as it comes."""
        self._recipe, self._piece, self._device, self._tell = recipe, piece, piece.device, tell
        self._started, self._is_stopped = time.monotonic(), False
        torch.manual_seed(0)
        self.model = GeometryModel(network)
        initialise(self.model)
        self.model.to(self._device)
        if self._device.type == "cuda":
            torch.set_float32_matmul_precision("high")
            compile_parts(self.model)
        self._optimisers = Optimisers(self.model, weight_decay=recipe.weight_decay)
        reached = Reached(step=0, houses=0)
        if is_training(piece.folder):
            reached = resume_training(piece.folder, self.model, self._optimisers)
        self.step, self._saved_at, self._num_houses = reached.step, reached.step, reached.houses
        with torch.no_grad():
            self._grid = self.model.grid(recipe.film.height, recipe.film.width)
        self._rng = np.random.default_rng([1, self.step])
        torch.manual_seed(1 + self.step)
        self._weights = list(self.model.parameters())
        prepare_gradients(self._weights)
        self._pool = torch.cuda.graph_pool_handle() if self._device.type == "cuda" else None
        self._ways: dict[int, list[Way]] = {}

    @property
    def is_done(self) -> bool:
        return self.step >= self._recipe.num_steps

    @property
    def is_stopped(self) -> bool:
        return self._is_stopped

    def stop(self) -> None:
        """End soon and well: after the step that was begun, with all that was learned put away."""
        self._is_stopped = True

    def run(self) -> None:
        """Train until time is up or the recipe is done, then save; houses are built and filmed meanwhile."""
        film = self._recipe.film
        walkers = self._walkers()
        try:
            known = self._film(walkers, self._recipe.judge.houses)
            footage = self._film(walkers, film.houses, begin_with=film.first_houses)
            self._log({"began_s": round(self._elapsed(), 1)})
            while not self._is_over():
                if footage.has_room and (walked := walkers.next_group(wait=False)) is not None:
                    footage.add(walked)
                self._advance(footage, known)
        finally:
            walkers.close()
        if self.step > self._saved_at:
            self._put_away(footage, known)

    def export(self, path: Path) -> None:
        """Write the model as it is by now, in half precision."""
        model = GeometryModel(self.model.config)
        model.load_state_dict(self.model.state_dict())
        save_geometry(model.half(), path)

    def _walkers(self) -> Walkers:
        """Through houses for validation, then through those for training that no earlier piece has seen."""
        film = self._recipe.film
        judged = list(islice(seeds(Split.VALIDATION), self._recipe.judge.houses))
        fresh = list(islice(seeds(Split.TRAINING), self._num_houses, self._num_houses + film.houses))
        groups = [*in_groups(judged), *in_groups(fresh)]
        return Walkers(groups, film.house_frames, processes=self._piece.processes)

    def _film(self, walkers: Walkers, num_houses: int, *, begin_with: int | None = None) -> Footage:
        """Room for so many houses, of which the first are there, unless nobody wants them any more."""
        film = self._recipe.film
        footage = Footage(num_houses, film.house_frames, (film.height, film.width), self._device)
        while footage.num_houses < (begin_with or num_houses) and footage.has_room and not self._is_stopped:
            walked = walkers.next_group(wait=True)
            assert walked is not None
            footage.add(walked)
        return footage

    def _is_over(self) -> bool:
        return self.is_done or self._is_stopped or self._elapsed() >= self._piece.seconds

    def _advance(self, footage: Footage, known: Footage) -> None:
        """One step, and what is to be told after it."""
        parts = self._learn(footage)
        self.step += 1
        if self.step % _LOG_EVERY == 0 or self.step in _FIRST_LOGS or self.is_done:
            self._log(self._figures(parts))
        if self.step % self._recipe.judge.every_steps == 0:
            self._put_away(footage, known)

    def _learn(self, footage: Footage) -> Float[Tensor, " parts"]:
        """One step; returns the parts of the loss."""
        recipe = self._recipe
        num_frames = int(self._rng.choice(recipe.stage_at(self.step).clip_frames))
        way = self._way(num_frames)
        num_clips = max(1, recipe.frames_per_step // num_frames)
        num_deep = min(num_frames, max(1, recipe.depth_frames_per_step // num_clips))
        clips = footage.cut(num_clips, num_frames, self._rng, longest_stride=recipe.film.longest_stride)
        truth = targets(clips, way.watching.num_scale_frames)
        deep = torch.from_numpy(np.sort(self._rng.permutation(num_frames)[:num_deep])).to(self._device)
        inputs = [recoloured(clips.image), truth.pose, truth.depth[:, deep], deep]
        parts = way.learn(inputs, self._weights, self._pool)
        torch.nn.utils.clip_grad_norm_(self._weights, 1.0)
        self._optimisers.step(recipe.rate_at(self.step))
        return parts

    def _way(self, num_frames: int) -> Way:
        """One of the ways to watch clips of this length."""
        ways = self._ways.setdefault(num_frames, [])
        if len(ways) < _WAYS_TO_WATCH:
            ways.append(Way(self.model, any_watching(num_frames, self._rng), self._grid))
            return ways[-1]
        return ways[int(self._rng.integers(len(ways)))]

    def _put_away(self, footage: Footage, known: Footage) -> None:
        """Tell how good the model is by now, on houses for validation, and save it."""
        self._require_numbers(torch.stack([weight.detach().sum() for weight in self._weights]))
        figures = [judge(self.model, self._grid, known, length) for length in self._recipe.judge.clip_frames]
        self._log({name: round(value, 5) for one in figures for name, value in one.items()})
        reached = Reached(step=self.step, houses=self._num_houses + footage.num_houses)
        save_training(self._piece.folder, self.model, self._optimisers, reached)
        self._saved_at = self.step

    def _figures(self, parts: Float[Tensor, " parts"]) -> dict[str, float]:
        """The loss, and its parts."""
        self._require_numbers(parts)
        figures = {"loss": float(weighted(parts))} | {
            f"loss_{name}": value for name, value in zip(PARTS, parts.tolist(), strict=True)
        }
        return {name: round(value, 5) for name, value in figures.items()}

    def _require_numbers(self, values: Float[Tensor, " values"]) -> None:
        """What went astray is never put away: the last checkpoint stays."""
        if not all(map(math.isfinite, values.tolist())):
            raise SettingError(
                f"The training went astray by step {self.step}: its loss or its weights are no numbers any more; "
                "go on from the last checkpoint with a smaller rate."
            )

    def _elapsed(self) -> float:
        return time.monotonic() - self._started

    def _log(self, figures: dict[str, float]) -> None:
        self._piece.folder.mkdir(parents=True, exist_ok=True)
        line: Line = {"step": self.step, "seconds": round(self._elapsed(), 1)} | figures
        with (self._piece.folder / CURVE).open("a") as curve:
            curve.write(json.dumps(line) + "\n")
        self._tell(line)
