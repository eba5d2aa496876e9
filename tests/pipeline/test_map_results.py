"""Results are told at once and corrected later; the last version of each is what a map keeps, to the last bit."""

import json
from collections.abc import Generator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from selected import rest_in_extra
from told import last_versions

from longtake.exports.frame import MappedFrame
from longtake.exports.poses import LivePoses
from longtake.geometry.model import GeometryModel
from longtake.memory.policies.lockstep import ContextRetention
from longtake.pipeline.checkpoint import CheckpointRule
from longtake.pipeline.events import Event, Frame, Moved, Unreadable
from longtake.pipeline.live import LiveSession
from longtake.pipeline.map_results import ProvisionalAges
from longtake.pipeline.mapper import Mapper
from longtake.pipeline.run import Run
from longtake.pipeline.video_map import MapSettings, map_video
from longtake.runtime.build import SessionSettings, open_session
from longtake.runtime.windows import Windows
from longtake.takes.take import read_take
from longtake.video.frame import PendingFrame
from longtake.video.reading import Source
from longtake.video.resize import Preprocessor
from longtake.video.sampling import Extent
from longtake.world.tour import Tour

NUM_FRAMES, TORN = 20, frozenset({0, 9, 17})
PICTURES = [
    (view.image.movedim(0, -1) * 255).byte().numpy()
    for view in islice(Tour(seed=3, width=56, height=42).views(), NUM_FRAMES)
]
ONE_SEQUENCE = SessionSettings(
    image_size=56, num_scale_frames=2, retention=ContextRetention(anchors=2, window=3, history=12), windows=None
)
SESSIONS = {
    "one sequence": ONE_SEQUENCE,
    "short overlap": replace(ONE_SEQUENCE, windows=Windows(size=8, overlap_frames=3)),
    "overlap shorter than the scale block": replace(
        ONE_SEQUENCE,
        num_scale_frames=4,
        retention=ContextRetention(anchors=4, window=3, history=12),
        windows=Windows(size=9, overlap_frames=2),
    ),
}


class Walk(Source):
    """A walk of which some frames cannot be read."""

    def __init__(self) -> None:
        super().__init__("walk", is_live=False)

    @property
    def extent(self) -> Extent:
        return Extent(num_frames=NUM_FRAMES)

    def all_frames(self) -> Generator[PendingFrame, None, None]:
        for index, picture in enumerate(PICTURES):
            if index in TORN:
                yield PendingFrame.unreadable(index / 10, "It is torn.")
            else:
                yield PendingFrame(index / 10, lambda picture=picture: picture)


@dataclass(frozen=True)
class Mapped:
    """A run to its end."""

    session: SessionSettings
    out: Path
    events: list[Event]


def run(model: GeometryModel, session: SessionSettings, out: Path, *, resume: bool = False) -> Run:
    settings = MapSettings(session=session, checkpoints=CheckpointRule(5))
    return map_video(Walk(), model, out, settings, resume=resume)


@pytest.fixture(scope="module", params=SESSIONS.values(), ids=SESSIONS)
def mapped(
    request: pytest.FixtureRequest, tiny_model: GeometryModel, tmp_path_factory: pytest.TempPathFactory
) -> Mapped:
    out = tmp_path_factory.mktemp("mapped") / "out"
    return Mapped(request.param, out, list(run(tiny_model, request.param, out)))


def require_equal_to_take(told: dict[int, MappedFrame], out: Path) -> None:
    take = read_take(out)
    records = list(take.records)
    assert sorted(told) == [record.index for record in records]
    poses = torch.stack([told[record.index].world_from_camera for record in records])
    assert torch.equal(take.trajectory.world_from_camera, poses)
    for place, record in enumerate(records):
        frame = told[record.index]
        assert (record.status, record.window) == (frame.status.value, frame.window)
        assert np.array_equal(take.confidence(place), frame.confidence)


def test_the_last_version_of_every_frame_is_what_the_map_keeps(mapped: Mapped) -> None:
    require_equal_to_take(last_versions(mapped.events), mapped.out)
    told = [event.mapped for event in mapped.events if isinstance(event, Frame) and event.mapped]
    has_windows = mapped.session.windows is not None
    assert any(frame.provisional for frame in told) == has_windows
    assert any(isinstance(event, Moved) for event in mapped.events) == has_windows


def test_every_frame_is_told_once_and_in_order(mapped: Mapped) -> None:
    indices = [event.index for event in mapped.events if isinstance(event, Frame | Unreadable)]
    assert sorted(indices) == list(range(NUM_FRAMES))
    frames = [index for index in indices if index not in TORN]
    assert frames == sorted(frames)


def test_corrections_count_from_one_and_name_frames_of_the_video(mapped: Mapped) -> None:
    corrections = [event.correction for event in mapped.events if isinstance(event, Moved)]
    assert [correction.version for correction in corrections] == list(range(1, len(corrections) + 1))
    for correction in corrections:
        (span,) = correction.spans
        indices = [frame.index for frame in correction.frames]
        assert (span.first_frame, span.last_frame) == (indices[0], indices[-1])
        assert not TORN & set(indices)


def test_live_poses_end_as_the_map_has_them(tiny_model: GeometryModel, mapped: Mapped, tmp_path: Path) -> None:
    mapper = Mapper(lambda size: open_session(tiny_model, mapped.session, size), Preprocessor(size=56))
    list(Run(Walk(), LiveSession(mapper), output=LivePoses(tmp_path / "live.tum")))
    kept = (mapped.out / "poses.tum").read_text().splitlines()
    assert (tmp_path / "live.tum").read_text().splitlines() == [line for line in kept if not line.startswith("#")]


def test_ages_of_provisional_results_are_in_the_summary(mapped: Mapped) -> None:
    ages = json.loads((mapped.out / "summary.json").read_text())["provisional"]
    told = [event.mapped for event in mapped.events if isinstance(event, Frame) and event.mapped]
    assert ages["num_frames"] == sum(frame.provisional for frame in told)
    if mapped.session.windows is None:
        assert ages == {"num_frames": 0, "mean_s": 0.0, "largest_s": 0.0, "largest_frames": 0}
    else:
        assert 0 < ages["mean_s"] <= ages["largest_s"] <= 1.0
        assert 1 <= ages["largest_frames"] <= 6


@pytest.mark.parametrize("stopped_after", rest_in_extra([12, 7, 16], keep=1))
def test_a_run_that_goes_on_tells_and_corrects_as_if_never_stopped(
    tiny_model: GeometryModel, tmp_path: Path, stopped_after: int
) -> None:
    session = SESSIONS["short overlap"]
    first, before = run(tiny_model, session, tmp_path / "out"), []
    for event in first:
        before.append(event)
        if len(before) == stopped_after:
            first.stop()
    after = list(run(tiny_model, session, tmp_path / "out", resume=True))
    again = {event.index for event in after if isinstance(event, Frame)}
    known = [frame for index, frame in last_versions(before).items() if index not in again]
    told = [Frame(index=frame.index, timestamp_s=frame.timestamp_s, mapped=frame) for frame in known]
    require_equal_to_take(last_versions([*told, *after]), tmp_path / "out")


def test_ages_are_counted() -> None:
    ages = ProvisionalAges()
    for seconds, num_frames in ((0.5, 4), (0.25, 2), (0.0, 0)):
        ages.add(seconds, num_frames)
    assert ages == ProvisionalAges(num_frames=3, mean_s=0.25, largest_s=0.5, largest_frames=4)
