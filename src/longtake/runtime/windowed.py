"""A session of windows: each is a fresh sequence, moved into the first one's world by the frames it shares with it."""

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch

from longtake.attention.backend import Backend
from longtake.errors import InputError, SavedSessionError
from longtake.geometry.model import GeometryModel
from longtake.memory.change import Changing
from longtake.memory.saved import Pieces, SavedTensors, TensorFile
from longtake.runtime.alignment import Alignment, Anchoring, place
from longtake.runtime.record import FramesRecord, SessionRecord, WindowedRecord, frame_pieces
from longtake.runtime.session import SequenceSession
from longtake.runtime.steps import Frame, Look, Progress, VideoSession
from longtake.runtime.windows import WindowRule, Windows
from longtake.spatial.similarity import Similarity
from longtake.types import Geometry, Moved, MovedSpan
from longtake.weights.familiarity import UNJUDGED, Judged

_BETWEEN_VERSIONS = Alignment(Anchoring.ROBUST)
"""How the motion of frames between two versions of them is summed up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowSpan:
    """One window as it really was."""

    index: int
    first_frame: int
    num_frames: int
    """Frames looked at, those shared with the window before included."""
    num_shared: int
    """Frames shared with the window before."""
    numbers: tuple[float, ...]
    """Of `world_from_window`. Windows come for as long as the video runs, and a small tensor that stays keeps the block
    of memory behind which it was made from being used again."""

    @property
    def world_from_window(self) -> Similarity:
        """From this window's own frame into the world, which is the first window's frame; on the host."""
        return Similarity.of_numbers(self.numbers)


class WindowedSession(VideoSession):
    """Takes frames like a session of one sequence; results come at once, and are provisional in an overlap.

    Memory holds one window; beside it only the frames and results of one overlap, and where each window lies. While
    the scale block of a later window is longer than the overlap, results wait until it is complete.
    """

    def __init__(self, session: SequenceSession, windows: Windows, alignment: Alignment | None = None) -> None:
        self._session = session
        self._windows = windows
        self._rule = WindowRule.of(windows, session.plan.num_scale_frames, session.keyframes)
        self._alignment = alignment or Alignment()
        self._clock = Changing(_Clock(current=_Window(world_from_window=Similarity.identity(session.device))))

    @property
    def session(self) -> SequenceSession:
        """The session that looks at the current window."""
        return self._session

    @property
    def windows(self) -> tuple[WindowSpan, ...]:
        """All windows so far, the current one last."""
        return (*self._clock.value.ended, self._clock.value.current.span)

    @property
    def num_final(self) -> int:
        """Those given that the next window will not begin with."""
        return self._clock.value.current.first_frame + self._clock.value.current.num_released

    @property
    def provisional(self) -> Geometry:
        """The results given that the next window may look at again, or that this one has not placed yet."""
        window = self._clock.value.current
        if window.shared is not None and not window.num_given:
            return window.shared
        given = window.held[: window.num_given - window.num_released]
        return Geometry.join(given) if given else self._session.nothing()

    @property
    def progress(self) -> Progress:
        window = self._clock.value.current
        return replace(
            self._session.progress,
            num_frames=window.first_frame + window.num_frames,
            num_windows=len(self._clock.value.ended) + 1,
            first_frame=window.first_frame,
        )

    @property
    def num_bytes(self) -> int:
        return self._session.num_bytes

    @property
    def live_bytes(self) -> int:
        return self._session.live_bytes

    def check(self, frame: Frame) -> None:
        self._session.check(frame)

    @contextmanager
    def look(self, frame: Frame, timestamp_s: float | None = None) -> Iterator[Look]:
        """Of this frame, and what frames became that a new window looked at again."""
        clock, timestamp_s = self._ready_for(frame, timestamp_s)
        recent = (*clock.recent, (frame.clone(), timestamp_s))[-self._rule.overlap :]
        with self._session.look(frame, timestamp_s) as look:
            window = clock.current.received(look, self._alignment, num_new=1)
            coming = replace(clock, recent=recent, current=window)
            after, geometry = self._given(coming, self._rule.num_final(window.num_placed))
            yield Look(geometry, look.num_kept, (partial(self._clock.become_with, after), *look.parts))

    @contextmanager
    def look_last(self, frame: Frame, timestamp_s: float | None = None) -> Iterator[Look]:
        """Of this frame, with which its window ends; the next one shares nothing with it."""
        clock, timestamp_s = self._ready_for(frame, timestamp_s)
        with self._session.look_ending(frame, timestamp_s, first_frame=0) as look:
            window = clock.current.received(look, self._alignment, num_new=1)
            after, geometry = self._given(replace(clock, current=window), window.num_placed)
            yield Look(geometry, look.num_kept, (partial(self._clock.become_with, after.broken_off()), *look.parts))

    @contextmanager
    def look_at_rest(self) -> Iterator[Look]:
        """Of what waits; all results given are final then."""
        clock = self._clock.value
        if self._is_full(clock.current):  # nothing waits but what a failed start of the next has left
            after, geometry = self._given(clock, clock.current.num_placed)
            yield Look(geometry, clock.current.num_kept, (partial(self._clock.become_with, after),))
            return
        with self._session.look_at_rest() as look:
            window = clock.current.received(look, self._alignment, num_new=0)
            after, geometry = self._given(replace(clock, current=window), window.num_placed)
            yield Look(geometry, look.num_kept, (partial(self._clock.become_with, after), *look.parts))

    def fork(self) -> "WindowedSession":
        """A session that goes on from here on its own; end it with `close`."""
        branch = copy.copy(self)
        branch._session, branch._clock = self._session.fork(), Changing(self._clock.value)
        return branch

    def hold(self) -> "WindowedSession | None":
        """This session as it is now, for `as_file` alone, while it goes on; end it with `close`."""
        session = self._session.hold()
        if session is None:
            return None
        held = copy.copy(self)
        held._session, held._clock = session, Changing(self._clock.value)
        return held

    def close(self) -> None:
        """End the session; a fork gives its slots back."""
        self._session.close()

    def as_file(
        self, *, fit: str | None = None, source_size: tuple[int, int] | None = None, judged: Judged = UNJUDGED
    ) -> TensorFile:
        """All that is needed to go on in another process."""
        clock, window = self._clock.value, self._clock.value.current
        tensors = {**self._session.contents(), **_span_pieces(self.windows)}
        for index, (frame, _) in enumerate(clock.recent):
            tensors[f"windowed.recent.{index}"] = Pieces.of(frame)
        for name, parts in window.parts().items():
            tensors |= frame_pieces(f"windowed.{name}", parts)
        windowed = WindowedRecord(
            windows=self._windows,
            alignment=self._alignment,
            num_kept=window.num_kept,
            num_released=window.num_released,
            num_given=window.num_given,
            num_corrections=clock.num_corrections,
            recent_timestamps_s=tuple(timestamp_s for _, timestamp_s in clock.recent),
            **{name: FramesRecord.of(parts) for name, parts in window.parts().items()},
        )
        record = replace(self._session.record(), windowed=windowed, fit=fit, source_size=source_size, judged=judged)
        return TensorFile(tensors, record.to_dict())

    @classmethod
    def resume(cls, path: Path, model: GeometryModel, backend: Backend | None = None) -> "WindowedSession":
        """Go on where `save` was called, with the same weights; bit-identical on the same backend."""
        saved = SavedTensors(path)
        record = SessionRecord.from_dict(saved.record)
        if record.windowed is None:
            raise SavedSessionError(
                f"{path} is a saved session without windows; resume it with `resume_session` or "
                "`SequenceSession.resume`."
            )
        return cls.restored(saved, record, model, backend)

    @classmethod
    def restored(
        cls, saved: SavedTensors, record: SessionRecord, model: GeometryModel, backend: Backend | None
    ) -> "WindowedSession":
        """The session that an opened file tells of."""
        windowed = record.windowed
        assert windowed is not None
        inner = SequenceSession.restored(saved, record, model, backend)
        session = cls(inner, windowed.windows, windowed.alignment)
        *ended, current = _read_spans(saved)
        session._clock.become(
            _Clock(
                current=_Window.restored(current, windowed, saved, record.size, inner.device),
                ended=tuple(ended),
                recent=tuple(
                    (saved.read(f"windowed.recent.{index}", None, (3, *record.size)).clone(), timestamp_s)
                    for index, timestamp_s in enumerate(windowed.recent_timestamps_s)
                ),
                num_corrections=windowed.num_corrections,
            )
        )
        return session

    def _ready_for(self, frame: Frame, timestamp_s: float | None) -> tuple["_Clock", float]:
        """The clock in a window with room for a frame that can be taken, and the frame's time."""
        self._session.check(frame)
        if self._is_full(self._clock.value.current):
            self._begin_window()
        window = self._clock.value.current
        index = window.first_frame + window.num_frames
        return self._clock.value, float(index) if timestamp_s is None else timestamp_s

    def _begin_window(self) -> None:
        """Look again at the frames the next window shares; if that fails the next step tries again."""
        clock, ended = self._clock.value, self._clock.value.current
        num_shared = self._rule.num_shared(ended.num_frames)
        if len(ended.held) < num_shared:
            raise InputError(
                "This session was finished, and results that the next window would replace were given out; "
                "open a new session for more frames."
            )
        window = _Window(
            index=ended.index + 1,
            first_frame=ended.first_frame + ended.num_frames - num_shared,
            shared=Geometry.join(ended.held[len(ended.held) - num_shared :]),
            world_from_window=ended.world_from_window,
        )
        self._session.clear()
        for frame, timestamp_s in clock.recent[len(clock.recent) - num_shared :]:
            with self._session.look(frame, timestamp_s) as look:
                window = window.received(look, self._alignment, num_new=1)
                look.take()
        self._clock.become(replace(clock, ended=(*clock.ended, ended.span), current=window))

    def _is_full(self, window: "_Window") -> bool:
        return self._rule.is_full(num_frames=window.num_frames, num_kept=window.num_kept)

    def _given(self, clock: "_Clock", num_final: int) -> tuple["_Clock", Geometry]:
        """The clock once all placed results were given, and those not given yet.

        Results of frames that the window before had answered are a correction.
        """
        window, num_corrections = clock.current, clock.num_corrections
        again, new = _split(window.not_given(num_final), window.first_new_frame)
        geometry = Geometry.join(new) if new else self._session.nothing()
        if again:
            num_corrections += 1
            geometry = replace(geometry, moved=_correction(window, Geometry.join(again), num_corrections))
        return replace(clock, current=window.given(num_final), num_corrections=num_corrections), geometry


@dataclass(frozen=True, slots=True, kw_only=True)
class _Clock:
    """How far a session of windows has come; replaced as a whole."""

    current: "_Window"
    ended: tuple[WindowSpan, ...] = ()
    recent: tuple[tuple[Frame, float], ...] = ()
    """The last frames and their times, as many as windows share."""
    num_corrections: int = 0

    def broken_off(self) -> "_Clock":
        """With the current window over and one after it that shares nothing with it.

        A window of one frame counts to the one before it, so that frames which are looked at alone, for however long,
        take no room.
        """
        last, ended = self.current.span, self.ended
        if ended and last.num_frames == 1:
            ended = (*ended[:-1], replace(ended[-1], num_frames=ended[-1].num_frames + 1))
        else:
            ended = (*ended, last)
        following = _Window(
            index=len(ended),
            first_frame=last.first_frame + last.num_frames,
            world_from_window=Similarity.identity(self.current.world_from_window.scale.device),
        )
        return _Clock(current=following, ended=ended, num_corrections=self.num_corrections)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Window:
    """How far one window has come."""

    world_from_window: Similarity
    index: int = 0
    first_frame: int = 0
    shared: Geometry | None = None
    """Results of the frames shared with the window before, in the world; None in the first window."""
    num_frames: int = 0
    num_kept: int = 0
    num_released: int = 0
    """Results that were given and are final, and so are not held any more."""
    num_given: int = 0
    unplaced: tuple[Geometry, ...] = ()
    """Results that come before all shared frames have been looked at again."""
    held: tuple[Geometry, ...] = ()
    """Placed results that were not given yet, or that the next window may replace, a frame each."""

    @property
    def num_placed(self) -> int:
        return self.num_released + len(self.held)

    @property
    def first_new_frame(self) -> int:
        """The first frame that the window before had not answered."""
        return self.first_frame + (0 if self.shared is None else len(self.shared))

    @classmethod
    def restored(
        cls,
        span: WindowSpan,
        record: WindowedRecord,
        saved: SavedTensors,
        size: tuple[int, int],
        device: torch.device,
    ) -> "_Window":
        """The window of this span, with the frames of this size that `parts` gave."""
        shared, unplaced, held = (
            frames.parts(saved, f"windowed.{name}", size, device)
            for name, frames in (("shared", record.shared), ("unplaced", record.unplaced), ("held", record.held))
        )
        num_placed = record.num_released + len(record.held.frame_index)
        if (
            span.num_shared != len(record.shared.frame_index)
            or not record.num_released <= record.num_given <= num_placed
        ):
            raise SavedSessionError("The saved session's current window does not fit its frames; save it again.")
        return cls(
            index=span.index,
            first_frame=span.first_frame,
            shared=shared[0] if shared else None,
            world_from_window=span.world_from_window.to(device),
            num_frames=span.num_frames,
            num_kept=record.num_kept,
            num_released=record.num_released,
            num_given=record.num_given,
            unplaced=tuple(unplaced),
            held=tuple(frame for part in held for frame in _single_frames(part)),
        )

    def parts(self) -> dict[str, Sequence[Geometry]]:
        """The frames to be saved with this window."""
        return {"shared": [] if self.shared is None else [self.shared], "unplaced": self.unplaced, "held": self.held}

    def received(self, look: Look, alignment: Alignment, *, num_new: int) -> "_Window":
        """With what a look at so many more of its frames has made known."""
        window = replace(self, num_frames=self.num_frames + num_new, num_kept=look.num_kept)
        answered = look.geometry
        if not len(answered):
            return window
        in_video = replace(
            answered,
            frame_index=tuple(self.first_frame + frame for frame in answered.frame_index),
            window=(self.index,) * len(answered),
        )
        return window._placed(in_video, alignment)

    def _placed(self, geometry: Geometry, alignment: Alignment) -> "_Window":
        """With frames moved into the world; in a later window, once all shared frames have been looked at again."""
        if self.shared is None:
            return replace(self, held=(*self.held, *_single_frames(geometry)))
        unplaced, world_from_window = (*self.unplaced, geometry), self.world_from_window
        raw = Geometry.join(unplaced)
        if self.num_placed == 0:
            num_shared = len(self.shared)
            if len(raw) < num_shared:
                return replace(self, unplaced=unplaced)
            world_from_window = alignment.align(self.shared, raw.frames(0, num_shared))
        held = (*self.held, *_single_frames(place(raw, world_from_window)))
        return replace(self, world_from_window=world_from_window, unplaced=(), held=held)

    def not_given(self, num_final: int) -> list[Geometry]:
        """Placed results that were not given yet; of the window's results so many, from its start, are final."""
        return [
            replace(result, provisional=(place >= num_final,))
            for place, result in enumerate(self.held, start=self.num_released)
            if place >= self.num_given
        ]

    def given(self, num_final: int) -> "_Window":
        """Once all that are placed were given; the final ones need not be held any more."""
        num_leaving = min(len(self.held), max(0, num_final - self.num_released))
        return replace(
            self,
            num_given=self.num_placed,
            num_released=self.num_released + num_leaving,
            held=self.held[num_leaving:],
        )

    @property
    def span(self) -> WindowSpan:
        return WindowSpan(
            index=self.index,
            first_frame=self.first_frame,
            num_frames=self.num_frames,
            num_shared=0 if self.shared is None else len(self.shared),
            numbers=self.world_from_window.numbers(),
        )


def _correction(window: _Window, now: Geometry, version: int) -> Moved:
    assert window.shared is not None
    first = now.frame_index[0] - window.shared.frame_index[0]
    before = window.shared.frames(first, first + len(now))
    moved = MovedSpan(
        first_frame=now.frame_index[0],
        last_frame=now.frame_index[-1],
        now_from_before=_BETWEEN_VERSIONS.align(now, before).matrix,
    )
    return Moved(version=version, spans=(moved,), geometry=now)


def _split(frames: Sequence[Geometry], first_new: int) -> tuple[list[Geometry], list[Geometry]]:
    """Results of single frames before and from an index on."""
    return [one for one in frames if one.frame_index[0] < first_new], [
        one for one in frames if one.frame_index[0] >= first_new
    ]


def _single_frames(geometry: Geometry) -> list[Geometry]:
    return [geometry.frames(index, index + 1) for index in range(len(geometry))]


def _span_pieces(spans: Sequence[WindowSpan]) -> dict[str, Pieces]:
    counts = [(span.first_frame, span.num_frames, span.num_shared) for span in spans]
    worlds = [span.world_from_window for span in spans]
    return {
        "windowed.spans": Pieces.of(torch.tensor(counts)),
        "windowed.scale": Pieces.of(torch.stack([world.scale for world in worlds])),
        "windowed.rotation": Pieces.of(torch.stack([world.rotation for world in worlds])),
        "windowed.translation": Pieces.of(torch.stack([world.translation for world in worlds])),
    }


def _read_spans(saved: SavedTensors) -> list[WindowSpan]:
    counts = saved.read("windowed.spans", torch.int64, (None, 3)).tolist()
    scale = saved.read("windowed.scale", None, (len(counts),))
    rotation = saved.read("windowed.rotation", None, (len(counts), 3, 3))
    translation = saved.read("windowed.translation", None, (len(counts), 3))
    if not counts or min(map(min, counts)) < 0:
        raise SavedSessionError("The saved session has no windows, or windows before its first frame; save it again.")
    return [
        WindowSpan(
            index=index,
            first_frame=first_frame,
            num_frames=num_frames,
            num_shared=num_shared,
            numbers=Similarity(scale[index], rotation[index], translation[index]).numbers(),
        )
        for index, (first_frame, num_frames, num_shared) in enumerate(counts)
    ]


def resume_session(path: Path, model: GeometryModel, backend: Backend | None = None) -> VideoSession:
    """Go on with a saved session, with or without windows; one with loops is for `longtake.places.build`."""
    saved = SavedTensors(path)
    record = SessionRecord.from_dict(saved.record)
    if record.loops is not None:
        raise SavedSessionError(f"{path} is a saved session with loops; resume it with `places.build.resume_session`.")
    return restored_session(saved, record, model, backend)


def restored_session(
    saved: SavedTensors, record: SessionRecord, model: GeometryModel, backend: Backend | None = None
) -> VideoSession:
    """The session of a file that is open already."""
    kind = SequenceSession if record.windowed is None else WindowedSession
    return kind.restored(saved, record, model, backend)
