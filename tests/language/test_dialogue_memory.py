"""Refused frames leave no trace; forks of a session go their own way, become it, or are dropped."""

import gc
import threading
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from longtake.errors import ForkError, MemoryFullError
from longtake.language.frames import pixel_rows
from longtake.language.load import LanguageModel
from longtake.language.positions import VideoSpan
from longtake.language.prompt_builder import StreamFormat, TokenInputs, VisionInput, prompt_inputs
from longtake.language.sampling import TextSampling
from longtake.memory.policies.lockstep import Window
from longtake.memory.policies.thinned import Thinned
from longtake.memory.policy import Segment, SegmentPolicy
from longtake.runtime.answers import Choice
from longtake.runtime.dialogue import DialogueSession

SYSTEM, QUESTION = "w20 w21 w22 w23", "w80 w81"
SINK, GRID = 13, 12
THREE = TextSampling(max_new_tokens=3)


@pytest.fixture(scope="module")
def frames(vlm_case: Callable[[str], dict[str, Tensor]]) -> Tensor:
    """Six pairs."""
    return next(value for name, value in vlm_case("stream_open_clip").items() if name.startswith("frames_u8"))


@pytest.fixture
def open_small(tiny_language: LanguageModel) -> Callable[..., DialogueSession]:
    """With room for four grids beside the sink, and 40 tokens for questions."""

    def open_session(*, num_grids: int = 4, answers: int = 40, **more: object) -> DialogueSession:
        budget = (SINK + num_grids * GRID + answers) * tiny_language.network.layout().bytes_per_slot
        return DialogueSession(tiny_language, budget_bytes=budget, system=SYSTEM, answer_tokens=answers, **more)

    return open_session


def show(session: DialogueSession, frames: Tensor, start: int, stop: int, patience_s: float = 0.0) -> None:
    """A grid a second."""
    for number in range(start, stop):
        pair = frames[2 * (number % 6) : 2 * (number % 6) + 2]
        session.see(pair, [float(number), number + 0.5], patience_s=patience_s)


def remembered(session: DialogueSession) -> tuple[object, ...]:
    """All that decides the next token: which tokens there are, their keys and values, and the state."""
    memory = session._memory._memory
    tokens, slab = memory.tokens("text"), memory._pool.streams["text"].slab
    slot = torch.from_numpy(tokens.slot)
    stored = [storage[slot].numpy().tobytes() for storage in (*slab.keys, *slab.values)]
    state = session.state
    return tokens.frame.tolist(), stored, state.next_position, state.clip, state.segments, state.moved, state.held_s


@pytest.mark.parametrize("kind", [StreamFormat.OPEN_CLIP, StreamFormat.TURNS])
@pytest.mark.parametrize("policy", [Window.for_dialogue(), Thinned(recent=1)])
def test_refused_frames_have_made_no_others_leave(
    policy: SegmentPolicy, kind: StreamFormat, open_small: Callable[..., DialogueSession], frames: Tensor
) -> None:
    session = open_small(retaining=policy, stream_format=kind, num_grids=16)
    show(session, frames, 0, 20)
    pieces = session.ask_stream(QUESTION, TextSampling(max_new_tokens=8))
    next(pieces)
    number = 20
    while session._memory.use().free >= 2 * GRID:
        show(session, frames, number, number + 1)
        number += 1
    before, info = remembered(session), session.info
    with pytest.raises(MemoryFullError, match="held for questions under way"):
        session.see(torch.cat([frames] * 2)[:8], [number + index / 2 for index in range(8)])
    assert remembered(session) == before
    assert session.info.num_tokens == info.num_tokens
    assert session.info.num_forgotten == info.num_forgotten
    pieces.close()
    show(session, frames, number, number + 1)


def test_answers_beside_frames_are_those_between_two_frames(
    open_small: Callable[..., DialogueSession], frames: Tensor
) -> None:
    """Never of a moment at which old frames have left for new ones that are not there yet."""
    asked, silent = open_small(num_grids=4, answers=120), open_small(num_grids=4, answers=120)
    choices, num_grids = ["w72", "w154", "w99"], 12
    between: dict[float | None, list[Choice]] = {}
    answers: list[tuple[float | None, list[Choice]]] = []
    is_over = threading.Event()

    def keep_asking() -> None:
        while not is_over.is_set():
            with asked.fork() as fork:
                answers.append((fork.info.seen_until_s, fork.ask_choice(QUESTION, choices)))

    show(asked, frames, 0, 4)
    askers = [threading.Thread(target=keep_asking) for _ in range(2)]
    for asker in askers:
        asker.start()
    show(asked, frames, 4, num_grids, patience_s=60.0)
    is_over.set()
    for asker in askers:
        asker.join()
    for number in range(num_grids):
        show(silent, frames, number, number + 1)
        between[silent.info.seen_until_s] = silent.ask_choice(QUESTION, choices)
    assert answers
    for until_s, scored in answers:
        assert [choice.sum_log_likelihood for choice in scored] == pytest.approx(
            [choice.sum_log_likelihood for choice in between[until_s]], abs=1e-4
        )


def test_fork_waits_for_a_clip_that_lies_where_frames_are_that_leave(
    open_small: Callable[..., DialogueSession], frames: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = open_small()
    show(session, frames, 0, 6)
    read, forks, states = session._network.read, list[DialogueSession](), list[object]()
    asker = threading.Thread(target=lambda: forks.append(session.fork()))

    def read_while_asked(*given: object) -> object:
        asker.start()
        asker.join(timeout=0.3)
        states.append((len(forks), session.context_length))
        return read(*given)

    monkeypatch.setattr(session._network, "read", read_while_asked)
    show(session, frames, 6, 7)
    asker.join()
    assert states == [(0, SINK + 4 * GRID)]
    assert forks[0].info.seen_until_s == 6.5


def test_fork_sees_and_is_asked_without_a_trace_in_its_parent(
    open_small: Callable[..., DialogueSession], frames: Tensor
) -> None:
    session, silent, other = (open_small(num_grids=10) for _ in range(3))
    for one in (session, silent, other):
        show(one, frames, 0, 2)
    show(other, frames, 3, 5)
    before = remembered(session)
    with session.fork() as fork:
        show(fork, frames, 3, 5)
        assert fork.ask(QUESTION, THREE).ids == other.ask(QUESTION, THREE).ids
        assert remembered(session) == before
        show(session, frames, 2, 3)
        assert fork.info.seen_until_s == 4.5
    show(silent, frames, 2, 3)
    assert remembered(session)[2:] == remembered(silent)[2:]
    assert session.ask(QUESTION, THREE).ids == silent.ask(QUESTION, THREE).ids
    assert session.info.num_tokens == session.context_length


def test_committed_fork_is_what_its_parent_goes_on_from(
    open_small: Callable[..., DialogueSession], frames: Tensor
) -> None:
    session, twin = open_small(num_grids=10), open_small(num_grids=10)
    show(session, frames, 0, 2)
    show(twin, frames, 0, 4)
    fork = session.fork()
    show(fork, frames, 2, 4)
    fork.commit_fork()
    assert session.info.seen_until_s == 3.5
    assert session.state.segments == twin.state.segments
    assert session.ask(QUESTION, THREE).ids == twin.ask(QUESTION, THREE).ids


def test_fork_of_a_session_that_has_moved_on_is_not_committed(
    open_small: Callable[..., DialogueSession], frames: Tensor
) -> None:
    session = open_small(num_grids=10)
    show(session, frames, 0, 2)
    fork = session.fork()
    show(session, frames, 2, 3)
    with pytest.raises(ForkError, match="moved on since"):
        fork.commit_fork()
    with pytest.raises(ForkError, match="Only a fork"):
        session.commit_fork()


@pytest.mark.extra
def test_forks_that_are_dropped_give_their_places_back(
    open_small: Callable[..., DialogueSession], frames: Tensor
) -> None:
    session, silent = open_small(), open_small()
    for one in (session, silent):
        show(one, frames, 0, 2)
    for _ in range(200):
        session.fork().see(frames[4:6], [2.0, 2.5])
    gc.collect()
    for one in (session, silent):
        show(one, frames, 2, 9)
    assert remembered(session) == remembered(silent)
    assert session.info.num_tokens == session.context_length


def turn(session: DialogueSession, language: LanguageModel, clip: Tensor, time_s: float) -> TokenInputs:
    """A turn with a clip, by hand, that may be evicted as a whole."""
    rows, family = pixel_rows(clip, language.picture_format.fit(84, 112)), language.family
    span = VideoSpan((0,), 3, 4)
    vision = VisionInput(span, language.network.see(rows.values, rows.grid))
    ids = family.vision_turn(span)
    inputs = prompt_inputs(family, language.network, session.state, ids, [vision])
    segment = Segment(first=0, num_tokens=len(ids), time_s=time_s, novelty=1.0, extent=11)
    return TokenInputs(inputs.embedded, inputs.rows, inputs.state, (segment,))


def test_appended_tokens_are_evicted_as_frames_are(
    open_small: Callable[..., DialogueSession], tiny_language: LanguageModel, frames: Tensor
) -> None:
    session = open_small(stream_format=StreamFormat.TURNS, retaining=Window(anchors=0, window=2), num_grids=8)
    show(session, frames, 0, 1)
    position = session.state.next_position
    for number in range(1, 6):
        hidden = session.append(turn(session, tiny_language, frames[:2], float(number)))
        assert tiny_language.network.logits(hidden).shape == (1, 19, 256)
    assert [segment.time_s for segment in session.state.segments] == [3.0, 4.0, 5.0]
    assert session.state.next_position == position + 2 * 11
    session.move_to(500)
    assert session.info.next_position == 500
    assert session.ask(QUESTION, THREE).ids


@pytest.mark.parametrize(("answers", "staged"), [(10, 1), (40, 5), (400, 16)])
def test_places_staged_ahead_leave_most_of_the_room_to_other_questions(
    answers: int, staged: int, open_small: Callable[..., DialogueSession], frames: Tensor
) -> None:
    session = open_small(retaining=Window.for_dialogue(), answers=answers)
    show(session, frames, 0, 8)
    with session._memory.fork() as fork:
        free = fork.use().free
        assert answers <= free < answers + GRID
        ahead = fork._stage_ahead(1, 100, shares_past=False)
        assert ahead.num_places == fork.use().staged == min(16, 1 + free // 8)
        assert ahead.num_places >= staged
        ahead.transaction.abandon()
