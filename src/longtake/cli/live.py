"""`longtake live`: where the camera is and answers to questions, from one reader and one memory."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from longtake.api.video import frame_sampling
from longtake.attention.choose import backend_named
from longtake.cli import options
from longtake.cli.ask import QUESTION_TOKENS, AskCommand, parse_questions, require_askable, why_dialogue_portable
from longtake.cli.program import REFUSED
from longtake.cli.reporting import JsonReporter, Reporter, TerminalReporter, report_run
from longtake.errors import BudgetError, SettingError
from longtake.exports.poses import LivePoses
from longtake.hub.bundled import DEFAULT_LANGUAGE, DEFAULT_MODEL, model_notes, unlike_note
from longtake.hub.load import familiarity_of, knowledge_of, load_language_model, load_model, loops_of
from longtake.language.sampling import TextSampling
from longtake.memory.budget import Budget
from longtake.memory.registry import segment_policy_named
from longtake.pipeline.live import LiveSession, LiveSettings
from longtake.pipeline.mapper import Mapper
from longtake.pipeline.run import Run
from longtake.pipeline.video_map import preprocessor
from longtake.places.build import with_loops
from longtake.runtime.build import adjusted_session, open_session, usual_settings
from longtake.runtime.dialogue import DialogueSession
from longtake.runtime.execution import choose_execution
from longtake.runtime.steps import VideoSession
from longtake.takes.folder_lock import locked
from longtake.takes.header import POSES_NAME
from longtake.video.source import SourceOptions, open_source

app = options.command_app()


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


@app.command(cls=AskCommand)
def live(
    source: options.SourceText,
    questions: Annotated[
        list[str] | None, typer.Argument(help="What to ask, at the end, or at the moment of --at.")
    ] = None,
    model: Annotated[
        str, typer.Option(help="Of the map: a checkpoint, a name of longtake models, or tiny (random weights).")
    ] = DEFAULT_MODEL,
    language: options.LanguageName = DEFAULT_LANGUAGE,
    memory: Annotated[str, typer.Option(help="Room for keys and values of both, such as 4GB.")] = "1GB",
    share: Annotated[float, typer.Option(help="The map's part of the memory, between 0 and 1.")] = 0.5,
    at: options.At = None,
    every: options.EverySoOften = None,
    when: options.Standing = None,
    ask_fps: Annotated[float, typer.Option(help="Frames a second that the language model sees at most.")] = 2.0,
    ask_policy: Annotated[
        str, typer.Option(help="What the dialogue keeps when it is full: window, thinned or novel, as for ask.")
    ] = "window",
    policy: Annotated[
        str | None, typer.Option(help="What the map forgets: managed, window, context, ... By default as trained.")
    ] = None,
    loops: options.Loops = True,
    fps: options.Fps = None,
    start: options.Start = None,
    end: options.End = None,
    picture_fps: options.AskedPictureFps = None,
    max_tokens: options.MaxTokens = 64,
    temperature: options.Temperature = 0.0,
    device: options.Device = "auto",
    precision: options.PrecisionName = "auto",
    backend: options.BackendName = "auto",
    out: Annotated[Path | None, typer.Option(help="Folder for the poses, written while they come.")] = None,
    overwrite: options.Overwrite = False,
    as_json: options.JsonEvents = False,
) -> None:
    """Follow the camera and answer questions at once, from one memory: answers say when, where and from what."""
    asked, shares = parse_questions(questions or (), at or (), every or (), when or ()), Shares.of(memory, share)
    if not asked:
        raise SettingError(
            "Expected a question, but there is none; write it after the source, or give --every or --when; for poses "
            "alone there is longtake map."
        )
    settings = LiveSettings(
        ask_fps=ask_fps,
        speaking=TextSampling(temperature=temperature, max_new_tokens=max_tokens),
        when_full="raise --memory, or lower --share",
        unlike_note=unlike_note(language, "longtake live VIDEO --language {}", "its answers"),
    )
    execution = choose_execution(device, precision, backend)
    attention, dtype = backend_named(execution.backend), execution.precision.dtype
    reading = SourceOptions(picture_fps=ask_fps if picture_fps is None else picture_fps, device=execution.device)
    video = open_source(source, frame_sampling(start, end, fps, stride=1), reading)
    network = load_model(model, device=execution.device, trunk_dtype=dtype)
    mapping = replace(
        adjusted_session(usual_settings(network.config), policy=policy, precision=execution.precision),
        budget=Budget(num_bytes=shares.map_bytes),
    )
    retaining, closing = segment_policy_named(ask_policy), loops_of(model, are_wanted=loops)

    def open_map(picture_size: tuple[int, int]) -> VideoSession:
        with _named_share("map"):
            opened = open_session(network, mapping, picture_size, attention)
        return with_loops(opened, closing.card, closing.rule)

    reporter: Reporter = JsonReporter() if as_json else TerminalReporter(has_answers=True)
    with ExitStack() as opened:
        spoken = load_language_model(language, device=execution.device, dtype=dtype)
        with _named_share("dialogue"):
            dialogue = DialogueSession(
                spoken,
                budget_bytes=shares.dialogue_bytes,
                retaining=retaining,
                answer_tokens=QUESTION_TOKENS + max_tokens,
                backend=attention,
                familiarity=familiarity_of(language),
            )
        opened.callback(dialogue.close)
        why_portable = _why_portable(
            {
                model: execution.why_portable(network.config.head_dim),
                language: why_dialogue_portable(dialogue, execution),
            }
        )
        reporter.uses(f"{model} and {language}", execution, why_portable, closing)
        require_askable(dialogue, asked)
        knowledge = knowledge_of(model, "longtake live VIDEO --model {}")
        mapper = Mapper(open_map, preprocessor(mapping, network.config), knowledge)
        if out is not None:
            opened.enter_context(locked(out))
        poses = None if out is None else LivePoses(out / POSES_NAME, overwrite=overwrite)
        for name, naming in ((model, "--model {}"), (language, "--language {}")):
            for note in model_notes(name, shows_world=video.shows_world, naming=naming):
                reporter.note(note)
        are_answered = report_run(Run(video, LiveSession(mapper, dialogue, settings), asked, output=poses), reporter)
        if out is not None and (out / POSES_NAME).exists():
            reporter.note(f"The poses are in {out / POSES_NAME}.")
    if not are_answered:
        sys.exit(REFUSED)


def _why_portable(reasons: Mapping[str, str | None]) -> str | None:
    """The reasons of both networks, once where they are the same; None where there is none."""
    if len(set(reasons.values())) == 1:
        return next(iter(reasons.values()))
    return "; ".join(f"{name}: {why}" for name, why in reasons.items() if why is not None)


@contextmanager
def _named_share(whose: str) -> Iterator[None]:
    """Names the session whose share is too small."""
    try:
        yield
    except BudgetError as error:
        raise BudgetError(f"For the {whose}'s share of --memory: {error}") from error
