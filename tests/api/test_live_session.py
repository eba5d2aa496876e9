"""Map and dialogue side by side: answers have moments, and moments have poses."""

from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from selected import rest_by_hand
from walked import newest

from longtake import GeometrySession, LiveSession
from longtake.errors import InputError, SavedSessionError, SettingError
from longtake.geometry.model import GeometryModel
from longtake.language.load import LanguageModel
from longtake.runtime.windowed import WindowedSession
from longtake.video.frame import VideoFrame

QUESTION = "Where is the red ball now?"


@pytest.fixture
def both(model: GeometryModel, language: LanguageModel) -> LiveSession:
    return LiveSession.from_pretrained(map=model, ask=language, memory="60MB", share=0.25, ask_fps=5.0)


def test_an_answer_says_when_and_where(both: LiveSession, model: GeometryModel, frames: list[VideoFrame]) -> None:
    known = newest([*(both.step(frame) for frame in frames), both.finish()])
    alone = GeometrySession.from_pretrained(model, memory=15_000_000)
    assert torch.equal(
        newest([*(alone.step(frame) for frame in frames), alone.finish()]).world_from_camera, known.world_from_camera
    )
    assert both.dialogue.info.num_frames == 12  # of 24 in 2.4 s, five a second
    answer = both.ask(QUESTION)
    assert answer.text == answer.answer.text
    assert answer.world_from_camera is not None
    assert torch.equal(answer.world_from_camera, known.world_from_camera[-1].cpu())
    assert answer.evidence
    by_time = dict(zip(known.timestamp_s, known.world_from_camera.cpu(), strict=True))
    for moment, span in zip(answer.evidence, answer.answer.evidence, strict=True):
        assert (moment.start_s, moment.end_s, moment.weight) == (span.start_s, span.end_s, span.weight)
        last_s = max(time_s for time_s in by_time if time_s <= moment.end_s and round(time_s * 10) % 2 == 0)
        assert moment.world_from_camera is not None
        assert torch.equal(moment.world_from_camera, by_time[last_s])


def test_answers_together_are_those_of_each_with_their_poses(both: LiveSession, frames: list[VideoFrame]) -> None:
    for frame in frames[:12]:
        both.step(frame)
    questions = [QUESTION, "Which room are you in now?"]
    for one, other in zip(both.ask_together(questions), map(both.ask, questions), strict=True):
        assert (one.text, one.answer.evidence) == (other.text, other.answer.evidence)
        assert one.world_from_camera is not None
        assert other.world_from_camera is not None
        assert torch.equal(one.world_from_camera, other.world_from_camera)
        assert len(one.evidence) == len(other.evidence) > 0
        for mine, theirs in zip(one.evidence, other.evidence, strict=True):
            assert mine.world_from_camera is not None
            assert theirs.world_from_camera is not None
            assert torch.equal(mine.world_from_camera, theirs.world_from_camera)


def test_a_picture_that_the_dialogue_refuses_is_seen_by_neither(
    both: LiveSession, model: GeometryModel, frames: list[VideoFrame]
) -> None:
    with pytest.raises(InputError, match="times as long"):
        both.step(np.zeros((4, 2000, 3), np.uint8), 0.0)
    alone = GeometrySession.from_pretrained(model, memory=15_000_000)
    for frame in frames[:10]:
        assert both.step(frame).frame_index == alone.step(frame).frame_index
    assert both.dialogue.info.num_frames == 5


def test_before_the_first_poses_there_are_moments_without_any(both: LiveSession, frames: list[VideoFrame]) -> None:
    assert both.ask(QUESTION).evidence == ()
    for frame in frames[:3]:
        both.step(frame)
    answer = both.ask(QUESTION)
    assert answer.evidence
    assert answer.world_from_camera is None
    assert all(moment.world_from_camera is None for moment in answer.evidence)


def test_fork_save_and_resume_go_on(both: LiveSession, frames: list[VideoFrame], tmp_path: Path) -> None:
    for frame in frames[:12]:
        both.step(frame)
    both.save(tmp_path / "live")
    with both.fork() as branch:
        branch.step(frames[12])
        branch.ask(QUESTION)
    resumed = LiveSession.resume(tmp_path / "live", device="cpu")
    for session in (both, resumed):
        for frame in frames[12:]:
            session.step(frame)
        session.finish()
    one, other = both.ask(QUESTION), resumed.ask(QUESTION)
    assert (one.text, one.answer.evidence) == (other.text, other.answer.evidence)
    for mine, theirs in zip(one.evidence, other.evidence, strict=True):
        assert mine.world_from_camera is not None
        assert theirs.world_from_camera is not None
        assert torch.equal(mine.world_from_camera, theirs.world_from_camera)
    assert both.num_bytes == resumed.num_bytes <= 60_000_000


def test_a_save_that_fails_leaves_the_earlier_one_to_resume(
    both: LiveSession, frames: list[VideoFrame], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for frame in frames[:10]:
        both.step(frame)
    both.save(tmp_path)
    for frame in frames[10:14]:
        both.step(frame)
    full = InputError("It cannot be written (no space left on device).")
    with monkeypatch.context() as patch:
        patch.setattr(both.dialogue, "save", Mock(side_effect=full))
        with pytest.raises(InputError, match="no space left"):
            both.save(tmp_path)
    resumed = LiveSession.resume(tmp_path, device="cpu")
    assert (resumed.map.info.num_frames, resumed.dialogue.info.num_frames) == (10, 5)
    with pytest.raises(InputError, match="Expected pictures of 126x98 pixels as the first one, but got 63x49"):
        resumed.step(np.zeros((49, 63, 3), np.uint8), 1.0)
    assert resumed.step(frames[10]).frame_index == (10,)
    both.save(tmp_path)
    assert LiveSession.resume(tmp_path, device="cpu").map.info.num_frames == 14


@pytest.mark.parametrize("number", rest_by_hand([8, 200], keep=1))
def test_forks_that_are_lost_without_being_closed_are_given_back(
    model: GeometryModel, language: LanguageModel, frames: list[VideoFrame], number: int
) -> None:
    both = LiveSession.from_pretrained(map=model, ask=language, memory="16MB", ask_fps=5.0, reserve_frames=2)
    for frame in frames[:12]:
        both.step(frame)
    session = both.map._opened("look")
    assert isinstance(session, WindowedSession)
    used = (session.session.use(), both.dialogue.info.num_tokens)
    for _ in range(number):
        both.fork().step(frames[12])
    assert (session.session.use(), both.dialogue.info.num_tokens) == used


@pytest.mark.parametrize(
    ("picture", "time_s", "sentence"),
    [
        (np.zeros((98, 126, 3), np.uint8), None, "Expected a time for each picture, in seconds"),
        (
            np.zeros((98, 126, 3), np.uint8),
            0.1,
            r"Expected a frame after 0.1 s, but got one at 0.1 s; give them in order",
        ),
        (np.zeros((9, 12, 3), np.uint8), 1.0, "Expected pictures of 126x98 pixels as the first one, but got 12x9"),
    ],
)
def test_what_is_refused_leaves_both_as_they_were(
    both: LiveSession, frames: list[VideoFrame], picture: object, time_s: float | None, sentence: str
) -> None:
    both.step(frames[0])
    both.step(frames[1])
    with pytest.raises(InputError, match=sentence):
        both.step(picture, time_s)
    both.step(frames[2])
    assert (both.map.info.num_frames, both.dialogue.info.num_frames) == (3, 2)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ({"share": 1.0}, "Expected share between 0 and 1"),
        ({"memory": "8 frames"}, "Expected memory in bytes"),
        ({"ask_fps": 0.0}, "Expected more than 0 frames a second for the dialogue"),
        ({"model": "micro-map"}, "has no keyword 'model'; choose one of map, ask, memory, share"),
    ],
)
def test_a_bad_word_is_one_sentence(
    model: GeometryModel, language: LanguageModel, words: dict[str, object], sentence: str
) -> None:
    with pytest.raises(SettingError, match=sentence):
        LiveSession.from_pretrained(**{"map": model, "ask": language, **words})


def test_a_folder_that_is_no_live_session_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SavedSessionError, match=r"its live\.json cannot be read"):
        LiveSession.resume(tmp_path)
    (tmp_path / "live.json").write_text('{"format": 99}')
    with pytest.raises(
        SavedSessionError, match=r"of format 3 in .*, but got 99; resume it with the longtake that wrote it"
    ):
        LiveSession.resume(tmp_path)
