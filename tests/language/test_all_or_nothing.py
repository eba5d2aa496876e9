"""An error at any line of a dialogue leaves it as it was, or with the change made: never anything between."""

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import pytest
import torch
from broken import ERRORS, Break, Interrupt
from hearing import limit_positions
from plain_reader import read_by_clips
from selected import rest_in_extra
from torch import Tensor

from longtake.language.load import LanguageModel
from longtake.language.prompt_builder import StreamFormat
from longtake.language.sampling import TextSampling
from longtake.memory.policies.lockstep import KeepAll, Window
from longtake.memory.policies.thinned import Novel, Thinned
from longtake.memory.policy import SegmentPolicy
from longtake.memory.registry import POLICIES
from longtake.runtime.dialogue import DialogueSession

SYSTEM, QUESTION = "w20 w21 w22 w23", "w80 w81"
SINK, GRID, ANSWERS = 13, 12, 40
TWO, FOUR = TextSampling(max_new_tokens=2), TextSampling(max_new_tokens=4)
ROOMS = ("runtime", "memory", "attention", "language")
ROOMS_OF_CHANGE = ("runtime", "memory")
INTERRUPTED = ["frames, window", "frames out of range", "frames on a fork", "remembered question, by clips"]
POLICIES_HERE: dict[str, SegmentPolicy] = {
    "keep-all": KeepAll(),
    "window": Window.for_dialogue(),
    "thinned": Thinned(recent=1),
    "novel": Novel(recent=1),
}
Change = Callable[[DialogueSession, Tensor], object]


def see(session: DialogueSession, frames: Tensor, number: int) -> None:
    session.see(frames[2 * (number % 6) : 2 * (number % 6) + 2], [float(number), number + 0.5])


def see_on_a_fork(session: DialogueSession, frames: Tensor) -> None:
    with session.fork() as fork:
        see(fork, frames, 6)
        fork.commit_fork()


def stop_half_way(session: DialogueSession, frames: Tensor) -> None:
    pieces = session.ask_stream(QUESTION, FOUR, remember=True)
    for _ in range(2):
        next(pieces)
    see(session, frames, 6)
    pieces.close()


def see_beside_a_question(session: DialogueSession, frames: Tensor) -> None:
    pieces = session.ask_stream(QUESTION, TWO)
    next(pieces)
    try:
        see(session, frames, 6)
    finally:
        pieces.close()


@dataclass(frozen=True, kw_only=True)
class Case:
    """A session that has seen some frames, and what is done to it next."""

    change: Change = lambda session, frames: see(session, frames, 6)
    policy: SegmentPolicy = POLICIES_HERE["window"]
    stream_format: StreamFormat = StreamFormat.OPEN_CLIP
    num_grids: int = 4
    num_more: int = 0
    """Places beside those of grids."""
    position_range: int | None = None
    is_asked: bool = False
    """Whether there is a remembered question between two clips."""
    is_by_clips: bool = False
    """Whether it reads as recordings do, words into places staged ahead."""

    def open(self, language: LanguageModel) -> DialogueSession:
        num_tokens = SINK + self.num_grids * GRID + self.num_more + ANSWERS
        session = DialogueSession(
            language,
            budget_bytes=num_tokens * language.network.layout().bytes_per_slot,
            system=SYSTEM,
            answer_tokens=ANSWERS,
            retaining=self.policy,
            stream_format=self.stream_format,
        )
        if self.position_range is not None:
            limit_positions(session, self.position_range)
        return read_by_clips(session) if self.is_by_clips else session

    def watch(self, language: LanguageModel, frames: Tensor) -> DialogueSession:
        session = self.open(language)
        for number in range(6):
            see(session, frames, number)
            if self.is_asked and number == 3:
                session.ask(QUESTION, TWO, remember=True)
        return session


CASES: dict[str, Case] = {
    "frame that waits": Case(change=lambda session, frames: session.see(frames[:1], [6.0])),
    "frames of a turn": Case(policy=Window(anchors=0, window=2), stream_format=StreamFormat.TURNS, num_grids=9),
    "frames out of range": Case(num_grids=8, position_range=18),
    "frames on a fork": Case(change=see_on_a_fork, num_grids=8),
    "frames beside a question": Case(change=see_beside_a_question, num_grids=7),
    "question": Case(change=lambda session, _: session.ask(QUESTION, TWO)),
    "remembered question": Case(change=lambda session, _: session.ask(QUESTION, TWO, remember=True), num_more=30),
    "choices": Case(change=lambda session, _: session.ask_choice(QUESTION, ["w72", "w154 w12"])),
    "other position": Case(change=lambda session, _: session.move_to(500)),
    "new video": Case(change=lambda session, _: session.reset()),
} | {
    f"frames, {name}": Case(policy=policy, num_grids=10 if name == "keep-all" else 4)
    for name, policy in POLICIES_HERE.items()
}
CASES |= {
    f"{name}, by clips": replace(case, is_by_clips=True)
    for name, case in {
        "frames": Case(),
        "frames beside a question": CASES["frames beside a question"],
        "question": Case(change=lambda session, _: session.ask(QUESTION, FOUR)),
        "remembered question": Case(change=lambda session, _: session.ask(QUESTION, FOUR, remember=True), num_more=30),
        "questions together": Case(
            change=lambda session, _: session.ask_together([QUESTION, "w82", "w83 w84 w85"], FOUR), num_more=60
        ),
        "answer left half-way": Case(change=stop_half_way, num_grids=7, num_more=20),
    }.items()
}
CASES["two clips out of range"] = Case(num_grids=8, num_more=20, position_range=36, is_asked=True)


@pytest.fixture(scope="module")
def frames(vlm_case: Callable[[str], dict[str, Tensor]]) -> Tensor:
    """Six pairs."""
    return next(value for name, value in vlm_case("stream_open_clip").items() if name.startswith("frames_u8"))


@dataclass
class Breaking:
    """One case, broken again and again."""

    case: Case
    language: LanguageModel
    frames: Tensor

    def __post_init__(self) -> None:
        self.watched = self.case.watch(self.language, self.frames)

    def clone(self) -> DialogueSession:
        """A session in the very same state; states are values, so only keys and values are copied."""
        twin = self.case.open(self.language)
        here, there = (one._memory._memory._pool for one in (self.watched, twin))
        slabs = [pool.streams["text"].slab for pool in (here, there)]
        for source, target in zip(*((*slab.keys, *slab.values) for slab in slabs), strict=True):
            target.copy_(source)
        there._state.become(here.state)
        twin._memory._talk.become(self.watched._memory._talk.value)
        return twin

    def is_done(self, session: DialogueSession) -> bool:
        return session._memory._talk.value is not self.watched._memory._talk.value

    def outputs_from_here(self, session: DialogueSession) -> list[object]:
        """Likelihoods of answers, now and after one frame more, and all that decides the next ones."""
        outputs: list[object] = [session.ask_choice(QUESTION, ["w72", "w154"])]
        session.see(self.frames[2:4], [8.0, 8.5])
        outputs += [session.ask_choice(QUESTION, ["w72", "w154"]), session.info.num_tokens, *remembered(session)]
        return outputs

    def lines(
        self,
        *,
        error: type[BaseException],
        some: int | None = None,
        kind: type[Break] = Break,
        rooms: tuple[str, ...] = ROOMS,
    ) -> int:
        """Break at some of the lines, or at every one, the first time and the last; how many moments there were."""
        self.case.change(self.clone(), self.frames)  # what is computed once for a model is there from here on
        whole, changed = kind(None, rooms), self.clone()
        whole.during(partial(self.case.change, changed, self.frames))
        want = {self.is_done(changed): self.outputs_from_here(changed)}
        want[False] = self.outputs_from_here(self.clone())
        every = whole.first_and_last()
        numbers = every if some is None else random.Random(some).sample(every, some)
        for number in numbers:
            session, broken = self.clone(), kind(number, rooms, error)
            broken.during(partial(self.case.change, session, self.frames))
            assert broken.at != "nowhere"
            wanted = want[self.is_done(session)]
            assert self.outputs_from_here(session) == wanted, broken.at
            use = session._memory.use()
            assert use.staged == use.held == 0, broken.at
        return len(numbers)


def remembered(session: DialogueSession) -> tuple[object, ...]:
    """Which tokens there are, their keys and values, and the state."""
    memory = session._memory._memory
    tokens, slab = memory.tokens("text"), memory._pool.streams["text"].slab
    slot = torch.from_numpy(tokens.slot)
    stored = [storage[slot].numpy().tobytes() for storage in (*slab.keys, *slab.values)]
    state = session.state
    counted = (state.num_frames, state.last_s, state.num_forgotten, state.next_position)
    return tokens.frame.tolist(), stored, counted, state.clip, state.closed, state.segments, state.moved, state.held_s


def test_every_policy_of_a_dialogue_is_broken_here() -> None:
    assert set(POLICIES_HERE) == {name for name, kind in POLICIES.items() if issubclass(kind, SegmentPolicy)}


@pytest.mark.parametrize("name", rest_in_extra(reversed(CASES), keep=4))
def test_error_at_a_line_of_a_dialogue_leaves_no_trace(name: str, tiny_language: LanguageModel, frames: Tensor) -> None:
    assert Breaking(CASES[name], tiny_language, frames).lines(error=KeyboardInterrupt, some=5) == 5


@pytest.mark.by_hand
@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("name", CASES)
def test_error_at_any_line_of_a_dialogue_leaves_no_trace(
    name: str, error: type[BaseException], tiny_language: LanguageModel, frames: Tensor
) -> None:
    count = Breaking(CASES[name], tiny_language, frames).lines(error=error)
    print(f"{name}, {error.__name__}: broken at {count} moments")


@pytest.mark.parametrize("name", rest_in_extra(INTERRUPTED, keep=2))
def test_interrupt_between_two_instructions_of_a_dialogue_leaves_no_trace(
    name: str, tiny_language: LanguageModel, frames: Tensor
) -> None:
    breaking = Breaking(CASES[name], tiny_language, frames)
    assert breaking.lines(error=KeyboardInterrupt, some=12, kind=Interrupt, rooms=ROOMS_OF_CHANGE) == 12


@pytest.mark.by_hand
@pytest.mark.timeout(0)
@pytest.mark.parametrize("name", CASES)
def test_interrupt_between_any_two_instructions_of_a_dialogue_leaves_no_trace(
    name: str, tiny_language: LanguageModel, frames: Tensor
) -> None:
    breaking = Breaking(CASES[name], tiny_language, frames)
    count = breaking.lines(error=KeyboardInterrupt, kind=Interrupt, rooms=ROOMS_OF_CHANGE)
    print(f"{name}: interrupted at {count} moments")
