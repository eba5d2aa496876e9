"""Real workers: as many as there are, killed or stopped, and the files are those of one that nothing happened to."""

import csv
import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import av
import numpy as np
import psutil
import pytest
from selected import rest_by_hand

import longtake
from longtake.batch.driver import Batch
from longtake.batch.events import BatchSummary, Ended, Retried
from longtake.batch.job import Finished, Told
from longtake.batch.local_pool import LocalPool
from longtake.batch.manifest import open_manifest
from longtake.batch.open_storage import open_storage
from longtake.batch.ray_actor import Actor
from longtake.batch.ray_pool import RayPool
from longtake.batch.remote_storage import RemoteStorage
from longtake.batch.sharing import Growth, Sharing
from longtake.errors import InputError, MissingExtraError

pytestmark = pytest.mark.extra

SETTINGS = {"model": "tiny", "size": 56, "checkpoint_every": 5, "format": "tum,depth"}
ROWS = [{"source": f"world:{number}?frames=60&size=112x84", "name": f"w{number}"} for number in range(3)]
TIMED = {"summary.json", "progress.jsonl", "report.html"}


def files(folder: Path) -> dict[str, bytes]:
    """All that must be the same whoever mapped it."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path.name not in TIMED)
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths if path.name != "videos.csv"}


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """By one worker."""
    out = tmp_path_factory.mktemp("one")
    summary = longtake.map_many(ROWS, out, jobs=1, **SETTINGS)
    assert (summary.done, summary.failed, summary.num_frames) == (3, 0, 180)
    return files(out)


def has_checkpoint(out: Path) -> bool:
    """A complete one, in a folder or kept on a storage."""
    return any(out.glob("w*/resume/*.json"))


def kill_one(pool: LocalPool | RayPool) -> Iterator[None]:
    """A worker of it, once; threads of each share one arena of memory."""
    assert {psutil.Process(id).environ()["MALLOC_ARENA_MAX"] for id in pool.process_ids} == {"1"}
    os.kill(pool.process_ids[0], signal.SIGKILL)
    yield


def kill_when_begun(batch: Batch, out: Path, kill: Iterator[None]) -> list[str]:
    """Names of the videos that were tried again."""
    retried = []
    for event in batch:
        if isinstance(event, Retried):
            retried.append(event.name)
            assert "Its worker died" in event.problem
        elif has_checkpoint(out):
            next(kill, None)
    return retried


def test_a_worker_that_is_killed_is_replaced_and_its_video_resumed(
    expected: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("longtake.batch.driver._TOLD_EVERY_S", 0.1)
    pool = LocalPool(2)
    batch = Batch(open_manifest(ROWS, SETTINGS), open_storage(tmp_path), pool)
    assert len(kill_when_begun(batch, tmp_path, kill_one(pool))) == 1
    assert batch.summary is not None
    assert batch.summary.done == 3
    assert files(tmp_path) == expected
    again = longtake.map_many(ROWS, tmp_path, **SETTINGS)
    assert (again.done, again.skipped, again.num_frames) == (3, 3, 0)


class Shrinking(Growth):
    """Two workers until a video is done, then one."""

    def __init__(self) -> None:
        super().__init__(Sharing(most=2), 1)
        self.is_smaller = False

    @property
    def num_workers(self) -> int:
        return 1 if self.is_smaller else 2

    def hear(self, reports: Iterable[Told], *, all_work: bool) -> None:
        self.is_smaller |= any(isinstance(report, Finished) for report in reports)


def test_workers_become_more_while_that_pays(expected: dict[str, bytes], tmp_path: Path) -> None:
    pool = LocalPool(2, growth=Growth(Sharing(most=2, measured_s=0.2), 1))
    batch = Batch(open_manifest(ROWS, SETTINGS), open_storage(tmp_path), pool)
    seen = [len(pool.process_ids) for _ in batch]
    assert seen[0] == 1
    assert max(seen) == 2
    assert files(tmp_path) == expected


def test_a_worker_too_many_ends_with_its_video(expected: dict[str, bytes], tmp_path: Path) -> None:
    pool = LocalPool(2, growth=Shrinking())
    batch = Batch(open_manifest(ROWS, SETTINGS), open_storage(tmp_path), pool)
    seen = [len(pool.process_ids) for event in batch if isinstance(event, Ended)]
    assert max(seen) <= 2
    assert seen[-1] == 1
    assert files(tmp_path) == expected


def film(path: Path) -> Path:
    """Ten frames of noise."""
    with av.open(str(path), "w") as file:
        stream = file.add_stream("libx264", rate=10)
        stream.width, stream.height, stream.pix_fmt = 112, 84, "yuv420p"
        for number in range(10):
            pixels = np.random.default_rng(number).integers(0, 256, (84, 112, 3), dtype=np.uint8)
            file.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
        file.mux(stream.encode(None))
    return path


def test_bad_videos_are_set_aside_and_the_rest_is_done(tmp_path: Path) -> None:
    videos = tmp_path / "videos"
    videos.mkdir()
    (videos / "text.mp4").write_text("no video")
    (videos / "empty.mp4").write_bytes(b"")
    whole = film(videos / "whole.mp4").read_bytes()
    (videos / "torn.mp4").write_bytes(whole[: len(whole) // 2])
    (videos / "locked.mp4").write_bytes(b"" if os.geteuid() == 0 else whole)  # to root nothing is locked
    (videos / "locked.mp4").chmod(0)
    bad = ["text", "empty", "torn", "locked", "nowhere"]
    (videos / "list.csv").write_text(
        "source,name\n" + "".join(f"{name}.mp4,{name}\n" for name in (*bad, "whole")) + f"{ROWS[0]['source']},good\n"
    )
    out, words = tmp_path / "out", ["--jobs", "1", "--model", "tiny", "--size", "56", "--format", "tum"]
    command = [sys.executable, "-m", "longtake", "batch", str(videos / "list.csv"), "--out", str(out), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "5 of 7 videos could not be mapped" in done.stderr
    assert "2 of 7 videos done, 5 failed" in done.stdout
    assert (out / "good" / "poses.tum").exists()
    with (out / "videos.csv").open(newline="") as file:
        table = {row["name"]: row for row in csv.DictReader(file)}
    assert {name for name, row in table.items() if row["state"] == "failed"} == set(bad)
    assert all(table[name]["problem"].endswith(".") and "\n" not in table[name]["problem"] for name in bad)
    assert not (out / "text").exists()


@pytest.mark.parametrize(
    ("on", "ended_by"),
    rest_by_hand(itertools.product(("local", "ray"), (signal.SIGINT, signal.SIGTERM)), keep=1),
)
def test_a_batch_that_is_ended_goes_on_to_the_same_files(
    on: str, ended_by: signal.Signals, expected: dict[str, bytes], tmp_path: Path
) -> None:
    if on == "ray":
        pytest.importorskip("ray")
    listing, out = tmp_path / "list.csv", tmp_path / "out"
    listing.write_text("source,name\n" + "".join(f"{row['source']},{row['name']}\n" for row in ROWS))
    words = ["--jobs", "2", "--model", "tiny", "--size", "56", "--format", "tum,depth", "--set", "checkpoint-every=5"]
    command = [sys.executable, "-m", "longtake", "batch", str(listing), "--out", str(out), "--on", on, *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as running:
        while running.poll() is None and not has_checkpoint(out):
            time.sleep(0.02)
        if ended_by is signal.SIGINT:
            os.killpg(running.pid, ended_by)  # as a terminal does, to all of them
        else:
            running.send_signal(ended_by)
        said, _ = running.communicate(timeout=120)
    assert running.returncode == 130
    assert "the same command goes on" in said
    assert files(out) != expected
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    assert files(out) == expected


def test_results_reach_a_storage_that_is_no_folder(expected: dict[str, bytes], tmp_path: Path) -> None:
    storage = RemoteStorage(f"local://{tmp_path}/out", tmp_path / "scratch")

    def mapped() -> BatchSummary:
        batch = Batch(open_manifest(ROWS[:1], SETTINGS), storage, LocalPool(1))
        list(batch)
        assert batch.summary is not None
        return batch.summary

    assert mapped().done == 1
    delivered = files(tmp_path / "out")
    assert delivered == {name: content for name, content in expected.items() if name.startswith("w0/")}
    assert mapped().skipped == 1
    assert list((tmp_path / "scratch").rglob("*.tum")) == []


def test_a_video_of_a_machine_that_is_lost_goes_on_from_what_it_kept(
    expected: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("longtake.batch.driver._TOLD_EVERY_S", 0.1)
    scratch, out, pool = tmp_path / "scratch", tmp_path / "out", LocalPool(1)
    batch = Batch(open_manifest(ROWS[:1], SETTINGS), RemoteStorage(f"local://{out}", scratch), pool)

    def lose() -> Iterator[None]:
        os.kill(pool.process_ids[0], signal.SIGKILL)
        scratch.rename(tmp_path / "lost")
        yield

    assert kill_when_begun(batch, out, lose()) == ["w0"]
    assert batch.summary is not None
    assert batch.summary.done == 1
    assert files(out) == {name: content for name, content in expected.items() if name.startswith("w0/")}


def test_without_ray_it_is_said_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r'pip install "longtake\[ray\]"'):
        longtake.map_many(ROWS, tmp_path, on="ray", **SETTINGS)


def test_on_ray_the_files_are_the_same_though_a_worker_is_killed(
    expected: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray")
    monkeypatch.setattr("longtake.batch.driver._TOLD_EVERY_S", 0.1)
    pool = RayPool("ray", 2)
    batch = Batch(open_manifest(ROWS, SETTINGS), open_storage(tmp_path), pool)
    assert len(kill_when_begun(batch, tmp_path, kill_one(pool))) == 1
    assert batch.summary is not None
    assert batch.summary.done == 3
    assert files(tmp_path) == expected


def test_a_cluster_with_another_longtake_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray")
    monkeypatch.setattr("longtake.batch.ray_pool.__version__", "99.0")
    expected = r"Expected longtake 99\.0 with Python 3\.\d+ on the cluster, as here, but a worker has longtake 0\."
    with pytest.raises(InputError, match=expected):
        longtake.map_many(ROWS, tmp_path, on="ray", jobs=1, **SETTINGS)
    assert list(tmp_path.glob("w*")) == []


class Unknown(Actor):
    """In a module that no worker can import."""


@pytest.mark.by_hand
def test_a_cluster_without_longtake_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray")
    monkeypatch.setattr("longtake.batch.ray_pool.Actor", Unknown)
    with pytest.raises(InputError, match=r"Workers cannot be started on the Ray cluster: 3 actors .*install longtake"):
        longtake.map_many(ROWS, tmp_path, on="ray", jobs=1, **SETTINGS)


@pytest.mark.by_hand
def test_a_machine_that_leaves_the_cluster_costs_nothing_but_time(
    expected: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster_utils = pytest.importorskip("ray.cluster_utils")
    monkeypatch.setattr("longtake.batch.driver._TOLD_EVERY_S", 0.1)
    cluster = cluster_utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    leaving = cluster.add_node(num_cpus=1)
    try:
        pool = RayPool(f"ray://{cluster.address}", 2)
        batch = Batch(open_manifest(ROWS, SETTINGS), open_storage(tmp_path), pool)

        def remove() -> Iterator[None]:
            while len(pool.process_ids) < 2:  # until both machines have a worker
                yield
            cluster.remove_node(leaving)
            yield

        assert len(kill_when_begun(batch, tmp_path, remove())) <= 1
        assert batch.summary is not None
        assert batch.summary.done == 3
        assert files(tmp_path) == expected
    finally:
        cluster.shutdown()


def test_a_cluster_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    with pytest.raises(
        InputError, match=r"Expected a Ray cluster at 'ray://127\.0\.0\.1:1', but nobody answers"
    ) as refused:
        longtake.map_many(ROWS, tmp_path, on="ray://127.0.0.1:1", **SETTINGS)
    assert "\n" not in str(refused.value)
