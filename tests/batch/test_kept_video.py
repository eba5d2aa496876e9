"""Videos under way on a storage without folders: another machine goes on from a checkpoint that is whole, or older."""

import json
import shutil
from pathlib import Path

import pytest

from longtake.api.map_request import MapRequest
from longtake.batch.job import Failed, Finished, MapJob, Stopped, Told, Watched
from longtake.batch.kept_video import KeptVideo
from longtake.batch.object_files import ObjectFiles
from longtake.batch.open_storage import open_storage
from longtake.batch.remote_storage import RemoteStorage
from longtake.batch.worker import Worker
from longtake.errors import InputError

fsspec = pytest.importorskip("fsspec")

NAME = "walk"
TIMED = {"summary.json", "progress.jsonl", "report.html"}


@pytest.fixture(autouse=True)
def _empty() -> None:
    fsspec.filesystem("memory").store.clear()


def on_machine(folder: Path, place: str = "today") -> RemoteStorage:
    storage = open_storage(f"memory://walks/{place}", folder)
    assert isinstance(storage, RemoteStorage)
    return storage


def video_on(folder: Path) -> KeptVideo:
    return KeptVideo(ObjectFiles("memory://walks/today"), NAME, folder / NAME)


def mapped_until(folder: Path, num_frames: int) -> None:
    """As a run leaves it after so many frames, with one more on its way."""
    out, number = folder / NAME, f"{num_frames:06d}"
    for place in (out / "depth", out / "resume" / number):
        place.mkdir(parents=True, exist_ok=True)
    for frame in range(num_frames + 1):
        path = out / "depth" / f"{frame:06d}.png"
        if not path.exists():
            path.write_bytes(b"depth %d" % frame)
    (out / "poses.tum").write_text("pose\n" * (num_frames + 1))
    (out / "resume" / number / "session.safetensors").write_bytes(b"session %d" % num_frames)
    (out / "resume" / number / "arrays.npz").write_bytes(b"arrays")
    (out / "resume" / "latest.json").write_text(json.dumps({"folder": number}))
    for other in (out / "resume").iterdir():
        if other.is_dir() and other.name < number:
            shutil.rmtree(other)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def remote_names() -> list[str]:
    return ObjectFiles("memory://walks/today").names_below(NAME)


def test_another_machine_has_what_was_kept_last(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    mapped_until(here, 3)
    video_on(here).keep()
    mapped_until(here, 5)
    (here / NAME / "frames.jsonl.unfinished").write_text("half")
    video_on(here).keep()
    assert not [name for name in remote_names() if "000003" in name and name.startswith("resume")]
    (here / NAME / "frames.jsonl.unfinished").unlink()
    video_on(there).bring()
    assert contents(there / NAME) == contents(here / NAME)


def test_numbered_files_are_put_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, there, put = tmp_path / "here", tmp_path / "there", []
    real = ObjectFiles.put

    def noting(files: ObjectFiles, path: Path, name: str) -> None:
        put.append(path.name)
        real(files, path, name)

    monkeypatch.setattr(ObjectFiles, "put", noting)
    mapped_until(here, 3)
    video_on(here).keep()
    video_on(here).keep()
    assert put.count("000000.png") == put.count("poses.tum") == 1
    video_on(there).bring()
    mapped_until(there, 5)
    video_on(there).keep()
    assert put.count("000000.png") == put.count("000005.png") == 1
    assert put.count("poses.tum") == 2
    (there / NAME / "depth/000000.png").write_bytes(b"another")
    video_on(there).deliver()
    assert put.count("000000.png") == 2
    assert put.count("000005.png") == 1
    assert [name for name in remote_names() if name.startswith("resume")] == []
    assert contents(there) == {}


def test_half_a_checkpoint_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    mapped_until(here, 3)
    video_on(here).keep()
    first = contents(here / NAME)
    mapped_until(here, 5)
    real = ObjectFiles.put

    def full(files: ObjectFiles, path: Path, name: str) -> None:
        if path.name == "poses.tum":
            raise InputError("The storage is full.")
        real(files, path, name)

    with monkeypatch.context() as patched:
        patched.setattr(ObjectFiles, "put", full)
        with pytest.raises(InputError, match="full"):
            video_on(here).keep()
    video_on(there).bring()
    assert first.items() <= contents(there / NAME).items()
    assert json.loads((there / NAME / "resume/latest.json").read_text()) == {"folder": "000003"}
    video_on(here).keep()
    video_on(there).bring()
    assert contents(there / NAME) == contents(here / NAME)


def test_a_machine_that_came_further_stays_with_its_own(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    mapped_until(here, 3)
    video_on(here).keep()
    mapped_until(there, 4)
    own = contents(there)
    video_on(there).bring()
    assert contents(there) == own
    video_on(there).keep()
    video_on(here).bring()
    assert contents(here / NAME) == contents(there / NAME)


def test_a_checkpoint_that_is_replaced_meanwhile_is_kept_instead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    mapped_until(here, 3)
    real = ObjectFiles.put

    def replacing(files: ObjectFiles, path: Path, name: str) -> None:
        if path.name == "session.safetensors" and "000003" in name:
            mapped_until(here, 5)
        real(files, path, name)

    monkeypatch.setattr(ObjectFiles, "put", replacing)
    video_on(here).keep()
    video_on(there).bring()
    assert contents(there / NAME) == contents(here / NAME)
    assert not [name for name in remote_names() if name.startswith("resume/000003")]


def mapped(storage: RemoteStorage, *, lost_after: int | None = None, stopped_after: int | None = None) -> Told:
    """By a worker, whose machine is lost after so many frames, or which is asked to stop."""
    request = MapRequest(model="tiny", size=56, checkpoint_every=5, format="tum,ply,depth")
    job = MapJob(name=NAME, source="world:3?frames=40&size=112x84", request=request, storage=storage)
    with Worker() as worker:

        def tell(report: Told) -> None:
            assert isinstance(report, Watched)
            is_kept = bool(storage.files.names_below(f"{NAME}/resume"))
            if is_kept and lost_after is not None and report.num_frames > lost_after:
                raise OSError("gone")
            if stopped_after is not None and report.num_frames > stopped_after:
                worker.stop()

        return worker.do(job, tell)


def result(storage: RemoteStorage) -> dict[str, bytes | None]:
    names = storage.files.names_below(NAME)
    return {name: None if name in TIMED else storage.files.read(f"{NAME}/{name}") for name in names}


def test_a_video_goes_on_where_a_lost_machine_has_kept_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("longtake.batch.worker._TOLD_EVERY_S", 0.0)
    whole = on_machine(tmp_path / "one", "whole")
    done = mapped(whole)
    assert isinstance(done, Finished)
    assert done.num_frames == 40
    assert isinstance(mapped(on_machine(tmp_path / "lost"), lost_after=12), Failed)
    assert on_machine(tmp_path / "lost").summary(NAME) is None
    stopped = mapped(on_machine(tmp_path / "second"), stopped_after=4)
    assert isinstance(stopped, Stopped)
    rest = mapped(on_machine(tmp_path / "third"))
    assert isinstance(rest, Finished)
    assert 0 < rest.num_frames < 30
    assert result(on_machine(tmp_path / "third")) == result(whole)


def test_what_was_removed_from_the_storage_meanwhile_is_delivered_all_the_same(tmp_path: Path) -> None:
    mapped_until(tmp_path, 4)
    video = video_on(tmp_path)
    video.keep()
    fsspec.filesystem("memory").store.clear()
    mapped_until(tmp_path, 8)
    (tmp_path / NAME / "summary.json").write_text("{}")
    video.deliver()
    files = ObjectFiles("memory://walks/today").names_below(NAME)
    assert [name for name in files if name.startswith("depth/")] == [f"depth/{frame:06d}.png" for frame in range(9)]
