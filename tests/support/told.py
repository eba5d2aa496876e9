"""What became of frames in the end, from what was told of them."""

from collections.abc import Iterable

from longtake.exports.frame import MappedFrame
from longtake.pipeline.events import Event, Frame, Moved
from longtake.pipeline.map_results import Stepped
from longtake.pipeline.mapper import Mapper


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
