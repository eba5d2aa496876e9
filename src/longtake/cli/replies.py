"""How answers reach people and programs: text as it comes, or a line of JSON for each event."""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from longtake.language.evidence import Evidence
from longtake.runtime.answers import Answer, Choice, DialogueInfo
from longtake.video.reading import Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """An answer, and the question and moment it belongs to."""

    kind: str
    """once, every or when."""
    time_s: float | None
    question: str
    text: str
    choices: tuple[Choice, ...] = ()
    """All that were scored, where it is one of them."""
    answer: Answer | None = None
    """With ids and times, where it was said freely."""
    total_s: float


class Replies(ABC):
    """Told of what is seen and answered."""

    @abstractmethod
    @contextmanager
    def watching(self, source: Source) -> Iterator[None]:
        """While frames come."""

    @abstractmethod
    def seen(self, num_frames: int, info: DialogueInfo) -> None:
        """More frames are in memory."""

    @abstractmethod
    def watched(self, info: DialogueInfo) -> None:
        """What is in memory, for who wants to know."""

    @abstractmethod
    def note(self, text: str) -> None:
        """Something to know that is no answer."""

    @abstractmethod
    @contextmanager
    def replying(self, label: str) -> Iterator[None]:
        """While one answer is made."""

    @abstractmethod
    def piece(self, text: str) -> None:
        """More of the answer."""

    @abstractmethod
    def said(self, reply: Reply) -> None:
        """The answer is whole; its pieces were told before."""

    @abstractmethod
    def chosen(self, reply: Reply) -> None: ...

    @abstractmethod
    def became(self, reply: Reply) -> None:
        """The answer to a standing question became the one that is waited for."""


class JsonReplies(Replies):
    """A JSON object a line on stdout: `event` is start, note, answer, when or watched."""

    @contextmanager
    def watching(self, source: Source) -> Iterator[None]:
        self._say("start", source=source.name, num_frames=source.num_frames)
        yield

    def seen(self, num_frames: int, info: DialogueInfo) -> None:
        pass

    def watched(self, info: DialogueInfo) -> None:
        self._say("watched", **asdict(info))

    def note(self, text: str) -> None:
        self._say("note", text=text)

    @contextmanager
    def replying(self, label: str) -> Iterator[None]:  # noqa: ARG002
        yield

    def piece(self, text: str) -> None:
        pass

    def said(self, reply: Reply) -> None:
        self._say("answer", **_record(reply))

    def chosen(self, reply: Reply) -> None:
        self._say("answer", **_record(reply))

    def became(self, reply: Reply) -> None:
        self._say("when", **_record(reply))

    def _say(self, event: str, **values: Any) -> None:
        print(json.dumps({"event": event, **values}, ensure_ascii=False), flush=True)


def _record(reply: Reply) -> dict[str, Any]:
    """Every key for every answer; null where it has no meaning."""
    answer = reply.answer
    return {
        "kind": reply.kind,
        "time_s": reply.time_s,
        "question": reply.question,
        "text": reply.text,
        "choices": [asdict(choice) for choice in reply.choices] or None,
        "evidence": [] if answer is None else [asdict(span) for span in answer.evidence],
        "ending": None if answer is None else answer.ending,
        "tokens": None if answer is None else len(answer.ids),
        "first_token_s": None if answer is None else answer.timing.first_token_s,
        "tokens_per_s": None if answer is None else answer.timing.tokens_per_s,
        "total_s": reply.total_s,
    }


class PlainReplies(Replies):
    """Answers on stdout and nothing else; a bar, notes and what an answer looked at on stderr."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._progress: Progress | None = None
        self._looked_at = ""

    @contextmanager
    def watching(self, source: Source) -> Iterator[None]:
        with self._new_progress() as self._progress:
            self._progress.add_task(source.name, total=source.num_frames, state="")
            try:
                yield
            finally:
                self._progress = None

    def seen(self, num_frames: int, info: DialogueInfo) -> None:
        assert self._progress is not None
        state = f"{format_time(info.seen_until_s or 0.0)}, {info.num_tokens} tokens in memory"
        self._progress.update(self._progress.tasks[0].id, advance=num_frames, state=state)

    def watched(self, info: DialogueInfo) -> None:
        self._console.print(
            f"{info.num_frames} frames up to {format_time(info.seen_until_s or 0.0)}, {info.num_tokens} tokens in "
            f"memory ({info.live_bytes / 1e6:.1f} of {info.num_bytes / 1e6:.1f} MB), seen in {info.seeing_s:.1f} s",
            soft_wrap=True,
        )

    def note(self, text: str) -> None:
        self._console.print(text, style="yellow", soft_wrap=True, markup=False)

    @contextmanager
    def replying(self, label: str) -> Iterator[None]:
        with self._without_bar():
            self._looked_at = ""
            print(label, end="", flush=True)
            yield
            print(flush=True)
            if self._looked_at:
                self._console.print(self._looked_at, style="dim", soft_wrap=True)

    def piece(self, text: str) -> None:
        print(text, end="", flush=True)

    def said(self, reply: Reply) -> None:
        if reply.answer is not None:
            self._looked_at = looked_at(reply.answer.evidence)

    def chosen(self, reply: Reply) -> None:
        scores = ", ".join(f"{choice.text} {choice.mean_log_likelihood:.2f}" for choice in reply.choices)
        print(f"{reply.text} ({scores})", end="")

    def became(self, reply: Reply) -> None:
        with self._without_bar():
            print(f"[{format_time(reply.time_s or 0.0)}] {reply.question} {reply.text}", flush=True)

    @contextmanager
    def _without_bar(self) -> Iterator[None]:
        """The bar would be drawn into the text where both go to one terminal."""
        if self._progress is None:
            yield
            return
        self._progress.stop()
        yield
        self._progress.start()

    def _new_progress(self) -> Progress:
        return Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[state]}"),
            TimeElapsedColumn(),
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal,
        )


def format_time(time_s: float) -> str:
    """As people write it: `00:42.5`, `1:02:03`."""
    tenths = round(time_s * 10)
    minutes, rest = divmod(tenths, 600)
    hours, minutes = divmod(minutes, 60)
    seconds = f"{rest // 10:02d}" + (f".{rest % 10}" if rest % 10 else "")
    return f"{hours}:{minutes:02d}:{seconds}" if hours else f"{minutes:02d}:{seconds}"


def looked_at(evidence: Sequence[Evidence]) -> str:
    """Which times of the video an answer comes from, for people."""
    spans = [f"{_span(span)} {span.weight:.0%}" for span in evidence]
    return f"looked at {', '.join(spans)}" if spans else ""


def _span(span: Evidence) -> str:
    start, end = format_time(span.start_s), format_time(span.end_s)
    return start if start == end else f"{start}-{end}"
