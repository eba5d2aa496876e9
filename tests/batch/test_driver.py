"""A batch against workers that tell what a test lets them tell: tried again, set aside, stopped, summed up."""

import json
import shutil
from pathlib import Path

import pytest
from prompt_pool import PromptPool, done, run, table

from longtake.batch.asked import asked_of, write_asked
from longtake.batch.driver import Batch
from longtake.batch.events import Ended, Progress, Retried
from longtake.batch.folder_storage import FolderStorage
from longtake.batch.job import Failed, Finished, Job, Told, Watched
from longtake.batch.manifest import Row, open_manifest
from longtake.batch.open_storage import open_storage
from longtake.batch.pool import Pool
from longtake.errors import InputError


def test_all_are_done_once_and_a_second_batch_does_nothing(tmp_path: Path) -> None:
    pool = PromptPool(done)
    batch, events = run(tmp_path, pool)
    assert pool.given == ["w0", "w1", "w2", "w3"]
    assert pool.is_closed
    assert [event.name for event in events if isinstance(event, Ended)] == pool.given
    assert batch.summary is not None
    assert (batch.summary.done, batch.summary.skipped, batch.summary.failed) == (4, 0, 0)
    assert batch.summary.num_frames == 20
    assert batch.summary.is_complete
    assert [(row["name"], row["state"], row["num_frames"], row["model"]) for row in table(tmp_path)] == [
        (name, "done", "5", "tiny") for name in pool.given
    ]
    again = PromptPool(done)
    batch, events = run(tmp_path, again)
    assert again.given == []
    assert batch.summary is not None
    assert (batch.summary.done, batch.summary.skipped) == (4, 4)


def test_what_fails_is_tried_again_and_then_set_aside(tmp_path: Path) -> None:
    failures = {"w1": 2, "w2": 99}

    def outcome(job: Job) -> Told:
        failures[job.name] = failures.get(job.name, 0) - 1
        return Failed(name=job.name, problem=f"No {job.name}.") if failures[job.name] >= 0 else done(job)

    pool = PromptPool(outcome)
    batch, events = run(tmp_path, pool)
    assert [(event.name, event.tries) for event in events if isinstance(event, Retried)].count(("w1", 1)) == 1
    assert pool.given.count("w1") == pool.given.count("w2") == 3
    aside = [event for event in events if isinstance(event, Ended) and event.problem is not None]
    assert [(event.name, event.tries, event.problem) for event in aside] == [("w2", 3, "No w2.")]
    assert batch.summary is not None
    assert (batch.summary.done, batch.summary.failed) == (3, 1)
    rows = {row["name"]: row for row in table(tmp_path)}
    assert (rows["w2"]["state"], rows["w2"]["tries"], rows["w2"]["problem"]) == ("failed", "3", "No w2.")
    assert rows["w1"]["state"] == "done"
    pool = PromptPool(done)
    batch, _ = run(tmp_path, pool)
    assert pool.given == ["w2"]  # what is missing
    assert table(tmp_path)[2]["state"] == "done"


def test_a_batch_that_is_stopped_begins_nothing_more_and_goes_on_later(tmp_path: Path) -> None:
    pool = PromptPool(done, num_workers=1)
    rows = [{"source": f"world:{number}", "name": f"w{number}"} for number in range(5)]
    batch = Batch(open_manifest(rows, {"model": "tiny"}), open_storage(tmp_path), pool)
    for event in batch:
        if isinstance(event, Ended) and event.name == "w1":
            batch.stop()
    assert pool.is_stopped
    assert pool.given == ["w0", "w1"]
    assert batch.summary is not None
    assert not batch.summary.is_complete
    assert [row["state"] for row in table(tmp_path)] == ["done", "done", "missing", "missing", "missing"]
    pool = PromptPool(done)
    batch, _ = run(tmp_path, pool, num_videos=5)
    assert pool.given == ["w2", "w3", "w4"]


def test_a_video_that_cannot_be_planned_is_set_aside_alone(tmp_path: Path) -> None:
    rows = [
        {"source": "world:1", "name": "bad", "mask": str(tmp_path / "nowhere")},
        {"source": "world:2", "name": "good"},
    ]
    pool = PromptPool(done)
    events = list(Batch(open_manifest(rows, {"model": "tiny"}), open_storage(tmp_path), pool))
    aside = [event for event in events if isinstance(event, Ended) and event.problem is not None]
    assert [event.name for event in aside] == ["bad"]
    assert "Expected a folder of masks at" in str(aside[0].problem)
    assert pool.given == ["good"]


def test_a_gpu_that_is_not_here_may_be_where_the_workers_are(tmp_path: Path) -> None:
    pool = PromptPool(done)
    rows = [{"source": "world:1", "name": "far", "device": "cuda", "precision": "bf16", "backend": "triton"}]
    list(Batch(open_manifest(rows, {"model": "tiny"}), open_storage(tmp_path), pool))
    assert pool.given == ["far"]


def test_progress_says_how_far_the_whole_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("longtake.batch.driver._TOLD_EVERY_S", 0.0)
    _, events = run(tmp_path, PromptPool(done, num_workers=1))
    told = [event for event in events if isinstance(event, Progress)]
    assert {event.num_videos for event in told} == {4}
    assert (told[-1].done, told[-1].running, told[-1].failed) == (4, 0, 0)
    assert told[-1].eta_s == 0
    assert [event.done for event in told] == sorted(event.done for event in told)


def test_progress_of_one_long_video_is_told_by_its_frames(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("longtake.batch.driver._TOLD_EVERY_S", 0.0)

    class SlowPool(PromptPool):
        def give(self, job: Job) -> None:
            self._reports.extend(Watched(name=job.name, num_frames=n, num_in_all=40) for n in (10, 20, 30))
            super().give(job)

    _, events = run(tmp_path, SlowPool(done, num_workers=1), num_videos=1)
    told = [event for event in events if isinstance(event, Progress)]
    assert [event.share for event in told] == [0.25, 0.5, 0.75, 1.0, 1.0]
    assert [event.done for event in told] == [0, 0, 0, 1, 1]
    assert [event.num_frames for event in told[:3]] == [10, 20, 30]
    assert all(event.eta_s is not None and event.eta_s > 0 for event in told[:3])


def test_a_batch_that_passes_over_what_is_done_tells_how_far_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path, PromptPool(done))
    monkeypatch.setattr("longtake.batch.driver._TOLD_EVERY_S", 1e-9)
    pool, timeouts = PromptPool(done), list[float]()
    told, pool.told = pool.told, lambda timeout_s: (timeouts.append(timeout_s), told(timeout_s))[1]  # type: ignore[method-assign]
    _, events = run(tmp_path, pool)
    assert [event.done for event in events if isinstance(event, Progress)] == [1, 2, 3, 4, 4]
    assert timeouts == [0.0] * 4  # workers are heard, and not waited for
    assert pool.given == []


def test_a_batch_that_passes_over_what_is_done_can_be_stopped_and_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path / "out", PromptPool(done))
    monkeypatch.setattr("longtake.batch.driver._TOLD_EVERY_S", 1e-9)
    rows = [{"source": f"world:{number}", "name": f"w{number}"} for number in range(4)]
    batch = Batch(open_manifest(rows, {"model": "tiny"}), open_storage(tmp_path / "out"), PromptPool(done))
    assert isinstance(next(batch), Progress)
    (tmp_path / "out").rename(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="out was moved or deleted while the batch wrote there"):
        next(batch)


def test_nothing_is_written_while_another_batch_writes(tmp_path: Path) -> None:
    pool = PromptPool(done)
    with FolderStorage(tmp_path).held(), pytest.raises(Exception, match="Another run is writing to"):
        run(tmp_path, pool)
    assert pool.given == []
    assert not (tmp_path / "videos.csv").exists()


def test_a_storage_that_is_gone_ends_a_batch_in_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fsspec = pytest.importorskip("fsspec")

    def refuse(*_: object, **__: object) -> None:
        raise ConnectionError("nobody answers")

    monkeypatch.setattr(fsspec.get_filesystem_class("memory"), "cat_file", refuse)
    pool, storage = PromptPool(done), open_storage("memory://gone", tmp_path)
    with pytest.raises(InputError, match=r"memory://gone cannot be used \(ConnectionError: nobody answers\)"):
        list(Batch(open_manifest(["world:1"], {"model": "tiny"}), storage, pool))
    assert pool.given == []
    assert pool.is_closed


def test_spans_come_before_the_whole_and_are_tried_again_by_themselves(tmp_path: Path) -> None:
    failures = {"walk.span-2-of-3": 1}

    def outcome(job: Job) -> Told:
        failures[job.name] = failures.get(job.name, 0) - 1
        return Failed(name=job.name, problem="Gone.") if failures[job.name] >= 0 else done(job)

    pool = PromptPool(outcome)
    manifest = open_manifest([{"source": "world:9?frames=400", "name": "walk"}], {"model": "tiny"}, spans=3)
    batch = Batch(manifest, open_storage(tmp_path), pool)
    list(batch)
    spans = [f"walk.span-{number}-of-3" for number in (1, 2, 3)]
    assert sorted(pool.given[:-1]) == sorted([*spans, spans[1]])
    assert pool.given[-1] == "walk"
    assert batch.summary is not None
    assert (batch.summary.done, batch.summary.failed) == (1, 0)


def test_a_video_of_which_a_span_fails_is_set_aside_once(tmp_path: Path) -> None:
    pool = PromptPool(lambda job: Failed(name=job.name, problem="Gone.") if "span" in job.name else done(job), 1)
    rows = [{"source": "world:9?frames=400", "name": "walk", "spans": 3}, {"source": "world:1", "name": "other"}]
    batch = Batch(open_manifest(rows, {"model": "tiny"}), open_storage(tmp_path), pool)
    events = list(batch)
    assert [event.name for event in events if isinstance(event, Ended) and event.problem is not None] == ["walk"]
    assert batch.summary is not None
    assert (batch.summary.done, batch.summary.failed) == (1, 1)
    assert "walk" not in pool.given


def cut_in_two(out: Path, pool: Pool) -> Batch:
    rows = [{"source": "world:1?frames=300&size=56x42", "name": "long", "spans": 2}]
    return Batch(open_manifest(rows, {"model": "tiny", "size": 56}), open_storage(out), pool)


def test_a_batch_that_is_stopped_ends_though_a_span_was_done_meanwhile(tmp_path: Path) -> None:
    class LatePool(PromptPool):
        """What was done when it was asked to stop is told as done."""

        def stop(self) -> None:
            self.is_stopped = True

    pool = LatePool(done)
    batch = cut_in_two(tmp_path, pool)
    told, pool.told = pool.told, lambda timeout_s: (batch.stop(), told(timeout_s))[1]  # type: ignore[method-assign]
    for number, _ in enumerate(batch):
        assert number < 50, "it goes on and on"
    assert pool.given == ["long.span-1-of-2", "long.span-2-of-2"]
    assert batch.summary is not None
    assert not batch.summary.is_complete
    pool = PromptPool(done)
    assert [event.name for event in cut_in_two(tmp_path, pool) if isinstance(event, Ended)] == ["long"]
    assert pool.given == ["long"]


def test_each_span_may_be_lost_as_often_as_a_video(tmp_path: Path) -> None:
    lost = {"long.span-1-of-2": 2, "long.span-2-of-2": 2}

    def outcome(job: Job) -> Told:
        lost[job.name] = lost.get(job.name, 0) - 1
        return Failed(name=job.name, problem="A worker died.") if lost[job.name] >= 0 else done(job)

    batch = cut_in_two(tmp_path, PromptPool(outcome))
    ended = [event for event in batch if isinstance(event, Ended)]
    assert [(event.name, event.problem, event.tries) for event in ended] == [("long", None, 3)]


def test_what_a_kill_has_left_of_spans_is_removed_by_the_next_batch(tmp_path: Path) -> None:
    list(cut_in_two(tmp_path, PromptPool(done)))
    (tmp_path / "long" / "join.json").write_text('{"spans": [{}, {}]}')
    spans = {tmp_path / f"long.span-{number}-of-2" for number in (1, 2)}
    assert all(span.exists() for span in spans)  # nobody joined them
    (tmp_path / "long.span-2-of-3").mkdir()  # of something else
    pool = PromptPool(done)
    list(cut_in_two(tmp_path, pool))
    assert pool.given == []
    assert {path.name for path in tmp_path.iterdir()} == {"long", "long.span-2-of-3", "videos.csv"}


def test_a_joined_video_whose_end_is_missing_is_not_mapped_anew(tmp_path: Path) -> None:
    list(cut_in_two(tmp_path, PromptPool(done)))
    for span in tmp_path.glob("long.span-*"):
        shutil.rmtree(span)
    (tmp_path / "long" / "report.html").unlink()
    pool = PromptPool(done)
    list(cut_in_two(tmp_path, pool))
    assert pool.given == ["long"]


def test_a_place_where_spans_cannot_be_joined_is_refused_before_they_are_mapped(tmp_path: Path) -> None:
    (tmp_path / "long").mkdir()
    (tmp_path / "long" / "notes.txt").touch()
    pool = PromptPool(done)
    (ended,) = [event for event in cut_in_two(tmp_path, pool) if isinstance(event, Ended)]
    assert ended.problem == (
        f"Expected nothing in {tmp_path / 'long'}, where spans are joined, but there is notes.txt; move that folder "
        "away."
    )
    assert pool.given == []


def test_a_video_that_was_begun_in_one_piece_is_not_cut_into_spans(tmp_path: Path) -> None:
    (tmp_path / "long").mkdir()
    whole = Row(name="long", source="world:1?frames=300&size=56x42", settings={"model": "tiny", "size": 56})
    write_asked(tmp_path / "long", asked_of(whole))
    pool = PromptPool(done)
    (ended,) = [event for event in cut_in_two(tmp_path, pool) if isinstance(event, Ended)]
    assert "spans 1, now 2" in str(ended.problem)
    assert pool.given == []


def test_a_table_is_written_whatever_summaries_and_names_hold(tmp_path: Path) -> None:
    def outcome(job: Job) -> Told:
        folder = job.storage.folder(job.name)
        folder.mkdir(parents=True)
        notes = "null" if job.name == "walk" else "3"
        (folder / "summary.json").write_text(f'{{"is_complete": true, "num_frames": 5, "notes": {notes}}}')
        (folder / "report.html").touch()
        return Finished(name=job.name, num_frames=5, summary=job.storage.summary(job.name) or {})

    rows = [{"source": "world:1", "name": "walk"}, {"source": "/nowhere/\udcff.mp4", "name": "odd"}]
    list(Batch(open_manifest(rows, {"model": "tiny"}), open_storage(tmp_path), PromptPool(outcome)))
    assert [row["state"] for row in table(tmp_path)] == ["done", "done"]


def test_the_table_says_of_loops_and_of_a_lost_camera_what_summaries_say(tmp_path: Path) -> None:
    tracking = {"states": {"ok": 7, "lost": 3}, "reasons": {"lost": {"cut": 3}}, "num_sub_maps": 4, "apart": [1, 3]}
    told = {
        "w0": {"loops": {"num_loops": 5}, "tracking": tracking},
        "w1": {"loops": {"num_loops": 0}, "tracking": tracking | {"states": {"ok": 10}, "apart": []}},
        "w2": {"loops": {"are_closed": False}, "tracking": None},
        "w3": {"loops": 7, "tracking": {"states": {"ok": 7}, "num_apart": 2}},  # damaged, or of before
    }

    def outcome(job: Job) -> Told:
        finished = done(job)
        (job.storage.folder(job.name) / "summary.json").write_text(json.dumps(finished.summary | told[job.name]))
        return finished

    run(tmp_path, PromptPool(outcome))
    columns = ("num_loops", "num_lost_frames", "num_sub_maps", "num_apart")
    assert [tuple(row[name] for name in columns) for row in table(tmp_path)] == [
        ("5", "3", "4", "2"),
        ("0", "0", "4", "0"),
        ("", "", "", ""),
        ("", "", "", ""),
    ]


def test_a_table_of_before_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "videos.csv").write_text("name,source,state,tries,problem,num_frames,notes\nw0,world:0,done,1,,5,\n")
    run(tmp_path, PromptPool(done))
    assert len(table(tmp_path)) == 4


def test_a_result_that_cannot_be_read_is_not_mapped_again(tmp_path: Path) -> None:
    run(tmp_path, PromptPool(done))
    summary = tmp_path / "w1" / "summary.json"
    summary.unlink()
    summary.symlink_to(summary)  # a disk that fails, or a file of somebody else
    pool = PromptPool(done)
    _, events = run(tmp_path, pool)
    assert pool.given == []
    aside = [event for event in events if isinstance(event, Ended)]
    assert [event.name for event in aside] == ["w1"]
    assert "cannot be read" in str(aside[0].problem)
    assert [row["state"] for row in table(tmp_path)] == ["done", "failed", "done", "done"]


@pytest.mark.parametrize("is_remote", [False, True])
def test_a_file_of_somebody_is_not_replaced_by_the_table(is_remote: bool, tmp_path: Path) -> None:
    pytest.importorskip("fsspec").filesystem("memory").store.clear()
    storage = open_storage("memory://own" if is_remote else tmp_path, tmp_path)
    storage.write("videos.csv", b"source,state\na.mp4,TX\n")
    pool = PromptPool(done)
    with pytest.raises(InputError, match=r"would replace .*/videos.csv, which is none"):
        list(Batch(open_manifest(["world:1"], {"model": "tiny"}), storage, pool))
    assert pool.given == []
    assert storage.beginning("videos.csv", 100) == b"source,state\na.mp4,TX\n"


def test_a_folder_that_is_moved_away_meanwhile_ends_the_batch(tmp_path: Path) -> None:
    """Another batch that makes one there has a lock of its own."""
    out = tmp_path / "out"

    def moving(job: Job) -> Told:
        if job.name == "w1":
            out.rename(tmp_path / "elsewhere")
        return done(job)

    pool = PromptPool(moving, num_workers=1)
    with pytest.raises(InputError, match="out was moved or deleted while the batch wrote there"):
        run(out, pool)
    assert pool.given == ["w0", "w1"]
    assert not (out / "videos.csv").exists()
