"""One step of the solver: by nodes, by loops, and by the whole matrices that neither of them writes down."""

from dataclasses import replace

import numpy as np
import pytest
from walked_graph import walked_graph

from longtake.places.graph import PlaceGraph
from longtake.places.linear_system import Chain, LinearSystem
from longtake.places.loops import by_number


def system(seed: int, *, nodes: int, loops: int) -> LinearSystem:
    graph = strained(walked_graph(seed, nodes=nodes, loops=loops, drift=2.0).graph, seed)
    random = np.random.default_rng(seed)
    chain = Chain.of(graph.world_from_node, graph.strain, by_number(graph.spread))
    return LinearSystem(chain, graph.loops, 20 * random.normal(size=(loops, 7, 7)), random.normal(size=(loops, 7)))


def strained(graph: PlaceGraph, seed: int) -> PlaceGraph:
    strain = 0.1 * np.random.default_rng(seed).normal(size=(len(graph), 7))
    strain[0] = 0
    return replace(graph, strain=strain)


def by_whole_matrices(system: LinearSystem) -> np.ndarray:
    """J written out: a row of blocks a loop, a column of blocks a node."""
    loops, moved = system.loops, system.chain.moved
    jacobian = np.zeros((len(loops), 7, len(moved), 7))
    for loop, (first, second) in enumerate(zip(loops.first, loops.second, strict=True)):
        for node in range(first + 1, second + 1):
            jacobian[loop, :, node] = system.rows[loop] @ moved[node]
    matrix = jacobian.reshape(7 * len(loops), -1)
    return -np.linalg.solve(np.eye(matrix.shape[1]) + matrix.T @ matrix, matrix.T @ system.b.ravel()).reshape(-1, 7)


@pytest.mark.parametrize(("nodes", "loops"), [(2, 1), (3, 7), (8, 8), (9, 30), (30, 9), (25, 60)])
def test_both_ways_give_what_the_whole_matrices_do(nodes: int, loops: int) -> None:
    one = system(nodes + loops, nodes=nodes, loops=loops)
    wanted = by_whole_matrices(one)
    np.testing.assert_allclose(one.solved_by_nodes(), wanted, atol=1e-9)
    np.testing.assert_allclose(one.solved_by_loops(), wanted, atol=1e-9)
    np.testing.assert_array_equal(one.solved_by_nodes()[0], np.zeros(7))


def test_the_smaller_system_is_solved() -> None:
    many, few = system(0, nodes=9, loops=30), system(1, nodes=30, loops=9)
    np.testing.assert_array_equal(many.solved(), many.solved_by_nodes())
    np.testing.assert_array_equal(few.solved(), few.solved_by_loops())


def test_pulls_are_the_transpose_of_shifts() -> None:
    one, random = system(2, nodes=12, loops=10), np.random.default_rng(0)
    y, pulls = random.normal(size=(12, 7)), random.normal(size=(10, 7))
    np.testing.assert_allclose(
        (one.chain.shifts(one.loops, y) * pulls).sum(), (y * one.chain.pulled(one.loops, pulls)).sum()
    )
