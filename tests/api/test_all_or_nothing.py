"""An error at any line of a step of the public sessions leaves them as they were, or with the picture taken."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from broken import ERRORS, Break, Interrupt
from smallest import smallest_model

import longtake
from longtake import GeometrySession, LiveSession
from longtake.geometry.model import GeometryModel
from longtake.language.load import LanguageModel
from longtake.memory.memory import Memory
from longtake.runtime.session import SequenceSession
from longtake.runtime.windowed import WindowedSession
from longtake.types import Geometry

PICTURES = np.random.default_rng(1).integers(0, 256, (20, 56, 56, 3), dtype=np.uint8)
QUESTION, CHOICES = "w60 w61", ["w72", "w154"]
DIALOGUE_TOKENS = 24
"""Of which the dialogue keeps some grids of four, so that the oldest have left."""
ROOMS = ("api", "runtime", "memory", "attention", "language")
ROOMS_OF_CHANGE = ("api", "runtime", "memory")


@pytest.fixture(scope="module")
def tiny_map() -> GeometryModel:
    return smallest_model()


@pytest.fixture(scope="module")
def tiny_ask(word_language: Path) -> LanguageModel:
    return longtake.load_language_model(word_language, device="cpu")


@dataclass(frozen=True)
class Case:
    """What is done to a live session that was given some pictures."""

    num_before: int
    windows: str = "none"
    change: Callable[[LiveSession, int], object] = lambda session, number: step(session, number)


def step(session: LiveSession, number: int) -> Geometry:
    return session.step(PICTURES[number], number / 2)


CASES = {
    "picture that waits in the dialogue": Case(16),
    "picture that both remember": Case(17),
    "picture that begins a window": Case(15, windows="12/3"),
    "end": Case(15, windows="12/3", change=lambda session, _: session.finish()),
    "question": Case(17, change=lambda session, _: session.ask(QUESTION, max_tokens=2)),
}


def opened(case: Case, model: GeometryModel, language: LanguageModel) -> LiveSession:
    mapping = GeometrySession.from_pretrained(model, memory="12 frames", policy="window", windows=case.windows, size=56)
    dialogue = longtake.DialogueSession.from_pretrained(
        language, memory=(1024 + 2 + DIALOGUE_TOKENS) * language.network.layout().bytes_per_slot, max_tokens=2
    )
    return LiveSession(mapping, dialogue, ask_fps=2.0)


def copy_memory(source: Memory, target: Memory) -> None:
    for name, stream in source._pool.streams.items():
        slabs = (stream.slab, target._pool.streams[name].slab)
        for here, there in zip(*((*slab.keys, *slab.values) for slab in slabs), strict=True):
            there.copy_(here)
    target._pool._state.become(source._pool.state)


@dataclass
class Breaking:
    """One case, broken again and again."""

    case: Case
    model: GeometryModel
    language: LanguageModel

    def __post_init__(self) -> None:
        self.watched = opened(self.case, self.model, self.language)
        for number in range(self.case.num_before):
            step(self.watched, number)
        assert self.watched.dialogue.info.num_forgotten

    def clone(self) -> LiveSession:
        """A session in the very same state; states are values, so only keys and values are copied."""
        here, twin = self.watched, opened(self.case, self.model, self.language)
        session, source = twin.map._ready(PICTURES[0], None).session, here.map._clock.value.session
        if isinstance(session, WindowedSession) and isinstance(source, WindowedSession):
            session._clock.become(source._clock.value)
        for inner, of_source in [(_sequence(session), _sequence(source))]:
            copy_memory(of_source._memory, inner._memory)
            inner._clock.become(of_source._clock.value)
        twin.map._clock.become(replace(here.map._clock.value, session=session))
        dialogue, of_dialogue = twin.dialogue._session._memory, here.dialogue._session._memory
        copy_memory(of_dialogue._memory, dialogue._memory)
        dialogue._talk.become(of_dialogue._talk.value)
        twin._trail.become(here._trail.value)
        return twin

    def is_done(self, session: LiveSession) -> bool:
        return session._trail.value is not self.watched._trail.value

    def outputs_from_here(self, session: LiveSession) -> list[object]:
        outputs: list[object] = [
            session.dialogue.ask_choice(QUESTION, CHOICES),
            bits(session._trail.value.poses.values()),
        ]
        if session.map.info.num_frames and self.case.windows == "none":
            outputs += values(step(session, 18)) + values(step(session, 19))
        outputs += [session.dialogue.ask_choice(QUESTION, CHOICES), *values(session.finish())]
        trail, infos = session._trail.value, (session.map.info, replace(session.dialogue.info, seeing_s=0.0))
        return [*outputs, infos, trail.looks_s, bits(trail.poses.values()), bits([trail.newest])]

    def lines(
        self,
        *,
        error: type[BaseException],
        some: int | None = None,
        kind: type[Break] = Break,
        rooms: tuple[str, ...] = ROOMS,
    ) -> int:
        """Break at some of the lines, or at every one, the first time and the last; how many moments there were."""
        self.case.change(self.clone(), self.case.num_before)  # what is computed once for a model is there from here on
        whole, changed = kind(None, rooms), self.clone()
        whole.during(partial(self.case.change, changed, self.case.num_before))
        done = self.is_done(changed)
        want = {done: self.outputs_from_here(changed)}
        want[False] = self.outputs_from_here(self.clone())
        every = whole.first_and_last()
        numbers = every if some is None else random.Random(some).sample(every, some)
        for number in numbers:
            session, broken = self.clone(), kind(number, rooms, error)
            broken.during(partial(self.case.change, session, self.case.num_before))
            assert broken.at != "nowhere"
            wanted = want[self.is_done(session)]
            assert self.outputs_from_here(session) == wanted, broken.at
        return len(numbers)


def _sequence(session: object) -> SequenceSession:
    inner = session.session if isinstance(session, WindowedSession) else session
    assert isinstance(inner, SequenceSession)
    return inner


def bits(tensors: object) -> list[bytes]:
    return [tensor.numpy().tobytes() for tensor in tensors]  # type: ignore[attr-defined]


def values(geometry: Geometry) -> list[object]:
    moved: Sequence[object] = () if geometry.moved is None else values(geometry.moved.geometry)
    return [geometry.frame_index, geometry.provisional, *bits([geometry.world_from_camera, geometry.depth]), *moved]


@pytest.mark.parametrize("name", ["picture that both remember", "end"])
def test_error_at_a_line_of_a_live_session_leaves_no_trace(
    name: str, tiny_map: GeometryModel, tiny_ask: LanguageModel
) -> None:
    assert Breaking(CASES[name], tiny_map, tiny_ask).lines(error=KeyboardInterrupt, some=5) == 5


@pytest.mark.by_hand
@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("name", CASES)
def test_error_at_any_line_of_a_live_session_leaves_no_trace(
    name: str, error: type[BaseException], tiny_map: GeometryModel, tiny_ask: LanguageModel
) -> None:
    count = Breaking(CASES[name], tiny_map, tiny_ask).lines(error=error)
    print(f"{name}, {error.__name__}: broken at {count} moments")


@pytest.mark.parametrize("name", ["picture that both remember", "picture that begins a window"])
def test_interrupt_between_two_instructions_of_a_live_session_leaves_no_trace(
    name: str, tiny_map: GeometryModel, tiny_ask: LanguageModel
) -> None:
    breaking = Breaking(CASES[name], tiny_map, tiny_ask)
    assert breaking.lines(error=KeyboardInterrupt, some=8, kind=Interrupt, rooms=ROOMS_OF_CHANGE) == 8


@pytest.mark.by_hand
@pytest.mark.timeout(0)
@pytest.mark.parametrize("name", CASES)
def test_interrupt_between_any_two_instructions_of_a_live_session_leaves_no_trace(
    name: str, tiny_map: GeometryModel, tiny_ask: LanguageModel
) -> None:
    breaking = Breaking(CASES[name], tiny_map, tiny_ask)
    count = breaking.lines(error=KeyboardInterrupt, kind=Interrupt, rooms=ROOMS_OF_CHANGE)
    print(f"{name}: interrupted at {count} moments")
