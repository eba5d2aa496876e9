"""Frames into a geometry session, results out of it, each with the picture it belongs to and what to think of it."""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from longtake.exports.frame import MappedFrame
from longtake.pipeline.status import StatusJudge
from longtake.runtime.session import SequenceSession
from longtake.runtime.steps import FinalResults, VideoSession
from longtake.runtime.windowed import WindowedSession
from longtake.takes.tum import as_written
from longtake.types import Geometry
from longtake.video.frame import VideoFrame
from longtake.video.resize import Preprocessor, Resized

OpenSession = Callable[[tuple[int, int]], VideoSession]
"""Opens a session for images of this height and width."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A frame with a picture, and what a geometry model will see of it where there is one."""

    frame: VideoFrame
    resized: Resized | None

    @property
    def timestamp_s(self) -> float:
        return self.frame.timestamp_s


class Mapper:
    """A geometry session, opened with the first frame, and the frames whose final results it still owes.

    These are one overlap or scale block at most; their pictures are held until then.
    """

    def __init__(self, open_session: OpenSession, prepare: Preprocessor) -> None:
        self._open_session, self._prepare = open_session, prepare
        self._session: VideoSession | None = None
        self._judge = StatusJudge()
        self._owed: deque[Prepared] = deque()
        self._results: FinalResults | None = None

    @property
    def session(self) -> VideoSession | None:
        """Once there was a frame."""
        return self._session

    @property
    def judge_state(self) -> Mapping[str, Any]:
        """What later statuses depend on, as plain values."""
        return self._judge.state()

    @property
    def first_owed(self) -> int | None:
        """Index of the oldest frame without a final result."""
        return self._owed[0].frame.index if self._owed else None

    @property
    def num_windows(self) -> int:
        return len(self._session.windows) if isinstance(self._session, WindowedSession) else 1

    @property
    def memory_bytes(self) -> int:
        """Of keys and values."""
        inner = self._session.session if isinstance(self._session, WindowedSession) else self._session
        return inner.num_bytes if isinstance(inner, SequenceSession) else 0

    def resume(self, session: VideoSession, judge_state: Mapping[str, Any]) -> None:
        """Go on with a session that was saved; frames that it still owes are to be recalled before the next step."""
        self._session, self._results = session, FinalResults(session.provisional)
        self._judge.restore(judge_state)

    def recall(self, prepared: Prepared) -> None:
        """A frame that the session saw before it was saved, and whose final result is still to come."""
        self._owed.append(prepared)

    def prepare(self, frame: VideoFrame) -> Prepared:
        """What the network will see of a frame; needs no session, so that it may be made in another thread."""
        assert frame.image is not None
        return Prepared(frame, self._prepare(frame.image))

    def step(self, prepared: Prepared) -> list[MappedFrame]:
        """Take the next frame; the final results that became known."""
        assert prepared.resized is not None
        pixels = prepared.resized.pixels
        if self._session is None:
            _, height, width = pixels.shape
            self._session = self._open_session((height, width))
        self._owed.append(prepared)
        return self._final(self._session, self._session.step(pixels, prepared.timestamp_s))

    def save(self, path: Path) -> None:
        """Write the session, to go on with another time; there must have been a frame."""
        assert self._session is not None
        self._session.save(path, fit=self._prepare.fit)

    def finish(self) -> list[MappedFrame]:
        """The results still owed when no more frames come."""
        return [] if self._session is None else self._final(self._session, self._session.finish())

    def _final(self, session: VideoSession, known: Geometry) -> list[MappedFrame]:
        """Results that no later window can replace."""
        self._results = self._results or FinalResults(session.provisional)
        final = self._results.add(known, session.num_final)
        return self._mapped(Geometry.join(final)) if final else []

    def _mapped(self, geometry: Geometry) -> list[MappedFrame]:
        # They are rigid to float32 only. As a take keeps them, what sinks write now is what an export of it writes.
        poses, intrinsics = as_written(geometry.world_from_camera.cpu().double()), geometry.intrinsics.cpu().double()
        depth, confidence = geometry.depth.cpu().numpy(), geometry.depth_confidence.cpu().numpy()
        mapped: list[MappedFrame] = []
        for place in range(len(geometry)):
            prepared = self._owed.popleft()
            assert prepared.resized is not None
            assert prepared.frame.image is not None
            image = np.ascontiguousarray(prepared.resized.pixels.movedim(0, -1).numpy())
            mapped.append(
                MappedFrame(
                    index=prepared.frame.index,
                    timestamp_s=geometry.timestamp_s[place],
                    status=self._judge.judge(image, poses[place], confidence[place]),
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
            )
        return mapped
