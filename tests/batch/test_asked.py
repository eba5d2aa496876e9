"""What is done for other settings, or of another video, is not taken for done."""

import csv
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import longtake
from longtake.api.map_request import MapRequest
from longtake.batch.asked import ASKED_NAME, asked_of, read_asked, require_same
from longtake.batch.events import BatchSummary
from longtake.batch.folder_storage import FolderStorage
from longtake.batch.job import Failed, Finished, Stopped
from longtake.batch.manifest import Row
from longtake.batch.mapping import map_many
from longtake.batch.spans import plan_of
from longtake.batch.worker import Worker
from longtake.errors import InputError, SettingError
from longtake.pipeline.run import Run

WORLD = "world:3?frames=6&size=112x84"


def batch(out: Path, source: str = WORLD, **settings: object) -> BatchSummary:
    words = {"model": "tiny", "size": 56, "format": "tum"} | settings
    return map_many([{"source": source, "name": "walk"}], out=out, jobs=1, **words)


def test_a_result_that_continues_another_is_of_that_one(tmp_path: Path) -> None:
    earlier = tmp_path / "earlier"
    longtake.map(WORLD, earlier, model="tiny", size=56, format="tum")
    row = Row(name="walk", source=WORLD, settings={"continue_from": str(earlier)})
    before = asked_of(row)
    (tmp_path / "far").mkdir()
    moved = replace(row, settings={"continue_from": str(earlier.rename(tmp_path / "far" / "earlier"))})
    require_same("walk", before, asked_of(moved))
    longtake.map("world:4?frames=6&size=112x84", earlier, model="tiny", size=56, format="tum")
    with pytest.raises(SettingError, match="continue_from"):
        require_same("walk", before, asked_of(row))


def problem(out: Path) -> str:
    with (out / "videos.csv").open(newline="") as file:
        return next(csv.DictReader(file))["problem"]


def test_a_result_of_other_settings_is_not_taken_for_done_and_stays_as_it_is(tmp_path: Path) -> None:
    assert batch(tmp_path).done == 1
    poses = (tmp_path / "walk" / "poses.tum").read_bytes()
    again = batch(tmp_path, device="cpu", checkpoint_every=3)  # the same result
    assert (again.done, again.skipped, again.num_frames) == (1, 1, 0)
    for changed, told in (({"fps": 5.0}, "fps null, now 5.0"), ({"format": "tum,depth"}, "format")):
        other = batch(tmp_path, **changed)
        assert (other.done, other.failed, other.num_frames) == (0, 1, 0)
        assert told in problem(tmp_path)
    assert batch(tmp_path, "world:4?frames=6&size=112x84").failed == 1
    assert "of another video" in problem(tmp_path)
    assert (tmp_path / "walk" / "poses.tum").read_bytes() == poses
    assert batch(tmp_path).skipped == 1


@pytest.mark.skipif(os.name != "posix", reason="pipes have names there")
def test_nobody_waits_for_what_a_pipe_might_say(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.mp4")
    assert asked_of(Row(name="pipe", source=str(tmp_path / "pipe.mp4")))["video"] is None
    assert batch(tmp_path / "out", str(tmp_path / "pipe.mp4")).failed == 1
    assert "is a pipe or a device" in problem(tmp_path / "out")


def test_a_file_is_known_by_what_is_in_it(tmp_path: Path) -> None:
    first, second, other = (tmp_path / name for name in ("a.mp4", "b.mp4", "c.mp4"))
    first.write_bytes(bytes(range(256)) * 1024)
    second.write_bytes(first.read_bytes())
    other.write_bytes(first.read_bytes()[:-1] + b"x")
    asked = [asked_of(Row(name="walk", source=str(path))) for path in (first, second, other)]
    require_same("walk", asked[0], asked[1])
    with pytest.raises(SettingError, match=r"walk before is not what is asked for now \(of another video\)"):
        require_same("walk", asked[0], asked[2])
    assert "secret" not in str(asked_of(Row(name="walk", source="rtsp://me:secret@camera/1")))
    frames = tmp_path / "frames"
    frames.mkdir()
    (frames / "0.jpg").write_bytes(b"one")
    before = asked_of(Row(name="walk", source=str(frames)))
    (frames / "1.jpg").write_bytes(b"two")
    with pytest.raises(SettingError, match="of another video"):
        require_same("walk", before, asked_of(Row(name="walk", source=str(frames))))


def test_what_says_nothing_of_itself_is_taken_as_it_is(tmp_path: Path) -> None:
    assert batch(tmp_path).done == 1
    record = tmp_path / "walk" / ASKED_NAME
    for content in (b"no record", b"{}"):
        record.write_bytes(content)
        assert batch(tmp_path, fps=5.0).skipped == 1
    record.unlink()
    assert batch(tmp_path, fps=5.0).skipped == 1


def test_a_span_that_was_mapped_otherwise_is_not_joined_with_new_ones(tmp_path: Path) -> None:
    source, words = "world:3?frames=300&size=112x84", {"model": "tiny", "size": 56}
    rows = [
        Row(name="walk", source=source, settings=words | settings, spans=2) for settings in ({}, {"policy": "window"})
    ]
    storage = FolderStorage(tmp_path)
    plans = [plan_of(row, MapRequest(**row.settings).planned(), storage, asked_of(row)) for row in rows]
    span = plans[0].owed()[0]
    folder = storage.folder(span.name)
    folder.mkdir()
    (folder / "summary.json").write_text('{"is_complete": true}')
    (folder / ASKED_NAME).write_text(json.dumps(dict(span.asked)))
    assert len(plans[0].owed()) == 1
    with pytest.raises(SettingError, match='policy null, now "window"'):
        plans[1].owed()


def test_what_is_wrong_for_all_is_told_before_anything_is_looked_at(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="foo"):
        batch(tmp_path / "out", format="tum,foo")
    assert not (tmp_path / "out").exists()


def test_what_lies_mapped_for_something_else_is_not_delivered(tmp_path: Path) -> None:
    rows = [Row(name="walk", source=WORLD, settings={"model": "tiny", "size": 56, "stride": n}) for n in (1, 3)]
    storage = FolderStorage(tmp_path)
    jobs = [plan_of(row, MapRequest(**row.settings).planned(), storage, asked_of(row)).job("walk") for row in rows]
    with Worker() as worker:
        assert isinstance(worker.do(jobs[0], lambda _: None), Finished)
        told = worker.do(jobs[1], lambda _: None)
        assert isinstance(told, Failed)
        assert "stride 1, now 3" in told.problem
        assert isinstance(worker.do(jobs[0], lambda _: None), Finished)


def test_what_a_video_was_asked_for_is_kept_before_it_is_done_and_never_alone(tmp_path: Path) -> None:
    row = Row(name="walk", source="world:3?frames=90&size=56x42", settings={"model": "tiny", "size": 56})
    job = plan_of(row, MapRequest(**row.settings).planned(), FolderStorage(tmp_path), asked_of(row)).job("walk")
    with Worker() as worker:
        worker.stop()
        assert isinstance(worker.do(job, lambda _: None), Stopped)
    assert not (tmp_path / "walk").exists()
    with Worker() as worker, pytest.MonkeyPatch.context() as patch:
        patch.setattr(f"{Run.__module__}.Run.__next__", stopping_after(worker, 3))
        assert isinstance(worker.do(job, lambda _: None), Stopped)
    assert read_asked(tmp_path / "walk") == asked_of(row)
    with Worker() as worker:
        other = replace(job, request=replace(job.request, fps=5.0))
        refused = worker.do(other, lambda _: None)
        assert isinstance(refused, Failed)
        assert refused.problem.endswith("resume it with the same, or delete that folder.")
    with Worker() as worker:
        assert isinstance(worker.do(job, lambda _: None), Finished)


def stopping_after(worker: Worker, num_events: int) -> Callable[[Run], object]:
    """Events of a run, of which one lets the worker stop."""
    step, left = Run.__next__, iter(range(num_events))

    def following(run: Run) -> object:
        if next(left, None) is None:
            worker.stop()
        return step(run)

    return following


def test_a_result_stays_done_when_its_video_is_gone(tmp_path: Path) -> None:
    frames, away, out = tmp_path / "frames", tmp_path / "away", tmp_path / "out"
    longtake.map(WORLD, tmp_path / "filmed", model="tiny", size=56, format="images")
    (tmp_path / "filmed" / "images").rename(frames)
    assert batch(out, str(frames), picture_fps=10.0).done == 1
    frames.rename(away)
    assert batch(out, str(frames), picture_fps=10.0).skipped == 1
    assert batch(out, str(away), picture_fps=10.0).skipped == 1  # the same video, wherever it lies


def test_a_list_is_not_replaced_by_the_table_of_results(tmp_path: Path) -> None:
    listing = tmp_path / "videos.csv"
    listing.write_text(f"source,name\n{WORLD},walk\n")
    with pytest.raises(InputError, match="would replace the list"):
        map_many(listing, out=tmp_path, model="tiny")
    assert listing.read_text().startswith("source,name\n")


def test_the_result_of_one_video_is_no_place_for_those_of_many(tmp_path: Path) -> None:
    mapped, world, killed = (tmp_path / name for name in ("mapped", "world", "killed"))
    longtake.map(WORLD, mapped, model="tiny", size=56, format="tum")
    world.mkdir()
    (world / "take.json").write_bytes((mapped / "take.json").read_bytes())
    killed.mkdir()
    (killed / "run.json").write_bytes((mapped / "run.json").read_bytes())
    for out in (mapped, world, killed):
        before = sorted(out.rglob("*"))
        with pytest.raises(
            InputError, match=r"of many videos, a folder each, but .* is the result of a single one; name"
        ):
            batch(out)
        assert sorted(out.rglob("*")) == before


def test_the_same_holds_of_a_storage_that_is_no_folder(tmp_path: Path) -> None:
    system = pytest.importorskip("fsspec").filesystem("memory")
    for name in ("run.json", "take.json"):
        system.store.clear()
        system.pipe_file(f"/walks/one/{name}", b"{}")
        with pytest.raises(InputError, match=r"but memory://walks/one is the result of a single one; name another\."):
            map_many([WORLD], "memory://walks/one", scratch=tmp_path, model="tiny")
        assert list(system.store) == [f"/walks/one/{name}"]


def test_files_of_those_names_that_are_of_something_else_keep_no_batch_out(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text('{"format": "mine"}')
    (tmp_path / "take.json").mkdir()
    assert not FolderStorage(tmp_path).is_result()


def test_links_in_a_circle_are_a_sentence(tmp_path: Path) -> None:
    circle = tmp_path / "circle"
    circle.symlink_to(circle)
    for out in (circle, circle / "x"):
        with pytest.raises(InputError, match=r"names no place \(its links lead in a circle\); name another\."):
            map_many(["a.mp4"], out)
    with pytest.raises(InputError, match=r"circle' cannot be looked at \(Too many levels of symbolic links\)"):
        map_many(str(circle), tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["circle"]
