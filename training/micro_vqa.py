"""Training of micro-vqa: questions packed behind clips of walks, asked as of a stream, with true answers."""

import os
from collections import deque
from collections.abc import Callable
from functools import cache
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from longtake.errors import SettingError
from longtake.language.frames import FrameFit
from longtake.language.qwen2_5_vl import open_clip
from longtake.world.families import Family
from longtake.world.seeds import Split, seeds
from training.clip_store import ClipStore, Cut
from training.other_cameras import recoloured
from training.packing import Shape
from training.question_batches import NUM_HELD, QuestionJob, QuestionWorkers
from training.question_validation import ValidationQuestions, accuracies
from training.reading import FIGURES, Reading
from training.recipe import VqaRecipe
from training.trainer import Line, Piece, Training
from training.vocabulary import Vocabulary
from training.vqa_model import MICRO_VQA, PICTURE_FORMAT, VqaConfig, begin_with, build_vqa, save_vqa
from training.walkers import Group, Trip, in_groups

_RECOLOURING = 0.4
"""Of what micro-map gets: here colours are asked for."""
_ERRANDS_AHEAD = 3
"""For each process that asks questions."""


class MicroVqaTraining(Training[ClipStore]):
    """A language model that learns to answer."""

    def __init__(
        self, recipe: VqaRecipe, piece: Piece, tell: Callable[[Line], None], *, network: VqaConfig = MICRO_VQA
    ) -> None:
        """Begun anew, or resumed from its checkpoint; `tell` is given every figure as it comes."""
        (self._size,) = recipe.film.sizes
        self._fit = _fit(*self._size)
        torch.manual_seed(0)
        self.model = build_vqa(network)
        if piece.begin_with is not None:
            begin_with(self.model, piece.begin_with)
        self.model.to(piece.device)
        if piece.device.type == "cuda":
            torch.set_float32_matmul_precision("high")
        super().__init__(recipe, piece, tell, self.model)
        self._recipe, self._num_askers = recipe, _num_askers(piece.processes)
        self._tokens_per_second = int(self.model.config.vision_config.tokens_per_second)
        self._askers: QuestionWorkers | None = None
        self._cuts: deque[tuple[Cut, Shape]] = deque()
        self._validation: list[ValidationQuestions] = []
        self._reading = cache(lambda shape: Reading(self.model, shape, PICTURE_FORMAT))

    def export(self, path: Path) -> None:
        """Write the folder of the model as it is by now, in half precision."""
        save_vqa(self.model, path)

    def _judged(self) -> list[Group]:
        some_seeds = islice(seeds(Split.VALIDATION), self._recipe.judge.worlds)
        return in_groups([Trip(Family.HOUSE, seed) for seed in some_seeds])

    def _room_for_judging(self) -> ClipStore:
        return self._store(self._recipe.judge.worlds)

    def _room(self) -> ClipStore:
        return self._store(self._recipe.film.worlds)

    def _store(self, num_worlds: int) -> ClipStore:
        return ClipStore(num_worlds, self._recipe.film.world_frames, self._size, self._device)

    def _learn(self, footage: ClipStore) -> Float[Tensor, " figures"]:
        """One step with questions that were sent for some steps ago, and others sent for."""
        workers = self._askers = self._askers or QuestionWorkers(self._num_askers)
        while len(self._cuts) < _ERRANDS_AHEAD * self._num_askers + 1:
            self._send(workers, footage)
        packed = workers.next()
        cut, shape = self._cuts.popleft()
        pairs = footage.pairs(cut, packed.grid_frames)
        seen = recoloured(pairs.flatten(1, 2), _RECOLOURING).view_as(pairs)
        figures = self._reading(shape).learn(seen, packed, self._weights, self._pool)
        self._follow_gradients()
        return figures

    def _send(self, workers: QuestionWorkers, footage: ClipStore) -> None:
        """For questions of the step after those that were sent for already."""
        recipe = self._recipe
        step = min(self.step + len(self._cuts), recipe.num_steps - 1)
        num_frames = int(self._rng.choice(recipe.stage_at(step).clip_frames))
        num_clips = max(1, recipe.frames_per_step // num_frames)
        cut = footage.cut(num_clips, num_frames, self._rng, self._strides)
        job = self._job(footage, cut, (1, step))
        workers.send(job)
        self._cuts.append((cut, job.shape))

    def _job(self, store: ClipStore, cut: Cut, seed: tuple[int, ...]) -> QuestionJob:
        num_frames = cut.frame.shape[1]
        ask = self._recipe.ask.for_clip(num_frames)
        return QuestionJob(
            shape=self._shape(num_frames),
            tokens_per_second=self._tokens_per_second,
            moments=ask.moments,
            questions=ask.questions,
            seed=seed,
            seen=store.seen_in(cut),
        )

    @property
    def _strides(self) -> tuple[int, int]:
        return self._recipe.ask.shortest_stride, self._recipe.film.longest_stride

    def _shape(self, num_frames: int) -> Shape:
        words = Vocabulary()
        return Shape(
            num_frames=num_frames,
            num_held=NUM_HELD,
            question_tokens=self._recipe.ask.for_clip(num_frames).question_tokens,
            rows=self._fit.rows,
            columns=self._fit.columns,
            num_opening=len(open_clip(words.special_ids, words.system)),
        )

    def _judge(self, known: ClipStore) -> dict[str, float]:
        """Share of right answers by kind, the same questions each time."""
        if not self._validation:
            self._validation = [self._validation_questions(known, length) for length in self._recipe.judge.clip_frames]
        return accuracies(self._validation, known, self._reading, self._device)

    def _validation_questions(self, known: ClipStore, num_frames: int) -> ValidationQuestions:
        rng = np.random.default_rng([2, num_frames])
        num_clips = known.num_worlds * self._recipe.ask.judged_clips
        cut = known.cut(num_clips, num_frames, rng, self._strides)
        return ValidationQuestions.of(cut, self._job(known, cut, (2, num_frames)))

    def _figures(self, values: Float[Tensor, " figures"]) -> dict[str, float]:
        return dict(zip(FIGURES, values.tolist(), strict=True))

    def _end(self) -> None:
        if self._askers is not None:
            self._askers.close()
        self._askers = None
        self._cuts.clear()


def _fit(height: int, width: int) -> FrameFit:
    """What the model makes of frames of this size, which must be what they are."""
    fit = PICTURE_FORMAT.fit(height, width)
    if fit.resized != fit.source:
        raise SettingError(
            f"Expected frames of a size that the model would not change, but {fit.source} would become {fit.resized}; "
            "film them so."
        )
    return fit


def _num_askers(processes: int | None) -> int:
    """As many as build houses, whose work ends sooner."""
    return max(1, processes or (os.cpu_count() or 2) - 2)
