"""Frames into a session, results out of it, each with the picture it belongs to and what to think of it."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from longtake.export.frame import MappedFrame
from longtake.pipeline.status import StatusJudge
from longtake.runtime.steps import FinalResults, VideoSession
from longtake.takes.tum import as_written
from longtake.types import Geometry
from longtake.video.frame import VideoFrame
from longtake.video.resize import Resized


@dataclass(frozen=True, slots=True)
class Prepared:
    """A frame and what the network will see of it."""

    frame: VideoFrame
    resized: Resized


class Mapper:
    """A session and the frames whose results it still owes: one overlap or scale block of them at most."""

    def __init__(self, session: VideoSession, judge: StatusJudge) -> None:
        self.session, self.judge = session, judge
        self._owed: deque[Prepared] = deque()
        self._results = FinalResults(session.provisional)

    @property
    def first_owed(self) -> int | None:
        """Index of the oldest frame without a result."""
        return self._owed[0].frame.index if self._owed else None

    def recall(self, prepared: Prepared) -> None:
        """A frame that the session saw before it was saved, and whose result is still to come."""
        self._owed.append(prepared)

    def step(self, prepared: Prepared) -> Iterator[MappedFrame]:
        """Take the next frame; give the results that became known."""
        self._owed.append(prepared)
        geometry = self.session.step(prepared.resized.pixels, prepared.frame.timestamp_s)
        return self._mapped(self._results.add(geometry, self.session.num_final))

    def finish(self) -> Iterator[MappedFrame]:
        """The results still owed when no more frames come."""
        return self._mapped(self._results.add(self.session.finish(), self.session.num_final))

    def _mapped(self, final: list[Geometry]) -> Iterator[MappedFrame]:
        if not final:
            return
        geometry = Geometry.join(final)
        # They are rigid to float32 only. As a take keeps them, what sinks write now is what an export of it writes.
        poses, intrinsics = as_written(geometry.world_from_camera.cpu().double()), geometry.intrinsics.cpu().double()
        depth, confidence = geometry.depth.cpu().numpy(), geometry.depth_confidence.cpu().numpy()
        for place in range(len(geometry)):
            prepared = self._owed.popleft()
            assert prepared.frame.image is not None
            image = np.ascontiguousarray(prepared.resized.pixels.movedim(0, -1).numpy())
            yield MappedFrame(
                index=prepared.frame.index,
                timestamp_s=geometry.timestamp_s[place],
                status=self.judge.judge(image, poses[place], confidence[place]),
                kind=geometry.kind[place],
                window=geometry.window[place],
                world_from_camera=poses[place],
                intrinsics=intrinsics[place],
                depth=depth[place],
                confidence=confidence[place],
                image=image,
                source_image=prepared.frame.image,
                placement=prepared.resized.placement,
                source_name=prepared.frame.name,
            )
