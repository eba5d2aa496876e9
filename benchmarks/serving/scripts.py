"""What a client does from its first frame to its last answer, and all that it hears, to the bit: locally or served."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Protocol, runtime_checkable

import longtake
from longtake.api.live_session import LiveAnswer
from longtake.api.models import load_language_model
from longtake.language.load import LanguageModel
from longtake.runtime.answers import Answer
from longtake.server.client import RemoteSession
from longtake.server.results import answer_record, geometry_bytes
from longtake.types import Geometry
from longtake.video.frame import VideoFrame

QUESTION = "Where is the red ball now?"
WALK = "world:9?frames=24&size=126x98"
_MAP_BYTES, _ASK_BYTES, _BOTH_BYTES = 10_000_000, 20_000_000, 40_000_000
_SHARE, _ASK_FPS = 0.3, 5.0
_PATIENCE_S = 120.0
ONE_THREAD = {"OMP_NUM_THREADS": "1"}
"""Bits depend on the number of threads; a server whose bits are compared with ours has one, as we have."""


class Kind(StrEnum):
    """What a session is for."""

    MAP = "map"
    ASK = "ask"
    BOTH = "both"


@runtime_checkable
class Watching(Protocol):
    """A session, wherever it is."""

    def step(self, picture: VideoFrame) -> Geometry | None: ...

    def ask(self, question: str) -> Answer | LiveAnswer: ...


@dataclass(frozen=True, slots=True)
class Script:
    """Frames in order, and after which of them a question is asked."""

    kind: Kind
    frames: Sequence[VideoFrame]
    asks_after: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Outputs:
    """All that a session said: geometry as bytes, answers without their times."""

    steps: tuple[bytes, ...]
    answers: tuple[str, ...]


def walk_script(kind: Kind, num_frames: int = 24) -> Script:
    """A walk through a house, asked about twice."""
    frames = walk_frames()[:num_frames]
    asks = () if kind is Kind.MAP else (len(frames) // 2, len(frames) - 1)
    return Script(kind, frames, asks)


def play(session: Watching, script: Script, before: Callable[[int], None] = lambda _: None) -> Outputs:
    """Do what the script says; `before` is called with the number of each frame."""
    steps, answers = [], []
    for sequence, frame in enumerate(script.frames):
        before(sequence)
        geometry = session.step(frame)
        steps.append(b"" if geometry is None else geometry_bytes(geometry))
        if sequence in script.asks_after:
            answers.append(plain_answer(session.ask(QUESTION)))
    return Outputs(tuple(steps), tuple(answers))


def plain_answer(answer: Answer | LiveAnswer) -> str:
    """As text, all digits of its numbers included."""
    return json.dumps({name: value for name, value in answer_record(answer).items() if name != "timing"})


@cache
def local_outputs(kind: Kind, num_frames: int = 24) -> Outputs:
    """What sessions of programs say, without a server; computed once."""
    with _local(kind) as session:
        return play(session, walk_script(kind, num_frames))


def open_remote(url: str, kind: Kind) -> RemoteSession:
    """The same session on a server."""
    client = longtake.Client(url, patience_s=_PATIENCE_S)
    match kind:
        case Kind.MAP:
            return client.open_session(ask=None, memory=_MAP_BYTES)
        case Kind.ASK:
            return client.open_session(map=None, memory=_ASK_BYTES)
        case Kind.BOTH:
            return client.open_session(memory=_BOTH_BYTES, share=_SHARE, ask_fps=_ASK_FPS)


@cache
def walk_frames() -> tuple[VideoFrame, ...]:
    """Of 126x98 pixels."""
    return tuple(longtake.open_video(WALK))


class _Mapping:
    """A local map that is never asked."""

    def __init__(self, session: longtake.GeometrySession) -> None:
        self._session = session

    def step(self, picture: VideoFrame) -> Geometry | None:
        return self._session.step(picture)

    def ask(self, question: str) -> Answer | LiveAnswer:
        raise AssertionError(f"a map was asked {question}")


class _Dialogue:
    """A local dialogue that sees every frame."""

    def __init__(self, session: longtake.DialogueSession) -> None:
        self._session = session

    def step(self, picture: VideoFrame) -> Geometry | None:
        self._session.see(picture)
        return None

    def ask(self, question: str) -> Answer | LiveAnswer:
        return self._session.ask(question)


@contextmanager
def _local(kind: Kind) -> Iterator[Watching]:
    match kind:
        case Kind.MAP:
            with longtake.GeometrySession.from_pretrained("micro-map", memory=_MAP_BYTES) as session:
                yield _Mapping(session)
        case Kind.ASK:
            with longtake.DialogueSession.from_pretrained(_language_model(), memory=_ASK_BYTES) as dialogue:
                yield _Dialogue(dialogue)
        case Kind.BOTH:
            with longtake.LiveSession.from_pretrained(
                map="micro-map", ask=_language_model(), memory=_BOTH_BYTES, share=_SHARE, ask_fps=_ASK_FPS
            ) as both:
                yield both


@cache
def _language_model() -> LanguageModel:
    return load_language_model("micro-vqa", device="cpu")
