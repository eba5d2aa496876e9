"""Frames into a geometry session that is opened with the first one, and what it says of them."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from longtake.pipeline.map_results import MapResults, Prepared, Stepped
from longtake.pipeline.unlikeness import Knowledge
from longtake.runtime.steps import Progress, VideoSession
from longtake.types import Geometry
from longtake.video.frame import VideoFrame
from longtake.video.resize import Preprocessor

OpenSession = Callable[[tuple[int, int]], VideoSession]
"""Opens a session for images of this height and width."""


class Mapper:
    """A geometry session under way. `results` makes of its steps what is told and kept, in a thread of its own."""

    def __init__(self, open_session: OpenSession, prepare: Preprocessor, knowledge: Knowledge | None = None) -> None:
        """`knowledge` is what is known of the model, to tell a video that is unlike it."""
        self._open_session, self._prepare = open_session, prepare
        self._session: VideoSession | None = None
        self.results = MapResults(knowledge)

    @property
    def session(self) -> VideoSession | None:
        """Once there was a frame."""
        return self._session

    @property
    def progress(self) -> Progress | None:
        """Once there was a frame."""
        return None if self._session is None else self._session.progress

    @property
    def memory_bytes(self) -> int:
        """Of keys and values."""
        return 0 if self._session is None else self._session.num_bytes

    def resume(self, session: VideoSession, results_state: Mapping[str, Any]) -> None:
        """Go on with a session that was saved; frames that it still owes are to be recalled before the next step."""
        self._session = session
        self.results.restore(results_state, session.num_final, on_cpu(session.provisional))

    def prepare(self, frame: VideoFrame) -> Prepared:
        """What the network will see of a frame; needs no session, so that it may be made in another thread."""
        assert frame.image is not None
        return Prepared(frame, self._prepare(frame.image))

    def recall(self, prepared: Prepared) -> Stepped:
        """A frame that the session saw before it was saved, and whose final result is still to come."""
        assert self._session is not None
        return Stepped(taken=prepared, geometry=None, num_final=self._session.num_final)

    def step(self, prepared: Prepared) -> Stepped:
        """Take the next frame."""
        assert prepared.resized is not None
        pixels = prepared.resized.pixels
        if self._session is None:
            _, height, width = pixels.shape
            self._session = self._open_session((height, width))
        geometry = on_cpu(self._session.step(pixels, prepared.timestamp_s))
        return Stepped(taken=prepared, geometry=geometry, num_final=self._session.num_final)

    def finish(self) -> Stepped | None:
        """The results still owed when no more frames come; none where none came."""
        if self._session is None:
            return None
        geometry = on_cpu(self._session.finish())
        return Stepped(taken=None, geometry=geometry, num_final=self._session.num_final)

    def save(self, path: Path) -> None:
        """Write the session, to go on with another time; there must have been a frame."""
        assert self._session is not None
        self._session.save(path, fit=self._prepare.fit)


def on_cpu(geometry: Geometry) -> Geometry:
    """What of it becomes a result."""
    moved = geometry.moved
    return replace(
        geometry,
        world_from_camera=geometry.world_from_camera.cpu(),
        intrinsics=geometry.intrinsics.cpu(),
        depth=geometry.depth.cpu(),
        depth_confidence=geometry.depth_confidence.cpu(),
        points=None,
        points_confidence=None,
        camera_points=None,
        camera_points_confidence=None,
        descriptor=None if geometry.descriptor is None else geometry.descriptor.cpu(),
        moved=None if moved is None else replace(moved, geometry=on_cpu(moved.geometry)),
    )
