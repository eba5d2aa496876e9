"""Questions about pictures of every kind; what is refused leaves the dialogue as it was."""

import copy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from selected import rest_in_extra

from longtake import Answer, DialogueSession
from longtake.errors import CheckpointError, InputError, SettingError
from longtake.language.load import LanguageModel
from longtake.runtime import dialogue, execution
from longtake.runtime.dialogue_memory import DialogueMemory, Feed
from longtake.video.frame import VideoFrame

QUESTION = "Which room are you in now?"


@pytest.fixture
def chat(language: LanguageModel) -> DialogueSession:
    return DialogueSession.from_pretrained(language, memory="50MB")


def said(chat: DialogueSession) -> tuple[str, tuple[int, ...], object]:
    answer = chat.ask(QUESTION)
    return answer.text, answer.ids, answer.evidence


def test_pictures_of_every_kind_are_seen_alike(language: LanguageModel, frames: list[VideoFrame]) -> None:
    shown, times_s = frames[:4], [frame.timestamp_s for frame in frames[:4]]
    images = [np.asarray(frame.image) for frame in shown]
    batch = torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2)
    one_by_one = DialogueSession.from_pretrained(language, memory="50MB")
    for frame in shown:
        one_by_one.see(frame)
    want = said(one_by_one)
    for pictures in (shown, images, [Image.fromarray(image) for image in images], batch, batch.float() / 255):
        with DialogueSession.from_pretrained(language, memory="50MB") as chat:
            chat.see(pictures, times_s)
            assert chat.info.num_frames == 4
            assert said(chat) == want


def test_answers_stream_and_choices_are_scored(chat: DialogueSession, frames: list[VideoFrame]) -> None:
    chat.see(frames[:4])
    *pieces, answer = chat.ask_stream(QUESTION)
    assert isinstance(answer, Answer)
    assert "".join(str(piece) for piece in pieces) == answer.text == chat.ask(QUESTION).text
    assert [choice.text for choice in chat.ask_choice("Have you seen a red ball?", ["yes", "no"])] == ["yes", "no"]
    assert answer.evidence
    assert len(chat.ask(QUESTION, max_tokens=1).ids) == 1


def test_questions_together_are_answered_as_each_alone(chat: DialogueSession, frames: list[VideoFrame]) -> None:
    chat.see(frames[:5])
    questions = [QUESTION, "What is the meaning of life?", "Have you seen a red ball?"]
    before, alone = chat.info, [chat.ask(question) for question in questions]
    together = chat.ask_together(questions)
    assert [(each.text, each.ids, each.evidence) for each in together] == [
        (each.text, each.ids, each.evidence) for each in alone
    ]
    assert [each.ending for each in together] == [each.ending for each in alone]
    assert chat.info == before
    assert [len(each.ids) for each in chat.ask_together(questions[::2], max_tokens=1)] == [1, 1]
    assert chat.ask_together([]) == []
    with pytest.raises(InputError, match="Expected a list of questions, but got one; put it into a list, or call ask"):
        chat.ask_together(QUESTION)


def test_a_full_memory_with_more_reserved_writes_more_answers_side_by_side(
    language: LanguageModel, frames: list[VideoFrame], monkeypatch: pytest.MonkeyPatch
) -> None:
    feed, sizes = DialogueMemory.feed_together, list[int]()

    def feed_and_count(feeds: list[Feed]) -> list[torch.Tensor]:
        sizes.append(len(feeds))
        return feed(feeds)

    monkeypatch.setattr(DialogueMemory, "shares_passes", property(lambda _: True))  # as on a GPU
    monkeypatch.setattr(DialogueMemory, "feed_together", staticmethod(feed_and_count))
    most = []
    for reserve_tokens in (0, 500):
        memory = 4_000_000 + reserve_tokens * language.network.layout().bytes_per_slot
        chat = DialogueSession.from_pretrained(language, memory=memory, reserve_tokens=reserve_tokens)
        chat.see(frames)
        assert chat.info.num_forgotten > 0
        sizes.clear()
        assert len({answer.text for answer in chat.ask_together([QUESTION] * 16)}) == 1
        most.append(max(sizes))
    assert 1 < most[0] < most[1] == 16


def test_fork_save_and_resume_say_the_same(
    chat: DialogueSession, language: LanguageModel, frames: list[VideoFrame], tmp_path: Path
) -> None:
    chat.see(frames[:5])
    chat.save(tmp_path / "chat.safetensors")
    with chat.fork() as branch:
        branch.see(frames[5:8])
        forked = said(branch)
        assert chat.info.num_frames == 5
    resumed = DialogueSession.resume(tmp_path / "chat.safetensors", "micro-vqa", device="cpu")
    for session in (chat, resumed):
        session.see(frames[5:8])
        assert said(session)[:2] == forked[:2]
    assert said(chat) == said(resumed)
    assert resumed.num_bytes == chat.num_bytes <= 50_000_000


def test_a_resumed_dialogue_sees_pictures_in_the_size_of_before(
    language: LanguageModel, frames: list[VideoFrame], tmp_path: Path
) -> None:
    chat = DialogueSession.from_pretrained(language, memory="50MB", size=84)
    chat.see(frames[:4])
    chat.save(tmp_path / "chat.safetensors")
    resumed = DialogueSession.resume(tmp_path / "chat.safetensors", language)
    for session in (chat, resumed):
        session.see(frames[4:8])
    assert said(resumed) == said(chat)
    assert resumed.info.num_tokens == chat.info.num_tokens
    with pytest.raises(SettingError, match="saved with pictures of at most 7056 pixels, but got a size of 112"):
        DialogueSession.resume(tmp_path / "chat.safetensors", language, size=112)


def test_a_dialogue_and_its_fork_see_on_side_by_side_in_a_full_memory(
    language: LanguageModel, frames: list[VideoFrame]
) -> None:
    opened = [DialogueSession.from_pretrained(language, memory="5MB", reserve_tokens=400) for _ in range(2)]
    chat, alone = opened
    for session in opened:
        session.see(frames[:12])
    with chat.fork() as branch:
        for frame in frames[12:]:
            for session in (chat, branch, alone):
                session.see(frame)
        assert said(branch)[:2] == said(chat)[:2] == said(alone)[:2]
        assert said(chat) == said(alone)
        assert chat.info.num_forgotten == alone.info.num_forgotten > 0


@pytest.mark.parametrize(
    ("pictures", "times_s", "sentence"),
    [
        ([], None, "Expected one picture at least, but got none"),
        (np.zeros((98, 126, 3), np.uint8), None, "Expected a time for each picture, in seconds, as .*: only frames of"),
        (np.zeros((98, 126, 3), np.uint8), 0.05, "Times of frames must rise, but 0.05 s came after 0.1 s"),
        (np.zeros((98, 126, 3), np.uint8), float("inf"), "Expected a time in seconds, but got inf"),
        (np.zeros((98, 126, 3), np.uint8), [1.0, 2.0], "Expected a time for each of 1 pictures, but got 2"),
        (np.zeros((50, 60, 3), np.uint8), 1.0, "must be 126x98 as its first one, but one of 60x50 came"),
        (
            [np.zeros((98, 126, 3), np.uint8), np.zeros((4, 6, 3), np.uint8)],
            [1.0, 2.0],
            "one size, but got 126x98, 6x4",
        ),
        (np.full((98, 126, 3), np.nan), 1.0, "some are NaN"),
    ],
)
def test_what_is_refused_leaves_the_dialogue_as_it_was(
    chat: DialogueSession, frames: list[VideoFrame], pictures: object, times_s: object, sentence: str
) -> None:
    chat.see(frames[:2])
    before = said(chat)
    with pytest.raises(InputError, match=sentence):
        chat.see(pictures, times_s)
    assert chat.info.num_frames == 2
    assert said(chat) == before


@pytest.mark.parametrize("number", rest_in_extra([12, 200], keep=1))
def test_forks_that_are_lost_without_being_closed_are_given_back(
    language: LanguageModel, frames: list[VideoFrame], number: int
) -> None:
    opened = [DialogueSession.from_pretrained(language, memory="5MB", reserve_tokens=60) for _ in range(2)]
    for session in opened:
        session.see(frames[:18])
    for _ in range(number):
        opened[0].fork().see(frames[18:20])
    for session in opened:
        session.see(frames[18:])
    assert said(opened[0]) == said(opened[1])
    assert opened[0].info.num_tokens == opened[1].info.num_tokens


def test_a_closed_dialogue_says_so(chat: DialogueSession, frames: list[VideoFrame], tmp_path: Path) -> None:
    chat.see(frames[:2])
    chat.close()
    chat.close()
    used = [
        lambda: chat.ask(QUESTION),
        lambda: list(chat.ask_stream(QUESTION)),
        lambda: chat.ask_together([QUESTION]),
        lambda: chat.ask_together(["What is the meaning of life?"]),
        lambda: chat.ask_choice(QUESTION, ["yes", "no"]),
        lambda: chat.see(frames[2:]),
        lambda: chat.see(frames[2]),
        chat.fork,
        chat.reset,
        lambda: chat.save(tmp_path / "chat.safetensors"),
    ]
    for use in used:
        with pytest.raises(InputError, match=r"^This session was closed; open another, or resume a saved one\.$"):
            use()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ({"policy": "lru"}, "no memory policy 'lru' for a dialogue; choose one of keep-all, window"),
        ({"memory": "8 frames"}, "Expected memory in bytes such as 512MB, but got '8 frames'"),
        ({"memory": "1kB"}, "the smallest that works is"),
        ({"precision": "int4"}, "no precision 'int4'; choose one of fp32, bf16, fp16, auto"),
        ({"size": 2}, "Expected a size from"),
        ({"max_tokens": 0}, "Expected max_tokens of 1 or more"),
        ({"window": 4}, "has no keyword 'window'; choose one of model, memory"),
    ],
)
def test_a_bad_word_is_answered_with_what_there_is(words: dict[str, object], sentence: str) -> None:
    with pytest.raises((SettingError, InputError, Exception), match=sentence) as refusal:
        DialogueSession.from_pretrained("micro-vqa", **words)
    assert type(refusal.value).__module__ == "longtake.errors"


def test_a_loaded_model_is_where_and_as_it_is(language: LanguageModel) -> None:
    with pytest.raises(SettingError, match="There is no device 'banana'"):
        DialogueSession.from_pretrained(language, device="banana")
    with pytest.raises(SettingError, match="There is no precision 'banana'"):
        DialogueSession.from_pretrained(language, precision="banana")


def test_a_model_that_maps_cannot_be_asked() -> None:
    with pytest.raises(CheckpointError, match="Expected a model that answers questions, but micro-map maps"):
        DialogueSession.from_pretrained("micro-map")


def test_an_unknown_question_is_answered_with_what_the_model_knows(chat: DialogueSession) -> None:
    assert "I " in chat.ask("What is the meaning of life?").text


def test_every_dialogue_has_by_default_the_backend_that_is_fastest_for_its_model(
    language: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    half = replace(language, model=copy.deepcopy(language.model).half())
    for each in (language, half):
        with DialogueSession.from_pretrained(each) as chat:
            assert chat._session._memory.setup.backend.name == "sdpa"
    monkeypatch.setattr(  # as on a GPU
        execution, "why_unsuitable", lambda _, dtype, *__: None if dtype == torch.float16 else "not in this type"
    )
    for each, name in ((language, "sdpa"), (half, "triton")):
        with DialogueSession.from_pretrained(each) as chat:
            assert chat._session._memory.setup.backend.name == name
        with dialogue.DialogueSession(each, budget_bytes=4_000_000) as session:
            assert session._memory.setup.backend.name == name
            assert session.why_portable == "recording needs an NVIDIA GPU"
    with DialogueSession.from_pretrained(half, backend="reference") as chat:
        assert chat._session._memory.setup.backend.name == "reference"
