"""Hours of video: positions stay in range whatever leaves and is remembered, and questions stand in nobody's way."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from hearing import limit_positions
from jaxtyping import Float64, Int64
from selected import rest_in_extra
from torch import Tensor

from longtake.attention.causal import CausalRecall
from longtake.errors import InputError, LongtakeError, MemoryFullError
from longtake.language.load import LanguageModel
from longtake.language.network import Network
from longtake.language.prompt_builder import StreamFormat
from longtake.language.sampling import TextSampling
from longtake.memory.policies.lockstep import KeepAll, Window
from longtake.memory.policies.thinned import Novel, Thinned
from longtake.memory.policy import Keep, SegmentPolicy
from longtake.memory.transaction import Transaction
from longtake.runtime.answers import Answer
from longtake.runtime.dialogue import DialogueSession

SYSTEM, QUESTION = "w20 w21 w22 w23", "w80 w81"
SINK, GRID, ROWS, COLUMNS = 13, 12, 3, 4
THREE = TextSampling(max_new_tokens=3)
RULES = [Window.for_dialogue(), Thinned(recent=2), Novel(recent=2)]


@pytest.fixture(scope="module")
def frames(vlm_case: Callable[[str], dict[str, Tensor]]) -> Tensor:
    """Six pairs."""
    return next(value for name, value in vlm_case("stream_open_clip").items() if name.startswith("frames_u8"))


@pytest.fixture
def open_small(tiny_language: LanguageModel) -> Callable[..., DialogueSession]:
    """With room for so many grids beside the sink and words."""

    def open_session(*, num_grids: int = 10, num_words: int = 0, answers: int = 40, **more: object) -> DialogueSession:
        num_tokens = SINK + num_grids * GRID + num_words + answers
        budget = num_tokens * tiny_language.network.layout().bytes_per_slot
        return DialogueSession(tiny_language, budget_bytes=budget, system=SYSTEM, answer_tokens=answers, **more)

    return open_session


def pair(frames: Tensor, number: int) -> Tensor:
    return frames[2 * (number % 6) : 2 * (number % 6) + 2]


def show(session: DialogueSession, frames: Tensor, start: int, stop: int, patience_s: float = 0.0) -> None:
    """A grid a second."""
    for number in range(start, stop):
        session.see(pair(frames, number), [float(number), number + 0.5], patience_s=patience_s)


def turned(keys: Tensor, rows: Int64[np.ndarray, "3 tokens"]) -> Float64[Tensor, "tokens heads 16"]:
    """Keys after so many positions more in time, rows and columns, channel by channel."""
    axis = torch.tensor([0, 0, 1, 1, 1, 2, 2, 2])
    angle = torch.from_numpy(rows)[axis].T.double() * 1e6 ** (-torch.arange(8, dtype=torch.float64) / 8)
    cos, sin = angle.cos().unsqueeze(1), angle.sin().unsqueeze(1)
    one, two = keys.double().chunk(2, dim=-1)
    return torch.cat([one * cos - two * sin, two * cos + one * sin], dim=-1)


class SlowTwin:
    """Notes every token that the session reads, and says where each that is left should stand.

    Words stand one after the other; a clip begins after them and takes up its time, as long as a grid of it is left.
    """

    def __init__(self, session: DialogueSession, monkeypatch: pytest.MonkeyPatch) -> None:
        self.session = session
        self.written: dict[int, np.ndarray] = {}
        self.keys: dict[tuple[int, int], Tensor] = {}
        self.grids: dict[int, tuple[int, float]] = {}
        """By their first tokens: the number of their clip, and their times."""
        self.num_closed = 0
        read, attend = Network.read, CausalRecall.attend

        def note(network: Network, embedded: Tensor, rows: np.ndarray, recall: CausalRecall) -> Tensor:
            self.written |= dict(zip(recall.transaction.ordinals, rows.T, strict=False))
            return read(network, embedded, rows, recall)

        def note_keys(recall: CausalRecall, stream: str, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            self.keys |= {(layer, token): key for token, key in zip(recall.transaction.ordinals, k[0], strict=False)}
            return attend(recall, stream, layer, q, k, v)

        monkeypatch.setattr(Network, "read", note)
        monkeypatch.setattr(CausalRecall, "attend", note_keys)

    def show(self, frames: Tensor, start: int, stop: int) -> None:
        """A grid a second, to the session."""
        for number in range(start, stop):
            show(self.session, frames, number, number + 1)
            self.watched()

    def watched(self) -> None:
        """Grids that are new are of the clip that is open."""
        for segment in self.session.state.segments:
            self.grids.setdefault(segment.first, (self.num_closed, segment.time_s))

    def remembered(self) -> None:
        self.watched()
        self.num_closed += 1

    def places(self) -> tuple[dict[int, tuple[int, int, int]], int]:
        """Positions of all tokens that are left, and the next one."""
        state, stands, at = self.session.state, dict[int, tuple[int, int, int]](), 0
        left = {segment.first for segment in state.segments}
        clips = sorted({self.grids[first][0] for first in left})
        known = [*state.closed, state.clip]
        start_s = {clip: one.start_s for clip, one in zip(clips, known, strict=False) if one is not None}
        token = 0
        while token < self.session._memory.next_token:
            if token not in self.grids:
                stands[token], at, token = (at, at, at), at + 1, token + 1
                continue
            clip, last_s = self.grids[token][0], 0.0
            while token in self.grids and self.grids[token][0] == clip:
                last_s = self.grids[token][1]
                if token in left:
                    time = at + int(2 * (last_s - start_s[clip]))
                    for place in range(GRID):
                        stands[token + place] = (time, at + place // COLUMNS, at + place % COLUMNS)
                token += GRID
            if clip in start_s:
                at += max(ROWS, COLUMNS, int(2 * (last_s - start_s[clip])) + 1)
        return stands, at

    def check(self, tolerance: float = 1e-4) -> None:
        """What the session has is what is left, stands where it should, and is read as if written there."""
        stands, next_position = self.places()
        session = self.session
        assert session.info.next_position == next_position
        tokens = np.sort(session._memory.tokens)
        assert tokens.tolist() == sorted(stands)
        back = np.array([stands[token] for token in tokens]).T - np.array([self.written[token] for token in tokens]).T
        for layer in range(4):
            wanted = turned(torch.stack([self.keys[layer, token] for token in tokens]), back)
            assert (keys_read(session, layer) - wanted).abs().max() < tolerance


def keys_read(session: DialogueSession, layer: int) -> Tensor:
    """Keys as a question would read them, in the order of the conversation."""
    with session._memory.fork() as fork, fork._memory.begin(1, Keep.NO) as transaction:
        recall = fork.recall(transaction, fork.state)
        keys = torch.cat([keys[0] for keys, _ in recall._seen("text", layer)])
    return keys[session._memory.tokens.argsort()]


@pytest.fixture
def corrections(monkeypatch: pytest.MonkeyPatch) -> dict[int, int]:
    """How often each token's key was revised."""
    counted: dict[int, int] = {}
    revise = Transaction.revise_keys

    def count(transaction: Transaction, stream: str, tokens: np.ndarray, *given: Callable[..., Tensor]) -> None:
        revise(transaction, stream, tokens, *given)
        for token in tokens.tolist():
            counted[token] = counted.get(token, 0) + 1

    monkeypatch.setattr(Transaction, "revise_keys", count)
    return counted


@pytest.mark.extra
@pytest.mark.parametrize("rule", RULES)
def test_clip_stays_within_the_range_and_true_in_time(
    rule: SegmentPolicy,
    open_small: Callable[..., DialogueSession],
    frames: Tensor,
    monkeypatch: pytest.MonkeyPatch,
    corrections: dict[int, int],
) -> None:
    session = open_small(retaining=rule)
    limit_positions(session, 200)
    twin = SlowTwin(session, monkeypatch)
    for number in range(300):
        twin.show(frames, number, number + 1)
        assert session.info.next_position <= 200 + COLUMNS
        if number % 25 == 0:
            twin.check()
    assert corrections
    assert max(corrections.values()) <= 4
    assert session.ask(QUESTION, THREE).seen_until_s == 299.5


@pytest.mark.extra
def test_memory_that_spans_the_range_is_not_corrected_at_every_grid(
    open_small: Callable[..., DialogueSession],
    frames: Tensor,
    corrections: dict[int, int],
) -> None:
    """The oldest quarter of the range leaves at once, though there is room for all of it."""
    session = open_small(num_grids=120)
    limit_positions(session, 100)
    show(session, frames, 0, 44)
    assert not corrections
    show(session, frames, 44, 45)
    assert [segment.time_s for segment in session.state.segments] == [float(second) for second in range(13, 45)]
    assert session.info.next_position == SINK + 2 * (44 - 13) + 1
    show(session, frames, 45, 150)
    assert max(corrections.values()) <= 4


@pytest.mark.parametrize("rule", rest_in_extra([*RULES, Window(anchors=0, window=3)], keep=1))
@pytest.mark.parametrize("every", rest_in_extra([7, 30], keep=1))
def test_remembered_questions_now_and_then_leave_positions_within_the_range(
    rule: SegmentPolicy,
    every: int,
    open_small: Callable[..., DialogueSession],
    frames: Tensor,
    monkeypatch: pytest.MonkeyPatch,
    corrections: dict[int, int],
) -> None:
    """Only the words that are remembered add up."""
    session = open_small(num_grids=8, num_words=20 * (90 // every), retaining=rule)
    limit_positions(session, 90 + 20 * (90 // every))
    twin = SlowTwin(session, monkeypatch)
    for number in range(90):
        twin.show(frames, number, number + 1)
        if number % every == every - 1:
            session.ask(QUESTION, THREE, remember=True)
            twin.remembered()
        assert session.info.next_position <= session._memory.setup.position_range + 20
        if number % 10 == 0:
            twin.check()
    twin.check()
    assert max(corrections.values(), default=0) <= 4


def test_words_behind_a_clip_that_has_left_close_up_without_a_correction(
    open_small: Callable[..., DialogueSession],
    frames: Tensor,
    monkeypatch: pytest.MonkeyPatch,
    corrections: dict[int, int],
) -> None:
    session = open_small(num_words=40, retaining=Window(anchors=0, window=2))
    twin = SlowTwin(session, monkeypatch)
    twin.show(frames, 0, 50)
    length = session.info.num_tokens
    session.ask(QUESTION, THREE, remember=True)
    twin.remembered()
    words = session.info.num_tokens - length
    for number in range(50, 53):
        twin.show(frames, number, number + 1)
        twin.check()
    reopened = 4
    assert session.state.closed == ()
    assert session.info.next_position == SINK + words + reopened + 2 * 2 + 1
    assert not corrections


def test_question_under_way_sees_the_clip_that_leaves_where_it_stood(
    open_small: Callable[..., DialogueSession], frames: Tensor
) -> None:
    session, silent = (open_small(num_words=40, answers=120, retaining=Window(anchors=0, window=2)) for _ in range(2))
    for one in (session, silent):
        show(one, frames, 0, 6)
        one.ask(QUESTION, THREE, remember=True)
        show(one, frames, 6, 8)
    pieces = session.ask_stream(QUESTION, TextSampling(max_new_tokens=8))
    next(pieces)
    show(session, frames, 8, 10)
    *_, answer = pieces
    assert isinstance(answer, Answer)
    alone = silent.ask(QUESTION, TextSampling(max_new_tokens=8))
    assert (answer.ids, answer.evidence) == (alone.ids, alone.evidence)
    show(silent, frames, 8, 10)
    assert session.state.moved == silent.state.moved != ()
    assert torch.equal(keys_read(session, 3), keys_read(silent, 3))


def test_frame_that_was_shown_twice_for_a_remembered_question_leaves_as_others_do(
    open_small: Callable[..., DialogueSession], frames: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = open_small(num_words=40, retaining=Window(anchors=0, window=2))
    twin = SlowTwin(session, monkeypatch)
    session.see(frames[:3], [0.0, 0.5, 1.0])
    twin.watched()
    before = session.info.num_tokens
    session.ask(QUESTION, THREE, remember=True)
    twin.remembered()
    assert [segment.time_s for segment in session.state.segments] == [0.0, 1.0]
    words = session.info.num_tokens - before - GRID
    twin.show(frames, 2, 6)
    twin.check()
    assert session.info.num_tokens == SINK + words + 4 + 3 * GRID


@pytest.mark.parametrize("rule", RULES)
def test_session_with_closed_clips_goes_on_when_resumed(
    rule: SegmentPolicy,
    open_small: Callable[..., DialogueSession],
    tiny_language: LanguageModel,
    frames: Tensor,
    tmp_path: Path,
) -> None:
    session = open_small(num_grids=5, num_words=60, retaining=rule)
    show(session, frames, 0, 4)
    session.ask(QUESTION, THREE, remember=True)
    show(session, frames, 4, 8)
    session.ask(QUESTION, THREE, remember=True)
    session.save(tmp_path / "talk.safetensors")
    resumed = DialogueSession.resume(tmp_path / "talk.safetensors", tiny_language)
    for one in (session, resumed):
        limit_positions(one, 60)
        show(one, frames, 8, 30)
    assert resumed.state.closed == session.state.closed
    assert resumed.info.next_position == session.info.next_position
    assert torch.equal(keys_read(resumed, 3), keys_read(session, 3))


@pytest.mark.parametrize("together", [False, True])
def test_pause_that_the_range_cannot_express_begins_the_clip_anew(
    together: bool, open_small: Callable[..., DialogueSession], frames: Tensor
) -> None:
    session = open_small()
    late_s = 20_000.0
    if together:
        session.see(frames[:4], [0.0, 0.5, late_s, late_s + 0.5])
    else:
        session.see(frames[:2], [0.0, 0.5])
        session.see(frames[2:4], [late_s, late_s + 0.5])
    assert [segment.time_s for segment in session.state.segments] == [late_s]
    assert session.info.next_position == SINK + COLUMNS
    fresh = open_small()
    fresh.see(frames[2:4], [late_s, late_s + 0.5])
    assert torch.equal(keys_read(session, 0)[SINK:], keys_read(fresh, 0)[SINK:])


def test_frames_past_the_last_position_are_refused_where_nothing_may_leave(
    open_small: Callable[..., DialogueSession], frames: Tensor
) -> None:
    session = open_small(retaining=KeepAll())
    show(session, frames, 0, 2)
    before = session.state
    with pytest.raises(InputError, match="knows 32768 positions, but a token would stand at 40013"):
        session.see(frames[:2], [20_000.0, 20_000.5])
    assert session.state is before
    assert session.ask(QUESTION, THREE).ids


def test_clip_is_moved_once_the_question_that_reads_it_has_ended(
    open_small: Callable[..., DialogueSession], frames: Tensor
) -> None:
    session = open_small(answers=200)
    limit_positions(session, 100)
    show(session, frames, 0, 44)
    pieces = session.ask_stream(QUESTION, TextSampling(max_new_tokens=8))
    next(pieces)
    show(session, frames, 44, 46)
    assert session.info.next_position == SINK + 2 * 45 + 1
    pieces.close()
    show(session, frames, 46, 47)
    assert session.info.next_position < 100


def state_of(session: DialogueSession) -> tuple[object, ...]:
    state = session.state
    return state.next_position, state.clip, state.closed, state.segments, state.held_s, state.num_frames, state.moved


@pytest.mark.parametrize("begun_before", [False, True])
def test_answer_is_not_remembered_into_frames_that_are_being_seen(
    begun_before: bool, open_small: Callable[..., DialogueSession], frames: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, silent = open_small(), open_small()
    for one in (session, silent):
        show(one, frames, 0, 3)
    said = session.ask_stream(QUESTION, THREE, remember=True)
    problems: list[LongtakeError] = []
    see = session._network.see

    def finish() -> None:
        try:
            list(said)
        except LongtakeError as error:
            problems.append(error)

    def see_late(*given: Tensor) -> Tensor:
        monkeypatch.setattr(session._network, "see", see)
        asker = threading.Thread(target=finish)
        asker.start()
        asker.join()
        return see(*given)

    if begun_before:
        next(said)
    monkeypatch.setattr(session._network, "see", see_late)
    show(session, frames, 3, 4)
    show(silent, frames, 3, 4)
    (problem,) = problems
    assert "moved on since" in str(problem)
    assert state_of(session) == state_of(silent)
    assert torch.equal(keys_read(session, 3), keys_read(silent, 3))


def test_answer_is_not_remembered_over_a_frame_that_waits_for_its_partner(
    open_small: Callable[..., DialogueSession], frames: Tensor
) -> None:
    session, silent = open_small(), open_small()
    for one in (session, silent):
        show(one, frames, 0, 3)
    pieces = session.ask_stream(QUESTION, THREE, remember=True)
    next(pieces)
    for one in (session, silent):
        one.see(frames[:1], [3.0])
    with pytest.raises(LongtakeError, match="moved on since"):
        list(pieces)
    assert state_of(session) == state_of(silent)
    assert session.info.num_frames == 7


def test_answer_that_is_never_finished_stops_nobody(open_small: Callable[..., DialogueSession], frames: Tensor) -> None:
    session = open_small()
    show(session, frames, 0, 2)
    left = session.ask_stream(QUESTION, THREE, remember=True)
    next(left)
    show(session, frames, 2, 4)
    assert session.ask(QUESTION, THREE, remember=True).ids
    session.reset()
    assert session.info.next_position == 0
    with pytest.raises(LongtakeError, match="moved on since"):
        list(left)


def fill_beside_a_question(session: DialogueSession, frames: Tensor) -> tuple[Iterator[str | Answer], int]:
    """A question that has begun, and the first grid that finds no room beside it."""
    show(session, frames, 0, 10)
    pieces = session.ask_stream(QUESTION, TextSampling(max_new_tokens=8))
    next(pieces)
    for number in range(10, 20):
        if session._memory.use().free < GRID:
            break
        show(session, frames, number, number + 1)
    with pytest.raises(
        MemoryFullError, match="wait for the questions to end, or call `see` with a larger `patience_s`"
    ):
        show(session, frames, number, number + 1)
    return pieces, number


def test_frames_wait_for_a_question_that_holds_their_places(
    open_small: Callable[..., DialogueSession], frames: Tensor
) -> None:
    session, silent = open_small(), open_small()
    pieces, number = fill_beside_a_question(session, frames)
    ending = threading.Timer(0.2, lambda: list(pieces))
    ending.start()
    show(session, frames, number, number + 1, patience_s=60.0)
    ending.join()
    show(silent, frames, 0, number + 1)
    assert state_of(session) == state_of(silent)
    assert torch.equal(keys_read(session, 3), keys_read(silent, 3))


def test_patience_ends_and_the_same_frames_may_be_given_again(
    open_small: Callable[..., DialogueSession], frames: Tensor
) -> None:
    session = open_small()
    pieces, number = fill_beside_a_question(session, frames)
    with pytest.raises(MemoryFullError, match=r"0\.05 s of patience were not enough"):
        show(session, frames, number, number + 1, patience_s=0.05)
    list(pieces)
    show(session, frames, number, number + 1)
    assert session.info.num_frames == 2 * (number + 1)
    assert session.info.seen_until_s == number + 0.5


def test_of_many_frames_those_that_found_no_room_may_be_given_again(
    open_small: Callable[..., DialogueSession], frames: Tensor
) -> None:
    session, silent = open_small(), open_small()
    for one in (session, silent):
        show(one, frames, 0, 10)
    pieces = session.ask_stream(QUESTION, TextSampling(max_new_tokens=8))
    next(pieces)
    times = [10.0 + index / 2 for index in range(12)]
    with pytest.raises(MemoryFullError, match="Frames from"):
        session.see(frames, times)
    list(pieces)
    seen_until_s = session.info.seen_until_s
    assert seen_until_s is not None
    num_taken = sum(time_s <= seen_until_s for time_s in times)
    assert session.info.num_frames == 20 + num_taken < 32
    session.see(frames[num_taken:], times[num_taken:])
    silent.see(frames, times)
    assert state_of(session)[:3] == state_of(silent)[:3]
    assert session.info.num_frames == silent.info.num_frames


@pytest.mark.parametrize("kind", [StreamFormat.TURNS, StreamFormat.TIMED_TURNS])
def test_turns_have_no_closed_clips(
    kind: StreamFormat, open_small: Callable[..., DialogueSession], frames: Tensor
) -> None:
    session = open_small(num_grids=20, num_words=60, stream_format=kind)
    show(session, frames, 0, 3)
    session.ask(QUESTION, THREE, remember=True)
    show(session, frames, 3, 5)
    assert session.state.closed == ()
