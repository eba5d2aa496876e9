"""Spans as one take again: by the frames that they share, and by loops from one to another where loops are closed."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from walked_takes import drifted, there_and_back, written

import longtake
from longtake.api.map_request import MapRequest
from longtake.batch import joining
from longtake.batch.folder_storage import FolderStorage
from longtake.batch.job import JoinJob
from longtake.batch.joining import join_spans
from longtake.exports.frame import MappedFrame
from longtake.pipeline.merging import moved_frames
from longtake.places.chain import close_loops
from longtake.places.index import IndexRule
from longtake.places.key_view import KeyView
from longtake.places.loop_rule import LoopRule
from longtake.places.verification import Verdict, Verifier
from longtake.spatial.pose import nearest_rotation
from longtake.spatial.similarity import Similarity, best_similarity
from longtake.takes.take import Take, read_take
from longtake.types import Tracking, TrackingReason, TrackingState

TINY = MapRequest(model="tiny", size=56, format="tum")
MICRO = MapRequest(format="tum")
"""Its model has a card of loops."""
SOON = LoopRule(index=IndexRule(every_frames=2, gap_frames=12))
NUM_THERE = 24
CUTS = ((0, 28), (20, 40), (32, 48))


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> FolderStorage:
    """Of three spans, each in the world of the whole."""
    storage = FolderStorage(tmp_path_factory.mktemp("spans"))
    frames = drifted(there_and_back(NUM_THERE))
    for number, (first, stop) in enumerate(CUTS):
        written(storage.folder(f"span-{number}"), frames[first:stop])
    return storage


@pytest.fixture
def join(storage: FolderStorage, tmp_path: Path) -> Callable[[MapRequest], Take]:
    def joined(request: MapRequest) -> Take:
        spans = tuple(f"span-{number}" for number in range(len(CUTS)))
        out = tmp_path / f"joined-{len(list(tmp_path.iterdir()))}"
        join_spans(JoinJob(name="walk", source="x", spans=spans, request=request, storage=storage), out)
        return read_take(out)

    return joined


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A short walk may have come back."""
    monkeypatch.setattr(joining, "close_loops", lambda laid, verifier, _: close_loops(laid, verifier, SOON))


def error(take: Take) -> float:
    """Root mean square of positions in metres, after the best similarity."""
    found = take.trajectory.world_from_camera[:, :3, 3].contiguous()
    true = torch.stack([view.world_from_camera[:3, 3].double() for view in there_and_back(NUM_THERE)])
    return float((best_similarity(found, true).of_points(found) - true).square().sum(dim=1).mean().sqrt())


def num_links(take: Take) -> int:
    return int(json.loads((take.folder / "join.json").read_text())["num_links"])


def files(take: Take) -> dict[str, bytes]:
    names = ("poses.tum", "frames.jsonl", "take.json", "join.json", "descriptors.txt")
    return {name: (take.folder / name).read_bytes() for name in names}


@pytest.mark.usefixtures("soon")
def test_loops_between_spans_lay_them_straight(join: Callable[[MapRequest], Take]) -> None:
    without, closed = join(replace(MICRO, loops=False)), join(MICRO)
    assert num_links(without) == 0
    assert num_links(closed) >= 4
    assert error(closed) < 0.5 * error(without)
    notes = json.loads((closed.folder / "summary.json").read_text())["notes"]
    assert notes[-1].endswith(f"and by {num_links(closed)} places of one that another came back to.")
    assert [record.index for record in closed.records] == list(range(2 * NUM_THERE))


@pytest.mark.usefixtures("soon")
def test_spans_are_joined_to_the_same_bits_on_any_number_of_threads(join: Callable[[MapRequest], Take]) -> None:
    threads = torch.get_num_threads()
    try:
        found = []
        for count in (1, 2):
            torch.set_num_threads(count)
            found.append(files(join(MICRO)))
    finally:
        torch.set_num_threads(threads)
    assert found[0] == found[1]


def test_without_links_spans_are_joined_as_if_no_loops_were_closed(join: Callable[[MapRequest], Take]) -> None:
    looked, declined = join(MICRO), join(replace(MICRO, loops=False))
    assert num_links(looked) == 0
    assert files(looked) == files(declined)


@pytest.mark.usefixtures("soon")
def test_links_that_are_not_believed_move_nothing(
    join: Callable[[MapRequest], Take], monkeypatch: pytest.MonkeyPatch
) -> None:
    declined = join(replace(MICRO, loops=False))
    monkeypatch.setattr(joining, "Verifier", lambda card: Verifier(replace(card, least_agreeing=100_000)))
    assert files(join(MICRO)) == files(declined)


@pytest.fixture
def broken(tmp_path: Path) -> FolderStorage:
    """Lost in the second span, of which a part lies apart, and so all of the third, which begins there."""
    storage, frames = FolderStorage(tmp_path), drifted(there_and_back(NUM_THERE))
    ok, apart = (Tracking(state=TrackingState.OK, sub_map=number) for number in (0, 1))
    lost = Tracking(state=TrackingState.LOST, reason=TrackingReason.CUT, sub_map=None)
    told = {0: [ok] * 28, 1: [*[ok] * 10, lost, *[apart] * 9], 2: [ok] * 16}
    for number, (first, stop) in enumerate(CUTS):
        seen = [replace(frame, tracking=one) for frame, one in zip(frames[first:stop], told[number], strict=True)]
        written(storage.folder(f"span-{number}"), seen)
        path = storage.folder(f"span-{number}") / "summary.json"
        parts = {"num_sub_maps": 1 + (number == 1), "apart": [1] if number == 1 else []}
        loops = {"are_closed": True, "num_loops": 3, "num_withdrawn": 1, **parts}
        counted = {"states": {}, "reasons": {}, **parts}
        path.write_text(json.dumps(json.loads(path.read_text()) | {"loops": loops, "tracking": counted}))
    return storage


def joined(storage: FolderStorage, request: MapRequest) -> Take:
    spans, out = tuple(f"span-{number}" for number in range(len(CUTS))), storage.folder("walk")
    join_spans(JoinJob(name="walk", source="x", spans=spans, request=request, storage=storage), out)
    return read_take(out)


@pytest.mark.usefixtures("soon")
def test_what_lies_apart_is_no_place_of_the_whole(broken: FolderStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    verify, asked = Verifier.verify, set[int]()

    def heard(verifier: Verifier, old: KeyView, new: KeyView) -> Verdict:
        asked.update((old.frame_index, new.frame_index))
        return verify(verifier, old, new)

    monkeypatch.setattr(Verifier, "verify", heard)
    joined(broken, MICRO)
    assert asked
    assert max(asked) < 30


def test_where_the_camera_was_lost_is_told_of_the_whole(broken: FolderStorage) -> None:
    take = joined(broken, TINY)
    sub_maps = [record.tracking and record.tracking.sub_map for record in take.records]
    assert sub_maps == [*[0] * 30, None, *[1] * 17]
    summary = json.loads((take.folder / "summary.json").read_text())
    assert summary["tracking"] == {
        "states": {"ok": 47, "lost": 1},
        "reasons": {"lost": {"cut": 1}},
        "num_sub_maps": 2,
        "apart": [1],
        "frames_apart": 17,
    }
    assert summary["loops"] == {"are_closed": True, "num_loops": 9, "num_withdrawn": 3, "num_sub_maps": 2, "apart": [1]}


@pytest.mark.parametrize("asked", [replace(MICRO, loops=False), TINY, replace(MICRO, pixels="source")])
def test_where_loops_are_not_closed_none_are_looked_for(
    join: Callable[[MapRequest], Take], monkeypatch: pytest.MonkeyPatch, asked: MapRequest
) -> None:
    looked = Mock()
    monkeypatch.setattr(joining, "close_loops", looked)
    join(asked)
    looked.assert_not_called()


@pytest.mark.extra
def test_spans_of_other_worlds_and_scales_are_one_again(tmp_path: Path) -> None:
    take = longtake.map(
        "world:9?frames=40&size=112x84", tmp_path / "whole", model="tiny", size=56, format="depth-npz,images"
    )
    take = read_take(tmp_path / "whole")
    whole = list(moved_frames(take, None))
    turn = nearest_rotation(torch.tensor([[0.3, -1.0, 0.2], [0.9, 0.4, 0.1], [-0.1, 0.3, 1.0]], dtype=torch.float64))
    other = Similarity(torch.tensor(1.7, dtype=torch.float64), turn, torch.tensor([1.0, 2.0, 3.0]).double())

    def moved(frame: MappedFrame) -> MappedFrame:
        return replace(frame, world_from_camera=other.of_cameras(frame.world_from_camera), depth=1.7 * frame.depth)

    storage = FolderStorage(tmp_path / "out")
    written(storage.folder("a"), whole[:26])
    written(storage.folder("b"), [moved(frame) for frame in whole[14:]])
    job = JoinJob(name="walk", source="x", spans=("a", "b"), request=TINY, storage=storage)
    join_spans(job, storage.folder("walk"))
    joined = read_take(storage.folder("walk"))
    assert [record.index for record in joined.records] == list(range(40))
    assert [record.timestamp_s for record in joined.records] == [record.timestamp_s for record in take.records]
    error = (joined.trajectory.world_from_camera - take.trajectory.world_from_camera).abs()
    assert float(error.max()) < 1e-5
    assert not (tmp_path / "out" / "walk.joining").exists()
    record = json.loads((storage.folder("walk") / "join.json").read_text())
    assert [span["first_frame"] for span in record["spans"]] == [0, 20]
    assert record["spans"][1]["scale"] == pytest.approx(1 / 1.7, rel=1e-4)
