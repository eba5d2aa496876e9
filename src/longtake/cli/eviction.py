"""`longtake bench eviction`: memory policies side by side, as tables, JSON or a plot."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from longtake.bench.agreement import Mean
from longtake.bench.contenders import POLICIES
from longtake.bench.eviction import EvictionFigures, EvictionRow, EvictionSettings, measure_eviction
from longtake.cli.eviction_plot import draw_eviction
from longtake.cli.options import choose_device, parse_size
from longtake.errors import SettingError
from longtake.extras import import_from_extra
from longtake.geometry.model import GeometryModel
from longtake.hub.load import RANDOM, load_model, random_model
from longtake.runtime.build import SMALL, usual_settings
from longtake.weights.presets import TINY_CAUSAL

DEFAULT_POLICIES = ",".join(POLICIES)
QUICK_FRAMES = 5
_CAUSAL = "tiny"
_MEMORY_MATTERS = 0.5
"""At the scale of 0.01 with which training begins, what a network remembers hardly changes what it says."""
_COSTS_MEAN = """frames: the budget of a layer. room: MB allocated once. live: MB of keys and values at the end.
most: the same after any frame. tokens: at the end, mean of the layers (fewest-most). ms: median step, second half.
stats: a step's time over that of a twin that is told attention is even and so needs no statistics."""
_CHANGES_MEAN = """Against the full cache on the same frames. depth: relative difference of pixels. rotation, centre:
means over frames, the latter over the length of the path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionOptions:
    """What the command line says, word by word."""

    model: str
    frames: int
    size: str | None
    budgets: str
    worlds: int
    policies: str
    quick: bool
    device: str


def run_eviction(options: EvictionOptions, *, as_json: bool, plot: Path | None) -> None:
    if plot is not None:
        import_from_extra("matplotlib", "plot", "Drawing")  # said before the work, not after it
    budgets, device = _parse_budgets(options.budgets), choose_device(options.device)
    model = _untrained(device) if options.model == _CAUSAL else load_model(options.model, device=device)
    if usual_settings(model.config).image_size == SMALL.image_size:
        torch.set_num_threads(1)  # the network is too small to share
    settings = EvictionSettings(
        policies=tuple(dict.fromkeys(name.strip() for name in options.policies.split(","))),
        budgets=budgets,
        num_frames=QUICK_FRAMES if options.quick else options.frames,
        num_worlds=options.worlds,
        size=_usual_size(model) if options.size is None else parse_size(options.size),
        is_trained=options.model not in RANDOM,
    )
    with Progress(console=Console(stderr=True)) as progress:
        task = progress.add_task("streaming", total=settings.num_worlds * settings.num_frames)
        rows = measure_eviction(model, settings, lambda count: progress.advance(task, count))
    contract = _contract(settings, options.model, device)
    if plot is not None:
        draw_eviction(plot, rows, title=_title(contract))
    if as_json:
        print(json.dumps(contract | {"rows": [asdict(row) for row in rows]}, indent=1))
    else:
        _print_eviction(rows, contract)


def _parse_budgets(text: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and int(part) for part in parts):
        raise SettingError(f"Expected budgets in frames a layer, such as 4,8,16, but got '{text}'.")
    return tuple(dict.fromkeys(int(part) for part in parts))


def _untrained(device: torch.device) -> GeometryModel:
    model = random_model(TINY_CAUSAL, device)
    for name, parameter in model.named_parameters():
        if name.endswith(".gamma"):
            parameter.fill_(_MEMORY_MATTERS)
    return model


def _usual_size(model: GeometryModel) -> tuple[int, int]:
    """As wide as the network likes its images, and three quarters as high."""
    width, patch = usual_settings(model.config).image_size, model.config.patch
    return round(0.75 * width / patch) * patch, width


def _contract(settings: EvictionSettings, weights: str, device: torch.device) -> dict[str, str | int]:
    threads = torch.get_num_threads()
    cpu = f"CPU, {threads} thread{'s' * (threads > 1)}"
    return {
        "weights": weights,
        "is_random": weights in RANDOM,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else cpu,
        "height": settings.size[0],
        "width": settings.size[1],
        "num_frames": settings.num_frames,
        "num_worlds": settings.num_worlds,
    }


_WIDTH = 90
"""Columns that the widest table takes: on a narrower terminal a line is broken, but no figure is cut."""


def _title(contract: dict[str, str | int]) -> str:
    weights = f"{contract['weights']} network, random weights" if contract["is_random"] else contract["weights"]
    worlds = "1 world" if contract["num_worlds"] == 1 else f"{contract['num_worlds']} worlds"
    size = f"{contract['width']}x{contract['height']}"
    return f"{weights}, {contract['num_frames']} frames of {worlds} at {size}, {contract['device']}"


def _print_eviction(rows: Sequence[EvictionRow], contract: dict[str, str | int]) -> None:
    console = Console()
    console.width = max(console.width, _WIDTH)
    _say(console, f"{_title(contract)}\n")
    _show(console, _costs(rows), _COSTS_MEAN)
    _show(console, _changes(rows), _CHANGES_MEAN)
    if any(row.figures is not None and row.figures.depth_abs_rel is not None for row in rows):
        _show(console, _truths(rows), "Against the truth; in brackets 95 % confidence over worlds.")
    else:
        _say(console, "The weights are random: nothing is compared with the truth; name a --model for that.")
    for row in rows:
        if row.refused is not None:
            _say(console, f"{row.policy}, {row.budget_frames} frames: {row.refused}")


def _show(console: Console, table: Table, meaning: str) -> None:
    console.print(table)
    _say(console, f"\n{meaning}\n")


def _say(console: Console, text: str) -> None:
    console.print(text, highlight=False, soft_wrap=True)


def _table(rows: Sequence[EvictionRow], headings: Sequence[str], cells: Sequence[Sequence[str] | None]) -> Table:
    """One line for each row; a budget that was refused says so."""
    table = Table(box=None, pad_edge=False)
    table.add_column("policy", no_wrap=True)
    for heading in ("frames", *headings):
        table.add_column(heading, justify="right", no_wrap=True)
    for row, values in zip(rows, cells, strict=True):
        budget = "" if row.budget_frames is None else str(row.budget_frames)
        table.add_row(row.policy, budget, *(("refused",) if values is None else values))
    return table


def _costs(rows: Sequence[EvictionRow]) -> Table:
    headings = ("room", "live", "most", "tokens", "ms", "stats")
    return _table(rows, headings, [None if row.figures is None else _cost(row.figures) for row in rows])


def _cost(figures: EvictionFigures) -> tuple[str, ...]:
    tokens = figures.tokens_by_layer
    return (
        *(_megabytes(count) for count in (figures.declared_bytes, figures.live_bytes, figures.most_live_bytes)),
        f"{sum(tokens) / len(tokens):.0f} ({min(tokens)}-{max(tokens)})",
        f"{figures.step_ms:.1f}",
        "" if figures.statistics_ratio is None else f"{figures.statistics_ratio:.2f}",
    )


def _changes(rows: Sequence[EvictionRow]) -> Table:
    headings = ("depth median", "depth p95", "rotation deg", "centre %")
    return _table(rows, headings, [None if row.figures is None else _change(row.figures) for row in rows])


def _change(figures: EvictionFigures) -> tuple[str, ...]:
    return (
        _said(figures.depth_median, "{:.1e}"),
        _said(figures.depth_p95, "{:.1e}"),
        _said(figures.rotation_deg, "{:.2f}"),
        _said(figures.centre_share, "{:.2f}", factor=100),
    )


def _truths(rows: Sequence[EvictionRow]) -> Table:
    headings = ("ATE % of path", "rotation deg", "depth AbsRel")
    return _table(rows, headings, [None if row.figures is None else _truth(row.figures) for row in rows])


def _truth(figures: EvictionFigures) -> tuple[str, ...]:
    return (
        _with_interval(figures.ate_share, factor=100),
        _with_interval(figures.true_rotation_deg),
        _with_interval(figures.depth_abs_rel),
    )


def _said(value: Mean | None, form: str, *, factor: int = 1) -> str:
    return "" if value is None else form.format(factor * value.mean)


def _with_interval(value: Mean | None, *, factor: int = 1) -> str:
    said = _said(value, "{:.3g}", factor=factor)
    if value is None or value.low is None or value.high is None:
        return said
    return f"{said} ({factor * value.low:.3g}-{factor * value.high:.3g})"


def _megabytes(count: int) -> str:
    return f"{count / 1e6:.2f}"
