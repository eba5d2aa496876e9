"""`longtake explain`: the positions that tokens of a video get, as tables and a picture."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from longtake.cli.options import AsJson, parse_size
from longtake.cli.tables import show, table
from longtake.evaluation.figures import new_figure, save_figure
from longtake.language.explain import RANGES, FormatPlaces, Stream, explain, picture_format

app = typer.Typer(help="Show what a model is told, without a model.", no_args_is_help=True, add_completion=False)


@app.callback()
def _explain() -> None:
    """Show what a model is told, without a model."""


@app.command("positions")
def explain_positions(
    size: Annotated[str, typer.Option(help="Width x height of the video, in pixels.")] = "1280x720",
    fps: Annotated[float, typer.Option(help="Frames a second.")] = 4.0,
    chunks: Annotated[int, typer.Option(min=1, max=1000, help="Chunks to show.")] = 3,
    chunk_frames: Annotated[int, typer.Option(min=1, help="Frames of each.")] = 2,
    tokens_per_second: Annotated[float, typer.Option(help="Positions a second, of the model's config.json.")] = 2.0,
    max_tokens_per_frame: Annotated[
        int | None, typer.Option(min=1, help="Frames are made smaller to have no more; by default as published.")
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Also draw time positions over time into this PNG file.")] = None,
    as_json: AsJson = False,
) -> None:
    """Where tokens of a video stand (time, row, column) in each format, and when the range runs out."""
    fit = picture_format(max_tokens_per_frame).fit(*parse_size(size))
    stream = Stream(fps=fps, num_chunks=chunks, chunk_frames=chunk_frames, tokens_per_second=tokens_per_second, fit=fit)
    formats = explain(stream)
    if plot is not None:
        draw_positions(plot, formats)
    grid = {"rows": fit.rows, "columns": fit.columns, "tokens_per_grid": stream.tokens_per_grid}
    show(grid | {"formats": [asdict(one) for one in formats]}, _blocks(stream, formats), as_json=as_json)


def _blocks(stream: Stream, formats: Sequence[FormatPlaces]) -> Iterator[str | Table]:
    fit, names = stream.fit, [one.name for one in formats]
    yield (
        f"{fit.source} at {stream.fps:g} fps, {stream.chunk_frames} frames a chunk, seen as {fit.resized}: "
        f"{fit.rows} x {fit.columns} tokens for {fit.picture_format.temporal_patch} frames.\n"
        "Positions T, H, W (time, row, column):\n"
    )
    rows: list[tuple[str, ...]] = []
    for number, chunk in enumerate(formats[0].chunks):
        label = f"{number}: {chunk.start_s:g}-{chunk.end_s:g} s"
        rows.append((label, "first", *(str(one.chunks[number].first) for one in formats)))
        rows.append(("", "last", *(str(one.chunks[number].last) for one in formats)))
        rows.append(("", "question", *(str(one.chunks[number].question.time) for one in formats)))
    yield table(("chunk", "token", *names), rows)
    yield ""
    lasting = ((f"{most:,} positions last", *(f"{one.lasts_h[most]:.2f} h" for one in formats)) for most in RANGES)
    yield table(("", *names), (("one position stands for", *(_time(one.position_s) for one in formats)), *lasting))
    behind = next(one.question_behind_after_s for one in formats if one.question_behind_after_s is not None)
    yield (
        "\nquestion: its first token, right after the chunk, the same in T, H and W.\n"
        "native: the whole video so far as one clip; the open clip is to equal it.\n"
        "turns: each chunk is a clip of its own, and time is only an order.\n"
        "library: the native prompt as transformers 5.22.2 counts it;\n"
        f"         from {behind:g} s on a question no longer stands after the last frames."
    )


def _time(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 0.1 else f"{seconds * 1e3:.3g} ms"


def draw_positions(path: Path, formats: Sequence[FormatPlaces]) -> None:
    """Time positions of every chunk, and of a question after it, over the video's time."""
    figure = new_figure(7.0, 4.2)
    axes = figure.subplots()
    for one, style, marker in zip(formats, ("-", "-", "--", ":"), "osxv", strict=True):
        starts, ends = [chunk.start_s for chunk in one.chunks], [chunk.end_s for chunk in one.chunks]
        times = [chunk.first.time for chunk in one.chunks]
        (line,) = axes.plot(starts, times, linestyle=style, marker=marker, label=one.name)
        asked = [chunk.question.time for chunk in one.chunks]
        axes.plot(ends, asked, linestyle="none", marker=marker, fillstyle="none", alpha=0.5, color=line.get_color())
    axes.set(xlabel="video, s", ylabel="T: filled at a chunk's first token, hollow at a question after it")
    axes.yaxis.label.set_size(8)
    axes.grid(visible=True, alpha=0.3)
    axes.legend(frameon=False)
    save_figure(figure, path)
