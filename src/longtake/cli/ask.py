"""`longtake ask`: questions about videos, image folders, cameras and streams, while they are watched or afterwards."""

import re
import select
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from io import BufferedReader
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from longtake.api.video import frame_sampling
from longtake.attention.choose import backend_named
from longtake.cli import options
from longtake.cli.program import REFUSED
from longtake.cli.reporting import JsonReporter, Reporter, TerminalReporter, is_refusal, report_run
from longtake.cli.served import (
    NamedServer,
    ServedRun,
    Speaking,
    ask_served,
    converse_served,
    named_server,
    title_of,
)
from longtake.errors import LongtakeError, SettingError
from longtake.hub.bundled import DEFAULT_LANGUAGE, model_notes, unlike_note
from longtake.hub.load import familiarity_of, load_language_model
from longtake.language.load import LanguageModel
from longtake.language.sampling import TextSampling
from longtake.memory.budget import Budget
from longtake.memory.registry import segment_policy_named
from longtake.pipeline.adaptive_chunking import Chunks
from longtake.pipeline.live import LiveSession, LiveSettings
from longtake.pipeline.prefetch import WhenFull
from longtake.pipeline.question_schedule import Asked, Due, Once, When, parse_choices, parse_every, parse_when
from longtake.pipeline.run import Run
from longtake.runtime.dialogue import DialogueSession
from longtake.runtime.execution import Execution, choose_execution
from longtake.video.sampling import parse_time
from longtake.video.source import Source, SourceOptions, open_source

QUESTION_TOKENS = 1024
"""Room for a question, and for a last frame without a partner, beside that of its answer."""
_AUTO = "auto"
_INFO = ":info"
_MEMORY = "512MB"
_MEANT_WITH_SERVER = ("source", "questions", "model", "at", "every", "memory", "max_tokens", "temperature")

app = options.command_app()


class AskCommand(TyperCommand):
    """Takes `--every 10s "what is it?"`, a pair, as often as it is given; typer has pairs only once."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        joined: list[str] = []
        rest = list(args)
        while rest:
            word = rest.pop(0)
            joined.append(word)
            is_pair = len(rest) > 1 and " " not in rest[0].strip() and not rest[1].startswith("--")
            if word == "--every" and is_pair:
                joined.append(f"{rest.pop(0).strip()} {rest.pop(0)}")
        return super().parse_args(ctx, joined)


@app.command(cls=AskCommand)
def ask(
    source: options.SourceText,
    questions: Annotated[
        list[str] | None, typer.Argument(help="What to ask; without any, typed afterwards, or one a line from a pipe.")
    ] = None,
    model: Annotated[str | None, typer.Option(help=options.LANGUAGE_HELP, show_default=DEFAULT_LANGUAGE)] = None,
    at: options.At = None,
    choices: Annotated[str | None, typer.Option(help="Choose the likeliest of these answers: yes,no,maybe.")] = None,
    every: options.EverySoOften = None,
    when: options.Standing = None,
    fps: Annotated[float, typer.Option(help="At most so many frames a second, by their times.")] = 2.0,
    start: options.Start = None,
    end: options.End = None,
    picture_fps: options.AskedPictureFps = None,
    size: Annotated[
        int | None,
        typer.Option(help="A frame has at most the pixels of a square of this side; else as the model was trained."),
    ] = None,
    memory: Annotated[
        str | None, typer.Option(help="Room for keys and values, such as 4GB.", show_default=_MEMORY)
    ] = None,
    policy: Annotated[
        str, typer.Option(help="What stays when it is full: window (the newest), thinned or novel (and of the past).")
    ] = "window",
    max_tokens: options.MaxTokens = 64,
    temperature: options.Temperature = 0.0,
    chunk: Annotated[str, typer.Option(help="Frames of one look, or auto: as many as keep up.")] = _AUTO,
    device: options.Device = "auto",
    precision: options.PrecisionName = "auto",
    backend: options.BackendName = "auto",
    server: options.ServerUrl = None,
    token: options.ServerToken = None,
    certificate: options.ServerCertificate = None,
    as_json: options.JsonEvents = False,
) -> None:
    """Watch a video and answer questions about it, at given moments, again and again, or when it has ended."""
    elsewhere = named_server(ask, locals(), _MEANT_WITH_SERVER)
    asked = parse_questions(questions or (), at or (), every or (), when or ())
    if not asked and _has_ended():
        raise _nothing_asked()
    if elsewhere is not None:
        _ask_elsewhere(
            elsewhere,
            open_source(source, frame_sampling(start, end, fps, stride=1), SourceOptions(picture_fps=picture_fps)),
            asked,
            Speaking(temperature=temperature, max_tokens=max_tokens),
            model=model or "default",
            memory=memory,
            as_json=as_json,
        )
        return
    model = model or DEFAULT_LANGUAGE
    settings = LiveSettings(
        ask_fps=None,  # the source has the rate
        speaking=TextSampling(temperature=temperature, max_new_tokens=max_tokens),
        choices=() if choices is None else _parse_choices(choices),
        when_full="raise --memory, or lower --size, --chunk or --max-tokens, or ask in fewer words",
        unlike_note=unlike_note(model, "longtake ask VIDEO --model {}", "its answers"),
    )
    budget_bytes, retaining = _parse_memory(memory or _MEMORY), segment_policy_named(policy)
    execution = choose_execution(device, precision, backend)
    num_together = _parse_chunk(chunk)
    reading = SourceOptions(picture_fps=picture_fps, device=execution.device)
    video = open_source(source, frame_sampling(start, end, fps, stride=1), reading)
    language = load_language_model(model, device=execution.device, dtype=execution.precision.dtype)
    dialogue = DialogueSession(
        _with_size(language, size),
        budget_bytes=budget_bytes,
        retaining=retaining,
        answer_tokens=QUESTION_TOKENS + max_tokens,
        backend=backend_named(execution.backend),
        familiarity=familiarity_of(model),
    )
    has_standing = any(isinstance(each, When) for each in asked)
    chunks = (
        Chunks.auto(is_live=video.is_live, has_standing=has_standing) if num_together is None else Chunks(num_together)
    )
    session = LiveSession(None, dialogue, settings, chunks=chunks)
    reporter = _reporter(asked, as_json=as_json)
    reporter.uses(model, execution, why_dialogue_portable(dialogue, execution))
    for note in model_notes(model, shows_world=video.shows_world):
        reporter.note(note)
    try:
        require_askable(dialogue, asked, settings.choices)
        are_answered = report_run(Run(video, session, asked, when_full=WhenFull.NEWEST_WINS), reporter)
        if not asked:
            are_answered = _converse(session, dialogue, reporter, as_json=as_json)
    finally:
        dialogue.close()
    if not are_answered:
        sys.exit(REFUSED)


def _ask_elsewhere(
    elsewhere: NamedServer,
    video: Source,
    asked: Sequence[Asked],
    speaking: Speaking,
    *,
    model: str,
    memory: str | None,
    as_json: bool,
) -> None:
    """The same on a server."""
    reporter = _reporter(asked, as_json=as_json)
    opening = elsewhere.client().open_session(
        map=None, ask=model, memory=memory, max_tokens=speaking.max_tokens, title=title_of(video)
    )
    with opening as session:
        reporter.uses_server(str(session.info["language"]), elsewhere.url)
        run = ServedRun(video, session, elsewhere.url)
        are_answered = [ask_served(run, asked, reporter, speaking)]
        if not asked:
            questions = _typed(as_json=as_json) if _is_typed() else filter(None, map(str.strip, sys.stdin or ()))
            are_answered = converse_served(run, questions, reporter, speaking)
            if not are_answered and not _is_typed():
                raise _nothing_asked()
    if not all(are_answered):
        sys.exit(REFUSED)


def _reporter(asked: Sequence[Asked], *, as_json: bool) -> Reporter:
    is_labelled = len(asked) > 1 if asked else not _is_typed()
    return JsonReporter() if as_json else TerminalReporter(has_answers=True, is_labelled=is_labelled)


def why_dialogue_portable(dialogue: DialogueSession, execution: Execution) -> str | None:
    """Why a dialogue is not recorded; None where it is, and on a CPU, where there is no other way."""
    return None if execution.device == "cpu" else dialogue.why_portable


def parse_questions(
    questions: Sequence[str], at: Sequence[str], every: Sequence[str], when: Sequence[str]
) -> list[Asked]:
    """Questions with their moments: the first `--at` is the first question's, those without are asked at the end."""
    if len(at) > len(questions):
        raise SettingError(
            f"Expected a question for each of {len(at)} --at, but got {len(questions)}; the first --at is the first "
            "question's, and questions without one are asked at the end."
        )
    moments = [*map(parse_time, at), *[None] * (len(questions) - len(at))]
    once = [Once(text=text, at_s=at_s) for text, at_s in zip(questions, moments, strict=True)]
    return [*once, *map(parse_every, every), *map(parse_when, when)]


def require_askable(session: DialogueSession, asked: Sequence[Asked], choices: Sequence[str] = ()) -> None:
    """Refuse, before a video is watched, to wait for or choose an answer that the model does not know."""
    for each in asked:
        of = each.choices if isinstance(each, When) else choices
        if of:
            session.require_askable(each.text, of)


def _converse(session: LiveSession, dialogue: DialogueSession, reporter: Reporter, *, as_json: bool) -> bool:
    """Questions as they are typed, until an empty line or the end; from a pipe, one a line. Whether none was refused.

    Of typed ones none counts: who types can ask again.
    """
    if _is_typed():
        for question in _typed(as_json=as_json):
            _answer_typed(session, dialogue, reporter, question)
        return True
    are_answered = [
        _answer(session, dialogue, reporter, question) for question in filter(None, map(str.strip, sys.stdin or ()))
    ]
    if not are_answered:
        raise _nothing_asked()
    return all(are_answered)


def _nothing_asked() -> SettingError:
    return SettingError("Expected a question, but there is none; write it after the source, or one a line to stdin.")


def _has_ended() -> bool:
    """Whether it is known that stdin brings no question; what may still be written to a pipe is not waited for."""
    if not sys.stdin or _is_typed():
        return not sys.stdin
    try:
        is_ready = bool(select.select([sys.stdin], [], [], 0)[0])
    except (OSError, ValueError):  # Windows can say it of sockets only
        return False
    stream = sys.stdin.buffer
    return is_ready and isinstance(stream, BufferedReader) and not stream.peek(1)


def _answer(session: LiveSession, dialogue: DialogueSession, reporter: Reporter, question: str) -> bool:
    due = Due(asked=Once(text=question), time_s=dialogue.info.seen_until_s)
    is_answered = True
    for event in session.answer(due):
        reporter.report(event)
        is_answered &= not is_refusal(event)
    return is_answered


def _answer_typed(session: LiveSession, dialogue: DialogueSession, reporter: Reporter, question: str) -> None:
    if question == _INFO:
        reporter.report_dialogue(dialogue.info)
        return
    try:
        _answer(session, dialogue, reporter, question)
    except LongtakeError as error:  # the next question may be a better one
        reporter.note(str(error))


def _is_typed() -> bool:
    """Whether questions come from a terminal; there may be no stdin at all."""
    return bool(sys.stdin) and sys.stdin.isatty()


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


def _parse_choices(text: str) -> tuple[str, ...]:
    choices = parse_choices(text)
    if len(choices) < 2 or len(set(choices)) < len(choices) or not all(choices):
        raise SettingError(
            f"Expected two choices or more between commas, all different, as --choices yes,no, but got '{text}'."
        )
    return choices


def _parse_chunk(text: str) -> int | None:
    """Frames of one look; None where the video decides."""
    if text == _AUTO:
        return None
    if re.fullmatch(r"0*[1-9]\d{0,3}", text, re.ASCII) is None:
        raise SettingError(f"Expected --chunk {_AUTO}, or a number from 1 to 9999, but got '{text}'.")
    return int(text)


def _parse_memory(text: str) -> int:
    budget = Budget.parse(text)
    if budget.num_bytes is None:
        raise SettingError(f"Expected --memory in bytes such as 512MB, but got '{text}'; how large a frame is varies.")
    return budget.num_bytes


def _with_size(language: LanguageModel, size: int | None) -> LanguageModel:
    if size is None:
        return language
    pictures = language.picture_format
    if size < pictures.factor:
        raise SettingError(f"Expected --size from {pictures.factor}, the side of one token, but got {size}.")
    limits = replace(pictures, max_pixels=size**2, min_pixels=min(pictures.min_pixels, size**2))
    return replace(language, picture_format=limits)
