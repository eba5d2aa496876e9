"""`longtake ask`: questions about videos, image folders, cameras and streams, while they are watched or afterwards."""

import re
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

import numpy as np
import torch

from longtake.cli.interrupt import stopped_by_interrupt
from longtake.cli.options import choose_device
from longtake.cli.replies import JsonReplies, PlainReplies, Replies, Reply, format_time
from longtake.errors import LongtakeError, MemoryFullError, SettingError
from longtake.hub.load import load_language_model
from longtake.language.load import LanguageModel
from longtake.language.sampling import TextSampling
from longtake.memory.budget import Budget
from longtake.memory.registry import segment_policy_named
from longtake.pipeline.adaptive_chunking import SIZES, Chunks
from longtake.pipeline.prefetch import Prefetcher, WhenFull
from longtake.pipeline.question_schedule import (
    Asked,
    Due,
    Every,
    Once,
    QuestionSchedule,
    When,
    parse_choices,
    parse_every,
    parse_when,
)
from longtake.runtime.dialogue import DialogueSession
from longtake.video.frame import VideoFrame
from longtake.video.sampling import FrameSampling, parse_time
from longtake.video.source import Source, SourceOptions, open_source

_AUTO = "auto"
_FRAMES_AHEAD = 4
_QUESTION_TOKENS = 1024
"""Room for a question, and for a last frame without a partner, beside that of its answer."""
_INFO = ":info"


@dataclass(frozen=True, slots=True, kw_only=True)
class AskOptions:
    """What the command line says, word by word."""

    source: str
    questions: tuple[str, ...]
    model: str
    at: tuple[str, ...]
    choices: str | None
    every: tuple[str, ...]
    when: tuple[str, ...]
    fps: float | None
    start: str | None
    end: str | None
    picture_fps: float
    size: int | None
    memory: str
    policy: str
    max_tokens: int
    temperature: float
    chunk: str
    device: str


def run_ask(options: AskOptions, *, as_json: bool) -> None:
    """Watch a source, answer what is due meanwhile and at its end, and what is typed or piped in then."""
    asked, choices, speaking = _asked(options), _choices(options), _speaking(options)
    budget_bytes, device = _budget_bytes(options.memory), choose_device(options.device)
    retaining = segment_policy_named(options.policy)
    chunk = _chunk(options)
    sampling, read = _sampling(options), SourceOptions(picture_fps=options.picture_fps, device=str(device))
    source = open_source(options.source, sampling, read)
    language = _with_size(load_language_model(options.model, device=device), options.size)
    answer_tokens = _QUESTION_TOKENS + options.max_tokens
    session = DialogueSession(language, budget_bytes=budget_bytes, retaining=retaining, answer_tokens=answer_tokens)
    replies: Replies = JsonReplies() if as_json else PlainReplies()
    conversation = _Conversation(session, replies, choices, speaking)
    try:
        require_askable(session, asked, choices)
        conversation.watch(source, asked, chunk)
        if not asked:
            _converse(conversation, as_json=as_json)
    finally:
        session.close()


class _Conversation:
    """One session, how answers are made, and who is told of them."""

    def __init__(
        self, session: DialogueSession, replies: Replies, choices: tuple[str, ...], speaking: TextSampling
    ) -> None:
        self._session, self._replies = session, replies
        self._choices, self._speaking = choices, speaking

    def watch(self, source: Source, asked: Sequence[Asked], chunk: int | None) -> None:
        """Frames and questions in the order of time; how many frames together is decided here if it is not said."""
        schedule, is_labelled = QuestionSchedule(asked), len(asked) > 1
        has_standing = any(isinstance(each, When) for each in asked)
        chunks = Chunks.auto(is_live=source.is_live, has_standing=has_standing) if chunk is None else Chunks(chunk)
        when_full, num_ahead = WhenFull.BLOCK, _FRAMES_AHEAD
        if source.is_live:
            # as many as may come while a chunk is looked at
            when_full, num_ahead = WhenFull.NEWEST_WINS, max(_FRAMES_AHEAD, chunk or SIZES[-1])
        with (
            self._replies.watching(source),
            stopped_by_interrupt(source.stop),
            Prefetcher(source.frames(), num_ahead, when_full) as frames,
        ):
            for item in schedule.through(self._readable(frames), lambda: chunks.size):
                if isinstance(item, Due):
                    self._answer_due(item, schedule, is_labelled=is_labelled)
                else:
                    started = time.perf_counter()
                    self._see(item)
                    chunks.seen([frame.timestamp_s for frame in item], time.perf_counter() - started)
        for unasked in schedule.never_due:
            self._replies.note(never_due_note(unasked))
        self._replies.watched(self._session.info)

    def answer(self, question: str) -> None:
        """A question at the end of the video."""
        self._reply(question, self._session.info.seen_until_s, kind="once", label="")

    def tell_info(self) -> None:
        self._replies.watched(self._session.info)

    def tell_problem(self, error: LongtakeError) -> None:
        self._replies.note(str(error))

    def _readable(self, frames: Iterable[VideoFrame]) -> Iterator[VideoFrame]:
        for frame in frames:
            if frame.problem is None:
                yield frame
            else:
                self._replies.note(frame.problem)

    def _see(self, frames: Sequence[VideoFrame]) -> None:
        pictures = np.stack([frame.image for frame in frames if frame.image is not None])
        seen_s = self._session.info.seen_until_s or 0.0
        with _room_for(f"the frames after {format_time(seen_s)}", "--size or --chunk"):
            self._session.see(
                torch.from_numpy(pictures).permute(0, 3, 1, 2).contiguous(), [frame.timestamp_s for frame in frames]
            )
        self._replies.seen(len(frames), self._session.info)

    def _answer_due(self, due: Due, schedule: QuestionSchedule, *, is_labelled: bool) -> None:
        asked = due.asked
        if isinstance(asked, When):
            self._answer_when(due, asked, schedule)
            return
        if isinstance(asked, Once) and asked.at_s is not None and due.is_late and due.time_s is not None:
            self._replies.note(
                f"The video ends at {format_time(due.time_s)}, before {format_time(asked.at_s)}; '{asked.text}' is "
                "answered at its end."
            )
        is_once = isinstance(asked, Once)
        label = f"[{format_time(due.time_s or 0.0)}] {asked.text} " if is_labelled or not is_once else ""
        self._reply(asked.text, due.time_s, kind="once" if is_once else "every", label=label)

    def _answer_when(self, due: Due, asked: When, schedule: QuestionSchedule) -> None:
        reply = self._chosen(asked.text, asked.choices, due.time_s, kind="when")
        if schedule.became(asked, reply.text):
            self._replies.became(reply)

    def _reply(self, question: str, time_s: float | None, *, kind: str, label: str) -> None:
        if self._session.info.seen_until_s is None:
            self._replies.note(f"No frame has been seen; '{question}' is answered without video.")
        with self._replies.replying(label):
            if self._choices:
                self._replies.chosen(self._chosen(question, self._choices, time_s, kind=kind))
            else:
                self._replies.said(self._said(question, time_s, kind=kind))

    def _chosen(self, question: str, choices: Sequence[str], time_s: float | None, *, kind: str) -> Reply:
        started = time.perf_counter()
        with _room_for("the question", "--size, or ask in fewer words"):
            scored = self._session.ask_choice(question, choices)
        best = max(scored, key=lambda choice: choice.mean_log_likelihood)
        return Reply(
            kind=kind,
            time_s=time_s,
            question=question,
            text=best.text,
            choices=tuple(scored),
            total_s=time.perf_counter() - started,
        )

    def _said(self, question: str, time_s: float | None, *, kind: str) -> Reply:
        with _room_for("the question and its answer", "--size or --max-tokens, or ask in fewer words"):
            for piece in self._session.ask_stream(question, self._speaking):
                if isinstance(piece, str):
                    self._replies.piece(piece)
                else:
                    answer = piece
        return Reply(
            kind=kind, time_s=time_s, question=question, text=answer.text, answer=answer, total_s=answer.timing.total_s
        )


def require_askable(session: DialogueSession, asked: Sequence[Asked], choices: Sequence[str] = ()) -> None:
    """Refuse, before a video is watched, to wait for or choose an answer that the model does not know."""
    for each in asked:
        of = each.choices if isinstance(each, When) else choices
        if of:
            session.require_askable(each.text, of)


def never_due_note(asked: Every) -> str:
    """Why there is no answer to a question that was to be asked every so often."""
    return f"The video ended within {asked.every_s:g} s of its first frame; '{asked.text}' was never due."


@contextmanager
def _room_for(what: str, to_lower: str) -> Iterator[None]:
    """Says what did not fit in words of the command line."""
    try:
        yield
    except MemoryFullError as error:
        raise MemoryFullError(f"The memory has no room for {what}; raise --memory, or lower {to_lower}.") from error


def _converse(conversation: _Conversation, *, as_json: bool) -> None:
    """Questions as they are typed, until an empty line or the end; from a pipe, one a line."""
    if sys.stdin.isatty():
        for question in _typed(as_json=as_json):
            _answer_typed(conversation, question)
        return
    num_asked = 0
    for question in filter(None, map(str.strip, sys.stdin)):
        conversation.answer(question)
        num_asked += 1
    if not num_asked:
        raise SettingError("Expected a question, but there is none; write it after the source, or one a line to stdin.")


def _answer_typed(conversation: _Conversation, question: str) -> None:
    if question == _INFO:
        conversation.tell_info()
        return
    try:
        conversation.answer(question)
    except LongtakeError as error:  # the next question may be a better one
        conversation.tell_problem(error)


def _typed(*, as_json: bool) -> Iterator[str]:
    is_drawn = sys.stdout.isatty() and not as_json
    if is_drawn:
        with suppress(ImportError):  # not on every system; it gives `input` its history, and draws on stdout
            import readline  # noqa: F401
    with suppress(EOFError):
        while question := _line("? ", is_drawn=is_drawn).strip():
            yield question


def _line(prompt: str, *, is_drawn: bool) -> str:
    """A line as it is typed; stdout is for answers alone unless the line is drawn there, as for its history."""
    if is_drawn:
        return input(prompt)
    print(prompt, end="", file=sys.stderr, flush=True)
    return input("")


def _asked(options: AskOptions) -> list[Asked]:
    if len(options.at) > len(options.questions):
        raise SettingError(
            f"Expected a question for each of {len(options.at)} --at, but got {len(options.questions)}; the first --at "
            "is the first question's, and questions without one are asked at the end."
        )
    moments = [*map(parse_time, options.at), *[None] * (len(options.questions) - len(options.at))]
    once = [Once(text=text, at_s=at_s) for text, at_s in zip(options.questions, moments, strict=True)]
    return [*once, *map(parse_every, options.every), *map(parse_when, options.when)]


def _choices(options: AskOptions) -> tuple[str, ...]:
    if options.choices is None:
        return ()
    choices = parse_choices(options.choices)
    if len(choices) < 2 or len(set(choices)) < len(choices) or not all(choices):
        raise SettingError(
            f"Expected two choices or more between commas, all different, as --choices yes,no, but got "
            f"'{options.choices}'."
        )
    return choices


def _chunk(options: AskOptions) -> int | None:
    """Frames of one look; None where the video decides."""
    if options.chunk == _AUTO:
        return None
    if re.fullmatch(r"0*[1-9]\d{0,3}", options.chunk, re.ASCII) is None:
        raise SettingError(f"Expected --chunk {_AUTO}, or a number from 1 to 9999, but got '{options.chunk}'.")
    return int(options.chunk)


def _speaking(options: AskOptions) -> TextSampling:
    return TextSampling(temperature=options.temperature, max_new_tokens=options.max_tokens)


def _budget_bytes(memory: str) -> int:
    budget = Budget.parse(memory)
    if budget.num_bytes is None:
        raise SettingError(
            f"Expected --memory in bytes such as 512MB, but got '{memory}'; how large a frame is varies."
        )
    return budget.num_bytes


def _with_size(language: LanguageModel, size: int | None) -> LanguageModel:
    if size is None:
        return language
    pictures = language.picture_format
    if size < pictures.factor:
        raise SettingError(f"Expected --size from {pictures.factor}, the side of one token, but got {size}.")
    limits = replace(pictures, max_pixels=size**2, min_pixels=min(pictures.min_pixels, size**2))
    return replace(language, picture_format=limits)


def _sampling(options: AskOptions) -> FrameSampling:
    return FrameSampling(
        start_s=0.0 if options.start is None else parse_time(options.start),
        end_s=None if options.end is None else parse_time(options.end),
        fps=options.fps,
    )
