"""The picture of policies in answers: right ones by kind, over memory where there are several budgets."""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from longtake.bench.answers import AnswersRow
from longtake.bench.answers_scoring import ALL, KINDS, KindScore, Ratio, ScoredRow
from longtake.evaluation.asked_walk import Reach
from longtake.evaluation.figures import new_figure, save_figure
from longtake.world.question import QuestionKind

_KINDS = (ALL, *(kind for kind in KINDS if kind != QuestionKind.WHEN))
_REACHES = (Reach.REALTIME, Reach.RECALL)
_PANEL_INCHES = (2.2, 2.5)
_COMMONEST = "#9aa0a6"


def draw_answers(path: Path, rows: Sequence[ScoredRow], *, title: str) -> None:
    """A panel for each kind; of several variants realtime above, recall below."""
    lines = 1 if len(rows) == 1 else len(_REACHES)
    columns = 1 if len(rows) == 1 else len(_KINDS)
    width, height = (7.5, 4.2) if len(rows) == 1 else (columns * _PANEL_INCHES[0], 0.9 + lines * _PANEL_INCHES[1])
    figure = new_figure(width, height)
    figure.suptitle(title, fontsize=11)
    if len(rows) == 1:
        _draw_kinds(figure.add_subplot(), rows[0].kinds)
    else:
        _draw_policies(figure, rows)
    handles = {
        label: handle for axes in figure.axes for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=8, frameon=False, fontsize=9)
    save_figure(figure, path)


def _draw_kinds(axes: Any, found: Sequence[KindScore]) -> None:
    """Share right with its interval, apart by reach, and what the commonest answer reaches."""
    kinds = [kind for kind in (*KINDS, ALL) if any(score.kind == kind for score in found)]
    for place, reach in enumerate((None, *_REACHES)):
        of = [score for score in found if score.reach is reach]
        at = [kinds.index(score.kind) + 0.22 * (place - 1) for score in of]
        _draw_shares(axes, at, [score.right for score in of], label=reach or "all questions", line="none")
        heights = [None if score.commonest is None else 100 * score.commonest.value for score in of]
        axes.plot(at, heights, "_", color=_COMMONEST, markersize=9, label="commonest answer")
    axes.set_xticks(range(len(kinds)), [kind.replace(", ", ",\n") for kind in kinds])
    axes.set_ylabel("% right")
    axes.set_ylim(-3, 103)
    axes.grid(visible=True, axis="y", alpha=0.3)


def _draw_policies(figure: Any, rows: Sequence[ScoredRow]) -> None:
    for index, (reach, kind) in enumerate(itertools.product(_REACHES, _KINDS), start=1):
        if kind not in rows[0].reaching(reach):  # nor in any other, as the questions are the same
            continue
        axes = figure.add_subplot(len(_REACHES), len(_KINDS), index)
        _draw_panel(axes, rows, reach, kind)
        axes.set_title(f"{kind}, {reach}", fontsize=9)
        if not axes.get_subplotspec().colspan.start:
            axes.set_ylabel("% right", fontsize=9)


def _draw_panel(axes: Any, rows: Sequence[ScoredRow], reach: Reach, kind: str) -> None:
    for place, policy in enumerate(dict.fromkeys(_family(one.row) for one in rows)):
        points = [
            (one.row.variant.num_frames, one.reaching(reach)[kind].right) for one in rows if _family(one.row) == policy
        ]
        colour = f"C{place}"
        if points[0][0] is None:  # it keeps all
            axes.axhline(100 * points[0][1].value, color=colour, linestyle="--", linewidth=1.2, label=policy)
            continue
        sized = sorted(((size, share) for size, share in points if size is not None), key=lambda point: point[0])
        at = [size * 1.03 ** (place - 2) for size, _ in sized]  # side by side, so that intervals can be told apart
        _draw_shares(axes, at, [share for _, share in sized], label=policy, line="-", colour=colour)
    common = rows[0].reaching(reach)[kind].commonest
    if common is not None:
        axes.axhline(100 * common.value, color=_COMMONEST, linestyle=":", linewidth=1.2, label="commonest answer")
    sizes = sorted({size for one in rows if (size := one.row.variant.num_frames) is not None})
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, map(str, sizes))
    axes.set_xlabel("frames in memory", fontsize=8)
    axes.set_ylim(-3, 103)
    axes.tick_params(labelsize=8)
    axes.grid(visible=True, alpha=0.3)


def _family(row: AnswersRow) -> str:
    """Its policy without a number."""
    name, _, number = row.variant.policy.partition("-")
    return f"{name}-N" if number.isdecimal() else row.variant.policy


def _draw_shares(
    axes: Any, at: Sequence[float], shares: Sequence[Ratio], *, label: str, line: str, colour: str | None = None
) -> None:
    heights = [100 * share.value for share in shares]
    below = [0.0 if share.low is None else 100 * max(0.0, share.value - share.low) for share in shares]
    above = [0.0 if share.high is None else 100 * max(0.0, share.high - share.value) for share in shares]
    axes.errorbar(
        at,
        heights,
        yerr=[below, above],
        marker="o",
        markersize=4,
        capsize=2,
        linewidth=1.2,
        linestyle=line,
        color=colour,
        label=label,
    )
