"""A map and a dialogue from one reader are what each would be alone, and answers know where the camera was."""

import math
import threading
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from told import final, last_versions

from longtake.errors import InputError, SettingError
from longtake.exports.frame import FrameStatus, MappedFrame, PosedFrame
from longtake.geometry.model import GeometryModel
from longtake.language.load import LanguageModel, load_language
from longtake.language.sampling import TextSampling
from longtake.memory.policies.lockstep import ContextRetention
from longtake.pipeline.events import Answered, AnswerText, Asking, Event, Frame, Unreadable
from longtake.pipeline.live import LiveSession, LiveSettings, _Rate, _Trail
from longtake.pipeline.mapper import Mapper
from longtake.pipeline.question_schedule import Asked, Every, Once, When
from longtake.pipeline.run import Run
from longtake.runtime.build import SessionSettings, open_session
from longtake.runtime.dialogue import DialogueSession
from longtake.runtime.windows import Windows
from longtake.video.frame import PendingFrame, VideoFrame
from longtake.video.reading import Source
from longtake.video.resize import Preprocessor
from longtake.video.sampling import Extent, FrameSampling
from longtake.world.tour import Tour

GOLDEN = Path(__file__).parents[1] / "golden" / "vlm"
FPS, NUM_FRAMES, SIZE = 8, 25, (84, 112)
SESSION = SessionSettings(
    image_size=56, num_scale_frames=2, retention=ContextRetention(anchors=2, window=3, history=12), windows=None
)
PREPARE = Preprocessor(size=56)
LIVE = LiveSettings(ask_fps=2.0, speaking=TextSampling(max_new_tokens=4))
PICTURES = [
    (view.image.movedim(0, -1) * 255).byte().numpy()
    for view in islice(Tour(seed=2, width=SIZE[1], height=SIZE[0]).views(), NUM_FRAMES)
]


class Walk(Source):
    """Frames of a tour, of which some cannot be read; counts its readers."""

    def __init__(
        self, unreadable: frozenset[int] = frozenset(), *, num_frames: int = NUM_FRAMES, is_live: bool = False
    ) -> None:
        super().__init__("walk", is_live=is_live)
        self._unreadable, self._num_frames, self.num_readers = unreadable, num_frames, 0

    @property
    def extent(self) -> Extent:
        return Extent(num_frames=self._num_frames)

    def all_frames(self) -> Generator[PendingFrame, None, None]:
        self.num_readers += 1
        for index, picture in enumerate(PICTURES[: self._num_frames]):
            if index in self._unreadable:
                yield PendingFrame.unreadable(index / FPS, f"Frame {index} is torn.")
            else:
                yield PendingFrame(index / FPS, lambda picture=picture: picture)


@pytest.fixture(scope="module")
def language(word_language: Path) -> LanguageModel:
    return load_language(word_language)


@pytest.fixture
def dialogue(language: LanguageModel) -> Iterator[DialogueSession]:
    session = DialogueSession(language, budget_bytes=8_000_000)
    yield session
    session.close()


@pytest.fixture
def reference(language: LanguageModel) -> Iterator[DialogueSession]:
    session = DialogueSession(language, budget_bytes=8_000_000)
    yield session
    session.close()


@pytest.fixture
def watch(dialogue: DialogueSession, tiny_model: GeometryModel) -> Callable[..., Run]:
    def opened(source: Source, *asked: Asked, session: SessionSettings = SESSION) -> Run:
        mapper = Mapper(lambda size: open_session(tiny_model, session, size), PREPARE)
        return Run(source, LiveSession(mapper, dialogue, LIVE), asked)

    return opened


def alone(model: GeometryModel, session: SessionSettings = SESSION) -> list[MappedFrame]:
    """The same frames mapped without a dialogue."""
    mapper = Mapper(lambda size: open_session(model, session, size), PREPARE)
    mapped: list[MappedFrame] = []
    for index, picture in enumerate(PICTURES):
        mapped += final(mapper, mapper.step(mapper.prepare(VideoFrame(index, index / FPS, picture))))
    return [*mapped, *final(mapper, mapper.finish())]


def show(session: DialogueSession, until_s: float, *, after_s: float = -1.0) -> None:
    """Two frames a second, one by one."""
    for index in range(0, NUM_FRAMES, FPS // 2):
        if after_s < index / FPS <= until_s:
            session.see(torch.from_numpy(PICTURES[index].transpose(2, 0, 1).copy())[None], [index / FPS])


def answers(events: list[Event]) -> list[Answered]:
    return [event for event in events if isinstance(event, Answered)]


def known(events: list[Event]) -> list[MappedFrame]:
    return list(last_versions(events).values())


@pytest.mark.extra
@pytest.mark.parametrize("windows", [Windows(size=8, overlap_frames=3), None])
def test_poses_are_those_of_a_map_alone(
    windows: Windows | None, watch: Callable[..., Run], tiny_model: GeometryModel
) -> None:
    session, source = replace(SESSION, windows=windows), Walk()
    events = list(watch(source, Once(text="w90", at_s=1.0), Every(text="w91", every_s=0.7), session=session))
    for frame, expected in zip(known(events), alone(tiny_model, session), strict=True):
        assert (frame.index, frame.timestamp_s, frame.status) == (expected.index, expected.timestamp_s, expected.status)
        assert torch.equal(frame.world_from_camera, expected.world_from_camera)
    assert source.num_readers == 1


def test_answers_are_those_of_a_dialogue_alone_at_its_own_rate(
    watch: Callable[..., Run], dialogue: DialogueSession, reference: DialogueSession
) -> None:
    found = answers(list(watch(Walk(), Once(text="w90", at_s=1.3), Once(text="w91 w92", at_s=2.0), Once(text="w93"))))
    assert [answered.due.time_s for answered in found] == [1.3, 2.0, 3.0]
    assert [answered.seen_until_s for answered in found] == [1.0, 2.0, 3.0]
    before_s = -1.0
    for answered in found:
        assert answered.seen_until_s is not None
        show(reference, answered.seen_until_s, after_s=before_s)
        before_s = answered.seen_until_s
        expected = reference.ask(answered.due.asked.text, LIVE.speaking)
        assert (answered.text, answered.evidence) == (expected.text, expected.evidence)
        assert sum(span.weight for span in answered.evidence) == pytest.approx(1)
    assert dialogue.info.num_frames == 7


def test_answer_has_the_pose_of_the_last_frame_that_it_is_about(
    watch: Callable[..., Run], tiny_model: GeometryModel
) -> None:
    poses = {frame.index: frame.world_from_camera for frame in alone(tiny_model)}
    for answered in answers(list(watch(Walk(), Once(text="w90", at_s=1.3), Every(text="w91", every_s=0.6)))):
        assert answered.pose is not None
        assert answered.pose.timestamp_s == answered.seen_until_s
        assert torch.equal(answered.pose.world_from_camera, poses[answered.pose.index])


def test_before_the_first_block_is_whole_there_is_no_pose_and_at_the_end_all_are_known(
    watch: Callable[..., Run],
) -> None:
    session = replace(SESSION, num_scale_frames=6, retention=ContextRetention(anchors=6, window=3, history=12))
    events = list(watch(Walk(num_frames=9), Once(text="w90", at_s=0.1), Once(text="w91", at_s=0.7), session=session))
    early, later = answers(events)
    assert early.pose is None
    assert later.pose is not None
    assert later.pose.timestamp_s == later.seen_until_s == 0.5
    *_, last = answers(list(_short(watch, session)))
    assert last.pose is not None
    assert last.pose.timestamp_s == last.seen_until_s == 0.0


def _short(watch: Callable[..., Run], session: SessionSettings) -> Iterator[Event]:
    """A video that ends before its first block is whole, watched anew."""
    live = watch(Walk(num_frames=3), Once(text="w90"), session=session)
    live.session.dialogue.reset()
    return iter(live)


@pytest.mark.parametrize("waited", ["yes", "no"])
def test_standing_question_is_told_when_it_turns_with_what_it_looked_at(
    waited: str, watch: Callable[..., Run], reference: DialogueSession
) -> None:
    found = answers(list(watch(Walk(), When(text="w90 w91", becomes=waited))))
    turns: list[float] = []
    before = None
    for moment_s in np.arange(0.0, 3.1, 0.5).tolist():
        show(reference, moment_s, after_s=moment_s - 0.5)
        scored = reference.ask_choice("w90 w91", ["yes", "no"])
        best = max(scored, key=lambda choice: choice.mean_log_likelihood).text
        if best == waited != before:
            turns.append(moment_s)
        before = best
    assert [answered.due.time_s for answered in found] == turns
    for answered in found:
        assert answered.text == waited
        assert answered.evidence or answered.seen_until_s == 0.0
        assert answered.pose is None or answered.pose.timestamp_s <= answered.seen_until_s


def test_events_come_in_the_order_of_time_and_poses_at_once(watch: Callable[..., Run]) -> None:
    events = list(watch(Walk(), Every(text="w90", every_s=1.0)))
    for place, event in enumerate(events):
        if isinstance(event, Answered):
            assert event.due.time_s is not None
            assert all(frame.timestamp_s <= event.due.time_s for frame in known(events[:place]))
            assert all(frame.timestamp_s > event.due.time_s for frame in known(events[place:]))
    assert [answered.due.time_s for answered in answers(events)] == [1.0, 2.0, 3.0]


def test_frames_that_cannot_be_read_are_told_and_keep_nobody(watch: Callable[..., Run]) -> None:
    events = list(watch(Walk(frozenset({0, 4, 24})), Once(text="w90")))
    torn = [event for event in events if isinstance(event, Unreadable)]
    assert [event.index for event in torn] == [0, 4, 24]
    assert [frame.index for frame in known(events)] == [index for index in range(NUM_FRAMES) if index not in (0, 4, 24)]
    assert len(answers(events)) == 1


def test_stopped_session_finishes_and_answers_what_is_asked_at_the_end(watch: Callable[..., Run]) -> None:
    live = watch(Walk(), Once(text="w90"))
    events: list[Event] = []
    for event in live:
        events.append(event)
        if isinstance(event, Frame) and event.index == 6:
            live.stop()
    (answered,) = answers(events)
    assert 7 <= len(known(events)) < NUM_FRAMES
    assert answered.pose is not None
    assert answered.pose.timestamp_s == answered.seen_until_s


def test_live_source_drops_frames_and_others_wait(watch: Callable[..., Run]) -> None:
    for is_live in (True, False):
        live = watch(Walk(is_live=is_live), Once(text="w90"))
        live.session.dialogue.reset()
        events = list(live)
        assert len(known(events)) + live.num_dropped == NUM_FRAMES
        assert (live.num_dropped > 0) is is_live


class Camera(Walk):
    """The same frames at a pace, again and again."""

    def __init__(self, *, num_frames: int, pace_s: float) -> None:
        super().__init__(is_live=True, num_frames=num_frames)
        self._pace_s = pace_s

    def all_frames(self) -> Generator[PendingFrame, None, None]:
        for index in range(self._num_frames):
            time.sleep(self._pace_s)
            yield PendingFrame(index / FPS, lambda index=index: PICTURES[index % NUM_FRAMES])


def test_frames_of_a_live_source_go_on_while_an_answer_is_made(
    language: LanguageModel, dialogue: DialogueSession, tiny_model: GeometryModel, reference: DialogueSession
) -> None:
    speaking = TextSampling(max_new_tokens=60)
    mapper = Mapper(lambda size: open_session(tiny_model, SESSION, size), PREPARE)
    session = LiveSession(mapper, dialogue, LiveSettings(ask_fps=2.0, speaking=speaking))
    events = list(Run(Camera(num_frames=60, pace_s=0.03), session, [Once(text="w90", at_s=1.0)]))
    begun = next(place for place, event in enumerate(events) if isinstance(event, Asking))
    ended = next(place for place, event in enumerate(events) if isinstance(event, Answered))
    told = events[ended]
    assert isinstance(told, Answered)
    assert any(isinstance(event, Frame) for event in events[begun:ended])
    assert "".join(event.text for event in events[begun:ended] if isinstance(event, AnswerText)) == told.text
    assert told.seen_until_s is not None
    assert told.pose is not None
    assert told.pose.timestamp_s <= told.seen_until_s < events_last_s(events)
    seen = [
        event.timestamp_s for event in events if isinstance(event, Frame) and event.timestamp_s <= told.seen_until_s
    ]
    rate = _Rate(2.0)
    for time_s in filter(rate.takes, seen):
        picture = PICTURES[round(time_s * FPS) % NUM_FRAMES]
        reference.see(torch.from_numpy(picture.transpose(2, 0, 1).copy())[None], [time_s])
    assert reference.ask("w90", speaking).text == told.text


def events_last_s(events: list[Event]) -> float:
    return max(event.timestamp_s for event in events if isinstance(event, Frame))


def test_an_answer_that_fails_ends_a_live_run_with_its_error(watch: Callable[..., Run]) -> None:
    run = watch(Camera(num_frames=10, pace_s=0.01), Once(text="w90", at_s=0.2))
    run.session.answer = Mock(side_effect=InputError("It fails."))
    with pytest.raises(InputError, match="It fails"):
        list(run)


def test_leaving_a_live_run_early_ends_its_threads(watch: Callable[..., Run]) -> None:
    before = threading.active_count()
    with watch(Camera(num_frames=1000, pace_s=0.01), Once(text="w90", at_s=0.2)) as run:
        for event in run:
            if isinstance(event, Asking):
                break
    assert threading.active_count() <= before


def test_source_without_frames_is_one_sentence(watch: Callable[..., Run]) -> None:
    with pytest.raises(InputError, match="Expected frames in walk"):
        list(watch(Walk(num_frames=0), Once(text="w90")))


@pytest.mark.parametrize("fps", [0.0, -1.0, math.inf, math.nan])
def test_rate_must_be_more_than_nothing(fps: float) -> None:
    with pytest.raises(SettingError, match="more than 0 frames a second"):
        LiveSettings(ask_fps=fps)


@settings(deadline=None, max_examples=60)
@given(
    gaps=st.lists(st.floats(0.001, 2.0), max_size=40), first_s=st.floats(0.0, 100.0), fps=st.sampled_from([0.5, 2.0, 7])
)
def test_rate_takes_the_frames_that_a_source_of_this_rate_would_give(
    gaps: list[float], first_s: float, fps: float
) -> None:
    times = np.cumsum([first_s, *gaps]).tolist()
    frames = [VideoFrame(index, time_s, PICTURES[0]) for index, time_s in enumerate(times)]
    rate = _Rate(float(fps))
    picked = [frame.index for frame in FrameSampling(fps=float(fps)).pick(frames)]
    assert [index for index, time_s in enumerate(times) if rate.takes(time_s)] == picked


@settings(deadline=None, max_examples=60)
@given(steps=st.lists(st.tuples(st.booleans(), st.integers(1, 5)), max_size=40))
def test_trail_gives_the_last_frame_up_to_a_moment_and_forgets_those_before(steps: list[tuple[bool, int]]) -> None:
    trail, added, newest_s, moment_s = _Trail(), [], 0.0, 0.0
    for is_frame, step in steps:
        if is_frame:
            newest_s += step
            added.append(_frame(newest_s))
            trail.add(added[-1])
            continue
        moment_s += step
        expected = [frame for frame in added if frame.timestamp_s <= moment_s]
        assert trail.up_to(moment_s) is (expected[-1] if expected else None)
        assert len(trail._poses) == len(added) - max(0, len(expected) - 1)


def _frame(time_s: float) -> PosedFrame:
    pose = torch.eye(4, dtype=torch.float64)
    return PosedFrame(index=0, timestamp_s=time_s, status=FrameStatus.OK, world_from_camera=pose)
