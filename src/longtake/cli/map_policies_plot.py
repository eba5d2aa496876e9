"""The picture of policies in maps: what they change, over the bytes they take."""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from longtake.bench.contenders import KEEP_ALL
from longtake.bench.eviction import EvictionFigures, EvictionRow
from longtake.evaluation.agreement import Mean
from longtake.extras import import_from_extra


def draw_map_policies(path: Path, rows: Sequence[EvictionRow], *, title: str) -> None:
    """What policies change over the bytes they take, and how they divide tokens between layers."""
    matplotlib = import_from_extra("matplotlib", "plot", "Drawing")
    matplotlib.use("Agg")
    pyplot = import_from_extra("matplotlib.pyplot", "plot", "Drawing")
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(12, 4.8), layout="constrained")
    figure.suptitle(title, fontsize=10)
    _draw_changes(left, rows)
    _draw_layers(right, rows)
    figure.savefig(path, dpi=150)
    pyplot.close(figure)


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
