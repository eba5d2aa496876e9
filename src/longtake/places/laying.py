"""One take laid into the world of another by the places that both know: spans of frames move, each as a whole.

An old take that must not move is one span, which never does.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from longtake.places.known_take import KnownTake
from longtake.places.links import Link
from longtake.places.loop_rule import LoopRule
from longtake.places.moved_frames import corrections
from longtake.places.spans import FEWEST_LINKS, Spans, begins_of, solved_together
from longtake.places.verification import rigid
from longtake.takes.corrections import Corrections
from longtake.takes.take import Take


@dataclass(frozen=True, slots=True, kw_only=True)
class Laid:
    """How the frames of two takes move into one world, which is that of the old one."""

    old: Corrections | None
    """None where it stays."""
    new: Corrections
    num_links: int
    """That are believed, after all."""


def lay(
    old: KnownTake, new: KnownTake, links: Sequence[Link], rule: LoopRule | None = None, *, moves_old: bool
) -> Laid | None:
    """By links that agree; None where too few are believed when all are weighed together."""
    rule = rule or LoopRule()
    old_spans = _spans(old.take, _begins(old.take, rule) if moves_old else [0])
    new_spans = _spans(new.take, _begins(new.take, rule))
    graph = solved_together(old_spans, new_spans, links, rule)
    num_links = int((~graph.loops.is_withdrawn).sum())
    if num_links < FEWEST_LINKS:
        return None
    return Laid(
        old=corrections(old_spans, graph, 0) if moves_old else None,
        new=corrections(new_spans, graph, len(old_spans.anchors)),
        num_links=num_links,
    )


def _begins(take: Take, rule: LoopRule) -> list[int]:
    return begins_of([record.index for record in take.records], [record.window or 0 for record in take.records], rule)


def _spans(take: Take, begins: list[int]) -> Spans:
    return Spans(
        tuple(take.records[position].index for position in begins),
        take.records[-1].index,
        tuple(rigid(take.trajectory.world_from_camera[position]) for position in begins),
        tuple(_median_depth(take, position) for position in begins),
        is_settled=take.corrections is not None,
    )


def _median_depth(take: Take, position: int) -> float:
    depth = take.depth(position)
    usable = depth[depth > 0]
    return float(np.median(usable)) if usable.size else 1.0
