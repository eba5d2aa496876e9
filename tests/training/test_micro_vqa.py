"""A whole training of a model that answers, in miniature."""

import json
import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sighted import made_up

from longtake.errors import InputError, SettingError
from longtake.language.load import load_language
from longtake.world.seeds import Split, split_of
from training import question_batches, trainer
from training.clip_store import ClipStore
from training.micro_vqa import MicroVqaTraining
from training.packing import KINDS
from training.question_validation import accuracies
from training.recipe import Stage, VqaRecipe, read_vqa_recipe, shipped_recipe
from training.trainer import Piece
from training.vqa_model import TINY_VQA, build_vqa, save_vqa
from training.walkers import Trip, Walkers


class Imagined(Walkers):
    """Walkers who bring seeds alone: what these tests learn from is made up."""

    def __init__(self, groups: Sequence[Sequence[Trip]], num_frames: int, *, processes: int | None = None) -> None:
        self._groups = list(groups)

    def next_group(self, *, wait: bool) -> Any:
        return [trip.seed for trip in self._groups.pop(0)] if self._groups else None

    def close(self) -> None:
        pass


def imagine(store: ClipStore, seeds: list[Any]) -> None:
    """Instead of filming: flat pictures, in stripes that differ from house to house."""
    for seed in seeds[: len(store._image) - store.num_worlds]:
        generator = torch.Generator().manual_seed(seed)
        num_frames = store._image.shape[1]
        coarse = torch.rand(num_frames, 3, 4, 6, generator=generator)
        image = torch.nn.functional.interpolate(coarse, size=tuple(store._size)) * 255
        store._image[store.num_worlds] = image.to(torch.uint8)
        store._seen.append(made_up(seed, num_frames, step_s=0.1))


pytestmark = pytest.mark.extra
"""Trainings in miniature: half a minute and more."""


@pytest.fixture
def recipe() -> VqaRecipe:
    return read_vqa_recipe(shipped_recipe("micro-vqa-quick"))


@pytest.fixture
def train(recipe: VqaRecipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., MicroVqaTraining]:
    """Makes trainings of the miniature in one folder: the first is begun, the others take it up."""
    monkeypatch.setattr(question_batches, "one_thread_each", ThreadPoolExecutor)
    monkeypatch.setattr(trainer, "Walkers", Imagined)
    monkeypatch.setattr(ClipStore, "add", imagine)

    def make(tell: Any = lambda line: None, *, seconds: float = 1000.0, **changes: Any) -> MicroVqaTraining:
        piece = Piece(folder=tmp_path, seconds=seconds, device=torch.device("cpu"), processes=1)
        return MicroVqaTraining(replace(recipe, **changes), piece, tell, network=TINY_VQA)

    return make


def test_a_miniature_is_trained_to_its_end(train: Callable[..., MicroVqaTraining], tmp_path: Path) -> None:
    told: list[dict[str, float]] = []
    training = train(told.append)
    before = {name: weight.clone() for name, weight in training.model.state_dict().items()}
    training.run()
    assert training.is_done
    lines = [json.loads(line) for line in (tmp_path / "curve.jsonl").read_text().splitlines()]
    assert lines == told
    assert [line["step"] for line in lines] == [0, 1, 3, 6, 6]
    assert {"loss", "right"} <= lines[1].keys()
    assert {"right_all", "right_seen"} <= lines[2].keys()
    assert all(math.isfinite(value) for line in lines for value in line.values())
    unchanged = [name for name, weight in training.model.state_dict().items() if torch.equal(weight, before[name])]
    assert unchanged == []
    training.export(tmp_path / "micro-vqa")
    assert load_language(tmp_path / "micro-vqa").text.num_layers == TINY_VQA.depth


def test_a_training_goes_on_where_it_was_put_away(train: Callable[..., MicroVqaTraining]) -> None:
    first = train(lambda line: first.stop() if line["step"] == 1 else None)
    first.run()
    assert (first.step, first.is_stopped, first.is_done) == (1, True, False)
    second = train()
    assert second.step == 1
    for name, weight in first.model.state_dict().items():
        assert torch.equal(weight, second.model.state_dict()[name])
    embedded = second.model.get_input_embeddings().weight
    assert second.model.lm_head.weight.data_ptr() == embedded.data_ptr()
    for name, moment in second._optimisers.live().items():
        assert torch.equal(moment, first._optimisers.stored()[name].to(moment.dtype))
    assert any(bool(moment.any()) for moment in second._optimisers.live().values())
    second.run()
    assert second.is_done


def test_a_handful_of_clips_is_learned_by_heart(train: Callable[..., MicroVqaTraining]) -> None:
    stages = (Stage(steps=150, clip_frames=(4,)),)
    training = train(stages=stages, rate=4e-3, warmup_steps=10, cooldown_steps=50)
    store = training._store(2)
    imagine(store, [0, 1])
    exam = training._validation_questions(store, 4)
    before = accuracies([exam], store, training._reading, torch.device("cpu"))["right_all"]
    pairs = store.pairs(exam.cut, exam.packed.grid_frames)
    for _ in range(150):
        training._reading(exam.shape).learn(pairs, exam.packed, training._weights, None)
        training._follow_gradients()
        training.step += 1
    assert before < 0.3
    assert accuracies([exam], store, training._reading, torch.device("cpu"))["right_all"] > 0.95


def test_no_house_for_tests_or_validation_is_learned_from(
    train: Callable[..., MicroVqaTraining], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[int]] = []

    class Noted(Imagined):
        def __init__(self, groups: Sequence[Sequence[Trip]], num_frames: int, *, processes: int | None = None) -> None:
            super().__init__(groups, num_frames)
            asked.extend([trip.seed for trip in group] for group in groups)

    monkeypatch.setattr(trainer, "Walkers", Noted)
    train().run()
    assert [[split_of(seed) for seed in group] for group in asked] == [[Split.VALIDATION] * 2, [Split.TRAINING] * 2]


def test_an_exam_is_the_same_each_time(train: Callable[..., MicroVqaTraining]) -> None:
    training = train()
    store = training._store(2)
    imagine(store, [8, 18])
    one, two = (training._validation_questions(store, 4) for _ in range(2))
    assert np.array_equal(one.cut.frame, two.cut.frame)
    assert np.array_equal(one.packed.words, two.packed.words)
    assert set(one.packed.kind.flatten().tolist()) <= {-1, *range(len(KINDS))}


def test_frames_of_a_size_that_the_model_does_not_ask_for_are_refused(
    train: Callable[..., MicroVqaTraining], recipe: VqaRecipe
) -> None:
    with pytest.raises(SettingError, match="168x112"):
        train(film=replace(recipe.film, sizes=((56, 84),)))


def test_a_training_may_begin_with_the_weights_of_a_model_of_its_kind(recipe: VqaRecipe, tmp_path: Path) -> None:
    torch.manual_seed(5)
    known = build_vqa(TINY_VQA)
    save_vqa(known, tmp_path / "known")
    piece = Piece(folder=tmp_path / "training", seconds=1.0, device=torch.device("cpu"), begin_with=tmp_path / "known")
    begun = MicroVqaTraining(recipe, piece, lambda line: None, network=TINY_VQA)
    want = known.half().float().state_dict()
    assert all(torch.equal(weight, want[name]) for name, weight in begun.model.state_dict().items())
    with pytest.raises(InputError, match=r"to begin with, but .*nothing is none"):
        MicroVqaTraining(recipe, replace(piece, begin_with=tmp_path / "nothing"), lambda line: None, network=TINY_VQA)
