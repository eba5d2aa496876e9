"""The part of `longtake bench policies` about maps: what each policy costs, and what it changes in a map."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from rich.table import Table

from longtake.bench.contenders import POLICIES
from longtake.bench.eviction import EvictionFigures, EvictionRow, EvictionSettings, measure_eviction
from longtake.cli.map_policies_plot import draw_map_policies
from longtake.cli.options import parse_size
from longtake.cli.tables import counting, table
from longtake.errors import SettingError
from longtake.evaluation.agreement import Mean
from longtake.geometry.model import GeometryModel
from longtake.hub.load import RANDOM, load_model, random_model
from longtake.runtime.build import SMALL, usual_settings
from longtake.runtime.execution import choose_device
from longtake.weights.presets import TINY_CAUSAL
from longtake.world.seeds import Split

DEFAULT_POLICIES = ",".join(POLICIES)
_CAUSAL = "tiny"
_MEMORY_MATTERS = 0.5
"""At the scale of 0.01 with which training begins, what a network remembers hardly changes what it says."""
_COSTS_MEAN = """frames: the budget of a layer. room: MB allocated once. live: MB of keys and values at the end.
most: the same after any frame. tokens: at the end, mean of the layers (fewest-most). ms: median step, second half.
stats: a step's time over that of a twin that is told attention is even and so needs no statistics."""
_CHANGES_MEAN = """Against the full cache on the same frames. depth: relative difference of pixels. rotation, centre:
means over frames, the latter over the length of the path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MapPolicyOptions:
    """What the command line says, word by word."""

    model: str
    policies: str
    budgets: str
    worlds: int
    split: Split
    frames: int
    size: str | None
    device: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MapPolicies:
    """A row for each policy and budget, and the contract under which they were measured."""

    contract: dict[str, str | int]
    rows: Sequence[EvictionRow]

    @property
    def record(self) -> dict[str, Any]:
        return self.contract | {"rows": [asdict(row) for row in self.rows]}

    @property
    def title(self) -> str:
        contract = self.contract
        weights = f"{contract['weights']}{' network, random weights' if contract['is_random'] else ''}"
        worlds = "1 world" if contract["num_worlds"] == 1 else f"{contract['num_worlds']} worlds"
        size = f"{contract['width']}x{contract['height']}"
        return f"{weights}, {contract['num_frames']} frames of {worlds} at {size}, {contract['device']}"

    def blocks(self) -> Iterator[str | Table]:
        """For people."""
        rows = self.rows
        yield f"{self.title}\n"
        yield _table(rows, ("room", "live", "most", "tokens", "ms", "stats"), _cost)
        yield f"\n{_COSTS_MEAN}\n"
        yield _table(rows, ("depth median", "depth p95", "rotation deg", "centre %"), _change)
        yield f"\n{_CHANGES_MEAN}\n"
        if any(row.figures is not None and row.figures.depth_abs_rel is not None for row in rows):
            yield _table(rows, ("ATE % of path", "rotation deg", "depth AbsRel"), _truth)
            yield "\nAgainst the truth; in brackets 95 % confidence over worlds.\n"
        else:
            yield "The weights are random: nothing is compared with the truth; name a --model for that."
        for row in rows:
            if row.refused is not None:
                yield f"{row.policy}, {row.budget_frames} frames: {row.refused}"

    def draw(self, path: Path) -> None:
        draw_map_policies(path, self.rows, title=self.title)


def compare_maps(options: MapPolicyOptions) -> MapPolicies:
    """All policies on the same frames."""
    budgets, device = parse_budgets(options.budgets), choose_device(options.device)
    model = _untrained(device) if options.model == _CAUSAL else load_model(options.model, device=device)
    if usual_settings(model.config).image_size == SMALL.image_size:
        torch.set_num_threads(1)  # the network is too small to share
    settings = EvictionSettings(
        policies=tuple(dict.fromkeys(name.strip() for name in options.policies.split(","))),
        budgets=budgets,
        num_frames=options.frames,
        num_worlds=options.worlds,
        split=options.split,
        size=_usual_size(model) if options.size is None else parse_size(options.size),
        is_trained=options.model not in RANDOM,
    )
    with counting("streaming", settings.num_worlds * settings.num_frames) as advance:
        rows = measure_eviction(model, settings, advance)
    return MapPolicies(contract=_contract(settings, options.model, device), rows=rows)


def parse_budgets(text: str) -> tuple[int, ...]:
    """In frames."""
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
        "split": settings.split,
    }


def _table(
    rows: Sequence[EvictionRow], headings: Sequence[str], cells: Callable[[EvictionFigures], tuple[str, ...]]
) -> Table:
    """One line for each row; a budget that was refused says so."""
    return table(
        ("policy", "frames", *headings),
        (
            (
                row.policy,
                "" if row.budget_frames is None else str(row.budget_frames),
                *(("refused",) if row.figures is None else cells(row.figures)),
            )
            for row in rows
        ),
    )


def _cost(figures: EvictionFigures) -> tuple[str, ...]:
    tokens = figures.tokens_by_layer
    return (
        *(f"{count / 1e6:.2f}" for count in (figures.declared_bytes, figures.live_bytes, figures.most_live_bytes)),
        f"{sum(tokens) / len(tokens):.0f} ({min(tokens)}-{max(tokens)})",
        f"{figures.step_ms:.1f}",
        "" if figures.statistics_ratio is None else f"{figures.statistics_ratio:.2f}",
    )


def _change(figures: EvictionFigures) -> tuple[str, ...]:
    return (
        _mean(figures.depth_median, "{:.1e}"),
        _mean(figures.depth_p95, "{:.1e}"),
        _mean(figures.rotation_deg, "{:.2f}"),
        _mean(figures.centre_share, "{:.2f}", factor=100),
    )


def _truth(figures: EvictionFigures) -> tuple[str, ...]:
    return (
        _with_interval(figures.ate_share, factor=100),
        _with_interval(figures.true_rotation_deg),
        _with_interval(figures.depth_abs_rel),
    )


def _mean(value: Mean | None, form: str, *, factor: int = 1) -> str:
    return "" if value is None else form.format(factor * value.mean)


def _with_interval(value: Mean | None, *, factor: int = 1) -> str:
    mean = _mean(value, "{:.3g}", factor=factor)
    if value is None or value.low is None or value.high is None:
        return mean
    return f"{mean} ({factor * value.low:.3g}-{factor * value.high:.3g})"
