"""Where results go: there when they are whole, and written by one batch at a time."""

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from longtake.batch.folder_storage import FolderStorage
from longtake.batch.open_storage import open_storage
from longtake.batch.remote_storage import RemoteStorage
from longtake.errors import InputError
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
    storage = open_storage("nosuch://bucket/x")
    with pytest.raises(InputError, match="nosuch://bucket/x cannot be opened"):
        storage.summary("walk")


@pytest.mark.parametrize("scheme", ["file://", "local://"])
def test_a_folder_is_the_same_storage_by_whatever_name(tmp_path: Path, scheme: str) -> None:
    named = open_storage(f"{scheme}{tmp_path}")
    assert named == open_storage(tmp_path)
    with open_storage(tmp_path).held(), pytest.raises(InputError, match="Another run is writing"), named.held():
        pass
