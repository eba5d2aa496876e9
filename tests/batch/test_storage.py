"""Where results go: there when they are whole, and written by one batch at a time."""

import errno
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from longtake.batch.driver import Batch
from longtake.batch.events import Ended
from longtake.batch.folder_storage import FolderStorage
from longtake.batch.kept_video import KeptVideo
from longtake.batch.local_pool import LocalPool
from longtake.batch.manifest import open_manifest
from longtake.batch.object_files import ObjectFiles
from longtake.batch.open_storage import open_storage
from longtake.batch.remote_storage import RemoteStorage
from longtake.errors import InputError, StorageError
from longtake.pipeline.outputs import Outputs

fsspec = pytest.importorskip("fsspec")


@pytest.fixture
def remote(tmp_path: Path) -> RemoteStorage:
    fsspec.filesystem("memory").store.clear()
    storage = open_storage("memory://walks/today", tmp_path / "scratch")
    assert isinstance(storage, RemoteStorage)
    return storage


def mapped(storage: RemoteStorage, name: str) -> Path:
    """As a worker leaves it."""
    folder = storage.folder(name)
    (folder / "depth").mkdir(parents=True)
    (folder / "depth/000000.png").write_bytes(b"depth")
    (folder / "summary.json").write_text(json.dumps({"is_complete": True, "num_frames": 3}))
    return folder


def test_a_video_is_there_when_all_of_it_is(remote: RemoteStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = mapped(remote, "walk")
    system = fsspec.filesystem("memory")
    put, order = system.put_file, []

    def failing(path: str, target: str) -> None:
        order.append(Path(target).name)
        if target.endswith("summary.json") and order.count("summary.json") == 1:
            raise OSError(28, "No space left on device")
        put(path, target)

    monkeypatch.setattr(type(system), "put_file", lambda _, path, target, **__: failing(path, target))
    with pytest.raises(InputError, match=r"memory://walks/today cannot be used .*No space left"):
        remote.deliver("walk")
    assert order == ["000000.png", "summary.json"]
    assert not remote.is_done("walk", Outputs())
    assert folder.exists()
    remote.deliver("walk")
    assert remote.is_done("walk", Outputs())
    assert remote.summary("walk") == {"is_complete": True, "num_frames": 3}
    assert not folder.exists()
    assert (remote.fetched("walk") / "depth/000000.png").read_bytes() == b"depth"
    remote.remove("walk")
    assert remote.summary("walk") is None


def test_a_kill_while_a_video_is_delivered_leaves_nothing_behind(
    remote: RemoteStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once it counts as done nobody looks at it again, but for a batch that passes it over."""
    folder = mapped(remote, "walk")
    remote.files.write("walk/resume/000002.json", b"{}")
    remote.files.write("walk/resume/000002/state.json", b"{}")

    def killed(video: KeptVideo) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(KeptVideo, "forget", killed)
        with pytest.raises(KeyboardInterrupt):
            remote.deliver("walk")
    assert remote.is_done("walk", Outputs())
    assert sorted(remote.files.names_below("walk")) == ["depth/000000.png", "summary.json"]
    assert folder.exists()
    rows = [{"source": "walk.mp4", "name": "walk"}]
    assert not [event for event in Batch(open_manifest(rows), remote, LocalPool(1)) if isinstance(event, Ended)]
    assert not folder.exists()


def test_what_was_fetched_in_part_is_fetched_again(remote: RemoteStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    (mapped(remote, "walk") / "take.json").write_text("{}")  # which comes after the summary
    remote.deliver("walk")
    get = type(remote.files).get

    def failing(files: ObjectFiles, name: str, path: Path) -> None:
        if name.endswith("take.json"):
            raise StorageError("nobody answers")
        get(files, name, path)

    with monkeypatch.context() as patched:
        patched.setattr(ObjectFiles, "get", failing)
        with pytest.raises(StorageError):
            remote.fetched("walk")
    assert (remote.fetched("walk") / "take.json").exists()


def test_a_batch_that_ends_as_it_begins_keeps_nobody_out(
    remote: RemoteStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, answers = ObjectFiles.read, iter([True, False])

    def failing(files: ObjectFiles, name: str, num_bytes: int | None = None) -> bytes | None:
        if not next(answers, True):
            raise StorageError("nobody answers")
        return read(files, name, num_bytes)

    with monkeypatch.context() as patched:
        patched.setattr(ObjectFiles, "read", failing)
        with pytest.raises(StorageError), remote.held():
            pass
    with remote.held():
        pass


def test_two_batches_do_not_write_to_one_storage(remote: RemoteStorage) -> None:
    other = open_storage(remote.url, remote.scratch)
    with (
        remote.held(),
        pytest.raises(InputError, match=r"Another batch, process \d+ on .+, writes to memory://walks/today"),
        other.held(),
    ):
        pass
    with other.held():
        pass
    assert remote.files.read("batch-lease.json") is None


@pytest.mark.parametrize("renewed_s", [0.0, 1e12, None, "abc", []])
def test_a_lease_that_nobody_renews_is_taken_over(
    remote: RemoteStorage, monkeypatch: pytest.MonkeyPatch, renewed_s: object
) -> None:
    monkeypatch.setattr("longtake.batch.lease._WATCHED_S", 0.05)
    stale = {"id": "x", "host": "gone", "pid": 1, "renewed_s": renewed_s}
    remote.write("batch-lease.json", json.dumps(stale).encode())
    with remote.held():
        assert json.loads(remote.files.read("batch-lease.json") or b"{}")["id"] != "x"


def test_a_lease_that_is_renewed_by_a_clock_far_behind_is_not_taken_over(
    remote: RemoteStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("longtake.batch.lease._WATCHED_S", 30.0)
    monkeypatch.setattr("time.sleep", lambda _: remote.write("batch-lease.json", lease(7200 - 15)))

    def lease(seconds_ago: float) -> bytes:
        record = {"id": "x", "host": "behind", "pid": 1, "renewed_s": time.time() - seconds_ago}
        return json.dumps(record).encode()

    remote.write("batch-lease.json", lease(7200))
    with pytest.raises(InputError, match="process 1 on behind, writes to"), remote.held():
        pass


def test_a_batch_that_was_silent_for_too_long_does_not_take_its_lease_back(
    remote: RemoteStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("longtake.batch.lease._RENEWED_S", 0.01)
    other = {"id": "y", "host": "there", "pid": 2, "renewed_s": time.time()}

    def go_on(require_held: Callable[[], None]) -> None:
        deadline_s = time.monotonic() + 10
        while time.monotonic() < deadline_s:
            remote.write("batch-lease.json", json.dumps(other).encode())
            require_held()

    with remote.held() as require_held:
        require_held()
        with pytest.raises(InputError, match="process 2 on there, took over memory://walks/today"):
            go_on(require_held)
    assert json.loads(remote.files.read("batch-lease.json") or b"{}") == other


def test_two_batches_do_not_write_to_one_folder(tmp_path: Path) -> None:
    first, second = open_storage(tmp_path / "out"), open_storage(tmp_path / "out")
    assert isinstance(first, FolderStorage)
    with first.held(), pytest.raises(InputError, match="Another run is writing to"), second.held():
        pass


def test_places_that_cannot_be_are_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(InputError, match="is a file; name another"):
        open_storage(tmp_path / "file")
    for empty in ("", "file://"):
        with pytest.raises(InputError, match="Expected a folder for the results, or an address, but got an empty"):
            open_storage(empty)
    with pytest.raises(InputError, match=r"cannot be used \(File name too long\)"):
        open_storage(tmp_path / ("x" * 300))
    storage = open_storage("nosuch://bucket/x")
    with pytest.raises(InputError, match="nosuch://bucket/x cannot be opened"):
        storage.summary("walk")


@pytest.mark.parametrize("scheme", ["file://", "local://"])
def test_a_folder_is_the_same_storage_by_whatever_name(tmp_path: Path, scheme: str) -> None:
    named = open_storage(f"{scheme}{tmp_path}")
    assert named == open_storage(tmp_path)
    with open_storage(tmp_path).held(), pytest.raises(InputError, match="Another run is writing"), named.held():
        pass


def _ways_to_read(storage: FolderStorage) -> list[Callable[[], object]]:
    return [
        lambda: storage.record("walk", "batch.json"),
        lambda: storage.summary("walk"),
        lambda: storage.is_done("walk", Outputs()),
        lambda: storage.beginning("videos.csv", 9),
    ]


def refusing(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Whatever is read."""

    def refuse(path: Path, *_: object) -> None:
        raise OSError(number, os.strerror(number), str(path))

    monkeypatch.setattr(Path, "read_bytes", refuse)
    monkeypatch.setattr(Path, "open", refuse)


@pytest.mark.parametrize("name", ["EIO", "ESTALE", "ENOTCONN", "ETIMEDOUT", "EHOSTDOWN"])
def test_a_mount_that_does_not_answer_is_wrong_for_all_videos(name: str, tmp_path: Path) -> None:
    storage = FolderStorage(tmp_path)
    number = getattr(errno, name)
    for read in _ways_to_read(storage):
        with pytest.MonkeyPatch.context() as patched:
            refusing(patched, number)
            with pytest.raises(StorageError, match=r"cannot be read .*check the disk or the network") as refused:
                read()
        assert os.strerror(number) in str(refused.value)


@pytest.mark.parametrize("name", ["ELOOP", "EACCES", "ENAMETOOLONG"])
def test_what_is_wrong_with_one_folder_is_wrong_for_it_alone(name: str, tmp_path: Path) -> None:
    storage = FolderStorage(tmp_path)
    for read in _ways_to_read(storage):
        with pytest.MonkeyPatch.context() as patched:
            refusing(patched, getattr(errno, name))
            with pytest.raises(InputError, match="cannot be read") as refused:
                read()
        assert not isinstance(refused.value, StorageError)
