"""Pictures of walks with loops and without, from their rows: precision and recall, and worlds from above."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.loop_tables import Pair, recall_curve
from longtake.evaluation.figures import new_figure, save_figure

_TRUE, _FOUND, _WAY = "#bdc1c6", "#1a6fb0", "#e0301e"
_PANEL = 2.6
"""Inches along each side."""


def draw_recall(pairs: Sequence[Pair], path: Path) -> None:
    """Of the best candidates of all places, over their similarity, a curve each family."""
    figure = new_figure(2 * _PANEL + 0.6, _PANEL)
    precision, recall = figure.subplots(1, 2, sharex=True)
    for family in dict.fromkeys(pair.task["family"] for pair in pairs):
        curve = recall_curve(
            [place for pair in pairs if pair.task["family"] == family for place in pair.walk["places"]]
        )
        told = [(least, share) for least, share in zip(curve.least, curve.precision, strict=True) if share is not None]
        precision.plot(*zip(*told, strict=True), label=family)
        recall.plot(curve.least, curve.recall, label=family)
    for axes, name in ((precision, "precision"), (recall, "recall")):
        axes.set(xlabel="similarity from", ylabel=name, ylim=(0, 1.02))
        axes.grid(alpha=0.3)
    recall.legend(frameon=False)
    save_figure(figure, path)


def draw_from_above(pairs: Sequence[Pair], path: Path) -> None:
    """A row a world: walls and way as found without loops and with them, over those that are true."""
    figure = new_figure(2 * _PANEL, _PANEL * len(pairs))
    grid = figure.subplots(len(pairs), 2, squeeze=False)
    for pair, row in zip(pairs, grid, strict=True):
        for axes, figures, name in zip(row, (pair.without, pair.known), ("without loops", "with"), strict=True):
            _draw(axes, figures)
            f1 = figures["points"]["f1"]
            axes.set_title(f"{pair.task['family']} {pair.task['seed']}, {name}: F1 {f1:.2f}", fontsize=7)
    save_figure(figure, path)


def _draw(axes: Any, figures: Mapping[str, Any]) -> None:
    for points, colour in ((figures["above"]["true"], _TRUE), (figures["above"]["found"], _FOUND)):
        axes.plot(*_metres(points), ",", color=colour)
    for way, colour in ((figures["way"]["true"], _TRUE), (figures["way"]["found"], _WAY)):
        axes.plot(*_metres(way), color=colour, linewidth=0.6)
    true = np.array(figures["above"]["true"] or figures["way"]["true"]) / 100
    low, high = np.quantile(true, 0.01, axis=0) - 0.5, np.quantile(true, 0.99, axis=0) + 0.5
    axes.set(aspect="equal", xlim=(low[0], high[0]), ylim=(low[1], high[1]), xticks=[], yticks=[])


def _metres(points: Sequence[Sequence[int]]) -> np.ndarray:
    return np.array(points).reshape(-1, 2).T / 100
