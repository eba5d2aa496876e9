"""Geometry and questions side by side: one `step` feeds both, and an answer knows where the camera was."""

import math
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType

from jaxtyping import Float
from torch import Tensor

from longtake.api.arguments import checked_arguments, memory_bytes
from longtake.api.camera_trail import CameraTrail
from longtake.api.dialogue_session import DialogueSession
from longtake.api.geometry_session import GeometrySession
from longtake.api.live_folder import read_live_folder, write_live_folder
from longtake.api.pictures import Picture, missing_time, time_of
from longtake.api.shared_memory import SharedMemory
from longtake.api.single import Single
from longtake.api.snapshot import SessionSnapshot
from longtake.errors import SettingError
from longtake.geometry.model import GeometryModel
from longtake.hub.bundled import DEFAULT_LANGUAGE, DEFAULT_MODEL
from longtake.language.load import LanguageModel
from longtake.memory.change import Changing, Part, change_together
from longtake.memory.saved import TensorFile
from longtake.runtime.answers import Answer
from longtake.runtime.execution import AUTO
from longtake.types import Geometry


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Moment:
    """A span of the video that an answer attended to, and the camera pose then."""

    start_s: float
    end_s: float
    weight: float
    """Its share of the attention that went to all moments given."""
    world_from_camera: Float[Tensor, "4 4"] | None
    """Of the last frame in the span; None where its pose was not known yet."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LiveAnswer:
    """An answer, the moments of the video that it attended to, and where the camera is."""

    text: str
    evidence: tuple[Moment, ...]
    """Strongest first."""
    world_from_camera: Float[Tensor, "4 4"] | None
    """Where the camera is now: of the newest frame with a pose."""
    answer: Answer
    """All that the dialogue says of it."""


@dataclass(frozen=True, slots=True)
class LiveSnapshot:
    """All that `LiveSession.save` writes, as it was at a moment."""

    map: SessionSnapshot
    dialogue: TensorFile
    trail: CameraTrail

    def save(self, folder: str | Path) -> None:
        """As the session would have been then."""
        write_live_folder(Path(folder), self.map.save, self.dialogue.save, self.trail)


class LiveSession(Single):
    """One video, mapped and asked about.

    with longtake.LiveSession.from_pretrained(map="micro-map", ask="micro-vqa", memory="200MB") as both:
        for frame in longtake.open_video("world:9?frames=60"):
            geometry = both.step(frame)
        answer = both.ask("Where is the red ball now?")
        print(answer.text, answer.evidence, answer.world_from_camera)
    """

    def __init__(
        self,
        mapping: GeometrySession,
        dialogue: DialogueSession,
        *,
        ask_fps: float = 2.0,
        shared: SharedMemory | None = None,
    ) -> None:
        """On two sessions that were opened already; they are closed with this one.

        `shared` is the memory of both where they have parts of one.
        """
        if not 0 < ask_fps < math.inf:
            raise SettingError(f"Expected more than 0 frames a second for the dialogue, but got {ask_fps:g}.")
        self._map, self._dialogue, self._trail = mapping, dialogue, Changing(CameraTrail(ask_fps))
        self._shared = shared

    @classmethod
    @checked_arguments
    def from_pretrained(
        cls,
        *,
        map: str | Path | GeometryModel = DEFAULT_MODEL,
        ask: str | Path | LanguageModel = DEFAULT_LANGUAGE,
        memory: str | int = "1GB",
        share: float = 0.5,
        ask_fps: float = 2.0,
        policy: str | None = None,
        ask_policy: str = "window",
        loops: bool = True,
        max_tokens: int = 64,
        reserve_frames: int = 0,
        reserve_tokens: int = 0,
        device: str = AUTO,
        precision: str = AUTO,
        backend: str = AUTO,
    ) -> "LiveSession":
        """Both sessions on models by name; `share` of the memory is the map's, the rest the dialogue's.

        The dialogue sees at most `ask_fps` frames a second, the map all. Policies and `loops` are those of `longtake
        live`. Of the memory `reserve_frames` and `reserve_tokens` are left free for forks.
        """
        shared = SharedMemory(num_bytes=memory_bytes(memory), share=share)
        mapping = GeometrySession.from_pretrained(
            map,
            memory=shared.map_bytes,
            policy=policy,
            loops=loops,
            reserve_frames=reserve_frames,
            device=device,
            precision=precision,
            backend=backend,
        )
        with shared.naming_whole_for_dialogue():
            dialogue = DialogueSession.from_pretrained(
                ask,
                memory=shared.dialogue_bytes,
                policy=ask_policy,
                max_tokens=max_tokens,
                reserve_tokens=reserve_tokens,
                device=device,
                precision=precision,
                backend=backend,
            )
        return cls(mapping, dialogue, ask_fps=ask_fps, shared=shared)

    @property
    def map(self) -> GeometrySession:
        return self._map

    @property
    def dialogue(self) -> DialogueSession:
        return self._dialogue

    def step(self, picture: Picture, timestamp_s: float | None = None) -> Geometry:
        """Take the next picture: the map sees every one, the dialogue at most `ask_fps` a second."""
        time_s = time_of(picture, timestamp_s)
        if time_s is None:
            raise missing_time(picture, "step(picture, 0.5)")
        trail = self._trail.value
        trail.require_later(time_s)
        with nullcontext() if self._shared is None else self._shared.naming_whole_for_map():
            ready = self._map._ready(picture, time_s)
        writing: AbstractContextManager[object] = nullcontext()
        seen: AbstractContextManager[Sequence[Part]] = nullcontext(())
        if trail.is_due(time_s):
            writing, seen = self._dialogue._writing(), self._dialogue._look(picture, time_s)
        # what either session refuses, neither has seen: each looks, then both change at once
        with self._map._look(ready) as look, writing, seen as parts:
            after = trail.after(time_s, look.geometry)
            change_together(*parts, partial(self._trail.become_with, after), *look.parts)
        return look.geometry

    @checked_arguments
    def ask(self, question: str, *, temperature: float = 0.0, max_tokens: int | None = None) -> LiveAnswer:
        """The answer, the moments that it attended to, and the camera's poses then and now."""
        return _placed(self._dialogue.ask(question, temperature=temperature, max_tokens=max_tokens), self._trail.value)

    def ask_stream(
        self, question: str, *, temperature: float = 0.0, max_tokens: int | None = None
    ) -> Iterator[str | LiveAnswer]:
        """Text as it comes, and last the answer, about the moment of the first piece whatever frames come in between.

        Leaving early leaves no trace.
        """
        trail = self._trail.value
        for piece in self._dialogue.ask_stream(question, temperature=temperature, max_tokens=max_tokens):
            yield piece if isinstance(piece, str) else _placed(piece, trail)

    @checked_arguments
    def ask_together(
        self, questions: Sequence[str], *, temperature: float = 0.0, max_tokens: int | None = None
    ) -> list[LiveAnswer]:
        """The same for several questions about the same moment, as `DialogueSession.ask_together` answers them."""
        answers = self._dialogue.ask_together(questions, temperature=temperature, max_tokens=max_tokens)
        return [_placed(answer, self._trail.value) for answer in answers]

    def finish(self) -> Geometry:
        """The remaining results of the map when no more pictures come."""
        with self._map._look_at_rest() as look:
            after = self._trail.value.with_poses(look.geometry)
            change_together(partial(self._trail.become_with, after), *look.parts)
        return look.geometry

    def fork(self) -> "LiveSession":
        """A session that goes on from here on its own; end it with `close`."""
        branch = LiveSession(
            self._map.fork(), self._dialogue.fork(), ask_fps=self._trail.value.fps, shared=self._shared
        )
        branch._trail.become(self._trail.value)
        return branch

    @checked_arguments
    def save(self, folder: str | Path) -> None:
        """Write both sessions and the poses of what the dialogue saw into a folder.

        An earlier save in it stays whole, and is the one that `resume` reads, until this one is complete.
        """
        write_live_folder(Path(folder), self._map.save, self._dialogue.save, self._trail.value)

    def snapshot(self) -> LiveSnapshot:
        """All that `save` writes, as it is now; its own `save` may be called at any time, in any thread."""
        return LiveSnapshot(self._map.snapshot(), self._dialogue.snapshot(), self._trail.value)

    @classmethod
    @checked_arguments
    def resume(
        cls,
        folder: str | Path,
        *,
        map: str | Path | GeometryModel = DEFAULT_MODEL,
        ask: str | Path | LanguageModel = DEFAULT_LANGUAGE,
        max_tokens: int = 64,
        device: str = AUTO,
        backend: str = AUTO,
    ) -> "LiveSession":
        """Go on where `save` was called, with the same models."""
        files, trail = read_live_folder(Path(folder))
        mapping = GeometrySession.resume(files.map, map, device=device, backend=backend)
        dialogue = DialogueSession.resume(files.dialogue, ask, max_tokens=max_tokens, device=device, backend=backend)
        session = cls(mapping, dialogue)
        session._trail.become(trail)
        return session

    def close(self) -> None:
        """End both sessions; ending twice is fine."""
        self._map.close()
        self._dialogue.close()

    def __enter__(self) -> "LiveSession":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def num_bytes(self) -> int:
        """Bytes of all keys and values of both sessions."""
        return self._map.num_bytes + self._dialogue.num_bytes


def _placed(answer: Answer, trail: CameraTrail) -> LiveAnswer:
    """With where the camera was when, and is."""
    moments = tuple(
        Moment(
            start_s=span.start_s,
            end_s=span.end_s,
            weight=span.weight,
            world_from_camera=trail.pose_between(span.start_s, span.end_s),
        )
        for span in answer.evidence
    )
    return LiveAnswer(text=answer.text, evidence=moments, world_from_camera=trail.newest, answer=answer)
