"""The commands that ask about a video; what they need is imported when they run."""

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from longtake.hub.bundled import DEFAULT_LANGUAGE, DEFAULT_MODEL


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


def ask(
    source: Annotated[str, typer.Argument(help="A video, image folder, take, camera:0, rtsp://…, or world:7.")],
    questions: Annotated[
        list[str] | None, typer.Argument(help="What to ask; without any, typed afterwards, or one a line from a pipe.")
    ] = None,
    model: Annotated[
        str, typer.Option(help="Folder of a Qwen2.5-VL model, or its name in the package or on the Hugging Face hub.")
    ] = DEFAULT_LANGUAGE,
    at: Annotated[
        list[str] | None, typer.Option(help="When to ask, such as 00:42: once a question, in order; else at the end.")
    ] = None,
    choices: Annotated[str | None, typer.Option(help="Choose the likeliest of these answers: yes,no,maybe.")] = None,
    every: Annotated[list[str] | None, typer.Option(metavar='10s "QUESTION"', help="Ask this again and again.")] = None,
    when: Annotated[
        list[str] | None,
        typer.Option(metavar='"QUESTION=yes"', help="Ask at each look, and tell when the answer becomes this."),
    ] = None,
    fps: Annotated[float | None, typer.Option(help="At most so many frames a second, by their times.")] = 2.0,
    start: Annotated[str | None, typer.Option(help="Where to begin, such as 00:42.")] = None,
    end: Annotated[str | None, typer.Option(help="Where to end.")] = None,
    picture_fps: Annotated[
        float, typer.Option(help="Frames a second of a folder, whose pictures have no times.")
    ] = 30.0,
    size: Annotated[
        int | None,
        typer.Option(help="A frame has at most the pixels of a square of this side; else as the model likes."),
    ] = None,
    memory: Annotated[str, typer.Option(help="Room for keys and values, such as 4GB.")] = "512MB",
    policy: Annotated[
        str, typer.Option(help="What stays when it is full: window (the newest), thinned, novel or module:Class.")
    ] = "window",
    max_tokens: Annotated[int, typer.Option(min=1, help="Longest answer.")] = 64,
    temperature: Annotated[float, typer.Option(min=0.0, help="0 always takes the likeliest word.")] = 0.0,
    chunk: Annotated[str, typer.Option(help="Frames of one look, or auto: as many as keep up.")] = "auto",
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto.")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object for each event.")] = False,
) -> None:
    """Watch a video and answer questions about it, at given moments, again and again, or when it has ended."""
    from longtake.cli.ask import AskOptions, run_ask

    run_ask(
        AskOptions(
            source=source,
            questions=tuple(questions or ()),
            model=model,
            at=tuple(at or ()),
            choices=choices,
            every=tuple(every or ()),
            when=tuple(when or ()),
            fps=fps,
            start=start,
            end=end,
            picture_fps=picture_fps,
            size=size,
            memory=memory,
            policy=policy,
            max_tokens=max_tokens,
            temperature=temperature,
            chunk=chunk,
            device=device,
        ),
        as_json=as_json,
    )


def live(
    source: Annotated[str, typer.Argument(help="A video, image folder, take, camera:0, rtsp://…, or world:7.")],
    questions: Annotated[list[str] | None, typer.Argument(help="What to ask, at the end or when --at says.")] = None,
    model: Annotated[
        str, typer.Option(help="Of the map: a checkpoint, a name of longtake models, or tiny (random weights).")
    ] = DEFAULT_MODEL,
    language: Annotated[
        str, typer.Option(help="Folder of a Qwen2.5-VL model, or its name in the package or on the Hugging Face hub.")
    ] = DEFAULT_LANGUAGE,
    memory: Annotated[str, typer.Option(help="Room for keys and values of both, such as 4GB.")] = "1GB",
    share: Annotated[float, typer.Option(help="The map's part of the memory, between 0 and 1.")] = 0.5,
    at: Annotated[
        list[str] | None, typer.Option(help="When to ask, such as 00:42: once a question, in order; else at the end.")
    ] = None,
    every: Annotated[list[str] | None, typer.Option(metavar='10s "QUESTION"', help="Ask this again and again.")] = None,
    when: Annotated[
        list[str] | None,
        typer.Option(metavar='"QUESTION=yes"', help="Ask at each look, and tell when the answer becomes this."),
    ] = None,
    ask_fps: Annotated[float, typer.Option(help="Frames a second that the language model sees at most.")] = 2.0,
    ask_policy: Annotated[
        str, typer.Option(help="What the dialogue keeps when it is full: window, thinned or novel, as for ask.")
    ] = "window",
    policy: Annotated[
        str | None, typer.Option(help="What the map forgets: managed, window, context, ... By default as trained.")
    ] = None,
    fps: Annotated[float | None, typer.Option(help="At most so many frames a second, by their times.")] = None,
    start: Annotated[str | None, typer.Option(help="Where to begin, such as 00:42.")] = None,
    end: Annotated[str | None, typer.Option(help="Where to end.")] = None,
    picture_fps: Annotated[
        float, typer.Option(help="Frames a second of a folder, whose pictures have no times.")
    ] = 30.0,
    max_tokens: Annotated[int, typer.Option(min=1, help="Longest answer.")] = 64,
    temperature: Annotated[float, typer.Option(min=0.0, help="0 always takes the likeliest word.")] = 0.0,
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto.")] = "auto",
    out: Annotated[Path | None, typer.Option(help="Folder for the poses, written while they come.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object for each event.")] = False,
) -> None:
    """Follow the camera and answer questions at once, from one memory: answers say when, where and from what."""
    from longtake.cli.live import LiveOptions, run_live

    run_live(
        LiveOptions(
            source=source,
            questions=tuple(questions or ()),
            model=model,
            language=language,
            memory=memory,
            share=share,
            at=tuple(at or ()),
            every=tuple(every or ()),
            when=tuple(when or ()),
            ask_fps=ask_fps,
            ask_policy=ask_policy,
            policy=policy,
            fps=fps,
            start=start,
            end=end,
            picture_fps=picture_fps,
            max_tokens=max_tokens,
            temperature=temperature,
            device=device,
            out=out,
        ),
        as_json=as_json,
    )
