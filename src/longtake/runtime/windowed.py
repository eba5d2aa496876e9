"""A session of windows: each is a fresh sequence, moved into the first one's world by the frames it shares with it."""

import copy
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from longtake.attention.backend import Backend
from longtake.errors import InputError, SavedSessionError
from longtake.geometry.model import GeometryModel
from longtake.memory.saved import Pieces, SavedTensors, write_tensors
from longtake.runtime.alignment import Alignment, Anchoring, place
from longtake.runtime.record import FramesRecord, SessionRecord, WindowedRecord, frame_pieces
from longtake.runtime.session import SequenceSession
from longtake.runtime.steps import Frame, VideoSession
from longtake.runtime.windows import WindowRule, Windows
from longtake.spatial.similarity import Similarity
from longtake.types import Geometry, Moved, MovedSpan

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
        self._recent: deque[tuple[Frame, float]] = deque(maxlen=self._rule.overlap)
        self._ended: list[WindowSpan] = []
        self._num_corrections = 0
        self._current = _Window(first_frame=0, shared=None, world_from_window=Similarity.identity(session.device))

    @property
    def session(self) -> SequenceSession:
        """The session that looks at the current window."""
        return self._session

    @property
    def windows(self) -> tuple[WindowSpan, ...]:
        """All windows so far, the current one last."""
        return (*self._ended, self._current.span(len(self._ended)))

    @property
    def num_final(self) -> int:
        """Those given that the next window will not begin with."""
        return self._current.first_frame + self._current.num_released

    @property
    def provisional(self) -> Geometry:
        """The results given that the next window may look at again, or that this one has not placed yet."""
        window = self._current
        if window.shared is not None and not window.num_given:
            return window.shared
        given = window.held[: window.num_given - window.num_released]
        return Geometry.join(given) if given else self._session.nothing()

    def step(self, frame: Frame, timestamp_s: float | None = None) -> Geometry:
        """Take the next frame and return its result, and what frames became that a new window looked at again."""
        self._session.check(frame)
        window = self._current
        if self._is_full(window):
            window = self._next_window()
        index = window.first_frame + window.num_frames
        timestamp_s = float(index) if timestamp_s is None else timestamp_s
        answered = self._session.step(frame, timestamp_s)
        self._recent.append((frame.clone(), timestamp_s))
        self._receive(window, answered, num_new=1)
        return self._give(window, self._rule.num_final(window.num_placed))

    def finish(self) -> Geometry:
        """Answer what waits; all results given are final then."""
        window = self._current
        if not self._is_full(window):  # in a full one nothing waits but what a failed start of the next has left
            self._receive(window, self._session.finish(), num_new=0)
        return self._give(window, window.num_placed)

    def fork(self) -> "WindowedSession":
        """A session that goes on from here on its own; end it with `close`."""
        branch = copy.copy(self)
        branch._session = self._session.fork()
        branch._recent, branch._ended = self._recent.copy(), self._ended.copy()
        branch._current = self._current.copy()
        return branch

    def close(self) -> None:
        """End the session; a fork gives its slots back."""
        self._session.close()

    def save(self, path: Path, *, fit: str | None = None) -> None:
        """Write all that is needed to go on in another process; the file is complete or absent."""
        window = self._current
        tensors = {**self._session.contents(), **_span_pieces(self.windows)}
        for index, (frame, _) in enumerate(self._recent):
            tensors[f"windowed.recent.{index}"] = Pieces.of(frame)
        for name, parts in window.parts().items():
            tensors |= frame_pieces(f"windowed.{name}", parts)
        windowed = WindowedRecord(
            windows=self._windows,
            alignment=self._alignment,
            num_kept=window.num_kept,
            num_released=window.num_released,
            num_given=window.num_given,
            num_corrections=self._num_corrections,
            recent_timestamps_s=tuple(timestamp_s for _, timestamp_s in self._recent),
            **{name: FramesRecord.of(parts) for name, parts in window.parts().items()},
        )
        write_tensors(path, tensors, replace(self._session.record(), windowed=windowed, fit=fit).to_dict())

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
        session._num_corrections = windowed.num_corrections
        for index, timestamp_s in enumerate(windowed.recent_timestamps_s):
            session._recent.append((saved[f"windowed.recent.{index}"].clone(), timestamp_s))
        *session._ended, current = _read_spans(saved)
        session._current = _Window.restored(current, windowed, saved, inner.device)
        return session

    def _next_window(self) -> "_Window":
        """Look again at the frames the next window shares; if that fails the next step tries again."""
        ended = self._current
        num_shared = self._rule.num_shared(ended.num_frames)
        if len(ended.held) < num_shared:
            raise InputError(
                "This session was finished, and results that the next window would replace were given out; "
                "open a new session for more frames."
            )
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

    def _is_full(self, window: "_Window") -> bool:
        return self._rule.is_full(num_frames=window.num_frames, num_kept=window.num_kept)

    def _receive(self, window: "_Window", answered: Geometry, *, num_new: int) -> None:
        window.num_frames += num_new
        window.num_kept = self._session.num_kept
        if len(answered):
            window.place(self._in_video(window, answered), self._alignment)

    def _give(self, window: "_Window", num_final: int) -> Geometry:
        """Results placed since the last step; those of frames that the window before had answered are a correction."""
        again, new = _split(window.not_given(num_final), window.first_new_frame)
        geometry = Geometry.join(new) if new else self._session.nothing()
        if again:
            geometry = replace(geometry, moved=self._correction(window, Geometry.join(again)))
            self._num_corrections += 1
        window.mark_given(num_final)
        return geometry

    def _correction(self, window: "_Window", now: Geometry) -> Moved:
        assert window.shared is not None
        first = now.frame_index[0] - window.shared.frame_index[0]
        before = window.shared.frames(first, first + len(now))
        moved = MovedSpan(
            first_frame=now.frame_index[0],
            last_frame=now.frame_index[-1],
            now_from_before=_BETWEEN_VERSIONS.align(now, before).matrix,
        )
        return Moved(version=self._num_corrections + 1, spans=(moved,), geometry=now)

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
    num_released: int = 0
    """Results that were given and are final, and so are not held any more."""
    num_given: int = 0
    unplaced: list[Geometry] = field(default_factory=list)
    held: list[Geometry] = field(default_factory=list)
    """Placed results that were not given yet, or that the next window may replace, a frame each."""

    @property
    def num_placed(self) -> int:
        return self.num_released + len(self.held)

    @property
    def first_new_frame(self) -> int:
        """The first frame that the window before had not answered."""
        return self.first_frame + (0 if self.shared is None else len(self.shared))

    def copy(self) -> "_Window":
        return replace(self, unplaced=self.unplaced.copy(), held=self.held.copy())

    @classmethod
    def restored(cls, span: WindowSpan, record: WindowedRecord, saved: SavedTensors, device: torch.device) -> "_Window":
        """The window of this span, with the frames that `parts` gave."""
        shared, unplaced, held = (
            frames.parts(saved, f"windowed.{name}", device)
            for name, frames in (("shared", record.shared), ("unplaced", record.unplaced), ("held", record.held))
        )
        return cls(
            first_frame=span.first_frame,
            shared=shared[0] if shared else None,
            world_from_window=span.world_from_window.to(device),
            num_frames=span.num_frames,
            num_kept=record.num_kept,
            num_released=record.num_released,
            num_given=record.num_given,
            unplaced=unplaced,
            held=[frame for part in held for frame in _single_frames(part)],
        )

    def parts(self) -> dict[str, Sequence[Geometry]]:
        """The frames to be saved with this window."""
        return {"shared": [] if self.shared is None else [self.shared], "unplaced": self.unplaced, "held": self.held}

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

    def not_given(self, num_final: int) -> list[Geometry]:
        """Placed results that were not given yet; of the window's results so many, from its start, are final."""
        return [
            replace(result, provisional=(place >= num_final,))
            for place, result in enumerate(self.held, start=self.num_released)
            if place >= self.num_given
        ]

    def mark_given(self, num_final: int) -> None:
        """All that are placed were given; the final ones need not be held any more."""
        leaving = self.held[: max(0, num_final - self.num_released)]
        self.num_given = self.num_placed
        self.held, self.num_released = self.held[len(leaving) :], self.num_released + len(leaving)

    def span(self, index: int) -> WindowSpan:
        return WindowSpan(
            index=index,
            first_frame=self.first_frame,
            num_frames=self.num_frames,
            num_shared=0 if self.shared is None else len(self.shared),
            numbers=self.world_from_window.numbers(),
        )


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
    scale, rotation, translation = (saved[f"windowed.{name}"] for name in ("scale", "rotation", "translation"))
    return [
        WindowSpan(
            index=index,
            first_frame=first_frame,
            num_frames=num_frames,
            num_shared=num_shared,
            numbers=Similarity(scale[index], rotation[index], translation[index]).numbers(),
        )
        for index, (first_frame, num_frames, num_shared) in enumerate(saved["windowed.spans"].tolist())
    ]


def resume_session(path: Path, model: GeometryModel, backend: Backend | None = None) -> VideoSession:
    """Go on with a saved session, with or without windows."""
    saved = SavedTensors(path)
    record = SessionRecord.from_dict(saved.record)
    kind = SequenceSession if record.windowed is None else WindowedSession
    return kind.restored(saved, record, model, backend)
