"""A run removes only what it has on record, never its source, and nobody else may write to its folder meanwhile."""

import errno
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from longtake.errors import InputError, SettingError, StorageError
from longtake.exports.report.folder import EVENTS_NAME, RUN_NAME
from longtake.exports.take import TakeSettings
from longtake.pipeline.events import MapSummary, Unreadable
from longtake.pipeline.outputs import Outputs
from longtake.pipeline.run_folder import RunFolder, is_done
from longtake.pipeline.run_record import RunRecord, plain
from longtake.runtime.build import SMALL
from longtake.runtime.execution import Precision
from longtake.runtime.keyframes import EveryNth
from longtake.takes.images import ImageFiles
from longtake.takes.sealed_json import sealed

SETTINGS = {"source": {"name": "walk", "fps": 10.0}, "model": "abc"}
OUTPUTS = Outputs()


def opened(out: Path, **options: bool | Path) -> RunFolder:
    return RunFolder(out, SETTINGS, OUTPUTS, **options)


def ended(folder: RunFolder, *, is_complete: bool) -> None:
    summary = MapSummary(
        source="walk",
        model="tiny",
        execution={"precision": "fp32"},
        is_complete=is_complete,
        num_frames=0,
        statuses={},
        num_keyframes=0,
        num_dropped=0,
        num_windows=1,
        provisional={},
        seconds=1.0,
        frames_per_s=0.0,
        settings=SETTINGS,
        memory_bytes=0,
        peak_resident_bytes=0,
    )
    folder.finish(summary)
    folder.close()


def names(out: Path) -> set[str]:
    return {str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()}


@pytest.mark.parametrize("options", [{}, {"overwrite": True}, {"resume": True}])
def test_files_that_no_run_has_on_record_are_left_alone(tmp_path: Path, options: dict[str, bool]) -> None:
    for name in (EVENTS_NAME, "summary.json", "report.html", "video.mp4", "take.json"):
        (tmp_path / name).write_text("{}")
    before = names(tmp_path)
    with pytest.raises(InputError, match="name another folder"):
        opened(tmp_path, **options)
    assert names(tmp_path) == before


def test_a_run_in_place_of_another_removes_what_that_one_wrote_and_nothing_else(tmp_path: Path) -> None:
    ended(opened(tmp_path), is_complete=True)
    (tmp_path / "depth").mkdir()
    for name in ("depth/000007.png", "depth/mine.png", "video.mp4", "questions.json", "poses.kitti"):
        (tmp_path / name).write_text("")
    with pytest.raises(InputError, match=r"already; name another folder, or replace it with --overwrite \(over"):
        opened(tmp_path)
    opened(tmp_path, overwrite=True).close()
    assert names(tmp_path) == {"depth/mine.png", "video.mp4", "questions.json", "poses.kitti"}


@pytest.mark.parametrize("num_removed", [1, 2, 3])
def test_a_run_that_is_half_removed_is_not_done(
    tmp_path: Path, num_removed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("take.json", "frames.jsonl", "poses.tum"):
        (tmp_path / name).touch()
    ended(opened(tmp_path / "out"), is_complete=True)
    for name in ("take.json", "frames.jsonl", "poses.tum"):
        (tmp_path / name).rename(tmp_path / "out" / name)
    assert is_done(tmp_path / "out")
    left, unlink = iter(range(num_removed)), Path.unlink

    def broken(path: Path, *, missing_ok: bool = False) -> None:
        if next(left, None) is None:
            raise OSError(errno.EIO, "broken off")
        unlink(path, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", broken)
    with pytest.raises(StorageError):
        opened(tmp_path / "out", overwrite=True)
    monkeypatch.undo()
    assert not is_done(tmp_path / "out")
    opened(tmp_path / "out", resume=True).close()


def test_a_file_of_somebody_else_in_the_way_is_named_and_nothing_is_removed(tmp_path: Path) -> None:
    ended(opened(tmp_path), is_complete=True)
    (tmp_path / "poses.kitti").write_text("mine")
    before = names(tmp_path)
    with pytest.raises(InputError, match=r"poses.kitti is not of the run to be replaced"):
        RunFolder(tmp_path, SETTINGS, replace(OUTPUTS, formats=("ply", "kitti")), overwrite=True)
    assert names(tmp_path) == before


def test_a_run_never_replaces_its_own_source(tmp_path: Path) -> None:
    ended(opened(tmp_path), is_complete=True)
    before = names(tmp_path)
    for source in (tmp_path, tmp_path / "images"):
        with pytest.raises(InputError, match="which would be replaced"):
            opened(tmp_path, overwrite=True, source=source)
    assert names(tmp_path) == before


def test_a_link_is_not_followed_out_of_the_folder(tmp_path: Path) -> None:
    elsewhere, out = tmp_path / "elsewhere", tmp_path / "out"
    elsewhere.mkdir()
    (elsewhere / "000000.png").write_text("mine")
    ended(opened(out), is_complete=True)
    (out / "depth").symlink_to(elsewhere)
    before = names(tmp_path)
    with pytest.raises(InputError, match=r"depth is a link out of the folder of the run.*; remove the link, or name"):
        opened(out, overwrite=True)
    assert names(tmp_path) == before
    assert (elsewhere / "000000.png").read_text() == "mine"


def test_a_file_that_is_a_link_is_replaced_and_not_gone_on_with(tmp_path: Path) -> None:
    mine, out = tmp_path / "mine.jsonl", tmp_path / "out"
    mine.write_text("mine")
    ended(opened(out), is_complete=False)
    (out / "events.jsonl").unlink()
    (out / "events.jsonl").symlink_to(mine)
    with pytest.raises(InputError, match=r"events\.jsonl is a link out of the folder"):
        opened(out, resume=True)
    opened(out, overwrite=True).close()
    assert mine.read_text() == "mine"


def test_a_link_above_a_file_on_record_is_not_followed_either(tmp_path: Path) -> None:
    elsewhere, out = tmp_path / "elsewhere", tmp_path / "out"
    (elsewhere / "sub").mkdir(parents=True)
    (elsewhere / "sub" / "precious.txt").write_text("mine")
    ended(opened(out), is_complete=True)
    (out / "link").symlink_to(elsewhere)
    record = without_checksum(out)
    (out / RUN_NAME).write_bytes(sealed(record | {"files": [*record["files"], "link/sub/precious.txt"]}))
    with pytest.raises(InputError, match="link is a link out of the folder"):
        opened(out, overwrite=True)
    assert (elsewhere / "sub" / "precious.txt").read_text() == "mine"


def test_a_source_of_links_to_pictures_of_the_run_is_not_replaced(tmp_path: Path) -> None:
    out, source = tmp_path / "out", tmp_path / "pictures"
    ended(opened(out), is_complete=True)
    (out / "images").mkdir()
    (out / "images" / "000000.jpg").write_text("picture")
    source.mkdir()
    (source / "a.jpg").symlink_to(out / "images" / "000000.jpg")
    with pytest.raises(InputError, match="which would be replaced"):
        opened(out, overwrite=True, source=source)
    assert (out / "images" / "000000.jpg").exists()


def test_what_a_kill_after_the_last_frame_left_to_do_is_done_when_resumed(tmp_path: Path) -> None:
    ended(opened(tmp_path), is_complete=True)
    (tmp_path / "report.html").unlink()
    (tmp_path / "resume" / "000005").mkdir(parents=True)
    with pytest.raises(SettingError, match="is complete"):
        opened(tmp_path, resume=True)
    assert (tmp_path / "report.html").exists()
    assert not (tmp_path / "resume").exists()


def test_a_record_that_names_files_outside_is_refused(tmp_path: Path) -> None:
    ended(opened(tmp_path), is_complete=True)
    record = without_checksum(tmp_path)
    for name in ("../mine", "/mine", ""):
        (tmp_path / RUN_NAME).write_bytes(sealed(record | {"files": [name]}))
        with pytest.raises(InputError, match="names below the folder"):
            RunRecord.read(tmp_path)
    (tmp_path / RUN_NAME).write_text(json.dumps(record | {"version": 1}))
    with pytest.raises(InputError, match="of this version of longtake"):
        opened(tmp_path, resume=True)


def test_a_record_that_was_changed_is_refused_before_anything_is_removed(tmp_path: Path) -> None:
    ended(opened(tmp_path), is_complete=True)
    (tmp_path / "mine.txt").write_text("mine")
    record = json.loads((tmp_path / RUN_NAME).read_text())
    (tmp_path / RUN_NAME).write_text(json.dumps(record | {"files": [*record["files"], "mine.txt"]}))
    for how in ({"overwrite": True}, {"resume": True}):
        with pytest.raises(InputError, match=r"run\.json was damaged or changed, for its checksum is another; name"):
            opened(tmp_path, **how)
    assert (tmp_path / "mine.txt").read_text() == "mine"


def without_checksum(out: Path) -> dict[str, Any]:
    record = json.loads((out / RUN_NAME).read_text())
    return {name: value for name, value in record.items() if name != "sha256"}


@pytest.mark.parametrize("options", [{}, {"overwrite": True}, {"resume": True}])
def test_a_pipe_in_place_of_the_record_is_refused_without_waiting_for_it(
    tmp_path: Path, options: dict[str, bool]
) -> None:
    os.mkfifo(tmp_path / RUN_NAME)
    with pytest.raises(InputError, match=r"run\.json cannot be read \(it is a pipe or a device\); name another folder"):
        opened(tmp_path, **options)


@pytest.mark.parametrize("name", ["summary.json", EVENTS_NAME])
def test_a_pipe_in_place_of_another_file_is_not_waited_for_either(tmp_path: Path, name: str) -> None:
    ended(opened(tmp_path), is_complete=False)
    (tmp_path / name).unlink()
    os.mkfifo(tmp_path / name)
    opened(tmp_path, resume=True).close()


def test_what_differs_is_said_also_before_the_first_checkpoint(tmp_path: Path) -> None:
    ended(opened(tmp_path), is_complete=False)
    before = names(tmp_path)
    for name, value, difference in (
        ("source", {"name": "walk", "fps": 5.0}, r"source\.fps 10\.0, now 5\.0"),
        ("source", {"name": "walk", "fps": 10.0, "width": 56}, r"source\.width null, now 56"),
        ("model", "abd", 'model "abc", now "abd"'),
        ("source", "w" * 100, "source"),
    ):
        with pytest.raises(SettingError, match=rf"other settings \({difference}\)"):
            RunFolder(tmp_path, SETTINGS | {name: value}, OUTPUTS, resume=True)
    assert names(tmp_path) == before
    with pytest.raises(InputError, match=r"go on with --resume \(resume=True\), or replace it with --overwrite"):
        opened(tmp_path)
    with pytest.raises(InputError, match=r"holds a run already; name another folder, or replace it with --overwrite"):
        RunFolder(tmp_path, SETTINGS | {"model": "abd"}, OUTPUTS)
    with pytest.raises(InputError, match=r"holds a run already; name another folder, or replace it with --overwrite"):
        opened(tmp_path, is_live=True)
    with pytest.raises(SettingError, match="is live"):
        opened(tmp_path, resume=True, is_live=True)
    folder = opened(tmp_path, resume=True)
    assert folder.checkpoint is None
    folder.close()


def test_a_second_run_is_refused_until_the_first_has_ended(tmp_path: Path) -> None:
    first = opened(tmp_path / "out")
    with pytest.raises(InputError, match="Another run is writing to"):
        opened(tmp_path / "out", overwrite=True)
    first.close()
    opened(tmp_path / "out").close()


def test_a_lock_dies_with_its_process(tmp_path: Path) -> None:
    start = (
        "import os, signal, sys; from pathlib import Path; from longtake.pipeline.run_folder import RunFolder\n"
        "from longtake.pipeline.outputs import Outputs\n"
        "folder = RunFolder(Path(sys.argv[1]), {}, Outputs())\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", start, str(tmp_path / "out")], check=False, timeout=100)
    assert done.returncode == -9
    RunFolder(tmp_path / "out", {}, OUTPUTS, resume=True).close()


def test_a_run_that_comes_to_nothing_leaves_nothing(tmp_path: Path) -> None:
    folder = opened(tmp_path / "out")
    folder.write_unreadable(Unreadable(0, 0.0, "It is torn."))
    folder.close()
    assert not (tmp_path / "out").exists()
    replaced = opened(tmp_path / "out")
    (tmp_path / "out").rename(tmp_path / "moved")
    (tmp_path / "out").write_text("mine")
    with pytest.raises(StorageError, match="Not a directory"):
        replaced.close()
    assert (tmp_path / "out").read_text() == "mine"
    (tmp_path / "out").unlink()
    (tmp_path / "given").mkdir()
    opened(tmp_path / "given").close()
    assert not names(tmp_path / "given")


def test_settings_are_plain_values(tmp_path: Path) -> None:
    settings = plain(replace(SMALL, keyframes=EveryNth(3), precision=Precision.BF16))
    assert settings["keyframes"] == {"type": "EveryNth", "interval": 3}
    assert settings["precision"] == "bf16"
    assert json.loads(json.dumps(settings)) == settings
    outputs = plain(Outputs(take=TakeSettings(images=ImageFiles.PNG)))
    assert outputs["take"]["images"] == "images/{index:06d}.png"


@pytest.mark.parametrize("options", [{}, {"resume": True}])
def test_what_a_kill_has_left_of_the_first_file_is_no_other_run(options: dict[str, bool], tmp_path: Path) -> None:
    (tmp_path / f"{RUN_NAME}.unfinished").write_bytes(b"{")
    opened(tmp_path, **options).close_files()
    assert RunRecord.read(tmp_path) is not None


def test_a_result_that_cannot_be_read_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended(opened(tmp_path), is_complete=True)
    before, read_bytes = names(tmp_path), Path.read_bytes

    def failing(path: Path) -> bytes:
        if path.name == "summary.json":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return read_bytes(path)

    monkeypatch.setattr(Path, "read_bytes", failing)
    with pytest.raises(InputError, match=r"cannot be read \(Input/output error\), so it stays"):
        opened(tmp_path, resume=True)
    assert names(tmp_path) == before
