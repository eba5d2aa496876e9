"""The three kinds of session in one shape: a map, a dialogue, or both, on the sessions that programs use."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Protocol, runtime_checkable

from longtake.api.dialogue_session import DialogueSession
from longtake.api.geometry_session import GeometrySession
from longtake.api.live_session import LiveAnswer, LiveSession
from longtake.api.pictures import Picture
from longtake.api.shared_memory import SharedMemory
from longtake.errors import BudgetError
from longtake.geometry.model import GeometryModel
from longtake.language.load import LanguageModel
from longtake.runtime.answers import Answer
from longtake.runtime.steps import LoopUse
from longtake.server.problems import RequestError
from longtake.server.spec import SessionSpec
from longtake.types import Geometry
from longtake.weights.familiarity import Familiarity

WriteFolder = Callable[[Path], None]
"""Writes into a folder of its own."""
_MAP_NAME, _DIALOGUE_NAME = "map.safetensors", "dialogue.safetensors"


@runtime_checkable
class Watcher(Protocol):
    """One video under way; whatever is refused leaves it as it was."""

    @property
    def num_bytes(self) -> int:
        """Of keys and values, now; a map's are known with its first frame."""

    @property
    def mapping(self) -> GeometrySession | None:
        """The session that maps, where there is one."""

    @property
    def dialogue(self) -> DialogueSession | None:
        """The session that answers, where there is one."""

    def step(self, picture: Picture, time_s: float) -> Geometry | None:
        """Take the next frame; None where nothing maps."""

    def ask(self, question: str, temperature: float, max_tokens: int | None) -> Iterator[str | Answer | LiveAnswer]:
        """Text as it comes, and last the answer."""

    def finish(self) -> Geometry | None:
        """The results still owed when no more frames come."""

    def snapshot(self) -> WriteFolder:
        """All that is needed to go on, as it is now; it can be written later, in any thread."""

    def close(self) -> None:
        """Let go of the memory."""


class MapWatcher:
    """A map alone."""

    def __init__(self, session: GeometrySession) -> None:
        self._session = session

    @property
    def num_bytes(self) -> int:
        return self._session.num_bytes

    @property
    def mapping(self) -> GeometrySession | None:
        return self._session

    @property
    def dialogue(self) -> DialogueSession | None:
        return None

    def step(self, picture: Picture, time_s: float) -> Geometry | None:
        return self._session.step(picture, time_s)

    def ask(self, question: str, temperature: float, max_tokens: int | None) -> Iterator[str | Answer | LiveAnswer]:
        del question, temperature, max_tokens
        raise RequestError("wrong_kind", "This session maps and has no language model; open one with both.", status=409)

    def finish(self) -> Geometry | None:
        return self._session.finish()

    def snapshot(self) -> WriteFolder:
        saved = self._session.snapshot()
        return lambda folder: saved.save(folder / _MAP_NAME)

    def close(self) -> None:
        self._session.close()


class DialogueWatcher:
    """Questions alone; every frame that comes is seen."""

    def __init__(self, session: DialogueSession) -> None:
        self._session = session

    @property
    def num_bytes(self) -> int:
        return self._session.num_bytes

    @property
    def mapping(self) -> GeometrySession | None:
        return None

    @property
    def dialogue(self) -> DialogueSession | None:
        return self._session

    def step(self, picture: Picture, time_s: float) -> Geometry | None:
        self._session.see(picture, time_s)
        return None

    def ask(self, question: str, temperature: float, max_tokens: int | None) -> Iterator[str | Answer | LiveAnswer]:
        return self._session.ask_stream(question, temperature=temperature, max_tokens=max_tokens)

    def finish(self) -> Geometry | None:
        return None

    def snapshot(self) -> WriteFolder:
        saved = self._session.snapshot()
        return lambda folder: saved.save(folder / _DIALOGUE_NAME)

    def close(self) -> None:
        self._session.close()


class LiveWatcher:
    """Both at once: answers know where the camera was."""

    def __init__(self, session: LiveSession) -> None:
        self._session = session

    @property
    def num_bytes(self) -> int:
        return self._session.num_bytes

    @property
    def mapping(self) -> GeometrySession | None:
        return self._session.map

    @property
    def dialogue(self) -> DialogueSession | None:
        return self._session.dialogue

    def step(self, picture: Picture, time_s: float) -> Geometry | None:
        return self._session.step(picture, time_s)

    def ask(self, question: str, temperature: float, max_tokens: int | None) -> Iterator[str | Answer | LiveAnswer]:
        return self._session.ask_stream(question, temperature=temperature, max_tokens=max_tokens)

    def finish(self) -> Geometry | None:
        return self._session.finish()

    def snapshot(self) -> WriteFolder:
        return self._session.snapshot().save

    def close(self) -> None:
        self._session.close()


def open_watcher(spec: SessionSpec, model: GeometryModel | None, language: LanguageModel | None) -> Watcher:
    """A watcher that has seen nothing."""
    if model is not None and language is not None:
        return LiveWatcher(
            LiveSession.from_pretrained(
                map=model,
                ask=language,
                memory=spec.memory_bytes,
                share=spec.share,
                ask_fps=spec.ask_fps,
                max_tokens=spec.max_tokens,
            )
        )
    if model is not None:
        return MapWatcher(GeometrySession.from_pretrained(model, memory=spec.memory_bytes))
    assert language is not None
    dialogue = DialogueSession.from_pretrained(language, memory=spec.memory_bytes, max_tokens=spec.max_tokens)
    return DialogueWatcher(dialogue)


def require_memory(spec: SessionSpec, model: GeometryModel | None, language: LanguageModel | None) -> None:
    """Refuse a memory with which no frame of a usual shape could be taken, naming the least that takes any."""
    shared = SharedMemory(num_bytes=spec.memory_bytes, share=spec.share)
    are_both = spec.model is not None and spec.language is not None
    too_small: list[BudgetError] = []
    if model is not None:
        with _noting(too_small), shared.naming_whole_for_map() if are_both else nullcontext():
            GeometrySession.from_pretrained(model, memory=spec.map_bytes).require_memory()
    if language is not None:
        own_bytes = shared.dialogue_bytes if are_both else spec.memory_bytes
        with _noting(too_small), shared.naming_whole_for_dialogue() if are_both else nullcontext():
            DialogueSession.from_pretrained(language, memory=own_bytes, max_tokens=spec.max_tokens).close()
    if too_small:
        raise max(too_small, key=lambda error: error.least_bytes or 0)


@contextmanager
def _noting(errors: list[BudgetError]) -> Iterator[None]:
    try:
        yield
    except BudgetError as error:
        errors.append(error)


def resume_watcher(
    spec: SessionSpec, model: GeometryModel | None, language: LanguageModel | None, folder: Path
) -> Watcher:
    """The watcher that was saved into this folder, to the bit."""
    if model is not None and language is not None:
        return LiveWatcher(LiveSession.resume(folder, map=model, ask=language, max_tokens=spec.max_tokens))
    if model is not None:
        return MapWatcher(GeometrySession.resume(folder / _MAP_NAME, model))
    assert language is not None
    return DialogueWatcher(DialogueSession.resume(folder / _DIALOGUE_NAME, language, max_tokens=spec.max_tokens))


def live_bytes(watcher: Watcher) -> int:
    """Of keys and values that are in use; on a GPU this waits for it."""
    mapping, dialogue = watcher.mapping, watcher.dialogue
    held = 0 if mapping is None else mapping.live_bytes
    return held + (0 if dialogue is None else dialogue.info.live_bytes)


def loop_use(watcher: Watcher) -> LoopUse | None:
    """What it has found of loops so far; None where places are not known again."""
    return None if watcher.mapping is None else watcher.mapping.info.loops


def judge_by(watcher: Watcher, model: Familiarity | None, language: Familiarity | None) -> None:
    """Let its sessions, which were given models and not their names, say how far a video is from what those know."""
    if watcher.mapping is not None:
        watcher.mapping.judge_by(model)
    if watcher.dialogue is not None:
        watcher.dialogue.judge_by(language)
