"""What failures say of another try, and of all other videos."""

import errno
import time
from collections.abc import Sequence
from pathlib import Path
from threading import Timer

import pytest
from prompt_pool import PromptPool, done, run, table

from longtake.batch.driver import Batch
from longtake.batch.events import BatchEvent, Ended, Retried
from longtake.batch.folder_storage import FolderStorage
from longtake.batch.job import Cause, Failed, Job, Told
from longtake.batch.manifest import open_manifest
from longtake.batch.open_storage import open_storage
from longtake.errors import InputError, StorageError


def test_what_would_fail_again_is_tried_once(tmp_path: Path) -> None:
    pool = PromptPool(
        lambda job: Failed(name=job.name, problem="No video.", cause=Cause.VIDEO) if job.name == "w1" else done(job)
    )
    _, events = run(tmp_path, pool)
    assert pool.given.count("w1") == 1
    aside = [event for event in events if isinstance(event, Ended) and event.problem is not None]
    assert [(event.name, event.tries) for event in aside] == [("w1", 1)]


def test_a_model_that_no_worker_can_load_ends_a_batch_at_once(tmp_path: Path) -> None:
    pool = PromptPool(lambda job: Failed(name=job.name, problem="No weights.", cause=Cause.WORKER), 1)
    with pytest.raises(InputError, match=r"No video can be mapped: No weights\."):
        run(tmp_path, pool)
    assert pool.given == ["w0"]
    assert pool.is_closed
    assert [row["state"] for row in table(tmp_path)] == ["missing"] * 4


def test_a_model_that_one_row_names_costs_that_row_alone(tmp_path: Path) -> None:
    def outcome(job: Job) -> Told:
        return Failed(name=job.name, problem="No.", cause=Cause.WORKER) if job.name == "own" else done(job)

    pool = PromptPool(outcome)
    rows = [{"source": "world:1", "name": "own", "model": "micro-map"}, {"source": "world:2", "name": "usual"}]
    batch = Batch(open_manifest(rows, {"model": "tiny"}), open_storage(tmp_path), pool)
    list(batch)
    assert pool.given == ["own", "usual"]
    assert batch.summary is not None
    assert (batch.summary.done, batch.summary.failed) == (1, 1)


def test_workers_that_die_with_every_video_end_a_batch_and_set_none_aside(tmp_path: Path) -> None:
    pool = PromptPool(lambda job: Failed(name=job.name, problem="It died.", cause=Cause.LOST), 1)
    with pytest.raises(InputError, match="Workers die before they have looked at a frame, with 3 videos"):
        run(tmp_path, pool, num_videos=9)
    assert set(pool.given) == {"w0", "w1", "w2"}
    assert {row["state"] for row in table(tmp_path)} == {"missing"}


def test_videos_that_kill_their_workers_among_others_are_set_aside_alone(tmp_path: Path) -> None:
    def outcome(job: Job) -> Told:
        return Failed(name=job.name, problem="It died.", cause=Cause.LOST) if int(job.name[1:]) % 2 else done(job)

    batch, _ = run(tmp_path, PromptPool(outcome, 1), num_videos=8)
    assert batch.summary is not None
    assert (batch.summary.done, batch.summary.failed) == (4, 4)


def test_a_full_disk_ends_a_batch_and_sets_none_aside(tmp_path: Path) -> None:
    def outcome(job: Job) -> Told:
        return done(job) if job.name == "w0" else Failed(name=job.name, problem="No room.", cause=Cause.STORAGE)

    pool = PromptPool(outcome, 1)
    with pytest.raises(InputError, match=r"Results of 3 videos in a row cannot be written; the last: No room\. What"):
        run(tmp_path, pool, num_videos=9)
    assert set(pool.given) == {"w0", "w1", "w2", "w3"}
    assert [row["state"] for row in table(tmp_path)] == ["done", *["missing"] * 8]


def test_a_folder_that_cannot_be_written_among_others_is_set_aside_alone(tmp_path: Path) -> None:
    def outcome(job: Job) -> Told:
        is_even = int(job.name[1:]) % 2 == 0
        return done(job) if is_even else Failed(name=job.name, problem="Not yours.", cause=Cause.STORAGE)

    pool = PromptPool(outcome, 1)
    batch, _ = run(tmp_path, pool, num_videos=8)
    assert batch.summary is not None
    assert (batch.summary.done, batch.summary.failed) == (4, 4)
    assert pool.given.count("w1") == 3


def test_a_storage_that_the_batch_loses_sets_no_video_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def record(self: FolderStorage, name: str, file: str) -> None:
        raise StorageError("Nobody answers.")

    monkeypatch.setattr(FolderStorage, "record", record)
    batch = Batch(open_manifest(["world:1", "world:2"], {"model": "tiny"}), open_storage(tmp_path), PromptPool(done))
    events: list[BatchEvent] = []
    with pytest.raises(StorageError, match="Nobody answers"):
        events.extend(batch)
    assert events == []


def test_a_mount_that_is_away_for_a_moment_sets_no_video_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(tmp_path, PromptPool(done))
    read, refusals = Path.read_bytes, iter([OSError(errno.ESTALE, "Stale file handle")])

    def failing(path: Path) -> bytes:
        if path.parent.name == "w1":
            for refusal in refusals:
                raise refusal
        return read(path)

    manifest = open_manifest([{"source": f"world:{n}", "name": f"w{n}"} for n in range(4)], {"model": "tiny"})
    batch, events = Batch(manifest, open_storage(tmp_path), PromptPool(done)), list[BatchEvent]()
    monkeypatch.setattr(Path, "read_bytes", failing)
    with pytest.raises(StorageError, match="Stale file handle"):
        events.extend(batch)
    assert events == []
    assert [row["state"] for row in table(tmp_path)] == ["done"] * 4


def once_failing(cause: Cause = Cause.CHANCE) -> PromptPool:
    """Of one worker that the first video is too much for once."""
    failures = iter(["w0"])

    def outcome(job: Job) -> Told:
        return Failed(name=job.name, problem="No.", cause=cause) if job.name == next(failures, None) else done(job)

    return PromptPool(outcome, 1)


class Listening(PromptPool):
    """Counts how often it is heard."""

    num_heard = 0

    def told(self, timeout_s: float) -> Sequence[Told]:
        self.num_heard += 1
        return super().told(timeout_s)


@pytest.mark.parametrize("cause", [Cause.CHANCE, Cause.LOST, Cause.STORAGE])
def test_another_try_waits_while_other_videos_go_on(
    cause: Cause, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("longtake.batch.pauses._FIRST_S", 1.0)
    begun_s, pool = time.monotonic(), once_failing(cause)
    batch, _ = run(tmp_path, pool)
    assert time.monotonic() - begun_s >= 1.0
    assert pool.given == ["w0", "w1", "w2", "w3", "w0"]
    assert batch.summary is not None
    assert (batch.summary.done, batch.summary.failed) == (4, 0)


def test_while_all_that_is_left_waits_nothing_spins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("longtake.batch.pauses._FIRST_S", 0.1)
    pool = Listening(lambda job: Failed(name=job.name, problem="No."), 1)
    batch, _ = run(tmp_path, pool, num_videos=1)
    assert pool.given == ["w0"] * 3
    assert pool.num_heard < 12
    assert batch.summary is not None
    assert (batch.summary.failed, batch.summary.seconds >= 0.5) == (1, True)


def test_a_batch_that_is_stopped_while_a_video_waits_ends_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("longtake.batch.pauses._FIRST_S", 60.0)
    monkeypatch.setattr("longtake.batch.driver._TOLD_EVERY_S", 60.0)
    pool = PromptPool(lambda job: Failed(name=job.name, problem="No."), 1)
    batch = Batch(open_manifest(["world:1"], {"model": "tiny"}), open_storage(tmp_path), pool)
    assert isinstance(next(batch), Retried)
    stopping = Timer(0.2, batch.stop)
    stopping.start()
    events = list(batch)
    stopping.join()
    assert batch.summary is not None
    assert batch.summary.seconds < 10
    assert not batch.summary.is_complete
    assert not [event for event in events if isinstance(event, Ended)]
    assert pool.given == ["world_1"]


def test_what_is_set_aside_waits_for_no_other_try_of_its_spans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("longtake.batch.pauses._FIRST_S", 60.0)
    causes = {"walk.span-1-of-2": Cause.CHANCE, "walk.span-2-of-2": Cause.VIDEO}
    pool = PromptPool(lambda job: Failed(name=job.name, problem="No.", cause=causes[job.name]))
    manifest = open_manifest([{"source": "world:9?frames=400", "name": "walk", "spans": 2}], {"model": "tiny"})
    batch = Batch(manifest, open_storage(tmp_path), pool)
    list(batch)
    assert batch.summary is not None
    assert batch.summary.failed == 1
    assert batch.summary.seconds < 10


def masks(folder: Path) -> str:
    """As the machine that plans has them."""
    folder.mkdir()
    (folder / "0.png").touch()
    return str(folder)


def test_masks_that_one_row_names_cost_that_row_alone(tmp_path: Path) -> None:
    def outcome(job: Job) -> Told:
        return Failed(name=job.name, problem="No masks.", cause=Cause.MASKS) if job.name == "own" else done(job)

    pool = PromptPool(outcome)
    rows = [{"source": "world:1", "name": "own", "mask": masks(tmp_path / "m")}, {"source": "world:2", "name": "usual"}]
    batch = Batch(open_manifest(rows, {"model": "tiny"}), open_storage(tmp_path / "out"), pool)
    list(batch)
    assert pool.given == ["own", "usual"]
    assert batch.summary is not None
    assert (batch.summary.done, batch.summary.failed) == (1, 1)


def test_masks_that_all_rows_are_asked_for_and_no_worker_has_end_a_batch(tmp_path: Path) -> None:
    pool = PromptPool(lambda job: Failed(name=job.name, problem="No masks.", cause=Cause.MASKS), 1)
    manifest = open_manifest(["world:1", "world:2"], {"model": "tiny", "mask": masks(tmp_path / "m")})
    with pytest.raises(InputError, match=r"No video can be mapped: No masks\."):
        list(Batch(manifest, open_storage(tmp_path / "out"), pool))
    assert len(pool.given) == 1
