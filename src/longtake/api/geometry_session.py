"""The public session of geometry: any picture in, poses and depth out, the same as `map` writes."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TypeVar
from weakref import ref

import numpy as np
import torch

from longtake.api.arguments import checked_arguments, one_of
from longtake.api.models import loops_for, model_and_execution
from longtake.api.pictures import Picture, as_rgb, as_text, time_of
from longtake.api.single import Single
from longtake.api.snapshot import SessionSnapshot
from longtake.attention.backend import Backend
from longtake.attention.choose import backend_named
from longtake.errors import BudgetError, InputError, MemoryFullError, SavedSessionError, SettingError
from longtake.geometry.config import GeometryConfig
from longtake.geometry.model import GeometryModel
from longtake.hub.bundled import DEFAULT_MODEL
from longtake.hub.load import familiarity_of
from longtake.memory.budget import format_bytes
from longtake.memory.change import Changing
from longtake.memory.saved import SavedTensors, TensorFile
from longtake.pipeline.video_map import preprocessor
from longtake.places.build import restored_session, with_loops
from longtake.places.loop_choice import LoopChoice
from longtake.runtime.build import SessionSettings, adjusted_session, open_session, require_budget, usual_settings
from longtake.runtime.execution import AUTO, Precision
from longtake.runtime.record import SessionRecord
from longtake.runtime.steps import Look, LoopUse, VideoSession
from longtake.types import Geometry
from longtake.video.resize import Fit, Resized
from longtake.weights.familiarity import CLIP_FRAMES, FEWEST_FRAMES, UNJUDGED, Familiarity, Judged

_Result = TypeVar("_Result")
_USUAL_SHAPES = ((90, 160), (120, 160), (160, 160), (160, 90))
"""Heights and widths of what cameras give; of the square a network sees the most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionInfo:
    """What a session has seen and holds."""

    size: str | None
    """WIDTHxHEIGHT of what the network sees; None before the first frame."""
    num_frames: int
    num_kept: int
    """Frames remembered in the current window."""
    capacity: int | None
    """Frames with which its memory is full; None before the first frame, and where it grows until its budget is used
    up."""
    num_windows: int
    first_frame: int
    """Of the current window."""
    num_bytes: int
    """Declared for keys and values."""
    device: str
    loops: LoopUse | None = None
    """Loops that were closed and what that holds beside keys and values; None where none are, and before the first
    frame."""


@dataclass(frozen=True, slots=True)
class _Ready:
    """A picture that was found fit, and the session that will take it."""

    session: VideoSession
    seen: Resized
    source_size: tuple[int, int]
    time_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Clock:
    """How far a session has come; replaced as a whole."""

    session: VideoSession | None = None
    """None before the first frame."""
    source_size: tuple[int, int] | None = None
    seen: Resized | None = None
    num_frames: int = 0
    last_s: float | None = None
    judged: Judged = UNJUDGED
    """The first frames, by which the video is found like or unlike what the model knows."""


class GeometrySession(Single):
    """One video: pictures go in one by one, geometry comes out.

        with longtake.GeometrySession.from_pretrained("micro-map", memory="10MB") as session:
            for frame in longtake.open_video("world:9?frames=60"):
                geometry = session.step(frame)
                for index, pose in zip(geometry.frame_index, geometry.world_from_camera):
                    print(index, pose[:3, 3].tolist())
            geometry = session.finish()

    The memory is allocated with the first frame, whose size all others must have. What is refused leaves the session
    as it was.
    """

    def __init__(
        self,
        model: GeometryModel,
        settings: SessionSettings,
        *,
        fit: Fit = Fit.CROP,
        reserve_frames: int = 0,
        backend: Backend | None = None,
        familiarity: Familiarity | None = None,
        loops: LoopChoice | None = None,
    ) -> None:
        """Prefer `from_pretrained`, which takes names."""
        if reserve_frames < 0:
            raise SettingError(f"Expected reserve_frames of 0 or more, but got {reserve_frames}.")
        self._model, self._settings, self._backend = model, settings, backend
        self._reserve_frames, self._familiarity = reserve_frames, familiarity
        self._loops = loops or LoopChoice()
        self._prepare = preprocessor(settings, model.config, fit)
        self._clock = Changing(_Clock())
        self._is_closed = False
        self._stepping = threading.Lock()
        self._snapshots: list[ref[SessionSnapshot]] = []

    @classmethod
    @checked_arguments
    def from_pretrained(
        cls,
        model: str | Path | GeometryModel,
        *,
        memory: str | int | None = None,
        policy: str | None = None,
        keyframes: str | None = None,
        windows: str | None = None,
        align: str | None = None,
        loops: bool = True,
        size: int | None = None,
        fit: str = Fit.CROP.value,
        reserve_frames: int = 0,
        device: str = AUTO,
        precision: str = AUTO,
        backend: str = AUTO,
    ) -> "GeometrySession":
        """A session on a model by name, path or as `load_model` gave it; keywords as in `longtake.map`.

        `memory` is a budget such as "2GB" or "8 frames", `size` the longer side of what the network sees, in pixels.
        Where places are known again (`loops`, of a model by name that has a card of them), steps tell what earlier
        frames became as `moved`. `reserve_frames` is room for so many
        frames more, which a session and its forks need to go on side by side. A model that is loaded already stays on
        its device.
        """
        fitted = Fit(one_of("fit", fit, Fit))
        loaded, execution = model_and_execution(model, device, precision, backend)
        settings = adjusted_session(
            usual_settings(loaded.config),
            memory=memory,
            policy=policy,
            keyframes=keyframes,
            windows=windows,
            align=align,
            size=size,
            precision=execution.precision,
        )
        return cls(
            loaded,
            settings,
            fit=fitted,
            reserve_frames=reserve_frames,
            backend=backend_named(execution.backend),
            familiarity=None if isinstance(model, GeometryModel) else familiarity_of(model),
            loops=loops_for(model, are_wanted=loops),
        )

    def require_memory(self) -> None:
        """Refuse, before the first frame, a memory that could take no picture of a usual shape."""
        too_small: list[int] = []
        for height, width in _USUAL_SHAPES:
            _, *size = self._prepare(np.zeros((height, width, 3), np.uint8)).pixels.shape
            try:
                require_budget(self._model.config, self._settings, (size[0], size[1]))
            except BudgetError as error:
                too_small.append(error.least_bytes or 0)
        if len(too_small) == len(_USUAL_SHAPES):
            raise BudgetError(
                f"Expected a memory of at least {format_bytes(max(too_small))}, which takes pictures of any shape; "
                "give it that, or a smaller model.",
                least_bytes=max(too_small),
            )

    def step(self, picture: Picture, timestamp_s: float | None = None) -> Geometry:
        """Take the next picture and return what became known, of no, one or several frames.

        Any size will do; it is placed and scaled as `map` does. Without a time, a frame's index stands in for it.
        """
        with self._alone(), self._look(self._ready(picture, time_of(picture, timestamp_s))) as look:
            look.take()
        return look.geometry

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """While a step is under way, no other thread may begin one."""
        if not self._stepping.acquire(blocking=False):
            raise InputError(
                "Another thread is in a step of this session; a session takes one picture at a time: step from one "
                "thread, or give each its own session or fork."
            )
        try:
            yield
        finally:
            self._stepping.release()

    def _ready(self, picture: Picture, time_s: float | None) -> _Ready:
        """All of a step that may refuse a picture; changes nothing."""
        self._require_open()
        time_s = self._index_as_time() if time_s is None else time_s
        self._require_later(time_s)
        pixels = as_rgb(picture)
        height, width, _ = pixels.shape
        self._require_size((height, width))
        seen = self._prepare(pixels)
        session = self._clock.value.session
        if session is None:
            _, *size = seen.pixels.shape
            opened = open_session(
                self._model, self._settings, (size[0], size[1]), self._backend, reserve_frames=self._reserve_frames
            )
            session = with_loops(opened, self._loops.card, self._loops.rule)
        return _Ready(session, seen, (height, width), time_s)

    @contextmanager
    def _look(self, ready: _Ready) -> Iterator[Look]:
        """What a step would return, before the session has changed; leaving without `take` leaves no trace."""
        after = _Clock(
            session=ready.session,
            source_size=ready.source_size,
            seen=ready.seen,
            num_frames=self._clock.value.num_frames + 1,
            last_s=ready.time_s,
        )
        with ExitStack() as looking:
            look = self._with_room(lambda: looking.enter_context(ready.session.look(ready.seen.pixels, ready.time_s)))
            after = self._judged(after, look.geometry)
            yield replace(look, parts=(partial(self._clock.become_with, after), *look.parts))

    def _judged(self, clock: _Clock, geometry: Geometry) -> _Clock:
        """The clock once it is known what the next frames look like."""
        before = self._clock.value.judged
        missing = CLIP_FRAMES - before.number
        if self._familiarity is None or geometry.descriptor is None or not len(geometry) or missing <= 0:
            return replace(clock, judged=before)
        distances = self._familiarity.distances(geometry.descriptor[:missing].cpu())
        return replace(clock, judged=before.with_distances(distances))

    def finish(self) -> Geometry:
        """The remaining results when no more pictures come; those that were provisional are final then."""
        with self._look_at_rest() as look:
            look.take()
        return look.geometry

    @contextmanager
    def _look_at_rest(self) -> Iterator[Look]:
        """What `finish` would return, in the same way."""
        session = self._opened("finish")
        with ExitStack() as looking:
            yield self._with_room(lambda: looking.enter_context(session.look_at_rest()))

    def _with_room(self, work: Callable[[], _Result]) -> _Result:
        """Do this; where snapshots hold what should leave a full memory, once more when they have copies of it."""
        taken = [snapshot() for snapshot in tuple(self._snapshots)]
        holding = [snapshot for snapshot in taken if snapshot is not None and not snapshot.is_own]
        try:
            return work()
        except MemoryFullError:
            if not holding:
                raise
        for snapshot in holding:
            snapshot.own()
        return work()

    def fork(self) -> "GeometrySession":
        """A session that goes on from here on its own; end it with `close`.

            session = longtake.GeometrySession.from_pretrained("micro-map", reserve_frames=40)
            ...
            with session.fork() as branch:  # each may keep 20 more frames while both are open
                geometry = branch.step(frame)

        The two share the memory. While both are open, each frame that either keeps takes free room: that of a memory
        which is not full yet, then that of `reserve_frames`.
        """
        self._require_open()
        session = self._clock.value.session
        branch = GeometrySession(
            self._model,
            self._settings,
            fit=self._prepare.fit,
            reserve_frames=self._reserve_frames,
            backend=self._backend,
            familiarity=self._familiarity,
            loops=self._loops,
        )
        branch._clock.become(replace(self._clock.value, session=None if session is None else session.fork()))
        branch._snapshots = self._snapshots  # the memory that they hold is the same
        return branch

    @checked_arguments
    def save(self, path: str | Path) -> None:
        """Write all that is needed to go on in another process; the file is complete or absent."""
        self._filing()(self._opened("save")).save(path)

    def snapshot(self) -> SessionSnapshot:
        """All that `save` writes, as it is now; its own `save` may be called at any time, in any thread."""
        snapshot = SessionSnapshot(self._opened("save"), self._filing())
        self._snapshots[:] = [ref(snapshot), *(one for one in self._snapshots if one() is not None)]
        return snapshot

    @classmethod
    @checked_arguments
    def resume(
        cls,
        path: str | Path,
        model: str | Path | GeometryModel = DEFAULT_MODEL,
        *,
        fit: str | None = None,
        device: str = AUTO,
        backend: str = AUTO,
    ) -> "GeometrySession":
        """Go on where `save` was called, with the same model; to the bit on the same device and backend.

        The file holds all settings. Only those of earlier versions do not say their `fit`: give it if it was not crop.
        """
        saved = SavedTensors(Path(path))
        if saved.record.get("kind") == "dialogue":
            raise SavedSessionError(f"{path} is a saved dialogue; resume it with DialogueSession.resume.")
        record = SessionRecord.from_dict(saved.record)
        held = next((known for known in Precision if str(known.dtype) == record.compute_dtype), AUTO)
        fitted = _resumed_fit(fit, record.fit)
        loaded, execution = model_and_execution(model, device, held, backend)
        inner = restored_session(saved, record, loaded, None if backend == AUTO else backend_named(execution.backend))
        settings = _resumed_settings(loaded.config, inner.progress.size)
        known = None if isinstance(model, GeometryModel) else familiarity_of(model)
        session = cls(loaded, settings, fit=fitted, familiarity=known)
        session._clock.become(
            _Clock(
                session=inner,
                source_size=record.source_size,
                num_frames=inner.progress.num_frames,
                last_s=record.last_s,
                judged=record.judged,
            )
        )
        return session

    def close(self) -> None:
        """End the session and let go of its memory; ending twice is fine."""
        self._is_closed = True
        if self._clock.value.session is not None:
            self._clock.value.session.close()
        self._clock.become(replace(self._clock.value, session=None))

    def __enter__(self) -> "GeometrySession":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def model(self) -> GeometryModel:
        """The model, which other sessions can share."""
        return self._model

    def judge_by(self, familiarity: Familiarity | None) -> None:
        """Let these statistics say `unlikeness`, of a model that was given as it is and not by its name."""
        self._familiarity = familiarity

    def close_loops_by(self, loops: LoopChoice) -> None:
        """The same of loops, before the first frame; a session that is resumed closes those it was saved with."""
        if self._clock.value.session is None:
            self._loops = loops

    @property
    def num_judged(self) -> int:
        """Frames, of the first so many, by which `unlikeness` is judged."""
        return self._clock.value.judged.number

    @property
    def unlikeness(self) -> float | None:
        """How far the video's first frames are from what the model was trained on; above 1, it is unlike that.

        None before 8 frames were answered, and for a model of which nothing is known: of a name or a path, statistics
        lie beside the weights.
        """
        judged = self._clock.value.judged
        if self._familiarity is None or judged.number < FEWEST_FRAMES:
            return None
        return self._familiarity.unlikeness(judged.distance_sum / judged.number)

    @property
    def seen(self) -> Resized | None:
        """What the network saw of the newest picture, and where that lies in it; None before one came, and resumed."""
        return self._clock.value.seen

    @property
    def size(self) -> tuple[int, int] | None:
        """Height and width of what the network sees; None before the first frame."""
        session = self._clock.value.session
        return None if session is None else session.progress.size

    @property
    def num_final(self) -> int:
        """How many frames of the video, from its first on, have results that will not change."""
        session = self._clock.value.session
        return 0 if session is None else session.num_final

    @property
    def provisional(self) -> Geometry | None:
        """The results given so far that later frames may still move, as they are now; None before the first frame."""
        session = self._clock.value.session
        return None if session is None else session.provisional

    @property
    def num_bytes(self) -> int:
        """Bytes of all keys and values: allocated with the first frame, and never more."""
        return 0 if self._clock.value.session is None else self._clock.value.session.num_bytes

    @property
    def live_bytes(self) -> int:
        """Bytes of keys and values that are in use; on a GPU this waits for it."""
        session = self._clock.value.session
        return 0 if session is None else session.live_bytes

    @property
    def info(self) -> SessionInfo:
        session = self._clock.value.session
        progress = None if session is None else session.progress
        return SessionInfo(
            size=None if progress is None else as_text(progress.size),
            num_frames=self._clock.value.num_frames,
            num_kept=0 if progress is None else progress.num_kept,
            capacity=None if progress is None else progress.capacity,
            num_windows=1 if progress is None else progress.num_windows,
            first_frame=0 if progress is None else progress.first_frame,
            num_bytes=self.num_bytes,
            device=str(_device(self._model)),
            loops=None if progress is None else progress.loops,
        )

    def _require_open(self) -> None:
        if self._is_closed:
            raise InputError("This session was closed; open another with from_pretrained, or resume a saved one.")

    def _require_size(self, size: tuple[int, int]) -> None:
        first = self._clock.value.source_size
        if first is not None and size != first:
            raise InputError(
                f"Expected pictures of {as_text(first)} pixels as the first one, but got {as_text(size)}; "
                "resize it, or open another session."
            )

    def _index_as_time(self) -> float:
        """Of a picture without a time, where those before it had none either."""
        last_s, index = self._clock.value.last_s, self._clock.value.num_frames
        if last_s is not None and last_s != index - 1:
            raise InputError(
                f"Expected a time for this picture too, for the last one was at {last_s:g} s; give times for all or "
                "for none, as step(picture, seconds)."
            )
        return float(index)

    def _require_later(self, time_s: float) -> None:
        last_s = self._clock.value.last_s
        if last_s is not None and not time_s > last_s:
            raise InputError(
                f"Expected a picture after {last_s:g} s, but got one at {time_s:g} s; give them in order, with times "
                "for all or for none, or open another session."
            )

    def _filing(self) -> Callable[[VideoSession], TensorFile]:
        """Makes a file of the inner session as it is now."""
        clock, fit = self._clock.value, self._prepare.fit
        return lambda session: session.as_file(fit=fit, source_size=clock.source_size, judged=clock.judged)

    def _opened(self, purpose: str) -> VideoSession:
        self._require_open()
        if self._clock.value.session is None:
            raise InputError(f"There is nothing to {purpose} before the first frame; give one to step.")
        return self._clock.value.session


def _resumed_fit(asked: str | None, saved: str | None) -> Fit:
    """The fit that a file was saved with; another one is refused, and without one the fit asked for is taken."""
    if None not in (asked, saved) and asked != saved:
        raise SettingError(f"This session was saved with fit '{saved}', but got '{asked}'; leave it out.")
    return Fit(one_of("fit", saved or asked or Fit.CROP, Fit))


def _resumed_settings(config: GeometryConfig, size: tuple[int, int]) -> SessionSettings:
    """Those that make pictures of the height and width that a saved session takes."""
    usual = usual_settings(config)
    return replace(usual, sizes=(size,)) if size in usual.sizes else adjusted_session(usual, size=size[1])


def _device(model: GeometryModel) -> torch.device:
    return next(model.parameters()).device
