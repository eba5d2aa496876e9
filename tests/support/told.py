"""What became of frames in the end, from what was told of them."""

from collections.abc import Iterable

from torch import Tensor

from longtake.exports.frame import MappedFrame
from longtake.pipeline.events import Event, Frame, Moved
from longtake.pipeline.final_moves import NOT_MOVED
from longtake.pipeline.map_results import Stepped
from longtake.pipeline.mapper import Mapper
from longtake.spatial.similarity import Similarity
from longtake.takes.tum import as_written


def final(mapper: Mapper, stepped: Stepped | None) -> list[MappedFrame]:
    """The final results that came of a step."""
    told = () if stepped is None else mapper.results.take(stepped)
    return [item for item in told if isinstance(item, MappedFrame)]


def last_versions(events: Iterable[Event]) -> dict[int, MappedFrame]:
    """The newest that was told of each frame, by its index."""
    newest: dict[int, MappedFrame] = {}
    for event in events:
        if isinstance(event, Frame) and event.mapped is not None:
            assert event.index not in newest, "each frame is told once"
            newest[event.index] = event.mapped
        elif isinstance(event, Moved):
            moved = {frame.index: frame for frame in event.correction.frames if isinstance(frame, MappedFrame)}
            assert all(newest[index].provisional for index in moved), "final results never move"
            newest |= moved
    return newest


def known_poses(events: Iterable[Event]) -> dict[int, Tensor]:
    """Where each camera is known to be in the end: as it was told last, moved by all that came after, as it is written.

    Moves are put together before they are applied, so that no rounding comes in between.
    """
    told: dict[int, Tensor] = {}
    moves: dict[int, Similarity] = {}
    for event in events:
        if isinstance(event, Frame) and event.mapped is not None:
            told[event.index] = event.mapped.world_from_camera
        elif isinstance(event, Moved):
            now = {frame.index: frame.world_from_camera for frame in event.correction.frames}
            for span in event.correction.spans:
                move = Similarity.of_matrix(span.now_from_before.double())
                for index in range(span.first_frame, span.last_frame + 1):
                    if index in told and index not in now:
                        moves[index] = move @ moves.get(index, NOT_MOVED)
            told |= now
            moves = {index: move for index, move in moves.items() if index not in now}
    return told | {index: as_written(move.of_cameras(told[index])) for index, move in moves.items()}
