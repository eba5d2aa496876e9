"""What a solution does to the frames of a take: the moves of its spans, as corrections."""

from longtake.places.graph import PlaceGraph
from longtake.places.spans import Spans
from longtake.takes.corrections import CorrectedSpan, Corrections


def corrections(spans: Spans, graph: PlaceGraph, first_node: int) -> Corrections:
    """Of a graph in which the first span is that node."""
    stops = (*spans.starts[1:], spans.last + 1)
    moves = zip(spans.starts, stops, spans.moves(graph, first_node), strict=True)
    return Corrections(
        tuple(
            CorrectedSpan(first_frame=start, last_frame=stop - 1, known_from_said=move) for start, stop, move in moves
        )
    )
