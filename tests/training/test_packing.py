"""Packed questions against sessions asked at the same moments, and against what was to be seen."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from longtake.language.formats import clip_question, open_clip
from longtake.language.load import LanguageModel, load_language
from longtake.language.sampling import Sampling
from longtake.runtime.dialogue import SYSTEM, DialogueSession
from longtake.training.asking import Errand, any_moments, run_errand
from longtake.training.packing import KINDS, NOTHING, Packed, Packer, Shape, together
from longtake.training.reading import Places, Reading, visible
from longtake.training.vocabulary import Vocabulary
from longtake.training.vqa_model import PICTURE_FORMAT, TINY_VQA, build_vqa, save_vqa
from longtake.world.question import Question, QuestionKind
from longtake.world.things import Colour, Kind, Sightings, Thing

WORDS = Vocabulary()
OPENING = len(open_clip(WORDS.special_ids, WORDS.system))
SHAPE = Shape(num_frames=8, num_held=1, question_tokens=100, rows=4, columns=6, num_opening=OPENING)


def question(kind: QuestionKind, text: str, answer: str) -> Question:
    return Question(
        kind=kind, text=text, answer=answer, choices=(answer, "no"), frame=0, timestamp_s=0.0, evidence=()
    )


SEEN = question(QuestionKind.SEEN, "have you seen an orange lamp ?", "yes")
FIRST = question(QuestionKind.FIRST, "which came first , the red box or the blue chair ?", "blue chair")
WHEN = question(QuestionKind.WHEN, "how many seconds ago was the green shelf last seen ?", "12")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny network with random weights, far enough from nothing that its answers depend on what it sees."""
    torch.manual_seed(3)
    model = build_vqa(TINY_VQA)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.ndim == 2 and "patch_embed" not in name:
                weight.normal_(std=2 / weight.shape[1] ** 0.5)
    path = tmp_path_factory.mktemp("tiny") / "model"
    save_vqa(model, path)
    return path


@pytest.fixture(scope="module")
def language(folder: Path) -> LanguageModel:
    return load_language(folder)


@pytest.fixture(scope="module")
def reading(folder: Path) -> Callable[[Shape], Reading]:
    """Over a copy, as a session has the model attend through its memory."""
    model = load_language(folder).model
    return lambda shape: Reading(model, shape, PICTURE_FORMAT)


def frames_of(num_frames: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.rand(num_frames, 3, 8, 12, generator=generator)
    return (torch.nn.functional.interpolate(coarse, size=(112, 168)) * 255).to(torch.uint8)


def heard_in_session(
    language: LanguageModel, frames: Tensor, times_s: list[float], one: Question, monkeypatch: pytest.MonkeyPatch
) -> Tensor:
    """What a session that saw these frames one by one says before each word of the true answer and its end."""
    session = DialogueSession(language, budget_bytes=4_000_000)
    for frame, time_s in zip(frames, times_s, strict=True):
        session.see(frame[None], [time_s])
    answer = [*WORDS.encode(one.answer), WORDS.special_ids.im_end]
    heard: list[Tensor] = []

    def choose(_: Sampling, logits: Tensor, *__: object) -> int:
        heard.append(logits)
        return answer[len(heard) - 1]

    with monkeypatch.context() as patch:
        patch.setattr(Sampling, "choose", choose)
        session.ask(one.text)
    session.close()
    return torch.stack(heard)


@pytest.mark.parametrize(
    ("step_s", "start_s", "held"), [(0.3, 0.0, 3), (1.0, 7.5, 1), (0.7, 100.0, 7), (1.9, 0.0, 5)]
)
def test_packed_questions_are_answered_as_on_a_stream(
    step_s: float,
    start_s: float,
    held: int,
    language: LanguageModel,
    reading: Callable[[Shape], Reading],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    times_s = [start_s + step_s * at for at in range(8)]
    asked = [(8, SEEN), (held, FIRST), (4, WHEN), (held, WHEN), (2, FIRST)]
    packed = Packer(SHAPE, WORDS, 2).pack(times_s, [held], asked, 6)
    other = Packer(SHAPE, WORDS, 2).pack([2 * time_s for time_s in times_s], [3], [(6, WHEN)], 6)
    clips = [frames_of(8, seed=1), frames_of(8, seed=2)]
    batch = together([other, packed])
    pairs = torch.stack([clip[torch.from_numpy(grids)] for clip, grids in zip(clips[::-1], batch.grid_frames.astype(np.int64), strict=True)])
    with torch.no_grad():
        logits = reading(SHAPE).logits(pairs.float() / 255, Places.of(batch, torch.device("cpu")))[1]
    assert packed.kind.tolist() == [[*(KINDS.index(one.kind) for _, one in asked), -1]]
    place = packed.question[0, -SHAPE.num_words :]
    for at, (moment, one) in enumerate(asked):
        said = logits[torch.from_numpy((place == at) & (packed.labels[0] != NOTHING))]
        heard = heard_in_session(language, clips[0][:moment], times_s[:moment], one, monkeypatch)
        assert said.shape == heard.shape
        assert heard.std() > 0.1
        torch.testing.assert_close(said, heard, rtol=0, atol=1e-4)
