"""What failures say of another try, and of all other videos."""

from pathlib import Path

import pytest
from prompt_pool import PromptPool, done, run, table

from longtake.batch.driver import Batch
from longtake.batch.events import Ended
from longtake.batch.job import Cause, Failed, Job, Told
from longtake.batch.manifest import open_manifest
from longtake.batch.open_storage import open_storage
from longtake.errors import InputError


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
