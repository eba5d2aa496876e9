"""Frames that move as a whole: a span a window, or for so many frames where windows are longer."""

from dataclasses import replace

import numpy as np
import torch

from longtake.places.graph import PlaceGraph
from longtake.places.loop_rule import LoopRule
from longtake.places.spans import Spans, begins_of
from longtake.spatial.similarity import Similarity


def test_a_span_begins_with_each_window() -> None:
    assert begins_of([0, 1, 2, 5, 6], [0, 0, 1, 1, 2], LoopRule()) == [0, 2, 4]


def test_a_window_without_an_end_is_divided() -> None:
    assert begins_of(range(10), [0] * 10, LoopRule(longest_node=4)) == [0, 4, 8]


def test_ends_of_a_walk_that_loops_laid_are_as_sure_as_neighbours_of_another() -> None:
    anchors = tuple(Similarity.of_matrix(torch.eye(4, dtype=torch.float64)) for _ in range(10))
    loose = Spans(starts=tuple(range(10)), last=9, anchors=anchors, units=(2.0,) * 10)
    neighbours = np.array(LoopRule().drift.numbers) * (2.0, 1.0, 1.0)
    for spans, share in ((loose, 3.0), (replace(loose, is_settled=True), 1.0)):
        graph = spans.chained(PlaceGraph.of_first(anchors[0]), LoopRule())
        between_ends = np.sqrt((graph.spread[1:] ** 2).sum(axis=0))
        np.testing.assert_allclose(between_ends, share * neighbours)
