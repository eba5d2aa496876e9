"""Answers whose words are read into places staged ahead, alone and together: what recordings do, in plain torch."""

import threading
from collections.abc import Callable

import pytest
from plain_reader import read_by_clips
from selected import rest_in_extra
from torch import Tensor

from longtake.errors import MemoryFullError
from longtake.language.load import LanguageModel
from longtake.language.sampling import TextSampling
from longtake.runtime import recorded_reading
from longtake.runtime.dialogue import DialogueSession

SYSTEM, QUESTIONS = "w20 w21 w22 w23", ["w80 w81", "w82 w83 w84 w85 w86 w87 w88 w89", "w90", "w91 w92 w93"]
SINK, GRID = 13, 12
LONG = TextSampling(max_new_tokens=20)


@pytest.fixture(scope="module")
def frames(vlm_case: Callable[[str], dict[str, Tensor]]) -> Tensor:
    """Six pairs."""
    return next(value for name, value in vlm_case("stream_open_clip").items() if name.startswith("frames_u8"))


@pytest.fixture
def open_small(tiny_language: LanguageModel) -> Callable[..., DialogueSession]:
    def open_session(*, num_grids: int = 6, answers: int = 200, **more: object) -> DialogueSession:
        budget = (SINK + num_grids * GRID + answers) * tiny_language.network.layout().bytes_per_slot
        session = DialogueSession(tiny_language, budget_bytes=budget, system=SYSTEM, answer_tokens=answers, **more)
        return read_by_clips(session)

    return open_session


def show(session: DialogueSession, frames: Tensor, start: int, stop: int) -> None:
    for number in range(start, stop):
        pair = frames[2 * (number % 6) : 2 * (number % 6) + 2]
        session.see(pair, [float(number), number + 0.5])


def weights(answer: object) -> dict[float, float]:
    return {each.start_s: each.weight for each in answer.evidence}


@pytest.mark.parametrize("most_tail", rest_in_extra([24, 2048, 1], keep=1))
def test_answers_alone_and_together_are_the_librarys(
    most_tail: int,
    open_small: Callable[..., DialogueSession],
    tiny_language: LanguageModel,
    frames: Tensor,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recorded_reading, "MOST_TAIL", most_tail)
    session = open_small()
    plain = DialogueSession(
        tiny_language, budget_bytes=session._settings["budget_bytes"], system=SYSTEM, answer_tokens=200
    )
    for each in (session, plain):
        show(each, frames, 0, 4)
    use = session._memory.use()
    want = [plain.ask(question, LONG) for question in QUESTIONS]
    alone = [session.ask(question, LONG) for question in QUESTIONS]
    together = session.ask_together(QUESTIONS, LONG)
    for got in (alone, together):
        assert [answer.ids for answer in got] == [answer.ids for answer in want]
        for one, other in zip(got, want, strict=True):
            assert weights(one) == pytest.approx(weights(other), rel=1e-4)
    assert session._memory.use() == use
    for each in (session, plain):
        each.ask(QUESTIONS[0], LONG, remember=True)
        show(each, frames, 4, 5)
    assert session.info.num_tokens == plain.info.num_tokens
    assert session.ask(QUESTIONS[1], LONG).ids == plain.ask(QUESTIONS[1], LONG).ids


def test_places_staged_ahead_are_no_more_than_there_are(
    open_small: Callable[..., DialogueSession], frames: Tensor
) -> None:
    session = open_small(num_grids=4, answers=24)
    show(session, frames, 0, 4)
    wide = open_small(num_grids=4, answers=200)
    show(wide, frames, 0, 4)
    use, want = session._memory.use(), wide.ask(QUESTIONS[2], TextSampling(max_new_tokens=10))
    assert session.ask(QUESTIONS[2], TextSampling(max_new_tokens=10)).ids == want.ids
    with pytest.raises(MemoryFullError):
        session.ask_together(QUESTIONS, LONG)
    assert session._memory.use() == use
    half = session.ask_stream(QUESTIONS[2], TextSampling(max_new_tokens=10))
    for _ in range(2):
        next(half)
    assert session._memory.use().staged > 0
    half.close()
    assert session._memory.use() == use
    assert session.ask(QUESTIONS[2], TextSampling(max_new_tokens=10)).ids == want.ids


def test_questions_of_many_threads_while_frames_arrive_leave_no_trace(
    open_small: Callable[..., DialogueSession], frames: Tensor
) -> None:
    session, never = open_small(answers=400), open_small(answers=400)
    show(session, frames, 0, 3)
    failed: list[BaseException] = []

    def ask() -> None:
        try:
            for number in range(3):
                session.ask(QUESTIONS[number], TextSampling(max_new_tokens=18))
                session.ask_together(QUESTIONS[:2], TextSampling(max_new_tokens=3))
        except BaseException as error:  # noqa: BLE001 - told by the test
            failed.append(error)

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for number in range(3, 12):
        pair = frames[2 * (number % 6) : 2 * (number % 6) + 2]
        session.see(pair, [float(number), number + 0.5], patience_s=30.0)
    for thread in threads:
        thread.join(timeout=60)
    assert not failed
    assert not any(thread.is_alive() for thread in threads)
    show(never, frames, 0, 12)
    use = session._memory.use()
    assert use.staged == use.held == 0
    assert session.ask(QUESTIONS[1], LONG).ids == never.ask(QUESTIONS[1], LONG).ids
