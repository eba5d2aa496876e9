"""A training in pieces: worlds are filmed meanwhile, steps made, reported and validated, and all is saved in time."""

import json
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Generic, Protocol, TypeVar, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from longtake.errors import SettingError
from longtake.world.families import Family
from longtake.world.seeds import Split, seeds
from training.checkpoint import Reached, is_training, resume_training, save_training
from training.optimise import Optimisers
from training.recipe import Schedule
from training.recording import prepare_gradients
from training.walkers import Group, Trip, Walked, Walkers, in_groups

CURVE = "curve.jsonl"
Line = dict[str, int | float]
"""Of the curve: the step, the seconds since the piece began, and some figures."""
_LOG_EVERY = 100
_FIRST_LOGS = (1, 10, 30)
_FALLING = 0.85
"""Share of a piece's time over which the rate falls."""


@dataclass(frozen=True, slots=True)
class Fall:
    """From which share of a recipe's rate to which."""

    begin: float
    end: float

    @classmethod
    def parse(cls, text: str) -> "Fall":
        """As it is given to a command, such as 1..0."""
        try:
            begin, end = map(float, text.split("..", 1))
        except ValueError:
            begin, end = 0.0, 0.0
        if not 0 <= end <= begin <= 1 or not begin:
            raise SettingError(
                "Expected shares of the recipe's rate between which it falls, such as 1..0 or 0.6..0.3, but got "
                f"'{text}'."
            )
        return cls(begin, end)

    def at(self, elapsed: float) -> float:
        """The share that is left after so much of the time."""
        fallen = max(0.0, min(1.0, elapsed) - 1 + _FALLING) / _FALLING
        return self.begin + (self.end - self.begin) * fallen


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """As much of a training as is done in one go."""

    folder: Path
    seconds: float
    device: torch.device
    processes: int | None = None
    """That build worlds; by default one for each processor but two."""
    begin_with: Path | None = None
    """A trained model whose weights a training begins with; one that goes on has its own."""
    falls: Fall | None = None
    """How the rate falls in the time of this piece, with which the training then ends, wherever it is."""


@runtime_checkable
class Filmed(Protocol):
    """Worlds that were filmed, and room for more."""

    @property
    def num_worlds(self) -> int: ...

    @property
    def has_room(self) -> bool: ...

    def add(self, walked: list[Walked]) -> None: ...


F = TypeVar("F", bound=Filmed)


class Training(ABC, Generic[F]):
    """A model, its optimisers, and how far they are; what is learned, and from what film, is for a kind to say."""

    def __init__(self, recipe: Schedule, piece: Piece, tell: Callable[[Line], None], model: nn.Module) -> None:
        """Begun anew with this model, or resumed from its checkpoint; `tell` is given every figure as it comes."""
        self._schedule, self._piece, self._device, self._tell = recipe, piece, piece.device, tell
        self._started, self._is_stopped, self._is_late = time.monotonic(), False, False
        self._pool = torch.cuda.graph_pool_handle() if self._device.type == "cuda" else None
        self._optimisers = Optimisers(model, weight_decay=recipe.weight_decay, pool=self._pool)
        reached = Reached(step=0, worlds=0)
        if is_training(piece.folder):
            reached = resume_training(piece.folder, model, self._optimisers)
        self.step, self._saved_at, self._num_worlds = reached.step, reached.step, reached.worlds
        self._rng = np.random.default_rng([1, self.step])
        torch.manual_seed(1 + self.step)
        self._learner, self._weights = model, list(model.parameters())
        prepare_gradients(self._weights)

    @property
    def is_done(self) -> bool:
        has_fallen = self._piece.falls is not None and self._is_late and self.step > 0
        return has_fallen or self.step >= self._schedule.num_steps

    @property
    def is_stopped(self) -> bool:
        return self._is_stopped

    def stop(self) -> None:
        """End soon and well: after the step that was begun, with all that was learned saved."""
        self._is_stopped = True

    def run(self) -> None:
        """Train until time is up or the recipe is done, then save; worlds are built and filmed meanwhile."""
        film = self._schedule.film
        walkers = self._walkers()
        try:
            known = self._room_for_judging()
            self._film(walkers, known, sum(map(len, self._judged())))
            footage = self._room()
            self._film(walkers, footage, min(film.first_worlds, film.worlds))
            self._log({"began_s": round(self._elapsed(), 1)})
            while not self._is_over():
                if footage.has_room and (walked := walkers.next_group(wait=False)) is not None:
                    footage.add(walked)
                self._advance(footage, known)
            walkers.close()
            if self.step > self._saved_at:
                self._save(footage, known)
        finally:
            walkers.close()
            self._end()

    @abstractmethod
    def export(self, path: Path) -> None:
        """Write the model as it is by now, in half precision."""

    @abstractmethod
    def _judged(self) -> list[Group]:
        """Worlds for validation, in the order in which they are filmed."""

    @abstractmethod
    def _room_for_judging(self) -> F:
        """Film for these."""

    @abstractmethod
    def _room(self) -> F:
        """Film for the worlds of this piece."""

    @abstractmethod
    def _learn(self, footage: F) -> Float[Tensor, " figures"]:
        """One step; returns figures to look at."""

    @abstractmethod
    def _figures(self, values: Float[Tensor, " figures"]) -> dict[str, float]:
        """The figures of a step by name."""

    @abstractmethod
    def _judge(self, known: F) -> dict[str, float]:
        """How good the model is by now, on worlds that it does not learn from."""

    def _end(self) -> None:
        """Let go of what a kind of training has beside its film."""

    def _walkers(self) -> Walkers:
        """Through worlds for validation, then through those for training that no earlier piece has seen."""
        film = self._schedule.film
        groups = [*self._judged(), *in_groups(self._fresh())]
        return Walkers(groups, film.world_frames, processes=self._piece.processes)

    def _fresh(self) -> list[Trip]:
        """Families take turns."""
        film = self._schedule.film
        numbered = enumerate(seeds(Split.TRAINING))
        return [
            Trip(Family(film.families[number % len(film.families)]), seed)
            for number, seed in islice(numbered, self._num_worlds, self._num_worlds + film.worlds)
        ]

    def _film(self, walkers: Walkers, footage: F, num_worlds: int) -> None:
        """Until there are so many, unless they are no longer needed."""
        while footage.num_worlds < num_worlds and footage.has_room and not self._is_stopped:
            walked = walkers.next_group(wait=True)
            assert walked is not None
            footage.add(walked)

    def _is_over(self) -> bool:
        self._is_late = self._elapsed() >= self._piece.seconds
        return self.is_done or self._is_stopped or self._is_late

    def _advance(self, footage: F, known: F) -> None:
        """One step, and the figures to report after it."""
        values = self._learn(footage)
        self.step += 1
        if self.step % _LOG_EVERY == 0 or self.step in _FIRST_LOGS or self.is_done:
            self._require_numbers(values)
            self._log({name: round(value, 5) for name, value in self._figures(values).items()})
        if self.step % self._schedule.judge.every_steps == 0:
            self._save(footage, known)

    def _follow_gradients(self) -> None:
        """Change the weights, at the rate of this step."""
        torch.nn.utils.clip_grad_norm_(self._weights, 1.0)
        falls = self._piece.falls
        left = falls.at(self._elapsed() / self._piece.seconds) if falls is not None else 1.0
        self._optimisers.step(self._schedule.rate_at(self.step) * left)

    def _save(self, footage: F, known: F) -> None:
        """Save the model, and then tell how good it is by now on worlds for validation, which takes a while."""
        self._require_numbers(torch.stack([weight.detach().sum() for weight in self._weights]))
        reached = Reached(step=self.step, worlds=self._num_worlds + footage.num_worlds)
        save_training(self._piece.folder, self._learner, self._optimisers, reached)
        self._saved_at = self.step
        self._log({name: round(value, 5) for name, value in self._judge(known).items()})

    def _require_numbers(self, values: Float[Tensor, " values"]) -> None:
        """A loss that went astray is never saved: the last checkpoint stays."""
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
