"""`longtake bench ask`: run the measurement, print tables or JSON."""

import json
from collections.abc import Sequence
from dataclasses import asdict

import torch
from rich.console import Console
from rich.table import Table

from longtake.bench.ask import HUNDRED_MILLION, TINY, AskFigures, measure_ask
from longtake.bench.fork import FORKED_TOKENS, ForkFigures, measure_fork

_QUICK_CHUNKS = 8


def run_ask(chunks: int, *, quick: bool, as_json: bool) -> None:
    """The exit code is 1 if the two ways begin their answers differently."""
    torch.set_num_threads(1)
    size, num_chunks = (TINY, min(chunks, _QUICK_CHUNKS)) if quick else (HUNDRED_MILLION, chunks)
    asked = measure_ask(size, num_chunks, repeats=3)
    forks = [measure_fork(num_tokens) for num_tokens in FORKED_TOKENS]
    if as_json:
        figures = {"ask": asdict(asked) | {"ratio": asked.ratio}, "forks": [asdict(fork) for fork in forks]}
        print(json.dumps(figures, indent=1))
    else:
        _print_ask(asked)
        _print_forks(forks)
    if not asked.agrees:
        raise SystemExit(1)


def _print_ask(figures: AskFigures) -> None:
    title = (
        f"A question after {figures.num_chunks} chunks of 2 frames ({figures.num_tokens} tokens), "
        f"{figures.num_parameters / 1e6:.1f} million random parameters, float32, {figures.threads} torch thread:\n"
    )
    table = Table(box=None)
    for heading in ("", "first token", "memory grew by at most"):
        table.add_column(heading, justify="right" if heading else "left", no_wrap=True)
    table.add_row("session", f"{figures.session_s * 1e3:.1f} ms", f"{figures.session_bytes / 1e6:.1f} MB")
    table.add_row("encoded anew", f"{figures.plain_s * 1e3:.1f} ms", f"{figures.plain_bytes / 1e6:.1f} MB")
    console = Console()
    console.print(title, highlight=False)
    console.print(table, highlight=False)
    same = "the same token" if figures.agrees else "[red]another token[/]"
    console.print(
        f"\n{figures.ratio:.1f} times faster, and both begin with {same}. Of the times, {figures.fork_s * 1e3:.2f} ms "
        f"are the words and the fork, {figures.prepare_s * 1e3:.1f} ms the preparation of all frames.\nWatching took "
        f"{figures.watch_s:.2f} s, {figures.watch_s / figures.num_chunks * 1e3:.1f} ms a chunk, and "
        f"{figures.watch_bytes / 1e6:.1f} MB at most, of which {figures.cache_bytes / 1e6:.1f} MB stay as keys and "
        "values.\n",
        highlight=False,
    )


def _print_forks(forks: Sequence[ForkFigures]) -> None:
    table = Table(title="a fork", box=None, title_justify="left")
    for heading in ("tokens held", "of MB", "median us", "allocated bytes", "first step us"):
        table.add_column(heading, justify="right", no_wrap=True)
    for fork in forks:
        table.add_row(
            f"{fork.num_tokens:,}",
            f"{fork.memory_bytes / 1e6:.1f}",
            f"{fork.fork_us:.1f}",
            f"{fork.fork_bytes:,}",
            f"{fork.step_us:.0f}",
        )
    Console().print(table, highlight=False)
