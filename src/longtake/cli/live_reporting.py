"""What `longtake live` tells: JSON lines, or a line for each answer and a bar."""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from longtake.cli.replies import PlainReplies, Reply, format_time, looked_at
from longtake.pipeline.live import Answered, Event, FrameKnown
from longtake.pipeline.question_schedule import Asked, Every, Once, When
from longtake.pipeline.run import Unreadable
from longtake.runtime.answers import DialogueInfo
from longtake.video.reading import Source


class LiveReporter(ABC):
    """Told of everything that happens."""

    @abstractmethod
    @contextmanager
    def watching(self, source: Source) -> Iterator[None]:
        """While frames come."""

    @abstractmethod
    def note(self, text: str) -> None:
        """Something to know that is no answer."""

    @abstractmethod
    def tell(self, event: Event, info: DialogueInfo) -> None:
        """A frame has a pose, or cannot be read, or a question has an answer."""

    @abstractmethod
    def watched(self, info: DialogueInfo, num_dropped: int) -> None:
        """The source has ended, and every question is answered."""


class JsonLiveReporter(LiveReporter):
    """A JSON object a line on stdout: `event` is note, start, frame, unreadable, answer or watched."""

    @contextmanager
    def watching(self, source: Source) -> Iterator[None]:
        self._say("start", source=source.name, num_frames=source.num_frames)
        yield

    def note(self, text: str) -> None:
        self._say("note", text=text)

    def tell(self, event: Event, info: DialogueInfo) -> None:  # noqa: ARG002
        match event:
            case FrameKnown():
                self._say("frame", **_pose_record(event))
            case Unreadable():
                self._say("unreadable", index=event.index, time_s=event.timestamp_s, problem=event.problem)
            case Answered():
                self._say("answer", **_answer_record(event))

    def watched(self, info: DialogueInfo, num_dropped: int) -> None:
        self._say("watched", num_dropped=num_dropped, **asdict(info))

    def _say(self, event: str, **values: Any) -> None:
        print(json.dumps({"event": event, **values}, ensure_ascii=False), flush=True)


class TerminalLiveReporter(LiveReporter):
    """A line for each answer on stdout; a bar and notes on stderr."""

    def __init__(self) -> None:
        self._replies = PlainReplies()

    @contextmanager
    def watching(self, source: Source) -> Iterator[None]:
        with self._replies.watching(source):
            yield

    def note(self, text: str) -> None:
        self._replies.note(text)

    def tell(self, event: Event, info: DialogueInfo) -> None:
        match event:
            case FrameKnown():
                self._replies.seen(1, info)
            case Unreadable():
                self._replies.note(event.problem)
            case Answered():
                self._tell_answer(event)

    def watched(self, info: DialogueInfo, num_dropped: int) -> None:
        if num_dropped:
            self._replies.note(f"{num_dropped} frames came while both sessions were busy, and were dropped.")
        self._replies.watched(info)

    def _tell_answer(self, answered: Answered) -> None:
        if note := _late(answered):
            self._replies.note(note)
        asked = answered.due.asked
        self._replies.became(
            Reply(
                kind=_kind(asked),
                time_s=answered.due.time_s,
                question=asked.text,
                text=f"{answered.text} ({'; '.join(filter(None, (_where(answered), looked_at(answered.evidence))))})",
                total_s=0.0,
            )
        )


def _pose_record(frame: FrameKnown) -> dict[str, Any]:
    return {
        "index": frame.index,
        "time_s": frame.time_s,
        "status": frame.status,
        "world_from_camera": frame.world_from_camera.tolist(),
    }


def _answer_record(answered: Answered) -> dict[str, Any]:
    """Every key for every answer; null where it has no meaning."""
    return {
        "kind": _kind(answered.due.asked),
        "time_s": answered.due.time_s,
        "is_late": answered.due.is_late,
        "question": answered.due.asked.text,
        "text": answered.text,
        "seen_until_s": answered.seen_until_s,
        "evidence": [asdict(span) for span in answered.evidence],
        "pose": None if answered.pose is None else _pose_record(answered.pose),
    }


def _kind(asked: Asked) -> str:
    match asked:
        case Once():
            return "once"
        case Every():
            return "every"
        case When():
            return "when"


def _where(answered: Answered) -> str:
    if answered.pose is None:
        return "no pose yet"
    x, y, z = answered.pose.world_from_camera[:3, 3].tolist()
    return f"at {x:.2f} {y:.2f} {z:.2f}"


def _late(answered: Answered) -> str | None:
    due = answered.due
    if not (due.is_late and isinstance(due.asked, Once) and due.asked.at_s is not None and due.time_s is not None):
        return None
    return (
        f"The video ends at {format_time(due.time_s)}, before {format_time(due.asked.at_s)}; '{due.asked.text}' is "
        "answered at its end."
    )
