"""One worker by itself: what keeps it from writing is one sentence, and costs nothing that was written."""

import errno
from dataclasses import replace
from pathlib import Path

import av
import numpy as np
import pytest
from full_disk import files_no_longer_than
from PIL import Image

from longtake.api.map_request import MapRequest
from longtake.batch.job import Cause, Failed, Finished, JoinJob, MapJob, Stopped, Told
from longtake.batch.open_storage import open_storage
from longtake.batch.worker import Worker
from longtake.errors import InputError
from longtake.exports.report.page import write_report
from longtake.takes.folder_lock import locked


def nobody(report: Told) -> None:
    """Nobody hears."""


def job_into(out: str | Path, scratch: Path | None = None) -> MapJob:
    request = MapRequest(model="tiny", size=56, checkpoint_every=5, format="tum,depth")
    storage = open_storage(out, scratch)
    return MapJob(name="walk", source="world:3?frames=20&size=112x84", request=request, storage=storage)


@pytest.mark.parametrize(("num_bytes", "first"), [(2000, "run.json"), (8000, "session.safetensors")])
def test_a_full_disk_is_one_sentence_and_the_video_goes_on_later(num_bytes: int, first: str, tmp_path: Path) -> None:
    job = job_into(tmp_path)
    with files_no_longer_than(num_bytes), Worker() as worker:
        full = worker.do(job, nobody)
    assert isinstance(full, Failed)
    assert f"{first} cannot be written (File too large); make room there" in full.problem
    assert "\n" not in full.problem
    assert full.cause is Cause.STORAGE  # of the next video it would be the same
    with Worker() as worker:
        done = worker.do(job, nobody)
    assert isinstance(done, Finished)
    assert done.summary["num_frames"] == 20


def test_a_storage_that_is_gone_is_one_sentence_and_the_video_goes_on_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsspec = pytest.importorskip("fsspec")
    system = fsspec.filesystem("memory")
    system.store.clear()
    job = job_into("memory://walks/gone", tmp_path)

    put = type(system).put_file

    def refuse(self: object, path: str, target: str, **_: object) -> None:
        if "/000015/" in target:
            raise ConnectionError("nobody answers")
        put(self, path, target)

    with monkeypatch.context() as patched, Worker() as worker:
        patched.setattr(type(system), "put_file", refuse)
        gone = worker.do(job, nobody)
    assert isinstance(gone, Failed)
    assert gone.problem == (
        "The storage memory://walks/gone cannot be used (ConnectionError: nobody answers); check it, and run the batch "
        "again."
    )
    assert job.storage.summary("walk") is None
    with Worker() as worker:
        done = worker.do(job, nobody)
    assert isinstance(done, Finished)
    assert 0 < done.num_frames < 20
    assert job.storage.summary("walk") is not None


def test_what_a_kill_in_the_end_has_left_to_do_is_done_by_the_next_batch(tmp_path: Path) -> None:
    job = job_into(tmp_path)
    with Worker() as worker:
        worker.do(job, nobody)
        outputs, report = job.request.checked().outputs, tmp_path / "walk" / "report.html"
        assert job.storage.is_done("walk", outputs)
        report.unlink()  # the summary was written, and then the process was killed
        assert not job.storage.is_done("walk", outputs)
        again = worker.do(job, nobody)
    assert isinstance(again, Finished)
    assert again.num_frames == 0
    assert report.exists()
    assert job.storage.is_done("walk", outputs)


def test_a_kill_between_an_export_and_its_report_is_not_taken_for_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = job_into(tmp_path)
    job = replace(job, request=replace(job.request, format="tum,depth,images,colmap"))
    reports = iter([write_report])

    def killed(out: Path) -> Path:
        return next(reports)(out)  # the second one never comes

    with monkeypatch.context() as patched, Worker() as worker:
        patched.setattr("longtake.pipeline.run_folder.write_report", killed)
        assert isinstance(worker.do(job, nobody), Failed)
    outputs = job.request.checked().outputs
    assert not job.storage.is_done("walk", outputs)
    with Worker() as worker:
        assert isinstance(worker.do(job, nobody), Finished)
    assert job.storage.is_done("walk", outputs)
    assert "colmap" in (tmp_path / "walk" / "report.html").read_text()


def test_a_worker_knows_what_would_fail_again(tmp_path: Path) -> None:
    job = job_into(tmp_path)
    (tmp_path / "text.mp4").write_text("no video")
    with Worker() as worker:
        for source in (str(tmp_path / "text.mp4"), str(tmp_path / "gone.mp4"), "world:1?nothing=2"):
            failed = worker.do(replace(job, source=source), nobody)
            assert isinstance(failed, Failed)
            assert failed.cause is Cause.VIDEO
        unknown = worker.do(replace(job, request=replace(job.request, model=str(tmp_path / "gone.pt"))), nobody)
        with locked(tmp_path / "walk"):
            occupied = worker.do(job, nobody)
    assert isinstance(unknown, Failed)
    assert unknown.cause is Cause.WORKER
    assert isinstance(occupied, Failed)
    assert occupied.cause is Cause.CHANCE


def test_a_worker_knows_whether_masks_are_what_is_wrong(tmp_path: Path) -> None:
    job = job_into(tmp_path)
    masked = replace(job.request, mask=str(tmp_path / "gone"))
    with Worker() as worker:
        alone = worker.do(replace(job, request=masked), nobody)
        with_others = worker.do(replace(job, request=replace(masked, fit="round")), nobody)
    assert isinstance(alone, Failed)
    assert alone.cause is Cause.MASKS
    assert alone.problem.startswith("Expected a folder of masks at ")
    assert isinstance(with_others, Failed)
    assert with_others.cause is Cause.WORKER


def joining(job: MapJob) -> JoinJob:
    spans = ("walk.span-1-of-2", "walk.span-2-of-2")
    return JoinJob(name=job.name, source=job.source, spans=spans, request=job.request, storage=job.storage)


def test_a_joined_video_gets_back_what_a_kill_in_its_end_has_left_to_do(tmp_path: Path) -> None:
    job = job_into(tmp_path)
    with Worker() as worker:
        worker.do(job, nobody)
        (tmp_path / "walk" / "report.html").unlink()
        poses = (tmp_path / "walk" / "poses.tum").read_bytes()
        assert isinstance(worker.do(joining(job), nobody), Finished)
    assert job.storage.is_done("walk", job.request.checked().outputs)
    assert (tmp_path / "walk" / "poses.tum").read_bytes() == poses


def test_a_worker_that_is_stopped_begins_no_joining(tmp_path: Path) -> None:
    with Worker() as worker:
        worker.stop()
        assert worker.do(joining(job_into(tmp_path)), nobody) == Stopped(name="walk")


def test_a_disk_that_does_not_answer_for_a_moment_costs_one_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = job_into(tmp_path)

    def refuse(folder: Path, outputs: object) -> bool:
        raise InputError("It cannot be read.") from OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr("longtake.batch.worker.is_done", refuse)
    with Worker() as worker:
        failed = worker.do(job, nobody)
    assert isinstance(failed, Failed)
    assert failed.cause is Cause.CHANCE


def test_a_file_in_the_place_of_a_folder_is_told_in_a_sentence(tmp_path: Path) -> None:
    job = job_into(tmp_path)
    job.storage.folder(job.name).write_text("mine")
    with Worker() as worker:
        failed = worker.do(job, nobody)
    assert isinstance(failed, Failed)
    assert failed.cause is Cause.STORAGE
    assert (
        failed.problem
        == f"{tmp_path / 'walk'} cannot be written (File exists); make room there or name another folder."
    )
    assert job.storage.folder(job.name).read_text() == "mine"


def test_a_video_that_is_cut_off_is_mapped_as_far_as_it_goes_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "torn.mp4"
    with av.open(str(path), "w", options={"movflags": "faststart"}) as file:
        stream = file.add_stream("libx264", rate=10, options={"bf": "0"})
        stream.width, stream.height, stream.pix_fmt = 112, 84, "yuv420p"
        for number in range(20):
            pixels = np.random.default_rng(number).integers(0, 256, (84, 112, 3), dtype=np.uint8)
            file.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
        file.mux(stream.encode(None))
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 3 // 5])
    job = job_into(tmp_path)
    with Worker() as worker:
        torn = worker.do(replace(job, source=str(path)), nobody)
    assert isinstance(torn, Finished)
    assert 5 < torn.summary["num_frames"] < 20
    assert "frames are missing." in torn.summary["notes"][-1]


def test_notes_name_a_model_in_the_words_of_the_command_too(tmp_path: Path) -> None:
    job = job_into(tmp_path)
    Image.fromarray(np.zeros((84, 112, 3), np.uint8)).save(tmp_path / "0.png")
    with Worker() as worker:
        done = worker.do(
            replace(job, source=str(tmp_path / "0.png"), request=replace(job.request, model="micro-map")), nobody
        )
    assert isinstance(done, Finished)
    assert "type --model " in done.summary["notes"][0]
    assert ' (model="' in done.summary["notes"][0]
