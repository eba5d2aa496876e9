"""Where sub-maps begin to be solved from: each lies as one of its own loops says, for nothing else is known of it."""

import itertools
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Bool, Float64

from longtake.places.graph import PlaceGraph, placed
from longtake.places.loops import Loops
from longtake.spatial.pose import nearest_rotation
from longtake.spatial.similarities import Similarities

Cost = Callable[[Float64[np.ndarray, " loops"]], Float64[np.ndarray, " loops"]]
"""Of squared distances."""
_MOST_ANCHORS = 16


def with_sub_maps_laid(graph: PlaceGraph, cost: Cost) -> PlaceGraph:
    """Each sub-map where the loop into earlier ones says with which most of the others agree; unstrained."""
    if not graph.is_broken.any():
        return graph
    world = placed(graph.measured, np.zeros_like(graph.strain))
    for begin, end in itertools.pairwise([*np.flatnonzero(graph.is_broken).tolist(), len(graph)]):
        loops = graph.loops
        crossing = np.flatnonzero((loops.first < begin) & (loops.second >= begin) & (loops.second < end))
        if len(crossing):
            world = _laid(world, loops[crossing], slice(begin, end), cost)
    previous = world[slice(None, -1)].inverse() @ world[slice(1, None)]
    measured = world[slice(1)].followed_by(previous)
    return replace(graph, measured=_chosen(graph.is_broken, _rigid(measured), graph.measured))


def _laid(world: Similarities, crossing: Loops, nodes: slice, cost: Cost) -> Similarities:
    anchors = crossing[slice(-_MOST_ANCHORS, None)]
    moves = world[anchors.first] @ anchors.measured @ world[anchors.second].inverse()
    costs = [cost(crossing.distances(_moved(world, moves, anchor, nodes))).sum() for anchor in range(len(anchors))]
    return _moved(world, moves, int(np.argmin(costs)), nodes)


def _moved(world: Similarities, moves: Similarities, which: int, nodes: slice) -> Similarities:
    """The world with some of its nodes moved."""
    count = nodes.stop - nodes.start
    moved = moves[np.full(count, which)] @ world[nodes]
    return world[slice(nodes.start)].followed_by(moved).followed_by(world[slice(nodes.stop, None)])


def _rigid(similarities: Similarities) -> Similarities:
    """With rotations that are such: a sub-map is laid anew from where it was laid before, by products and transposes in
    which what is wrong of a rotation triples each time."""
    rotation = nearest_rotation(torch.from_numpy(similarities.rotation)).numpy()
    return Similarities(similarities.scale, rotation, similarities.translation)


def _chosen(choice: Bool[np.ndarray, " n"], ours: Similarities, theirs: Similarities) -> Similarities:
    return Similarities(
        np.where(choice, ours.scale, theirs.scale),
        np.where(choice[:, None, None], ours.rotation, theirs.rotation),
        np.where(choice[:, None], ours.translation, theirs.translation),
    )
