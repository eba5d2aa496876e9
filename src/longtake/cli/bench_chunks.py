"""`longtake bench chunks`: run the measurement, print a table or JSON."""

import json
from dataclasses import asdict, dataclass

import torch
from rich.console import Console
from rich.table import Table

from longtake.bench.ask import HUNDRED_MILLION, TINY, random_language
from longtake.bench.chunks import ROUND, ChunkFigures, ChunkStudy, measure_chunks
from longtake.cli.options import parse_size
from longtake.hub.load import load_language_model
from longtake.language.formats import StreamFormat
from longtake.pipeline.adaptive_chunking import SIZES
from longtake.runtime.execution import choose_device

_QUICK_ROUNDS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkOptions:
    """What the command line says."""

    model: str | None
    size: str | None
    fps: float
    rounds: int
    quick: bool
    device: str


def run_chunks(options: ChunkOptions, *, as_json: bool) -> None:
    """The exit code is 1 if an answer depends on the chunks."""
    device = choose_device(options.device)
    if device.type == "cpu":
        torch.set_num_threads(1)
    network = TINY if options.quick else HUNDRED_MILLION
    frame = network.frame if options.size is None else parse_size(options.size)
    if options.model is None:
        language = random_language(network)
        language.model.to(device)
    else:
        language = load_language_model(options.model, device=device)
    rounds = min(options.rounds, _QUICK_ROUNDS) if options.quick else options.rounds
    study = measure_chunks(language, frame, rounds=rounds, fps=options.fps)
    if as_json:
        told = asdict(study) | {"quickest": study.quickest, "keeping_up": study.keeping_up}
        print(json.dumps(told, indent=1))
    else:
        _print_study(study, is_random=options.model is None)
    if not study.agrees:
        raise SystemExit(1)


def _print_study(study: ChunkStudy, *, is_random: bool) -> None:
    height, width = study.frame
    where = f"{study.threads} torch thread" if study.device == "cpu" else study.device
    weights = f"{study.num_parameters / 1e6:.1f} million {'random ' if is_random else ''}parameters"
    title = (
        f"{study.figures[0].num_frames} frames of {width}x{height}, {study.tokens_per_grid} tokens for two of them, "
        f"{study.fps:g} frames a second; {weights}, {where}:\n"
    )
    table = Table(box=None, collapse_padding=True)
    timed = ("ms a chunk", "ms a frame", "most fps", "waits s", "at most s")
    for heading in ("", "frames", *timed, "grids", "tokens", "padding"):
        table.add_column(heading, justify="right" if heading else "left", no_wrap=not heading)
    for figures in study.figures:
        table.add_row(*_row(figures))
    console = Console()
    console.print(title, highlight=False)
    console.print(table, highlight=False)
    same = "the same answer" if study.agrees else "[red]other answers[/]"
    console.print(
        f"\nAll sizes of the open clip lead to {same}. Most frames a second here: {study.quickest} together. "
        f"`--chunk auto` takes {SIZES[-1]} of a file, and {study.keeping_up} of a camera with {study.fps:g} frames a "
        f"second on this machine. Times are medians of all rounds of {ROUND} frames but the first.",
        highlight=False,
    )


def _row(figures: ChunkFigures) -> tuple[str, ...]:
    is_first = figures.chunk == 2
    named = {StreamFormat.OPEN_CLIP: "open clip", StreamFormat.TURNS: "turns"}
    return (
        named[figures.stream_format] if is_first else "",
        str(figures.chunk),
        f"{figures.chunk_s * 1e3:.1f}",
        f"{figures.frame_s * 1e3:.1f}",
        f"{1 / figures.frame_s:.1f}",
        _seconds(figures.wait_s),
        _seconds(figures.worst_wait_s),
        str(figures.num_grids),
        f"{figures.num_tokens:,}",
        f"{figures.num_wasted:,}",
    )


def _seconds(waited_s: float | None) -> str:
    return "grows" if waited_s is None else f"{waited_s:.2f}"
