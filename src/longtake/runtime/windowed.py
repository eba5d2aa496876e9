"""A session of windows: each is a fresh sequence, moved into the first one's world by the frames it shares with it."""

from collections import deque
from dataclasses import dataclass, field, replace

from longtake.runtime.alignment import Alignment, place
from longtake.runtime.session import GeometrySession
from longtake.runtime.steps import Frame, VideoSession
from longtake.runtime.windows import WindowRule, Windows
from longtake.spatial.similarity import Similarity
from longtake.types import Geometry


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowSpan:
    """One window as it really was."""

    index: int
    first_frame: int
    num_frames: int
    """Frames looked at, those shared with the window before included."""
    num_shared: int
    """Frames shared with the window before."""
    world_from_window: Similarity
    """From this window's own frame into the world, which is the first window's frame."""


class WindowedSession(VideoSession):
    """Takes frames like a geometry session; results come as soon as no later window can replace them.

    Memory holds one window; beside it only the frames and results of one overlap.
    """

    def __init__(self, session: GeometrySession, windows: Windows, alignment: Alignment | None = None) -> None:
        self._session = session
        self._rule = WindowRule.of(windows, session.plan.num_scale_frames, session.keyframes)
        self._alignment = alignment or Alignment()
        self._recent: deque[tuple[Frame, float]] = deque(maxlen=self._rule.overlap)
        self._ended: list[WindowSpan] = []
        self._current = _Window(first_frame=0, shared=None, world_from_window=Similarity.identity(session.device))

    @property
    def session(self) -> GeometrySession:
        """The session that looks at the current window."""
        return self._session

    @property
    def windows(self) -> tuple[WindowSpan, ...]:
        """All windows so far, the current one last."""
        return (*self._ended, self._current.span(len(self._ended)))

    def step(self, frame: Frame, timestamp_s: float | None = None) -> Geometry:
        """Take the next frame and return the results that became final."""
        self._session.check(frame)
        window = self._current
        if self._rule.is_full(num_frames=window.num_frames, num_kept=window.num_kept):
            window = self._next_window()
        index = window.first_frame + window.num_frames
        timestamp_s = float(index) if timestamp_s is None else timestamp_s
        answered = self._session.step(frame, timestamp_s)
        self._recent.append((frame.clone(), timestamp_s))
        self._receive(window, answered, num_new=1)
        return window.emit(self._rule.num_final(window.num_placed), self._session.nothing())

    def finish(self) -> Geometry:
        """Answer what waits, and give the results that were held back in case another window came."""
        window = self._current
        self._receive(window, self._session.finish(), num_new=0)
        return window.emit(window.num_placed, self._session.nothing())

    def _next_window(self) -> "_Window":
        """Look again at the frames the next window shares; if that fails the next step tries again."""
        ended = self._current
        num_shared = self._rule.num_shared(ended.num_frames)
        window = _Window(
            first_frame=ended.first_frame + ended.num_frames - num_shared,
            shared=Geometry.join(ended.held[len(ended.held) - num_shared :]),
            world_from_window=ended.world_from_window,
        )
        self._session.clear()
        for frame, timestamp_s in list(self._recent)[len(self._recent) - num_shared :]:
            self._receive(window, self._session.step(frame, timestamp_s), num_new=1)
        self._ended.append(ended.span(len(self._ended)))
        self._current = window
        return window

    def _receive(self, window: "_Window", answered: Geometry, *, num_new: int) -> None:
        window.num_frames += num_new
        window.num_kept = self._session.num_kept
        if len(answered):
            window.place(self._in_video(window, answered), self._alignment)

    def _in_video(self, window: "_Window", geometry: Geometry) -> Geometry:
        """Frames counted from the start of the video."""
        index = len(self._ended) + int(window is not self._current)
        return replace(
            geometry,
            frame_index=tuple(window.first_frame + frame for frame in geometry.frame_index),
            window=(index,) * len(geometry),
        )


@dataclass(slots=True)
class _Window:
    """The running state of one window."""

    first_frame: int
    shared: Geometry | None
    """Results of the frames shared with the window before, in the world; None in the first window."""
    world_from_window: Similarity
    num_frames: int = 0
    num_kept: int = 0
    num_emitted: int = 0
    unplaced: list[Geometry] = field(default_factory=list)
    held: list[Geometry] = field(default_factory=list)
    """Placed results that were not emitted yet, a frame each."""

    @property
    def num_placed(self) -> int:
        return self.num_emitted + len(self.held)

    def place(self, geometry: Geometry, alignment: Alignment) -> None:
        """Move frames into the world; in a later window, once all shared frames have been looked at again."""
        if self.shared is None:
            self.held += _single_frames(geometry)
            return
        self.unplaced.append(geometry)
        raw = Geometry.join(self.unplaced)
        if self.num_placed == 0:
            num_shared = len(self.shared)
            if len(raw) < num_shared:
                return
            self.world_from_window = alignment.align(self.shared, raw.frames(0, num_shared))
        self.unplaced.clear()
        self.held += _single_frames(place(raw, self.world_from_window))

    def emit(self, num_final: int, nothing: Geometry) -> Geometry:
        """The results up to this one, counted from the window's start, that were not given out yet."""
        count = num_final - self.num_emitted
        if count <= 0:
            return nothing
        given, self.held = self.held[:count], self.held[count:]
        self.num_emitted += count
        return Geometry.join(given)

    def span(self, index: int) -> WindowSpan:
        return WindowSpan(
            index=index,
            first_frame=self.first_frame,
            num_frames=self.num_frames,
            num_shared=0 if self.shared is None else len(self.shared),
            world_from_window=self.world_from_window,
        )


def _single_frames(geometry: Geometry) -> list[Geometry]:
    return [geometry.frames(index, index + 1) for index in range(len(geometry))]
