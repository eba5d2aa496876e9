"""`longtake live`: where the camera is and answers to questions, from one reader and one memory."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from longtake.cli.ask import never_due_note, require_askable
from longtake.cli.interrupt import stopped_by_interrupt
from longtake.cli.live_reporting import JsonLiveReporter, LiveReporter, TerminalLiveReporter
from longtake.cli.networks import RANDOM, network_named
from longtake.cli.options import choose_device
from longtake.errors import BudgetError, MemoryFullError, SettingError
from longtake.export.lines import LineFile
from longtake.geometry.model import GeometryModel
from longtake.hub.load import load_language_model
from longtake.language.sampling import TextSampling
from longtake.memory.budget import Budget
from longtake.memory.registry import segment_policy_named, stream_policy_named
from longtake.pipeline.live import FrameKnown, LiveSession, LiveSettings
from longtake.pipeline.mapper import Mapper
from longtake.pipeline.question_schedule import Asked, Once, parse_every, parse_when
from longtake.pipeline.status import StatusJudge
from longtake.runtime.build import SessionSettings, open_session, usual_settings
from longtake.runtime.dialogue import DialogueSession
from longtake.takes.header import POSES_NAME
from longtake.takes.tum import tum_line
from longtake.video.preprocess import Preprocessor
from longtake.video.sampling import FrameSampling, parse_time
from longtake.video.source import SourceOptions, open_source

_QUESTION_TOKENS = 1024
"""Room for a question, and for a last frame without a partner, beside that of its answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveOptions:
    """What the command line says, word by word."""

    source: str
    questions: tuple[str, ...]
    model: str
    language: str
    memory: str
    share: float
    at: tuple[str, ...]
    every: tuple[str, ...]
    when: tuple[str, ...]
    ask_fps: float
    ask_policy: str
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


def run_live(options: LiveOptions, *, as_json: bool) -> None:
    """Watch a source once; tell poses and answers as they become known."""
    asked, shares = _asked(options), Shares.of(options.memory, options.share)
    speaking = TextSampling(temperature=options.temperature, max_new_tokens=options.max_tokens)
    settings = LiveSettings(ask_fps=options.ask_fps, speaking=speaking)
    device = choose_device(options.device)
    read = SourceOptions(picture_fps=options.picture_fps, device=str(device))
    source = open_source(options.source, _sampling(options), read)
    model = network_named(options.model, device)
    watching = _session_settings(options, model, shares)
    reporter: LiveReporter = JsonLiveReporter() if as_json else TerminalLiveReporter()
    with ExitStack() as opened:
        dialogue = _dialogue(options, device, shares)
        opened.callback(dialogue.close)
        require_askable(dialogue, asked)
        live = LiveSession(
            source,
            dialogue,
            asked,
            settings,
            prepare=Preprocessor(size=watching.image_size, patch=model.config.patch),
            open_mapper=_mapper_opener(model, watching),
        )
        poses = None if options.out is None else opened.enter_context(_pose_file(options.out))
        if options.model in RANDOM:
            reporter.note("The map's weights are random: poses show how longtake works, and no geometry.")
        with reporter.watching(source), stopped_by_interrupt(live.stop), _told_of_full_memory():
            _tell_all(live, dialogue, reporter, poses)
        for unasked in live.never_due:
            reporter.note(never_due_note(unasked))
        reporter.watched(dialogue.info, live.num_dropped)


def _tell_all(live: LiveSession, dialogue: DialogueSession, reporter: LiveReporter, poses: LineFile | None) -> None:
    with closing(iter(live)) as events:
        for event in events:
            reporter.tell(event, dialogue.info)
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


def _dialogue(options: LiveOptions, device: torch.device, shares: Shares) -> DialogueSession:
    retaining = segment_policy_named(options.ask_policy)
    loaded = load_language_model(options.language, device=device)
    with _named_share("dialogue"):
        return DialogueSession(
            loaded,
            budget_bytes=shares.dialogue_bytes,
            retaining=retaining,
            answer_tokens=_QUESTION_TOKENS + options.max_tokens,
        )


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


def _session_settings(options: LiveOptions, model: GeometryModel, shares: Shares) -> SessionSettings:
    usual = usual_settings(model.config)
    return replace(
        usual,
        retention=usual.retention if options.policy is None else stream_policy_named(options.policy),
        budget=Budget(num_bytes=shares.map_bytes),
    )


def _sampling(options: LiveOptions) -> FrameSampling:
    return FrameSampling(
        start_s=0.0 if options.start is None else parse_time(options.start),
        end_s=None if options.end is None else parse_time(options.end),
        fps=options.fps,
    )
