"""The part of `longtake bench policies` about maps: what each policy costs, and what it changes in a map."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from rich.table import Table

from longtake.bench.contenders import KEEP_ALL
from longtake.bench.eviction import EvictionFigures, EvictionRow, EvictionSettings, measure_eviction
from longtake.bench.machine import device_name
from longtake.cli.progress import counting
from longtake.cli.tables import table
from longtake.evaluation.agreement import Mean
from longtake.evaluation.figures import new_figure, save_figure
from longtake.geometry.model import GeometryModel
from longtake.hub.load import RANDOM, load_model, random_model
from longtake.runtime.build import SMALL, usual_settings
from longtake.weights.presets import TINY_CAUSAL

_CAUSAL = "tiny"
_MEMORY_MATTERS = 0.5
"""At the scale of 0.01 with which training begins, what a network remembers hardly changes its predictions."""
_COSTS_MEAN = """frames: the budget of a layer. room: MB allocated once. live: MB of keys and values at the end.
most: the same after any frame. tokens: at the end, mean of the layers (fewest-most). ms: median step, second half.
stats: a step's time over that of a twin that is told attention is even and so needs no statistics."""
_CHANGES_MEAN = """Against the full cache on the same frames. depth: relative difference of pixels. rotation, centre:
means over frames, the latter over the length of the path."""


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
        """What policies change over the bytes they take, and how they divide tokens between layers."""
        figure = new_figure(12.0, 4.8)
        changes, layers = figure.subplots(1, 2)
        figure.suptitle(self.title, fontsize=10)
        _draw_changes(changes, self.rows)
        _draw_layers(layers, self.rows)
        save_figure(figure, path)


def compare_maps(name: str, model: GeometryModel, settings: EvictionSettings) -> MapPolicies:
    """All policies on the same frames, with the network of this name."""
    if usual_settings(model.config).image_size == SMALL.image_size:
        torch.set_num_threads(1)  # the network is too small to share
    with counting("streaming", settings.num_worlds * settings.num_frames) as advance:
        rows = measure_eviction(model, settings, advance)
    return MapPolicies(contract=_contract(settings, name, next(model.parameters()).device), rows=rows)


def load_network(name: str, device: torch.device) -> GeometryModel:
    """A network by its name; `tiny` is one in which memory matters although its weights are random."""
    if name != _CAUSAL:
        return load_model(name, device=device)
    model = random_model(TINY_CAUSAL, device)
    for parameter_name, parameter in model.named_parameters():
        if parameter_name.endswith(".gamma"):
            parameter.fill_(_MEMORY_MATTERS)
    return model


def usual_size(model: GeometryModel) -> tuple[int, int]:
    """As wide as the images that the network was trained on, and three quarters as high."""
    width, patch = usual_settings(model.config).image_size, model.config.patch
    return round(0.75 * width / patch) * patch, width


def _contract(settings: EvictionSettings, weights: str, device: torch.device) -> dict[str, str | int]:
    return {
        "weights": weights,
        "is_random": weights in RANDOM,
        "device": device_name(device),
        "height": settings.size[0],
        "width": settings.size[1],
        "num_frames": settings.num_frames,
        "num_worlds": settings.num_worlds,
        "split": settings.split,
    }


def _table(
    rows: Sequence[EvictionRow], headings: Sequence[str], cells: Callable[[EvictionFigures], tuple[str, ...]]
) -> Table:
    """One line for each row, `refused` where there is no room in the budget."""
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


def _draw_changes(axes: Any, rows: Sequence[EvictionRow]) -> None:
    full = next(row.figures for row in rows if row.policy == KEEP_ALL)
    assert full is not None
    is_accuracy = full.ate_share is not None
    for policy, marker in zip(dict.fromkeys(row.policy for row in rows), itertools.cycle("osD^vP*X<>"), strict=False):
        points = [
            (row.figures.most_live_bytes / 1e6, 100 * height.mean)
            for row in rows
            if row.policy == policy and row.figures is not None and (height := _height(row.figures)) is not None
        ]
        if points and (is_accuracy or policy != KEEP_ALL):
            axes.plot(*zip(*sorted(points), strict=True), marker=marker, alpha=0.8, label=policy)
    axes.axvline(full.most_live_bytes / 1e6, color="grey", linestyle=":", label="full cache")
    against = "ATE after Sim(3), % of the true path" if is_accuracy else "centres from the full cache's, % of its path"
    axes.set(xlabel="keys and values at the most, MB", ylabel=against, xscale="log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter("{x:g}")
    axes.tick_params(axis="x", which="minor", labelsize=7)
    _finish(axes)


def _height(figures: EvictionFigures) -> Mean | None:
    return figures.centre_share if figures.ate_share is None else figures.ate_share


def _draw_layers(axes: Any, rows: Sequence[EvictionRow]) -> None:
    for row in rows:
        if row.figures is None or not row.policy.startswith(("managed", "layerwise", "strict")):
            continue
        tokens = row.figures.tokens_by_layer
        name = row.policy if row.budget_frames is None else f"{row.policy}, {row.budget_frames} frames"
        style = {"managed": "-"}.get(row.policy, ":" if row.policy.startswith("strict") else "--")
        axes.plot(range(len(tokens)), tokens, marker=".", linestyle=style, alpha=0.8, label=name)
    axes.set(xlabel="layer of the trunk", ylabel="tokens at the end")
    axes.set_ylim(bottom=0)
    axes.xaxis.get_major_locator().set_params(integer=True)
    _finish(axes)


def _finish(axes: Any) -> None:
    axes.grid(visible=True, alpha=0.3)
    if axes.lines:
        axes.legend(frameon=False, fontsize=8, ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.14))
