"""An error at any line of a session's step leaves it as it was, or with the frame taken: never anything between."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cache

import pytest
import torch
from broken import ERRORS, Break, Interrupt
from smallest import SMALLEST, smallest_model
from torch import Tensor

from longtake.memory.policies.budgeted import KeyDiversity, Managed
from longtake.memory.policies.farthest_frames import FarthestFrames
from longtake.memory.policies.layerwise import Layerwise
from longtake.memory.policies.lockstep import ContextRetention, KeepAll, Window
from longtake.memory.policies.ratio import Ratio
from longtake.memory.policy import StreamPolicy
from longtake.memory.registry import POLICIES
from longtake.runtime.alignment import Alignment, Anchoring
from longtake.runtime.keyframes import ByFlow, EveryNth, KeyframeRule
from longtake.runtime.memory_plan import MemoryPlan
from longtake.runtime.session import SequenceSession
from longtake.runtime.steps import VideoSession
from longtake.runtime.windowed import WindowedSession
from longtake.runtime.windows import Windows
from longtake.types import Geometry, Moved

SIZE = (28, 28)
CONTEXT = ContextRetention(anchors=2, window=3, history=8)
BY_FLOW = ByFlow(1e-3, max_gap=5)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A session that has taken some frames, and what is done to it next."""

    num_before: int
    policy: StreamPolicy = CONTEXT
    keyframes: KeyframeRule | None = None
    num_scale_frames: int = 2
    windows: Windows | None = None
    ends: bool = False
    """Whether the video ends, instead of going on with a frame."""
    is_last: bool = False
    """Whether the frame is the last of its sequence."""

    def open(self) -> VideoSession:
        plan = MemoryPlan(
            config=SMALLEST, size=SIZE, retention=self.policy, num_scale_frames=self.num_scale_frames, reserve_frames=1
        )
        budget_bytes = 300_000 if isinstance(self.policy, KeepAll) else None
        inner = SequenceSession(smallest_model(), plan, keyframes=self.keyframes, budget_bytes=budget_bytes)
        if self.windows is None:
            return inner
        return WindowedSession(inner, self.windows, Alignment(Anchoring.ROBUST))

    def change(self, session: VideoSession) -> Geometry:
        if not self.is_last:
            return session.finish() if self.ends else session.step(FRAMES[self.num_before])
        with session.look_last(FRAMES[self.num_before]) as look:
            look.take()
        return look.geometry


CASES = {
    "scale block": Case(num_before=1),
    "frame that waits": Case(num_before=0),
    "keyframe": Case(num_before=6),
    "passing frame": Case(num_before=5, keyframes=EveryNth(2)),
    "frame judged afterwards": Case(num_before=4, keyframes=BY_FLOW),
    "keyframe of layers apart": Case(num_before=6, policy=Managed(num_frames=4, special_frames=2, camera_frames=4)),
    "end within the scale block": Case(num_before=2, num_scale_frames=4, ends=True),
    "last frame of a sequence": Case(num_before=6, is_last=True),
    "last frame within a scale block": Case(num_before=2, num_scale_frames=4, is_last=True),
    "last frame of a broken window": Case(num_before=7, windows=Windows(size=5, overlap_frames=3), is_last=True),
    "frame of a window": Case(num_before=8, windows=Windows(size=5, overlap_frames=3)),
    "first frame of a window": Case(num_before=5, windows=Windows(size=5, overlap_frames=3)),
    "frame that aligns a window": Case(num_before=7, num_scale_frames=4, windows=Windows(size=6, overlap_frames=2)),
    "end within a scale block of a window": Case(
        num_before=7, num_scale_frames=4, windows=Windows(size=6, overlap_frames=2), ends=True
    ),
}
POLICIES_HERE: dict[str, StreamPolicy] = {
    "context": CONTEXT,
    "keep-all": KeepAll(),
    "window": Window(anchors=1, window=3),
    "managed": Managed(num_frames=4, special_frames=2, camera_frames=4),
    "ratio": Ratio(special_frames=2, camera_frames=4),
    "key-diversity": KeyDiversity(num_frames=4, special_frames=2, camera_frames=4),
    "farthest-frames": FarthestFrames(num_frames=3, camera_frames=4),
    "layerwise": Layerwise(num_frames=14, budget_ratio=0.3),
}
EVERY_POLICY = {f"keyframe, {name}": Case(num_before=6, policy=policy) for name, policy in POLICIES_HERE.items()} | {
    f"first frame of a window, {name}": Case(num_before=5, policy=policy, windows=Windows(size=5, overlap_frames=3))
    for name, policy in POLICIES_HERE.items()
}
ALL_CASES = CASES | EVERY_POLICY
INTERRUPTED = [
    *("keyframe", "passing frame", "first frame of a window", "end within a scale block of a window"),
    *("last frame of a sequence", "last frame of a broken window"),
]
ROOMS_OF_CHANGE = ("runtime", "memory")
FRAMES = torch.rand(12, 3, *SIZE, generator=torch.Generator().manual_seed(1))


@cache
def watched(name: str) -> VideoSession:
    session = ALL_CASES[name].open()
    for frame in FRAMES[: ALL_CASES[name].num_before]:
        session.step(frame)
    return session


def inner(session: VideoSession) -> SequenceSession:
    found = session.session if isinstance(session, WindowedSession) else session
    assert isinstance(found, SequenceSession)
    return found


def clone(name: str) -> VideoSession:
    """A session in the very same state; states are values, so only keys and values are copied."""
    session, twin = watched(name), ALL_CASES[name].open()
    here, there = inner(session), inner(twin)
    for stream, copied in zip(here._memory._pool.streams.values(), there._memory._pool.streams.values(), strict=True):
        tensors = ((*of.slab.keys, *of.slab.values) for of in (stream, copied))
        for source, target in zip(*tensors, strict=True):
            target.copy_(source)
    there._memory._pool._state.become(here._memory._pool.state)
    there._clock.become(here._clock.value)
    if isinstance(session, WindowedSession) and isinstance(twin, WindowedSession):
        twin._clock.become(session._clock.value)
    return twin


def num_taken(session: VideoSession) -> int:
    if isinstance(session, WindowedSession):
        return session._clock.value.current.first_frame + session._clock.value.current.num_frames
    assert isinstance(session, SequenceSession)
    clock = session._clock.value
    return clock.first_frame + clock.num_answered + len(clock.waiting)


def is_done(session: VideoSession, case: Case) -> bool:
    """Whether the change was made, whatever came after it."""
    if case.ends:
        return not inner(session)._clock.value.waiting
    return num_taken(session) > case.num_before


def outputs_from_here(session: VideoSession, case: Case) -> list[Geometry]:
    """Of the next frames, the one that was refused first."""
    return [session.step(frame) for frame in FRAMES[num_taken(session) : case.num_before + 2]] + [session.finish()]


def values(geometry: Geometry) -> list[object]:
    """All fields, those of a correction too."""
    found: list[object] = []
    for field in fields(Geometry):
        value = getattr(geometry, field.name)
        if isinstance(value, Moved):
            found += [value.version, *(span.now_from_before for span in value.spans), *values(value.geometry)]
        else:
            found.append(value)
    return found


def same(some: Sequence[Geometry], others: Sequence[Geometry]) -> bool:
    pairs = [
        pair for here, there in zip(some, others, strict=True) for pair in zip(values(here), values(there), strict=True)
    ]
    return all(torch.equal(a, b) if isinstance(a, Tensor) else a == b for a, b in pairs)  # type: ignore[arg-type]


def break_lines(
    name: str,
    rooms: tuple[str, ...],
    *,
    error: type[BaseException],
    some: int | None = None,
    kind: type[Break] = Break,
) -> int:
    """Break it at some of its lines, or at every one, the first time and the last; how many moments there were."""
    case, whole, changed = ALL_CASES[name], kind(None, rooms), clone(name)
    case.change(clone(name))  # what is computed once for a model is there from here on
    whole.during(lambda: case.change(changed))
    assert is_done(changed, case)
    want = {False: outputs_from_here(clone(name), case), True: outputs_from_here(changed, case)}
    every = whole.first_and_last()
    numbers = every if some is None else random.Random(name).sample(every, some)
    for number in numbers:
        session, broken = clone(name), kind(number, rooms, error)
        broken.during(lambda session=session: case.change(session))  # type: ignore[misc]
        assert broken.at != "nowhere"
        done = is_done(session, case)
        assert same(outputs_from_here(session, case), want[done]), broken.at
        assert not inner(session)._memory.use()["trunk"].staged, broken.at
    return len(numbers)


@pytest.mark.parametrize("name", CASES)
def test_error_at_a_line_of_a_step_leaves_no_trace(name: str) -> None:
    """Where memory and clocks change."""
    assert break_lines(name, ("runtime/session", "runtime/windowed"), error=KeyboardInterrupt, some=2)


def test_every_policy_of_a_map_is_broken_here() -> None:
    assert list(POLICIES_HERE) == [name for name, kind in POLICIES.items() if issubclass(kind, StreamPolicy)]


@pytest.mark.by_hand
@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("name", ALL_CASES)
def test_error_at_any_line_of_a_step_leaves_no_trace(name: str, error: type[BaseException]) -> None:
    count = break_lines(name, ("runtime", "memory", "attention"), error=error)
    print(f"{name}, {error.__name__}: broken at {count} moments")


@pytest.mark.parametrize("name", INTERRUPTED)
def test_interrupt_between_two_instructions_of_a_step_leaves_no_trace(name: str) -> None:
    assert break_lines(name, ROOMS_OF_CHANGE, error=KeyboardInterrupt, some=12, kind=Interrupt)


@pytest.mark.by_hand
@pytest.mark.timeout(0)
@pytest.mark.parametrize("name", ALL_CASES)
def test_interrupt_between_any_two_instructions_of_a_step_leaves_no_trace(name: str) -> None:
    count = break_lines(name, ROOMS_OF_CHANGE, error=KeyboardInterrupt, kind=Interrupt)
    print(f"{name}: interrupted at {count} moments")
