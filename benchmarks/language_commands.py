"""Commands that measure questions about a watched video: `ask` and `chunks`."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Annotated

import torch
import typer
from rich.table import Table

from benchmarks.ask import HUNDRED_MILLION, TINY, AskFigures, NetworkSize, measure_ask, random_language
from benchmarks.chunks import CHUNKS, ROUND, ChunkFigures, ChunkStudy, measure_chunks
from benchmarks.fork import FORKED_TOKENS, ForkFigures, measure_fork
from longtake.cli.options import AsJson, Device, parse_size
from longtake.cli.tables import show, table
from longtake.hub.load import load_language_model
from longtake.language.load import LanguageModel
from longtake.language.prompt_builder import StreamFormat
from longtake.pipeline.adaptive_chunking import SIZES
from longtake.runtime.execution import choose_device

_QUICK_CHUNKS, _QUICK_ROUNDS = 8, 2
_FORMATS = {StreamFormat.OPEN_CLIP: "open clip", StreamFormat.TURNS: "turns"}


def ask(
    *,
    num_chunks: Annotated[int, typer.Option("--chunks", min=1, help="Chunks of two frames to watch first.")] = 64,
    quick: Annotated[bool, typer.Option("--quick", help="A tiny network and 8 chunks.")] = False,
    as_json: AsJson = False,
) -> None:
    """Time a question about a watched video against encoding the video anew for it, and forks of a filled memory.

    The exit code is 1 if the two ways begin their answers differently.
    """
    torch.set_num_threads(1)
    size, num_chunks = (TINY, min(num_chunks, _QUICK_CHUNKS)) if quick else (HUNDRED_MILLION, num_chunks)
    asked = measure_ask(size, num_chunks, repeats=3)
    forks = [measure_fork(num_tokens) for num_tokens in FORKED_TOKENS]
    record = {"ask": asdict(asked) | {"ratio": asked.ratio}, "forks": [asdict(fork) for fork in forks]}
    show(record, _asked(asked, forks), as_json=as_json)
    if not asked.agrees:
        raise SystemExit(1)


def _asked(figures: AskFigures, forks: Sequence[ForkFigures]) -> Iterator[str | Table]:
    yield (
        f"A question after {figures.num_chunks} chunks of 2 frames ({figures.num_tokens} tokens), "
        f"{figures.num_parameters / 1e6:.1f} million random parameters, float32, {figures.threads} torch thread:\n"
    )
    rows = [
        ("session", f"{figures.session_s * 1e3:.1f} ms", f"{figures.session_bytes / 1e6:.1f} MB"),
        ("encoded anew", f"{figures.plain_s * 1e3:.1f} ms", f"{figures.plain_bytes / 1e6:.1f} MB"),
    ]
    yield table(("", "first token", "memory grew by at most"), rows)
    token = "the same token" if figures.agrees else "ANOTHER TOKEN"
    yield (
        f"\n{figures.ratio:.1f} times faster, and both begin with {token}. Of the times, {figures.fork_s * 1e3:.2f} ms "
        f"are the words and the fork, {figures.prepare_s * 1e3:.1f} ms the preparation of all frames.\nWatching took "
        f"{figures.watch_s:.2f} s, {figures.watch_s / figures.num_chunks * 1e3:.1f} ms a chunk, and "
        f"{figures.watch_bytes / 1e6:.1f} MB at most, of which {figures.cache_bytes / 1e6:.1f} MB stay as keys and "
        "values.\n"
    )
    yield table(
        ("tokens a fork holds", "of MB", "median us", "allocated bytes", "first step us"), map(_fork_cells, forks)
    )


def _fork_cells(fork: ForkFigures) -> tuple[str, ...]:
    return (
        f"{fork.num_tokens:,}",
        f"{fork.memory_bytes / 1e6:.1f}",
        f"{fork.fork_us:.1f}",
        f"{fork.fork_bytes:,}",
        f"{fork.step_us:.0f}",
    )


def chunks(
    *,
    model: Annotated[
        str | None, typer.Option(help="Folder of a Qwen2.5-VL model, or its hub name; else a random network.")
    ] = None,
    size: Annotated[str | None, typer.Option(help="Width x height of the frames, in pixels.")] = None,
    fps: Annotated[float, typer.Option(help="Frames a second that come, for how long each waits.")] = 2.0,
    rounds: Annotated[int, typer.Option(min=2, help="Rounds of 24 frames, of which the first warms up.")] = 4,
    quick: Annotated[bool, typer.Option("--quick", help="A tiny network and 2 rounds.")] = False,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Time chunks of 2, 3, 4, 6 and 8 frames in two formats; tokens, grids, padding, and how long a frame waits.

    The exit code is 1 if an answer depends on the chunks.
    """
    place = choose_device(device)
    if place.type == "cpu":
        torch.set_num_threads(1)
    network = TINY if quick else HUNDRED_MILLION
    frame = network.frame if size is None else parse_size(size)
    language = _language(model, network, place)
    study = measure_chunks(language, frame, rounds=min(rounds, _QUICK_ROUNDS) if quick else rounds, fps=fps)
    record = asdict(study) | {"quickest": study.quickest, "keeping_up": study.keeping_up}
    show(record, _studied(study, is_random=model is None), as_json=as_json)
    if not study.agrees:
        raise SystemExit(1)


def _language(model: str | None, network: NetworkSize, device: torch.device) -> LanguageModel:
    if model is not None:
        return load_language_model(model, device=device)
    language = random_language(network)
    language.model.to(device)
    return language


def _studied(study: ChunkStudy, *, is_random: bool) -> Iterator[str | Table]:
    height, width = study.frame
    where = f"{study.threads} torch thread" if study.device == "cpu" else study.device
    weights = f"{study.num_parameters / 1e6:.1f} million {'random ' if is_random else ''}parameters"
    yield (
        f"{study.figures[0].num_frames} frames of {width}x{height}, {study.tokens_per_grid} tokens for two of them, "
        f"{study.fps:g} frames a second; {weights}, {where}:\n"
    )
    timed = ("ms a chunk", "ms a frame", "most fps", "waits s", "at most s")
    yield table(("", "frames", *timed, "grids", "tokens", "padding"), map(_chunk_cells, study.figures))
    answer = "the same answer" if study.agrees else "OTHER ANSWERS"
    yield (
        f"\nAll sizes of the open clip lead to {answer}. Most frames a second here: {study.quickest} together. "
        f"`--chunk auto` takes {SIZES[-1]} of a file, and {study.keeping_up} of a camera with {study.fps:g} frames a "
        f"second on this machine. Times are medians of all rounds of {ROUND} frames but the first."
    )


def _chunk_cells(figures: ChunkFigures) -> tuple[str, ...]:
    return (
        _FORMATS[figures.stream_format] if figures.chunk == CHUNKS[0] else "",
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
