"""Graphs as values: what is added, what leaves, what is saved."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from walked_graph import DRIFT, NOISE, relative, walked_graph

from longtake.errors import InputError, SavedSessionError, SettingError
from longtake.places.graph import LOOP_BYTES, NODE_BYTES, PlaceGraph
from longtake.places.loops import Spread
from longtake.places.solver import Solving
from longtake.spatial.similarities import exp
from longtake.spatial.similarity import Similarity

STEP = exp(np.array([[1.0, 0.0, 0.0, 0.0, 0.0, 0.5, 0.1]])).one(0)


def test_nodes_follow_each_other_by_what_was_measured() -> None:
    first = exp(np.array([[3.0, 1.0, 2.0, 0.1, 0.2, 0.3, 0.4]])).one(0)
    graph = PlaceGraph.of_first(first)
    for _ in range(3):
        before = graph
        graph = graph.followed_by(STEP, DRIFT)
        assert len(before) == len(graph) - 1
    torch.testing.assert_close(graph.node(3).matrix, (first @ STEP @ STEP @ STEP).matrix)
    torch.testing.assert_close(graph.node(0).matrix, first.matrix)


def test_a_loop_moves_nothing_before_it_is_solved() -> None:
    walked = walked_graph(1, nodes=10, loops=0)
    looped = walked.graph.with_loop(1, 8, STEP, NOISE)
    np.testing.assert_array_equal(looped.world_from_node.translation, walked.graph.world_from_node.translation)
    assert len(walked.graph.loops) == 0
    assert looped.loops.weight.tolist() == [1.0]


def test_too_many_loops_lose_the_withdrawn_then_those_close_to_others() -> None:
    graph = walked_graph(2, nodes=60, loops=0).graph
    graph = replace(graph, max_loops=3)
    for first, second in ((1, 20), (5, 40), (6, 42)):
        graph = graph.with_loop(first, second, STEP, NOISE)
    assert graph.with_loop(10, 59, STEP, NOISE).loops.number.tolist() == [0, 2, 3]
    judged = replace(graph.loops, weight=np.array([0.9, 0.8, 0.1]), is_withdrawn=np.array([False, False, True]))
    assert replace(graph, loops=judged).with_loop(10, 59, STEP, NOISE).loops.number.tolist() == [0, 1, 3]
    weighed = replace(graph.loops, weight=np.array([0.9, 0.8, 0.7]))
    assert replace(graph, loops=weighed).with_loop(10, 59, STEP, NOISE).loops.number.tolist() == [0, 1, 3]


def test_bytes_are_known_in_closed_form_and_saved_to_the_bit() -> None:
    graph = walked_graph(3, nodes=30, loops=7, wrong=0.3).graph.followed_by_sub_map(STEP)
    graph = Solving.of(graph).solved().adopted_by(graph)
    tensors = graph.tensors()
    assert graph.num_bytes == 31 * NODE_BYTES + 7 * LOOP_BYTES
    assert graph.num_bytes == sum(tensor.nbytes for tensor in tensors.values())
    again = PlaceGraph.of_tensors(tensors)
    for name, tensor in again.tensors().items():
        assert torch.equal(tensor, tensors[name]), name
    later, other = (one.followed_by(STEP, DRIFT).with_loop(2, 31, STEP, NOISE) for one in (graph, again))
    assert Solving.of(later).solved().strain.tobytes() == Solving.of(other).solved().strain.tobytes()


def test_2100_windows_with_their_loops_take_less_than_a_megabyte() -> None:
    assert 2100 * NODE_BYTES + 128 * LOOP_BYTES < 700_000


def test_damaged_graphs_are_refused_in_a_sentence() -> None:
    whole = walked_graph(4, nodes=5, loops=2).graph.tensors()
    damages = {
        "strain": whole["strain"][:3],
        "measured": whole["measured"].float(),
        "loop_nodes": whole["loop_nodes"] + 10,
        "world_from_node": whole["world_from_node"] * torch.nan,
    }
    for name, damage in damages.items():
        with pytest.raises(SavedSessionError, match=r"save it again\.$"):
            PlaceGraph.of_tensors({**whole, name: damage})
    with pytest.raises(SavedSessionError, match=r"save it again\.$"):
        PlaceGraph.of_tensors({name: tensor for name, tensor in whole.items() if name != "spread"})


def test_what_cannot_be_is_refused() -> None:
    graph = walked_graph(5, nodes=5, loops=0).graph
    for first, second in ((2, 2), (3, 1), (-1, 2), (0, 5)):
        with pytest.raises(InputError, match="earlier to a later of 5 nodes"):
            graph.with_loop(first, second, STEP, NOISE)
    with pytest.raises(SettingError):
        Spread(translation=0.0, rotation_rad=1.0, log_scale=1.0)
    with pytest.raises(SettingError):
        PlaceGraph.of_first(Similarity.identity(torch.device("cpu")), max_loops=0)


def test_what_moved_takes_nodes_from_where_they_were_to_where_they_are() -> None:
    before = walked_graph(8, nodes=20, loops=6, drift=2.0).graph
    now = Solving.of(before).solved().adopted_by(before.followed_by(STEP, DRIFT))
    moved = now.now_from(before)
    assert len(moved) == 20
    again = (moved @ before.world_from_node).translation
    np.testing.assert_allclose(again, now.world_from_node.translation[:20], atol=1e-12)
    np.testing.assert_allclose(moved.translation[0], 0, atol=1e-12)
    assert np.abs(moved.translation[1:]).max() > 0.01


def test_islands_are_joined_by_loops_that_are_believed() -> None:
    graph = walked_graph(6, nodes=4, loops=0).graph.followed_by_sub_map(STEP).followed_by(STEP, DRIFT)
    graph = graph.followed_by_sub_map(STEP)
    assert graph.islands().tolist() == [0, 0, 0, 0, 4, 4, 6]
    joined = graph.with_loop(5, 6, STEP, NOISE)
    assert joined.islands().tolist() == [0, 0, 0, 0, 4, 4, 4]
    assert joined.with_loop(1, 4, STEP, NOISE).islands().tolist() == [0] * 7
    withdrawn = replace(joined.loops, is_withdrawn=np.array([True]))
    assert replace(joined, loops=withdrawn).islands().tolist() == [0, 0, 0, 0, 4, 4, 6]


def test_sub_map_lies_as_was_said_until_a_loop_tells() -> None:
    graph = walked_graph(7, nodes=4, loops=0).graph.followed_by_sub_map(STEP)
    torch.testing.assert_close(graph.node(4).matrix, STEP.matrix)
    looped = graph.with_loop(2, 4, STEP, NOISE)
    solved = Solving.of(looped).solved().adopted_by(looped)
    np.testing.assert_allclose(relative(solved.world_from_node, 2, 4).translation[0], STEP.translation, atol=1e-9)
