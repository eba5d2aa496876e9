"""`longtake live`: where the camera is and answers to questions, from one reader and one memory."""

import json
import signal
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from longtake.cli.map import TINY_NAME, random_model
from longtake.cli.options import choose_device
from longtake.cli.replies import PlainReplies, Reply, format_time
from longtake.errors import BudgetError, MemoryFullError, SettingError
from longtake.export.lines import LineFile
from longtake.geometry.model import GeometryModel
from longtake.hub.load import load_model
from longtake.language.load import load_language
from longtake.language.sampling import Sampling as Speaking
from longtake.memory.budget import Budget
from longtake.pipeline.asking import Asked, Every, Once, When, parse_every, parse_when
from longtake.pipeline.live import Answered, Event, FrameKnown, LiveSession, LiveSettings
from longtake.pipeline.mapper import Mapper
from longtake.pipeline.run import Unreadable
from longtake.pipeline.status import StatusJudge
from longtake.runtime.answers import DialogueInfo
from longtake.runtime.build import SessionSettings, open_session, usual_settings
from longtake.runtime.dialogue import DialogueSession
from longtake.runtime.rules import rule_named
from longtake.takes.header import POSES_NAME
from longtake.takes.tum import tum_line
from longtake.video.preprocess import Preprocessor
from longtake.video.reading import Source
from longtake.video.sampling import Sampling, parse_time
from longtake.video.source import SourceOptions, open_source
from longtake.weights.presets import TINY

_QUESTION_TOKENS = 1024
"""Room for a question, and for a last frame without a partner, beside that of its answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveOptions:
    """What the command line says, word by word."""

    source: str
    questions: tuple[str, ...]
    model: str
    language: str | None
    memory: str
    share: float
    at: tuple[str, ...]
    every: tuple[str, ...]
    when: tuple[str, ...]
    ask_fps: float
    policy: str | None
    fps: float | None
    start: str | None
    end: str | None
    picture_fps: float
    max_tokens: int
    temperature: float
    device: str
    out: Path | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """One memory, divided between the map and the dialogue."""

    map_bytes: int
    dialogue_bytes: int

    @classmethod
    def of(cls, memory: str, share: float) -> "Shares":
        """So much of the memory for the map, the rest for the dialogue."""
        if not 0 < share < 1:
            raise SettingError(
                f"Expected --share between 0 and 1, the map's part of the memory such as 0.5, but got {share:g}."
            )
        num_bytes = Budget.parse(memory).num_bytes
        if num_bytes is None:
            raise SettingError(f"Expected --memory in bytes such as 1GB, to divide them, but got '{memory}'.")
        map_bytes = int(num_bytes * share)
        return cls(map_bytes=map_bytes, dialogue_bytes=num_bytes - map_bytes)


class LiveTeller(ABC):
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


class JsonLive(LiveTeller):
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


class BarLive(LiveTeller):
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
                text=f"{answered.text} ({_where(answered)}{_looked_at(answered)})",
                total_s=0.0,
            )
        )


def run_live(options: LiveOptions, *, as_json: bool) -> None:
    """Watch a source once; tell poses and answers as they become known."""
    asked, shares = _asked(options), Shares.of(options.memory, options.share)
    speaking = Speaking(temperature=options.temperature, max_new_tokens=options.max_tokens)
    settings = LiveSettings(ask_fps=options.ask_fps, speaking=speaking)
    device = choose_device(options.device)
    if options.language is None:
        raise SettingError(
            "No trained language model comes with longtake yet; give --language with the folder of a Qwen2.5-VL, or "
            "its name on the Hugging Face hub such as Qwen/Qwen2.5-VL-3B-Instruct."
        )
    read = SourceOptions(picture_fps=options.picture_fps, device=str(device))
    source = open_source(options.source, _sampling(options), read)
    model = random_model(TINY, device) if options.model == TINY_NAME else load_model(options.model, device=device)
    watching = _session_settings(options, model, shares)
    teller: LiveTeller = JsonLive() if as_json else BarLive()
    with ExitStack() as opened:
        dialogue = _dialogue(options.language, device, shares, options.max_tokens)
        opened.callback(dialogue.close)
        live = LiveSession(
            source,
            dialogue,
            asked,
            settings,
            prepare=Preprocessor(size=watching.image_size, patch=model.config.patch),
            open_mapper=_mapper_opener(model, watching),
        )
        poses = None if options.out is None else opened.enter_context(_pose_file(options.out))
        if options.model == TINY_NAME:
            teller.note("The map's weights are random: poses show how longtake works, and no geometry.")
        with teller.watching(source), _stopped_by_interrupt(live), _told_of_full_memory():
            _tell_all(live, dialogue, teller, poses)
        teller.watched(dialogue.info, live.num_dropped)


def _tell_all(live: LiveSession, dialogue: DialogueSession, teller: LiveTeller, poses: LineFile | None) -> None:
    with closing(iter(live)) as events:
        for event in events:
            teller.tell(event, dialogue.info)
            if poses is not None and isinstance(event, FrameKnown):
                poses.append(tum_line(event.time_s, event.world_from_camera))


def _asked(options: LiveOptions) -> list[Asked]:
    if len(options.at) > len(options.questions):
        raise SettingError(
            f"Expected a question for each of {len(options.at)} --at, but got {len(options.questions)}; the first --at "
            "is the first question's, and questions without one are asked at the end."
        )
    moments = [*map(parse_time, options.at), *[None] * (len(options.questions) - len(options.at))]
    once = [Once(text=text, at_s=at_s) for text, at_s in zip(options.questions, moments, strict=True)]
    asked: list[Asked] = [*once, *map(parse_every, options.every), *map(parse_when, options.when)]
    if not asked:
        raise SettingError(
            "Expected a question, but there is none; write it after the source, or give --every or --when; for poses "
            "alone there is longtake map."
        )
    return asked


def _dialogue(language: str, device: torch.device, shares: Shares, max_tokens: int) -> DialogueSession:
    loaded = load_language(language, device=device)
    with _named_share("dialogue"):
        return DialogueSession(loaded, budget_bytes=shares.dialogue_bytes, answer_tokens=_QUESTION_TOKENS + max_tokens)


def _mapper_opener(model: GeometryModel, settings: SessionSettings) -> Callable[[tuple[int, int]], Mapper]:
    def opened(size: tuple[int, int]) -> Mapper:
        with _named_share("map"):
            return Mapper(open_session(model, settings, size), StatusJudge())

    return opened


@contextmanager
def _named_share(whose: str) -> Iterator[None]:
    """A share that is too small is told with whose it is."""
    try:
        yield
    except BudgetError as error:
        raise BudgetError(f"For the {whose}'s share of --memory: {error}") from error


@contextmanager
def _told_of_full_memory() -> Iterator[None]:
    try:
        yield
    except MemoryFullError as error:
        raise MemoryFullError(
            "The dialogue's share of the memory has no room for one more look or question; raise --memory, or "
            "lower --share."
        ) from error


@contextmanager
def _pose_file(folder: Path) -> Iterator[LineFile]:
    lines = LineFile(folder / POSES_NAME)
    try:
        yield lines
    finally:
        lines.close()


@contextmanager
def _stopped_by_interrupt(live: LiveSession) -> Iterator[None]:
    """Ctrl-C ends the watching, and what is to be asked at the end is asked; a second one ends the command."""

    def stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        signal.signal(signal.SIGINT, usual)
        live.stop()

    usual = signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)


def _session_settings(options: LiveOptions, model: GeometryModel, shares: Shares) -> SessionSettings:
    usual = usual_settings(model.config)
    return replace(
        usual,
        retention=usual.retention if options.policy is None else rule_named(options.policy),
        budget=Budget(num_bytes=shares.map_bytes),
    )


def _sampling(options: LiveOptions) -> Sampling:
    return Sampling(
        start_s=0.0 if options.start is None else parse_time(options.start),
        end_s=None if options.end is None else parse_time(options.end),
        fps=options.fps,
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


def _looked_at(answered: Answered) -> str:
    if not answered.evidence:
        return ""
    spans = [f"{format_time(span.start_s)}-{format_time(span.end_s)} {span.weight:.0%}" for span in answered.evidence]
    return f"; looked at {', '.join(spans)}"


def _late(answered: Answered) -> str | None:
    due = answered.due
    if not (due.is_late and isinstance(due.asked, Once) and due.asked.at_s is not None and due.time_s is not None):
        return None
    return (
        f"The video ends at {format_time(due.time_s)}, before {format_time(due.asked.at_s)}; '{due.asked.text}' is "
        "answered at its end."
    )
