"""Graphs of random walks with their truth: overlaps that drift, loops that are right within their spread, or wrong."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from longtake.places.graph import PlaceGraph
from longtake.places.loops import Spread
from longtake.spatial.similarities import Similarities, exp
from longtake.spatial.similarity import Similarity, best_similarity

DRIFT = Spread(translation=0.02, rotation_rad=0.01, log_scale=0.01)
NOISE = Spread(translation=0.05, rotation_rad=0.035, log_scale=0.03)


@dataclass(frozen=True, slots=True)
class WalkedGraph:
    graph: PlaceGraph
    true: Similarities
    is_wrong: NDArray[np.bool_]


def walked_graph(
    seed: int, *, nodes: int, loops: int, wrong: float = 0.0, drift: float = 1.0, noise: float = 1.0
) -> WalkedGraph:
    """Drift and noise as multiples of what the graph is told of them."""
    random = np.random.default_rng(seed)
    steps = random.normal(size=(nodes, 7)) * [0.8, 0.8, 0.05, 0, 0, 0.6, 0]
    steps[0] = 0
    true = exp(steps).products()
    measured = exp(steps) @ exp(drift * _random(random, nodes, DRIFT))
    graph = PlaceGraph.of_first(Similarity.identity(torch.device("cpu")))
    for node in range(1, nodes):
        graph = graph.followed_by(measured.one(node), DRIFT)
    is_wrong = random.random(loops) < wrong
    for loop in range(loops):
        first, second = sorted(random.choice(nodes, 2, replace=False).tolist())
        found = relative(true, first, second) @ exp(noise * _random(random, 1, NOISE))
        if is_wrong[loop]:
            found = exp(random.normal(size=(1, 7)) * [0.5, 0.5, 0.5, 0.3, 0.3, 0.3, 0.1])
        graph = graph.with_loop(first, second, found.one(0), NOISE)
    return WalkedGraph(graph, true, is_wrong)


def relative(world_from_node: Similarities, first: int, second: int) -> Similarities:
    """first_from_second."""
    return world_from_node[np.array([first])].inverse() @ world_from_node[np.array([second])]


def error(graph: PlaceGraph, true: Similarities) -> float:
    """Root mean square distance of nodes from the truth, in the first node's frame of both."""
    return float(np.sqrt(((graph.world_from_node.translation - true.translation) ** 2).sum(axis=1).mean()))


def aligned_error(graph: PlaceGraph, true: Similarities) -> float:
    """The same after the best similarity."""
    found, wanted = (torch.from_numpy(one.translation) for one in (graph.world_from_node, true))
    return float((best_similarity(found, wanted).of_points(found) - wanted).square().sum(dim=1).mean().sqrt())


def _random(random: np.random.Generator, count: int, spread: Spread) -> NDArray[np.float64]:
    return random.normal(size=(count, 7)) * np.repeat(spread.numbers, [3, 3, 1])
