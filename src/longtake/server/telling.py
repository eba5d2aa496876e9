"""What a frame's result is told as: an event for each pose, and one where earlier frames moved."""

from longtake.server.events import EventLog
from longtake.server.results import pose_numbers
from longtake.types import Geometry, Moved


def tell_geometry(events: EventLog, geometry: Geometry) -> None:
    """Corrections of earlier frames first, then the frames that became known."""
    if geometry.moved is not None:
        _tell_moved(events, geometry.moved)
    poses = geometry.world_from_camera.cpu()
    for place, index in enumerate(geometry.frame_index):
        events.add(
            "frame.known",
            index=index,
            time_s=geometry.timestamp_s[place],
            status="provisional" if geometry.provisional[place] else "final",
            pose=pose_numbers(poses[place]),
        )


def _tell_moved(events: EventLog, moved: Moved) -> None:
    spans = [
        {"first": span.first_frame, "last": span.last_frame, "matrix": pose_numbers(span.now_from_before)}
        for span in moved.spans
    ]
    events.add("window.moved", version=moved.version, spans=spans)
