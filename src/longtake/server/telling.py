"""What a frame's result is told as: an event for each pose, and one where earlier frames moved."""

from jaxtyping import Float
from torch import Tensor

from longtake.server.events import EventLog
from longtake.server.results import pose_numbers
from longtake.types import Geometry, Moved


def tell_geometry(events: EventLog, geometry: Geometry) -> None:
    """Corrections of earlier frames first, then the frames that became known."""
    if geometry.moved is not None:
        _tell_moved(events, geometry.moved)
    poses, intrinsics = geometry.world_from_camera.cpu(), geometry.intrinsics.cpu()
    height, width = geometry.depth.shape[-2:]
    for place, index in enumerate(geometry.frame_index):
        events.add(
            "frame.known",
            index=index,
            time_s=geometry.timestamp_s[place],
            status="provisional" if geometry.provisional[place] else "final",
            kind=geometry.kind[place].value,
            pose=pose_numbers(poses[place]),
            intrinsics=_intrinsics(intrinsics[place], width, height),
            tracking=None if geometry.tracking is None else geometry.tracking[place].to_record(),
        )


def _intrinsics(matrix: Float[Tensor, "3 3"], width: int, height: int) -> dict[str, float]:
    """Of the pixels that the network saw."""
    (fx, _, cx), (_, fy, cy), _ = matrix.tolist()
    return {"fx": fx, "fy": fy, "cx": cx, "cy": cy, "width": width, "height": height}


def _tell_moved(events: EventLog, moved: Moved) -> None:
    spans = [
        {"first": span.first_frame, "last": span.last_frame, "matrix": pose_numbers(span.now_from_before)}
        for span in moved.spans
    ]
    events.add("window.moved", version=moved.version, spans=spans)
