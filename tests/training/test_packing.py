"""Packed questions against sessions asked at the same moments, and against what was to be seen."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sighted import made_up
from torch import Tensor

from longtake.language.load import LanguageModel, load_language
from longtake.language.qwen2_5_vl import clip_question, open_clip
from longtake.language.sampling import TextSampling
from longtake.runtime.dialogue import DialogueSession
from longtake.world.question import Question, QuestionKind
from longtake.world.things import Colour, Kind, Sightings, Thing
from training.packing import KINDS, NOTHING, Asked, Packed, Packer, Shape, together
from training.question_batches import QuestionJob, any_moments, run_job
from training.reading import Places, Reading, visible
from training.vocabulary import Vocabulary
from training.vqa_model import PICTURE_FORMAT, TINY_VQA, build_vqa, save_vqa

WORDS = Vocabulary()
OPENING = len(open_clip(WORDS.special_ids, WORDS.system))
SHAPE = Shape(num_frames=8, num_held=1, question_tokens=100, rows=4, columns=6, num_opening=OPENING)


def question(kind: QuestionKind, text: str, answer: str) -> Question:
    return Question(kind=kind, text=text, answer=answer, choices=(answer, "no"), frame=0, timestamp_s=0.0, evidence=())


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

    def choose(_: TextSampling, logits: Tensor, *__: object) -> int:
        heard.append(logits)
        return answer[len(heard) - 1]

    with monkeypatch.context() as patch:
        patch.setattr(TextSampling, "choose", choose)
        session.ask(one.text)
    session.close()
    return torch.stack(heard)


@pytest.mark.parametrize(("step_s", "start_s", "held"), [(0.3, 0.0, 3), (1.0, 7.5, 1), (0.7, 100.0, 7), (1.9, 0.0, 5)])
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
    grids = torch.from_numpy(batch.grid_frames).long()
    pairs = torch.stack([clips[1][grids[0]], clips[0][grids[1]]])
    with torch.no_grad():
        logits = reading(SHAPE).predict(pairs.float() / 255, Places.of(batch, torch.device("cpu"))).logits[1]
    assert packed.kind.tolist() == [[*(KINDS.index(one.kind) for _, one in asked), -1]]
    place = packed.question[0, -SHAPE.num_words :]
    for at, (moment, one) in enumerate(asked):
        said = logits[torch.from_numpy((place == at) & (packed.labels[0] != NOTHING))]
        heard = heard_in_session(language, clips[0][:moment], times_s[:moment], one, monkeypatch)
        assert said.shape == heard.shape
        assert heard.std() > 0.1
        torch.testing.assert_close(said, heard, rtol=0, atol=1e-4)


def slowly_visible(packed: Packed, shape: Shape) -> list[list[bool]]:
    """Token by token: whether a question's fork would have fed the one before or with the other."""
    seen = [[key <= query for key in range(shape.num_tokens)] for query in range(shape.num_tokens)]
    for query in range(shape.num_clip, shape.num_tokens):
        at = query - shape.num_clip
        for key in range(query + 1):
            if key < shape.num_clip:
                seen[query][key] = key < packed.until[0, at]
                continue
            other = key - shape.num_clip
            is_own = packed.question[0, other] == packed.question[0, at]
            is_held = packed.question[0, other] == -1 and packed.moment[0, other] == packed.moment[0, at]
            seen[query][key] = bool(is_own or is_held)
    return seen


def test_a_question_sees_its_past_and_itself_alone() -> None:
    asked = [(8, SEEN), (5, FIRST), (5, WHEN)]
    packed = Packer(SHAPE, WORDS, 2).pack([float(at) for at in range(8)], [5], asked, 3)
    mask = visible(Places.of(packed, torch.device("cpu")), SHAPE.num_clip)[0]
    assert mask.tolist() == slowly_visible(packed, SHAPE)
    assert mask.any(dim=1).all()
    places = packed.question[0]
    assert packed.until[0][places == 0].tolist() == [SHAPE.num_clip] * 14
    assert set(packed.until[0][places == 1].tolist()) == {OPENING + 2 * 24}
    assert packed.grid_frames[0].tolist() == [[0, 1], [2, 3], [4, 5], [6, 7], [4, 4]]


def test_a_question_is_what_a_fork_would_be_fed() -> None:
    packed = Packer(SHAPE, WORDS, 2).pack([float(at) for at in range(8)], [3], [(8, FIRST)], 1)
    prompt = clip_question(WORDS.special_ids, WORDS.encode(FIRST.text))
    blue, chair = WORDS.encode(FIRST.answer)
    assert packed.words[0, : len(prompt) + 2].tolist() == [*prompt, blue, chair]
    learned = {int(at): int(packed.labels[0, at]) for at in np.flatnonzero(packed.labels[0] != NOTHING)}
    last = len(prompt) - 1
    assert learned == {last: blue, last + 1: chair, last + 2: WORDS.special_ids.im_end}
    assert WORDS.encode(SEEN.text) != WORDS.encode(FIRST.text)


def slowly_evident(packed: Packed, held: list[int], asked: list[Asked]) -> list[list[bool]]:
    """Question by question and grid by grid: whether it is seen at that moment and shows a frame that shows why."""
    num_whole = SHAPE.num_frames // 2
    evident = []
    for moment, one in asked:
        seen = [last < moment for _, last in packed.grid_frames[0, :num_whole]] + [moment == waits for waits in held]
        frames = [{*pair} & {*one.moments} for pair in packed.grid_frames[0].tolist()]
        evident.append([bool(is_seen and shows) for is_seen, shows in zip(seen, frames, strict=True)])
    return evident


@settings(deadline=None, max_examples=50)
@given(data=st.data(), held=st.permutations([1, 3, 5, 7]).map(lambda odd: odd[:2]))
def test_evident_grids_are_those_that_show_why_at_that_moment(data: st.DataObject, held: list[int]) -> None:
    shape = replace(SHAPE, num_held=2)
    asked: list[Asked] = []
    for one in data.draw(st.lists(st.sampled_from([SEEN, FIRST, WHEN]), min_size=1, max_size=4)):
        moment = data.draw(st.sampled_from([2, 4, 6, 8, *held]))
        frames = data.draw(st.sets(st.integers(0, moment - 1), max_size=4))
        asked.append((moment, replace(one, frame=moment - 1, evidence=tuple(sorted(frames)))))
    packed = Packer(shape, WORDS, 2).pack([float(at) for at in range(8)], held, asked, 5)
    assert packed.evident.shape == (1, 5, shape.num_grids)
    assert packed.evident[0, : len(asked)].tolist() == slowly_evident(packed, held, asked)
    assert not packed.evident[0, len(asked) :].any()


def test_a_frame_that_waits_is_evident_in_its_own_grid_alone() -> None:
    newest = [(moment, replace(WHEN, frame=moment - 1, evidence=(moment - 1,))) for moment in (5, 6)]
    packed = Packer(SHAPE, WORDS, 2).pack([float(at) for at in range(8)], [5], newest, 2)
    assert packed.evident[0].tolist() == [[False] * 4 + [True], [False, False, True, False, False]]


def test_questions_that_find_no_place_are_left_out() -> None:
    shape = replace(SHAPE, question_tokens=20)
    asked = [(8, FIRST)] * 5
    packed = Packer(shape, WORDS, 2).pack([float(at) for at in range(8)], [3], asked, 4)
    room = shape.num_words // 20
    assert packed.kind.tolist() == [[KINDS.index(QuestionKind.FIRST)] * room + [-1] * (4 - room)]
    assert shape.num_tokens % 16 == 0


def test_answers_are_right_for_a_walk_made_by_hand() -> None:
    """A red ball in the first half, on the left; a blue box in the second, on the right."""
    pixels = np.array([[900, 0]] * 4 + [[0, 900]] * 4)
    seen = Sightings(
        things=(Thing(Colour.RED, Kind.BALL, 0), Thing(Colour.BLUE, Kind.BOX, 0)),
        rooms=(Colour.GREEN, Colour.WHITE),
        timestamp_s=np.arange(8) * 1.0,
        room=np.zeros(8, dtype=np.int64),
        pixels=pixels,
        column=np.where(pixels > 0, np.array([0.1, 0.9]), np.nan),
        image_pixels=112 * 168,
    )
    shape = replace(SHAPE, question_tokens=2000)
    told: dict[tuple[int, str], str] = {}
    for seed in range(30):
        job = QuestionJob(shape=shape, tokens_per_second=2, moments=3, questions=12, seed=(seed,), seen=[seen])
        told |= answers_in(run_job(job), shape)
    want = {
        (8, "which came first , the blue box or the red ball ?"): "red ball",
        (8, "where is the blue box now ?"): "right",
        (2, "where is the red ball now ?"): "left",
        (8, "how many seconds ago was the red ball last seen ?"): "4",
        (6, "how many seconds ago was the red ball last seen ?"): "2",
        (5, "how many seconds ago was the red ball last seen ?"): "1",
        (8, "have you seen a blue box ?"): "yes",
        (8, "what colour was the box ?"): "blue",
        (8, "how many balls have you seen ?"): "1",
        (4, "how many boxes have you seen ?"): "0",
        (8, "which room is the red ball in ?"): "green",
        (8, "which room are you in now ?"): "green",
    }
    assert {key: told.get(key) for key in want} == want
    seen_or_not = {key: answer for key, answer in told.items() if key[1].startswith("have you seen")}
    assert len(seen_or_not) > 20
    for (moment, text), answer in seen_or_not.items():
        assert answer == ("yes" if "red ball" in text or ("blue box" in text and moment > 4) else "no")


def answers_in(packed: Packed, shape: Shape) -> dict[tuple[int, str], str]:
    """Moments, questions and answers, read from the ids."""
    found: dict[tuple[int, str], str] = {}
    question, moment = (part[0, -shape.num_words :] for part in (packed.question, packed.moment))
    for at in range(question.max() + 1):
        ids = packed.words[0, question == at].tolist()
        labels = [label for label in packed.labels[0, question == at].tolist() if label != NOTHING]
        text = WORDS.decode(ids[1 : ids.index(WORDS.special_ids.im_end)])
        assert labels[-1] == WORDS.special_ids.im_end
        assert ids[len(ids) - len(labels) + 1 :] == labels[:-1]
        found[int(moment[question == at][0]), text] = WORDS.decode(labels[:-1])
    return found


def test_kinds_and_answers_are_balanced_over_an_errand() -> None:
    shape = replace(SHAPE, num_frames=16, question_tokens=240)
    seen = [made_up(seed, 16) for seed in range(60)]
    packed = run_job(QuestionJob(shape=shape, tokens_per_second=2, moments=4, questions=4, seed=(0,), seen=seen))
    count = np.bincount(packed.kind[packed.kind >= 0], minlength=len(KINDS))
    assert count.min() > 0.7 * count.mean()
    assert count.sum() > 0.8 * 60 * 16
    said = {}
    for clip in range(60):
        one = Packed(**{name: packed.__getattribute__(name)[clip : clip + 1] for name in Packed.__dataclass_fields__})
        said |= {(clip, *key): answer for key, answer in answers_in(one, shape).items()}
    yes = sum(answer == "yes" for answer in said.values())
    no = sum(answer == "no" for answer in said.values())
    assert 0.7 < yes / no < 1.4


@settings(deadline=None, max_examples=30)
@given(half=st.integers(2, 20), num_moments=st.integers(2, 6), seed=st.integers(0, 99))
def test_moments_are_the_end_one_that_is_odd_and_others(half: int, num_moments: int, seed: int) -> None:
    moments = any_moments(2 * half, num_moments, np.random.default_rng(seed))
    assert moments == sorted({*moments})
    assert moments[-1] == 2 * half
    assert sum(moment % 2 for moment in moments) == 1
    assert len(moments) == min(num_moments, half + 1)
    assert moments[0] >= 2
