"""One question, answered three ways: from the memory of the stream, from all pictures encoded anew, from the last one.

Nothing of it is left in the session: the first is a question like any other, the others have a memory of their own,
which is admitted and let go as a session's.
"""

import asyncio
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import cache, partial
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from jaxtyping import UInt8
from PIL import Image

from longtake.api.dialogue_session import DialogueSession
from longtake.api.live_session import LiveAnswer
from longtake.api.video import frame_sampling
from longtake.errors import CancelledWorkError
from longtake.language.load import LanguageModel
from longtake.language.question_grammar import question_ids
from longtake.pipeline.live import interval_at
from longtake.runtime.answers import Answer
from longtake.server.engine import Engine
from longtake.server.machine import SessionState
from longtake.server.pictures import read_jpeg, read_times
from longtake.server.problems import RequestError
from longtake.server.session import ServedSession
from longtake.server.shelf import PICTURES_NAME, VIDEO_NAME
from longtake.server.spec import UPLOAD, SessionSpec
from longtake.server.watchers import Watcher
from longtake.video.frame import PendingFrame
from longtake.video.reading import Source
from longtake.video.source import SourceOptions, open_source

_Thing = TypeVar("_Thing")
_READING = 2
_AT_ONCE = 4
"""Comparisons of all sessions, from the first picture that is read to the answer; more are refused."""


@dataclass(frozen=True, slots=True, eq=False)
class SeenPicture:
    """When a frame was taken, and what it shows, read when it is wanted."""

    time_s: float
    read: Callable[[], UInt8[np.ndarray, "height width 3"]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answering:
    """An answer, and what it took: seconds of the worker, bytes of keys and values in use, frames that were seen."""

    text: str
    first_token_s: float
    total_s: float
    memory_bytes: int
    frames: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A question, and the pictures to show again."""

    question: str
    max_tokens: int | None
    spec: SessionSpec
    language: LanguageModel
    pictures: Sequence[SeenPicture]

    @property
    def num_bytes(self) -> int:
        """What it takes beside the session: a memory as large as that of the session's dialogue."""
        return self.spec.memory_bytes - self.spec.map_bytes

    def steps(self, watcher: Watcher) -> Generator[None, None, dict[str, Any]]:
        """The three answers by their names; a step is a picture or a word."""
        dialogue = watcher.dialogue
        assert dialogue is not None, "who compares has asked for a language model"
        spent = _Spent()
        streaming = yield from self._answer(dialogue, spent)
        anew = yield from self._shown(self.pictures)
        last = yield from self._shown(self.pictures[-1:])
        return {"streaming": asdict(streaming), "anew": asdict(anew), "last_frame": asdict(last)}

    def _shown(self, pictures: Sequence[SeenPicture]) -> "Generator[None, None, Answering]":
        """The answer of a session that sees these first."""
        spent = _Spent()
        with closing(self._fresh(spent)) as dialogue:
            for picture in pictures:
                image = picture.read()
                with spent:
                    dialogue.see(image, picture.time_s)
                yield
            return (yield from self._answer(dialogue, spent))

    def _fresh(self, spent: "_Spent") -> DialogueSession:
        with spent:
            return DialogueSession.from_pretrained(
                self.language, memory=self.num_bytes, max_tokens=self.spec.max_tokens
            )

    def _answer(self, dialogue: DialogueSession, spent: "_Spent") -> "Generator[None, None, Answering]":
        pieces = dialogue.ask_stream(self.question, max_tokens=self.max_tokens)
        first_token_s: float | None = None
        while True:
            with spent:
                piece = next(pieces)
            first_token_s = spent.seconds if first_token_s is None else first_token_s
            if isinstance(piece, Answer | LiveAnswer):
                info = dialogue.info  # while the question and its answer are held
                next(pieces, None)
                return Answering(
                    text=piece.text,
                    first_token_s=first_token_s,
                    total_s=spent.seconds,
                    memory_bytes=info.live_bytes,
                    frames=info.num_frames,
                )
            yield


class _Spent:
    """Adds up the time in its `with` blocks, between which others are served."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __enter__(self) -> None:
        self._started_s = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.seconds += time.perf_counter() - self._started_s


class Comparisons:
    """All of a server, in threads of their own: however long pictures are read, nothing else waits for that."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._readers = ThreadPoolExecutor(_READING, thread_name_prefix="longtake-compare")
        self._num_begun = 0

    async def answers(self, session: ServedSession, question: str, max_tokens: int | None) -> dict[str, Any]:
        """The three answers; who no longer waits for them lets the reading end at the next picture."""
        if self._num_begun >= _AT_ONCE:
            raise RequestError(
                "too_many_questions", f"Expected at most {_AT_ONCE} comparisons at once; wait for one.", status=429
            )
        engine, given_up = self._engine, threading.Event()
        begin = partial(
            compare,
            session,
            engine.networks.language_named(session.record.spec.language),
            question,
            max_tokens,
            engine.settings.limits.compared_frames,
            is_given_up=lambda: given_up.is_set() or engine.is_draining,
        )
        self._num_begun += 1
        try:
            return dict(await asyncio.wrap_future(await asyncio.wrap_future(self._readers.submit(begin))))
        finally:
            given_up.set()
            self._num_begun -= 1


def compare(
    session: ServedSession,
    language: LanguageModel | None,
    question: str,
    max_tokens: int | None,
    most_frames: int,
    *,
    is_given_up: Callable[[], bool] = lambda: False,
) -> "Future[Any]":
    """Let the worker answer in all three ways; the pictures are read here, which takes its time."""
    if language is None:
        raise RequestError(
            "wrong_kind", "This session maps and has no language model to compare; open one with both.", status=409
        )
    if not session.record.num_frames:
        raise RequestError("no_pictures", "This session has seen nothing yet; compare it when it has.", status=409)
    session.require_question(question, max_tokens)
    if language.tokenizer is not None:
        question_ids(question, language.tokenizer, language.known)
    comparison = Comparison(
        question=question,
        max_tokens=max_tokens,
        spec=session.record.spec,
        language=language,
        pictures=pictures_to_compare(session, most_frames, is_given_up),
    )
    id = f"compare-{secrets.token_hex(8)}"
    return session.inquire(id, question, max_tokens, comparison)


def pictures_to_compare(
    session: ServedSession, most: int, is_given_up: Callable[[], bool] = lambda: False
) -> list[SeenPicture]:
    """The pictures that the session's dialogue has seen, of more than `most` the newest; only those are made."""
    spec = session.record.spec
    seen = pictures_of(session, is_given_up)
    newest = deque(seen if spec.model is None else looks(seen, spec.ask_fps), maxlen=most)
    for picture in () if _are_kept(spec) else _going_on(newest, session, is_given_up):
        picture.read()
    return list(newest)


def pictures_of(session: ServedSession, is_given_up: Callable[[], bool] = lambda: False) -> Iterator[SeenPicture]:
    """All pictures that a session has taken, in order: of its own source, read again, or as they were kept."""
    record, spec = session.record, session.record.spec
    if _are_kept(spec):
        return _going_on(_kept_pictures(session.shelf.folder / PICTURES_NAME), session, is_given_up)
    name = str(session.shelf.folder / VIDEO_NAME) if spec.source == UPLOAD else spec.source
    source = open_source(name, frame_sampling(None, None, spec.fps, stride=1), SourceOptions())
    if record.num_frames < record.next_sequence:  # some could not be read: which, only reading tells
        return _going_on(_readable_pictures(source, record.next_sequence), session, is_given_up)
    return _source_pictures(source, record.next_sequence, lambda found: _going_on(found, session, is_given_up))


def _are_kept(spec: SessionSpec) -> bool:
    return spec.is_pushed or spec.is_address


def _going_on(
    things: Iterable[_Thing], session: ServedSession, is_given_up: Callable[[], bool]
) -> Generator[_Thing, None, None]:
    """Each of them, until the session or the server ends, or nobody waits for them any more."""
    for thing in things:
        if is_given_up() or session.state is SessionState.CLOSED:
            raise CancelledWorkError("This was given up before all pictures were read.")
        yield thing


def _source_pictures(
    source: Source, num_frames: int, going_on: Callable[[Iterable[PendingFrame]], Iterator[PendingFrame]]
) -> Iterator[SeenPicture]:
    """Of a source whose first frames can all be read; each is made when it is wanted, and once."""
    with closing(source.all_frames()) as found:
        for pending in islice(source.sampling.pick(going_on(found)), num_frames):
            assert pending.read is not None
            yield SeenPicture(pending.timestamp_s, cache(pending.read))


def _readable_pictures(source: Source, until: int) -> Iterator[SeenPicture]:
    with closing(source.frames()) as frames:
        for frame in frames:
            if frame.index >= until:
                return
            if frame.image is not None:
                yield SeenPicture(frame.timestamp_s, partial(np.asarray, frame.image))


def _kept_pictures(folder: Path) -> Iterator[SeenPicture]:
    for number, time_s in enumerate(read_times(folder)):
        yield SeenPicture(time_s, partial(_read_kept, folder, number))


def _read_kept(folder: Path, number: int) -> UInt8[np.ndarray, "height width 3"]:
    jpeg = read_jpeg(folder, number)
    if jpeg is None:
        raise RequestError("no_pictures", "The pictures of this session are gone; compare another.", status=409)
    picture: UInt8[np.ndarray, "height width 3"] = np.asarray(Image.open(BytesIO(jpeg), formats=["JPEG"]))
    return picture


def looks(pictures: Iterable[SeenPicture], fps: float) -> Iterator[SeenPicture]:
    """The first picture in each interval of 1/fps, as a dialogue beside a map sees them."""
    first_s: float | None = None
    last = -1
    for picture in pictures:
        first_s = picture.time_s if first_s is None else first_s
        interval = interval_at(picture.time_s - first_s, fps)
        if interval > last:
            last = interval
            yield picture
