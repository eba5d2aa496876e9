"""What a geometry session says, as results of frames: at once, corrected later, handed on when final."""

import bisect
from array import array
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import UInt8

from longtake.exports.frame import FrameStatus, MappedFrame
from longtake.exports.sink import Correction
from longtake.pipeline.events import Begun, Found, Frame, Lost, Moved, Noted
from longtake.pipeline.final_moves import FinalMoves
from longtake.pipeline.status import PictureSummary, StatusJudge
from longtake.pipeline.tracked import TrackingTeller
from longtake.pipeline.unlikeness import Knowledge, UnlikenessJudge
from longtake.takes.corrections import Corrections
from longtake.takes.tum import as_written
from longtake.types import Geometry
from longtake.types import Moved as MovedGeometry
from longtake.video.frame import VideoFrame
from longtake.video.resize import Resized

MapResult = MappedFrame | Moved | Frame | Lost | Begun | Found | Noted
"""A result that is final, to be kept, or an event."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A frame with a picture, and what a geometry model will see of it where there is one."""

    frame: VideoFrame
    resized: Resized | None

    @property
    def timestamp_s(self) -> float:
        return self.frame.timestamp_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Stepped:
    """A frame that the session took, and what became known with it, on the CPU."""

    taken: Prepared | None
    """None when the session has finished."""
    geometry: Geometry | None
    """None with a frame that was taken before the run was broken off."""
    num_final: int
    """Frames with a picture, from the video's first, whose results will not change."""


@dataclass(slots=True, kw_only=True)
class ProvisionalAges:
    """How old results were, in the video's time, when they became final after they were told as provisional."""

    num_frames: int = 0
    mean_s: float = 0.0
    largest_s: float = 0.0
    largest_frames: int = 0

    def add(self, seconds: float, num_frames: int) -> None:
        self.num_frames += 1
        self.mean_s += (seconds - self.mean_s) / self.num_frames
        self.largest_s, self.largest_frames = max(self.largest_s, seconds), max(self.largest_frames, num_frames)


class MapResults:
    """Tells each result at once, hands it on when it is final, and holds the pictures of those that are not yet.

    The session counts frames with a picture; what is told counts as the video does.
    """

    def __init__(self, knowledge: Knowledge | None = None) -> None:
        self.ages = ProvisionalAges()
        self._unlikeness = UnlikenessJudge(knowledge)
        self._num_final, self._last_s = 0, 0.0
        self._owed: deque[_Owed] = deque()
        self._known: dict[int, MappedFrame] = {}
        """Of the owed frames those that were told, by the session's count."""
        self._judge, self._judge_of_known = StatusJudge(), StatusJudge()
        """After the last final frame, and after the last known one."""
        self._places = _Places()
        self._final_moves = FinalMoves()
        self._tracking = TrackingTeller()
        self._before_break: dict[int, Geometry] = {}
        """Results that were told before a break and are not final, until their pictures are here again."""

    @property
    def first_owed(self) -> int | None:
        """Index of the oldest frame without a final result."""
        return self._owed[0].frame.index if self._owed else None

    @property
    def owed(self) -> tuple[Prepared, ...]:
        """Frames without a final result, oldest first: after a break they are to be taken again."""
        return tuple(Prepared(owed.frame, owed.resized) for owed in self._owed)

    def state(self) -> Mapping[str, Any]:
        """What later results depend on beside the session, as plain values."""
        return {
            **self._judge.state(),
            "ages": asdict(self.ages),
            "unlikeness": self._unlikeness.state(),
            "places": self._places.state(),
            "final_moves": self._final_moves.state(),
            "tracking": self._tracking.state(),
        }

    @property
    def corrections(self) -> Corrections | None:
        """What became of results after they were handed on as final; None where nothing did."""
        return self._final_moves.corrections

    @property
    def unlikeness(self) -> float | None:
        """How far the video is from what the model was trained on; above 1, it is unlike that."""
        return self._unlikeness.unlikeness

    def restore(self, state: Mapping[str, Any], num_final: int, provisional: Geometry) -> None:
        """Go on after a break; the frames that were owed are to be taken again, with no geometry."""
        self._judge.restore(state)
        self._judge_of_known = self._judge.copy()
        self.ages = ProvisionalAges(**state.get("ages", {}))
        self._unlikeness.restore(state.get("unlikeness", {}))
        self._places.restore(state.get("places", {}))
        self._final_moves.restore(state.get("final_moves", {}))
        self._tracking.restore(state.get("tracking", {}))
        self._num_final = num_final
        self._before_break = _single_frames(provisional)

    def take(self, stepped: Stepped) -> Iterator["MapResult"]:
        """What earlier frames became; results that are final now, to be kept; what is known of new frames."""
        if stepped.taken is not None:
            self._owed.append(_Owed.of(stepped.taken))
            self._last_s = stepped.taken.timestamp_s
        if stepped.geometry is None:
            self._tell_again(self._num_final + len(self._owed) - 1)
            return
        if stepped.geometry.moved is not None:
            correction = self._corrected(stepped.geometry.moved)
            yield Moved(correction=correction)
            for mapped in correction.frames:
                yield from self._tracking.take(mapped.index, mapped.timestamp_s, mapped.tracking)
        new = [self._add(index, single) for index, single in _single_frames(stepped.geometry).items()]
        while self._num_final < stepped.num_final:
            yield self._pop_final()
        for mapped in new:
            self._unlikeness.add(mapped.descriptor)
            yield Frame(index=mapped.index, timestamp_s=mapped.timestamp_s, mapped=mapped)
            yield from self._tracking.take(mapped.index, mapped.timestamp_s, mapped.tracking)
        if (noted := self._unlikeness.note(has_ended=stepped.taken is None)) is not None:
            yield Noted(noted)

    def _tell_again(self, index: int) -> None:
        if index in self._before_break:
            self._add(index, self._before_break.pop(index))

    def _add(self, index: int, geometry: Geometry) -> MappedFrame:
        owed = self._owed_at(index)
        self._known[index] = _judged(owed.mapped(geometry), owed, self._judge_of_known)
        owed.was_provisional = self._known[index].provisional
        return self._known[index]

    def _corrected(self, moved: MovedGeometry) -> Correction:
        for index, geometry in _single_frames(moved.geometry).items():
            self._known[index] = self._owed_at(index).mapped(geometry)
        self._judge_of_known = self._judge.copy()
        for index, frame in self._known.items():
            self._known[index] = _judged(frame, self._owed_at(index), self._judge_of_known)
        spans = tuple(
            replace(
                span,
                first_frame=self._place_in_video(span.first_frame),
                last_frame=self._place_in_video(span.last_frame),
            )
            for span in moved.spans
        )
        first_not_final = self._owed[0].frame.index if self._owed else self._place_in_video(self._num_final - 1) + 1
        self._final_moves.move(spans, first_not_final)
        frames = tuple(self._known[index] for index in moved.geometry.frame_index)
        return Correction(version=moved.version, frames=frames, spans=spans)

    def _pop_final(self) -> MappedFrame:
        frame, owed = self._known.pop(self._num_final), self._owed.popleft()
        self._places.add(self._num_final, frame.index)
        self._num_final += 1
        if owed.was_provisional:
            self.ages.add(self._last_s - frame.timestamp_s, len(self._owed))
        return replace(_judged(frame, owed, self._judge), provisional=False)

    def _owed_at(self, index: int) -> "_Owed":
        return self._owed[index - self._num_final]

    def _place_in_video(self, index: int) -> int:
        """Of a frame by the session's count."""
        return self._places[index] if index < self._num_final else self._owed_at(index).frame.index


class _Places:
    """Where frames by a session's count are in the video, which counts those without a picture too.

    Kept as the places from which on the two differ by another number.
    """

    def __init__(self) -> None:
        self._from, self._ahead = array("q"), array("q")

    def add(self, index: int, place: int) -> None:
        if not self._ahead or self._ahead[-1] != place - index:
            self._from.append(index)
            self._ahead.append(place - index)

    def __getitem__(self, index: int) -> int:
        return index + self._ahead[bisect.bisect_right(self._from, index) - 1]

    def state(self) -> Mapping[str, Any]:
        return {"from": self._from.tolist(), "ahead": self._ahead.tolist()}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._from, self._ahead = (array("q", state.get(name, ())) for name in ("from", "ahead"))


@dataclass(slots=True)
class _Owed:
    """A frame whose final result is still to come."""

    frame: VideoFrame
    resized: Resized
    image: UInt8[np.ndarray, "height width 3"]
    picture: PictureSummary
    was_provisional: bool = False

    @classmethod
    def of(cls, prepared: Prepared) -> "_Owed":
        assert prepared.resized is not None
        image = np.ascontiguousarray(prepared.resized.pixels.movedim(0, -1).numpy())
        return cls(prepared.frame, prepared.resized, image, PictureSummary.of(image))

    def mapped(self, geometry: Geometry) -> MappedFrame:
        """With what is known of it, its status still to be judged."""
        assert self.frame.image is not None
        # Rigid to float32 only; as a take keeps them, what sinks write now is what an export of it writes.
        (pose,) = as_written(geometry.world_from_camera.double())
        return MappedFrame(
            index=self.frame.index,
            timestamp_s=geometry.timestamp_s[0],
            status=FrameStatus.OK,
            kind=geometry.kind[0],
            window=geometry.window[0],
            world_from_camera=pose,
            provisional=geometry.provisional[0],
            intrinsics=geometry.intrinsics[0].double(),
            depth=geometry.depth[0].numpy(),
            confidence=geometry.depth_confidence[0].numpy(),
            image=self.image,
            source_image=self.frame.image,
            placement=self.resized.placement,
            source_name=self.frame.name,
            descriptor=None if geometry.descriptor is None else geometry.descriptor[0].float().numpy(),
            tracking=None if geometry.tracking is None else geometry.tracking[0],
        )


def _judged(frame: MappedFrame, owed: _Owed, judge: StatusJudge) -> MappedFrame:
    status = judge.judge(owed.picture, frame.world_from_camera, frame.confidence)
    return frame if status is frame.status else replace(frame, status=status)


def _single_frames(geometry: Geometry) -> dict[int, Geometry]:
    return {index: geometry.frames(place, place + 1) for place, index in enumerate(geometry.frame_index)}
