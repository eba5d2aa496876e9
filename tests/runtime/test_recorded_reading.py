"""Dialogues on our own kernels: as the library's modules say, recorded or launched, together or one by one.

On a GPU as they are, elsewhere by Triton's interpreter, where what a graph would replay is launched each time.
"""

import copy
import hashlib
import json
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch
from torch import Tensor

transformers = pytest.importorskip("transformers")
pytest.importorskip("triton", reason="needs Triton")
pytest.importorskip("longtake.attention.tail_kernels")
from longtake.attention.backend import SdpaBackend  # noqa: E402
from longtake.attention.triton import TritonBackend  # noqa: E402
from longtake.language.frames import PictureFormat  # noqa: E402
from longtake.language.load import LanguageModel  # noqa: E402
from longtake.language.model_config import SpecialIds, text_config  # noqa: E402
from longtake.language.sampling import TextSampling  # noqa: E402
from longtake.language.tokenizer import Tokenizer  # noqa: E402
from longtake.memory.policies.lockstep import Window  # noqa: E402
from longtake.runtime import recorded_reading  # noqa: E402
from longtake.runtime.dialogue import DialogueSession  # noqa: E402
from longtake.runtime.recording import Recording  # noqa: E402

pytestmark = pytest.mark.extra
ON_GPU = torch.cuda.is_available()
DEVICE = "cuda" if ON_GPU else "cpu"
HALF = torch.bfloat16 if ON_GPU else torch.float16
GOLDEN = Path(__file__).parents[1] / "golden" / "vlm"
NUM_LAYERS = 4 if ON_GPU else 2  # interpreted, a layer takes half a second
SHORT = TextSampling(max_new_tokens=6 if ON_GPU else 2)
QUESTIONS = ["w80 w81", "w82 w83 w84 w85 w86", "w87"]
BUDGET = 400_000


@pytest.fixture(scope="module")
def language() -> LanguageModel:
    """The golden model in a half type, with a word `w80` for every id that is not special."""
    ids = json.loads((GOLDEN / "tokens.json").read_text())["ids"]
    special = {f"<{name}>": token for name, token in ids.items()}
    words = {f"w{token}": token for token in range(256) if token not in special.values()}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(special | words, unk_token="<pad>"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(list(special))
    names = ("im_start", "im_end", "vision_start", "vision_end", "image_pad", "video_pad")
    roles = {role: (ids[role],) for role in ("system", "user", "assistant")}
    found = SpecialIds(**{name: ids[name] for name in names}, newline=ids["nl"], **roles)
    model = transformers.Qwen2_5_VLForConditionalGeneration.from_pretrained(GOLDEN, dtype=HALF).eval()
    del model.model.language_model.layers[NUM_LAYERS:]
    model.config.text_config.num_hidden_layers = NUM_LAYERS
    return LanguageModel(
        model=model.to(DEVICE).requires_grad_(False),
        tokenizer=Tokenizer(tokenizer),
        special=found,
        text=text_config(GOLDEN, model.config),
        picture_format=PictureFormat(),
        eos_ids=(found.im_end,),
        suppressed_ids=tuple(special.values()),
    )


@pytest.fixture(autouse=True)
def _kernels_run_here(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The interpreter takes what it is given; and nothing is to be warned of."""
    if not ON_GPU:
        monkeypatch.setattr(recorded_reading, "why_reading_unrecorded", lambda _: None)
        monkeypatch.setattr(recorded_reading, "MOST_TAIL", 64)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@pytest.fixture
def open_dialogue(language: LanguageModel) -> Callable[..., DialogueSession]:
    def make(**more: Any) -> DialogueSession:
        settings = {"budget_bytes": BUDGET, "system": "w20 w21", "answer_tokens": 100, **more}
        return DialogueSession(language, **{"backend": TritonBackend(), **settings})

    return make


def frames(count: int, side: int = 84) -> Tensor:
    generator = torch.Generator().manual_seed(3)
    return torch.randint(0, 256, (count, 3, side, 56), dtype=torch.uint8, generator=generator)


def show(session: DialogueSession, count: int = 6, start: int = 0, step: int = 2) -> None:
    pictures = frames(start + count)
    for first in range(start, start + count, step):
        session.see(pictures[first : first + step], [index / 2 for index in range(first, first + step)])


def digest(session: DialogueSession) -> str:
    """Of every key and value remembered, in attention order."""
    memory, hashed = session._memory._memory, hashlib.sha256()
    slot = torch.from_numpy(memory.tokens("text").slot).to(DEVICE)
    slab = memory._pool.streams["text"].slab
    for storage in (*slab.keys, *slab.values):
        hashed.update(storage[slot].cpu().view(torch.int16).numpy().tobytes())
    return hashed.hexdigest()


def logits(session: DialogueSession, question: str) -> Tensor:
    with session._memory.fork() as fork:
        asked = session._asked(fork, session._question_ids(question))
        return session._next_logits(fork, asked).cpu()


def test_frames_and_questions_are_read_no_less_exactly_than_by_the_librarys_own_modules(
    open_dialogue: Callable[..., DialogueSession], language: LanguageModel
) -> None:
    exact = replace(language, model=copy.deepcopy(language.model).float())
    own, plain = open_dialogue(), open_dialogue(backend=SdpaBackend())
    right = DialogueSession(exact, budget_bytes=2 * BUDGET, system="w20 w21", answer_tokens=100)
    assert own._memory.setup.reader is not None
    assert plain._memory.setup.reader is None
    for session in (own, plain, right):
        show(session)
    for layer in range(NUM_LAYERS):
        got, by_library, want = (keys_of(session, layer) for session in (own, plain, right))
        assert float((got - want).norm()) <= 1.1 * float((by_library - want).norm())
        assert float((got - want).norm() / want.norm()) < (0.02 if ON_GPU else 0.004)
    for question in QUESTIONS[: 3 if ON_GPU else 1]:
        got, by_library, want = (logits(session, question) for session in (own, plain, right))
        assert float((got - want).norm()) <= 1.5 * float((by_library - want).norm())
        assert float((got - want).norm() / want.norm()) < (0.02 if ON_GPU else 0.004)
    answers = [session.ask(QUESTIONS[0], SHORT) for session in (own, plain)]
    weights = [{each.start_s: each.weight for each in answer.evidence} for answer in answers]
    assert weights[0] == pytest.approx(weights[1], rel=0.05)


def keys_of(session: DialogueSession, layer: int) -> Tensor:
    memory = session._memory._memory
    slot = torch.from_numpy(memory.tokens("text").slot).to(DEVICE)
    return memory._pool.streams["text"].slab.keys[layer][slot].float()


@pytest.mark.skipif(not ON_GPU, reason="interpreted, it would take minutes")
def test_a_long_clip_asks_the_past_a_part_at_a_time(
    open_dialogue: Callable[..., DialogueSession], monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded_reading._READERS.clear()
    whole = open_dialogue()
    show(whole)
    recorded_reading._READERS.clear()
    monkeypatch.setattr(recorded_reading, "_QUERIES_TOGETHER", 5)
    parted = open_dialogue()
    show(parted)
    for layer in range(NUM_LAYERS):
        got, want = keys_of(parted, layer), keys_of(whole, layer)
        assert float((got - want).norm() / want.norm()) < 0.01
    recorded_reading._READERS.clear()


def test_pictures_of_any_grid_are_seen_as_by_the_librarys_own_tower(
    open_dialogue: Callable[..., DialogueSession],
) -> None:
    session = open_dialogue()
    reader, network = session._memory.setup.reader, session._network
    assert reader is not None
    for grid in ((1, 6, 4), (2, 4, 10)):
        pixels = torch.randn(grid[0] * grid[1] * grid[2], 1176, generator=torch.Generator().manual_seed(1))
        want = network.see(pixels, grid).float()
        for _ in range(3 if ON_GPU else 1):  # launched, recorded, replayed
            got = reader.see(pixels, grid).float()
            assert float((got - want).norm() / want.norm()) < (0.02 if ON_GPU else 0.004)


@pytest.mark.skipif(not ON_GPU, reason="interpreted, it would take minutes")
def test_recorded_words_are_those_that_are_launched_one_by_one(
    open_dialogue: Callable[..., DialogueSession], monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = open_dialogue()
    show(recorded)
    answers = [recorded.ask(QUESTIONS[0], SHORT) for _ in range(3)]
    assert len({(answer.ids, answer.evidence) for answer in answers}) == 1
    monkeypatch.setattr(Recording, "_try_to_record", lambda *_: None)
    recorded_reading._READERS.clear()
    launched = open_dialogue()
    show(launched)
    assert digest(launched) == digest(recorded)
    answer = launched.ask(QUESTIONS[0], SHORT)
    assert (answer.ids, answer.evidence) == (answers[0].ids, answers[0].evidence)
    assert torch.equal(logits(launched, QUESTIONS[1]), logits(recorded, QUESTIONS[1]))
    recorded_reading._READERS.clear()


@pytest.mark.skipif(not ON_GPU, reason="interpreted, it would take minutes")
def test_questions_and_forks_leave_the_memory_identical_to_the_bit(
    open_dialogue: Callable[..., DialogueSession],
) -> None:
    asked, never = open_dialogue(), open_dialogue()
    for session in (asked, never):
        show(session, 4)
    asked.ask(QUESTIONS[0], SHORT)
    with asked.fork() as fork:
        show(fork, 2, start=4)
        fork.ask(QUESTIONS[2], SHORT)
        show(asked, 2, start=4)
    show(never, 2, start=4)
    assert digest(asked) == digest(never)
    assert torch.equal(logits(asked, QUESTIONS[1]), logits(never, QUESTIONS[1]))


@pytest.mark.skipif(not ON_GPU, reason="interpreted, it would take minutes")
def test_what_is_remembered_goes_on_after_saving_as_if_never_stopped(
    open_dialogue: Callable[..., DialogueSession], language: LanguageModel, tmp_path: Path
) -> None:
    session = open_dialogue()
    show(session, 4)
    session.ask(QUESTIONS[0], SHORT, remember=True)
    session.save(tmp_path / "talk.safetensors")
    resumed = DialogueSession.resume(tmp_path / "talk.safetensors", language)
    assert resumed._memory.setup.reader is session._memory.setup.reader
    for each in (session, resumed):
        show(each, 2, start=4)
    assert digest(session) == digest(resumed)
    assert torch.equal(logits(session, QUESTIONS[1]), logits(resumed, QUESTIONS[1]))


@pytest.mark.skipif(not ON_GPU, reason="interpreted, it would take half a minute; in plain torch it is test_read_ahead")
def test_answers_that_are_written_together_are_those_of_each_alone(
    open_dialogue: Callable[..., DialogueSession],
) -> None:
    session = open_dialogue()
    show(session, 5, step=1)  # one waits for its partner, and is shown with each question
    before = digest(session)
    alone = [session.ask(question, SHORT) for question in QUESTIONS]
    together = session.ask_together(QUESTIONS, SHORT)
    assert [answer.ids for answer in together] == [answer.ids for answer in alone]
    for one, other in zip(together, alone, strict=True):
        weights = [{each.start_s: each.weight for each in answer.evidence} for answer in (one, other)]
        assert weights[0] == pytest.approx(weights[1], rel=0.05)
        assert one.timing.total_s >= one.timing.first_token_s
    assert digest(session) == before
    assert session.info.num_tokens == session.context_length


@pytest.mark.skipif(not ON_GPU, reason="interpreted, it would take minutes")
def test_a_memory_that_is_full_forgets_and_a_refused_clip_leaves_what_it_wrote_over(
    open_dialogue: Callable[..., DialogueSession], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"budget_bytes": 4 * 2 * 2 * 2 * 16 * 130, "retaining": Window.for_dialogue()}
    session, twin = open_dialogue(**settings), open_dialogue(**settings)
    for each in (session, twin):
        show(each, 10)
    assert session.info.num_forgotten > 0
    before = digest(session)
    with session.look(frames(11)[10], 5.0):
        pass
    session.see(frames(11)[10:], [5.0])
    with session.look(frames(12)[11], 5.5):  # read, and written where the oldest lay, but not taken
        pass
    assert digest(session) == before
    for each in (session, twin):
        each.see(frames(12)[11:] if each is session else frames(12)[10:], [5.5] if each is session else [5.0, 5.5])
    assert digest(session) == digest(twin)


@pytest.mark.skipif(not ON_GPU, reason="nothing is recorded elsewhere")
def test_without_a_recording_a_question_is_answered_all_the_same(
    open_dialogue: Callable[..., DialogueSession], monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded_reading._READERS.clear()
    session = open_dialogue()
    show(session)
    want = session.ask(QUESTIONS[0], SHORT)
    recorded_reading._READERS.clear()
    other = open_dialogue()

    def fail(*_: object) -> None:
        raise RuntimeError("no room")

    monkeypatch.setattr(Recording, "_record", fail)
    with pytest.warns(UserWarning, match="could not be recorded"):
        show(other)
    with pytest.warns(UserWarning, match="could not be recorded"):
        got = other.ask(QUESTIONS[0], SHORT)
    assert (got.ids, got.evidence) == (want.ids, want.evidence)
    recorded_reading._READERS.clear()
