"""`longtake batch`: many videos, by many workers, here or on a Ray cluster; run again, it does what is missing."""

import json
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from longtake.api.progress import left_in_words, plain_console
from longtake.batch.driver import Batch
from longtake.batch.events import BatchEvent, BatchSummary, Ended, Progress, Retried
from longtake.batch.mapping import LOCAL, open_batch
from longtake.cli import options
from longtake.cli.progress import TaskProgress
from longtake.cli.signals import INTERRUPTED, stopped_by_signal
from longtake.errors import InputError, SettingError
from longtake.exports.tracking import tracking_in
from longtake.runtime.execution import AUTO
from longtake.types import counted

app = options.command_app()
_MOST_NOTES = 5
_NUMBER = re.compile(r"\d+(\.\d+)?")
"""In which notes of one kind differ."""


@app.command()
def batch(
    videos: Annotated[
        list[str],
        typer.Argument(help="A folder or tree of videos, a quoted glob, a list as .txt, .csv or .parquet; or videos."),
    ],
    out: Annotated[
        str, typer.Option(help="Where results go, a folder each: a path, or what fsspec opens, as s3://…")
    ] = ("out/batch"),
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Workers; by default one for each processor, or for each GPU.")
    ] = None,
    on: Annotated[str, typer.Option(help="local, ray (a fresh cluster of this machine) or ray://HOST:PORT.")] = LOCAL,
    threads: Annotated[
        int, typer.Option(min=1, help="Each worker computes with; on other numbers results differ by rounding.")
    ] = 1,
    per_gpu: Annotated[
        str, typer.Option(help="Workers that share a GPU: a number, or auto for as many as fit and pay.")
    ] = AUTO,
    spans: Annotated[int, typer.Option(min=1, help="Cut each long video into so many, mapped side by side.")] = 1,
    tries: Annotated[int, typer.Option(min=1, help="After so many a video that fails is set aside.")] = 3,
    scratch: Annotated[
        Path | None, typer.Option(help="Where workers map videos whose results go to no folder.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="As in longtake map.")] = None,
    memory: Annotated[str | None, typer.Option(help="As in longtake map.")] = None,
    formats: Annotated[str | None, typer.Option("--format", help="As in longtake map.")] = None,
    start: options.Start = None,
    end: options.End = None,
    fps: options.Fps = None,
    stride: Annotated[int | None, typer.Option(min=1, help="Every n-th of these frames.")] = None,
    size: Annotated[int | None, typer.Option(help="Longer side of what the network sees, in pixels.")] = None,
    fit: Annotated[str | None, typer.Option(help="As in longtake map.")] = None,
    loops: options.Loops = True,
    device: options.Device = "auto",
    precision: options.PrecisionName = "auto",
    more: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Any other option of longtake map, as voxel=0.01; repeat it."),
    ] = None,
    as_json: options.JsonEvents = False,
) -> None:
    """Map many videos, each into a folder of its own; Ctrl-C ends it, and the same command does what is missing."""
    named = {
        "model": model,
        "memory": memory,
        "format": formats,
        "start": start,
        "end": end,
        "fps": fps,
        "stride": stride,
        "size": size,
        "fit": fit,
        "loops": None if loops else False,
        "device": None if device == "auto" else device,
        "precision": None if precision == "auto" else precision,
    }
    settings = {name: value for name, value in named.items() if value is not None} | dict(map(_setting, more or ()))
    begun = open_batch(
        videos[0] if len(videos) == 1 else videos,
        out,
        jobs=jobs,
        on=on,
        threads=threads,
        per_gpu=per_gpu,
        spans=spans,
        tries=tries,
        scratch=scratch,
        settings=settings,
    )
    with stopped_by_signal(begun.stop):
        summary = _reported_as_json(begun) if as_json else _reported(begun)
    if not summary.is_complete:
        sys.exit(INTERRUPTED)
    if summary.failed:
        others = "; the others are done" if summary.done else ""
        raise InputError(
            f"{summary.failed} of {counted(summary.num_videos, 'video')} could not be mapped, and {summary.table} says "
            f"why{others}."
        )


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise SettingError(f"Expected --set as NAME=VALUE, such as fit=pad, but got '{text}'.")
    return name.strip().replace("-", "_"), value


def _reported_as_json(begun: Batch) -> BatchSummary:
    for event in begun:
        _emit(_kind(event), asdict(event))
    assert begun.summary is not None
    _emit("end", asdict(begun.summary))
    return begun.summary


def _kind(event: BatchEvent) -> str:
    return {Ended: "video", Retried: "retry", Progress: "progress"}[type(event)]


def _emit(kind: str, record: dict[str, Any]) -> None:
    print(json.dumps({"event": kind, **record}), flush=True)


def _state(event: Progress) -> str:
    parts = [f"{int(100 * event.share)}%", f"{event.running} running", f"{event.failed} failed"]
    parts += [counted(event.num_frames, "frame"), f"{event.frames_per_s:.1f} frames/s"]
    return ", ".join(parts if event.eta_s is None else [*parts, left_in_words(event.eta_s)])


def _parts_apart(event: Ended) -> Iterator[str]:
    """What is said of a map that is not all in one world."""
    tracking = tracking_in(event.summary)
    if tracking is not None and tracking.apart:
        yield f"Parts of the map lie apart: {tracking.sub_maps_in_words}."


def _told_once(notes: Iterable[tuple[str, str]]) -> list[str]:
    """Those of videos by their names, each kind once; what most have comes first."""
    kinds = defaultdict[str, list[tuple[str, str]]](list)
    for name, note in notes:
        kinds[_NUMBER.sub("", note)].append((name, note))
    lines = []
    for (name, note), *others in sorted(kinds.values(), key=len, reverse=True):
        more = f" and {counted(len(others), 'more video')}" if others else ""
        lines.append(f"{name}{more}: {note}")
    return lines


def _reported(begun: Batch) -> BatchSummary:
    console = plain_console(stderr=False)
    notes, apart = list[tuple[str, str]](), list[tuple[str, str]]()
    with TaskProgress(plain_console(stderr=True), tells_left=False, state_below=True) as bar:
        task = bar.begin("Mapping videos", None)
        for event in begun:
            match event:
                case Ended(problem=None):
                    notes += [(event.name, note) for note in event.summary.get("notes", ())]
                    apart += [(event.name, note) for note in _parts_apart(event)]
                    frames = counted(int(event.summary.get("num_frames", 0)), "frame")
                    console.print(f"{event.name}: {frames}, {event.folder}", soft_wrap=True)
                case Ended():
                    console.print(f"{event.name}: set aside: {event.problem}", style="red", soft_wrap=True)
                case Retried():
                    console.print(f"{event.name}: tried again: {event.problem}", style="yellow", soft_wrap=True)
                case Progress():
                    bar.update(
                        task,
                        total=event.num_videos,
                        completed=event.share * event.num_videos,
                        state=_state(event),
                    )
    summary = begun.summary
    assert summary is not None
    rate = summary.num_frames / summary.seconds if summary.seconds else 0.0
    before = f" ({summary.skipped} before)" if summary.skipped else ""
    console.print(
        f"{summary.done} of {counted(summary.num_videos, 'video')} done{before}, {summary.failed} failed; "
        f"{counted(summary.num_frames, 'frame')} in {summary.seconds:.1f} s, {rate:.1f} a second; {summary.table}",
        soft_wrap=True,
    )
    told = _told_once(notes)
    for line in (*_told_once(apart), *told[:_MOST_NOTES]):
        console.print(line, soft_wrap=True)
    if len(told) > _MOST_NOTES:
        console.print(f"And {counted(len(told) - _MOST_NOTES, 'note')} more, each in the summary.json of its video.")
    if not summary.is_complete:
        console.print("Stopped; the same command goes on.")
    return summary
