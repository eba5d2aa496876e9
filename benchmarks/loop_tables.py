"""Tables of walks with loops and without, from their rows: errors, points, wrong loops, precision and recall."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, median
from typing import Any

import numpy as np
from rich.table import Table

from benchmarks.loop_truth import is_wrong
from benchmarks.many_worlds import Row
from longtake.cli.tables import table

_PER_FRAMES = 10_000
_LEAST = tuple(round(0.05 * number, 2) for number in range(17))
"""Similarities at which precision and recall are told."""


_LONG = ("loops", "places", "above", "way", "without", "with")
"""What programs are not told of a walk, or elsewhere."""


@dataclass(frozen=True, slots=True)
class Pair:
    """One world without loops and with them."""

    task: Mapping[str, Any]
    without: Mapping[str, Any]
    known: Mapping[str, Any]
    """Errors, points and ways, of each."""
    walk: Mapping[str, Any]
    """What became of the walk with loops besides: loops, places, sub-maps, what it took."""

    @property
    def num_returns(self) -> int:
        """Places that the walk had truly seen before."""
        return sum(place["is_known"] for place in self.walk["places"])

    @property
    def accepted(self) -> list[Mapping[str, Any]]:
        return [loop for loop in self.walk["loops"] if loop["is_accepted"]]

    @property
    def num_wrong(self) -> int:
        return sum(map(is_wrong, self.accepted))


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallCurve:
    """Of an index and of all that is verified, over the least similarity that is looked at."""

    least: list[float]
    precision: list[float | None]
    """Of places whose best candidate is so similar, how many are right."""
    recall: list[float]
    """Of places that were seen before, how many have a right best candidate so similar."""


def pairs_of(rows: Sequence[Row]) -> list[Pair]:
    """A pair a row."""
    return [Pair(row.task, row.figures["without"], row.figures["with"], row.figures) for row in rows]


def walk_blocks(rows: Sequence[Row]) -> Iterator[Table | str]:
    """A line a world, and what all of them come to."""
    pairs = pairs_of(rows)
    headings = [
        *("family", "seed", "frames", "m without", "m with", "degrees without", "with", "F1 without", "with"),
        *("seen again", "loops, withdrawn, wrong", "sub-maps, apart", "ms a frame", "MB"),
    ]
    yield table(headings, map(_cells, pairs))
    for name, some in _groups(pairs).items():
        yield f"{name}: {_summary(some)}"
    if pairs:
        yield _wrong_line(pairs)
        yield _recall_table(recall_curve([place for pair in pairs for place in pair.walk["places"]]))


def recall_curve(places: Sequence[Mapping[str, Any]]) -> RecallCurve:
    """Over similarity, of places as rows have them."""
    similarity = np.array([place["similarity"] for place in places])
    right = np.array([place["is_right"] for place in places], dtype=bool)
    num_known = max(1, sum(place["is_known"] for place in places))
    chosen = [similarity >= least for least in _LEAST]
    return RecallCurve(
        least=list(_LEAST),
        precision=[float(right[some].mean()) if some.any() else None for some in chosen],
        recall=[float(right[some].sum() / num_known) for some in chosen],
    )


def walk_record(rows: Sequence[Row]) -> dict[str, Any]:
    """The same for programs, without points and ways."""
    pairs = pairs_of(rows)
    return {
        "walks": [
            {
                **pair.task,
                "without": _figures(pair.without),
                "with": _figures(pair.known),
                **_figures(pair.walk),
                "num_returns": pair.num_returns,
                "num_accepted": len(pair.accepted),
                "num_wrong": pair.num_wrong,
            }
            for pair in pairs
        ],
        "wrong": [{**pair.task, **loop} for pair in pairs for loop in pair.accepted if is_wrong(loop)],
    }


def _figures(figures: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in figures.items() if name not in _LONG}


def _groups(pairs: Sequence[Pair]) -> dict[str, list[Pair]]:
    """By family and whether the walk came back."""
    groups: dict[str, list[Pair]] = {}
    for pair in pairs:
        kind = "that came back" if pair.num_returns else "without a return"
        groups.setdefault(f"{pair.task['family']}, {pair.task['frames']} frames, {kind}", []).append(pair)
    return groups


def _summary(pairs: Sequence[Pair]) -> str:
    (before_m, after_m), (before_deg, after_deg) = (
        [[figures[name] for figures in some] for some in _both_ways(pairs)] for name in ("metres", "degrees")
    )
    f1 = [mean(figures["points"]["f1"] for figures in some) for some in _both_ways(pairs)]
    halved = sum(after <= before / 2 for before, after in zip(before_m, after_m, strict=True))
    worse = sum(after > 1.05 * before for before, after in zip(before_m, after_m, strict=True))
    return (
        f"{len(pairs)} worlds; median {median(before_m):.3f} m without loops and {median(after_m):.3f} with, "
        f"mean {mean(before_m):.3f} and {mean(after_m):.3f}, at most {max(before_m):.3f} and {max(after_m):.3f}; "
        f"{median(before_deg):.1f} degrees and {median(after_deg):.1f}; at most half in {halved}, more than 5 % worse "
        f"in {worse}; F1 at 5 cm {f1[0]:.3f} and {f1[1]:.3f}"
    )


def _both_ways(pairs: Sequence[Pair]) -> tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]]:
    return [pair.without for pair in pairs], [pair.known for pair in pairs]


def _wrong_line(pairs: Sequence[Pair]) -> str:
    wrong, frames = sum(pair.num_wrong for pair in pairs), sum(pair.task["frames"] for pair in pairs)
    accepted = sum(len(pair.accepted) for pair in pairs)
    elsewhere = sum(is_wrong(loop) and loop["shared"] == 0 for pair in pairs for loop in pair.accepted)
    with_wrong = [pair for pair in pairs if pair.num_wrong]
    harmed = sum(pair.known["metres"] > pair.without["metres"] for pair in with_wrong)
    return (
        f"{wrong} of {accepted} accepted loops wrong in {frames} frames, {_PER_FRAMES * wrong / frames:.2f} in "
        f"{_PER_FRAMES}; {elsewhere} of two places that share nothing; of {len(with_wrong)} worlds with a wrong one "
        f"{harmed} worse than without loops"
    )


def _recall_table(curve: RecallCurve) -> Table:
    rows = [
        (f"{least:.2f}", "-" if precision is None else f"{precision:.3f}", f"{recall:.3f}")
        for least, precision, recall in zip(curve.least, curve.precision, curve.recall, strict=True)
    ]
    return table(("similarity of the best candidate from", "precision", "recall"), rows)


def _cells(pair: Pair) -> list[str]:
    without, known, walk = pair.without, pair.known, pair.walk
    return [
        *(pair.task["family"], str(pair.task["seed"]), str(pair.task["frames"])),
        *(f"{without['metres']:.3f}", f"{known['metres']:.3f}", f"{without['degrees']:.1f}", f"{known['degrees']:.1f}"),
        *(f"{without['points']['f1']:.3f}", f"{known['points']['f1']:.3f}", str(pair.num_returns)),
        f"{len(pair.accepted)}, {walk['num_withdrawn']}, {pair.num_wrong}",
        f"{walk['num_sub_maps']}, {walk['num_apart']}",
        *(f"{walk['ms']:.1f}", f"{walk['megabytes']:.0f}"),
    ]
