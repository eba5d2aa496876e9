import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from longtake.errors import InputError
from longtake.memory.saved import Pieces, write_tensors
from longtake.pipeline.checkpoint import FOLDER, Checkpoint, CheckpointRule, Checkpoints
from longtake.takes.atomic_files import Grown


def saved(checkpoints: Checkpoints, num_frames: int, **changes: Any) -> Checkpoint:
    session = checkpoints.session_path(num_frames)
    session.write_bytes(b"session")
    return Checkpoint(
        **{
            "num_frames": num_frames,
            "first_owed": num_frames - 2,
            "taken": {"pictures": ["0.png"]},
            "results": {"steps": [0.1]},
            "sinks": {"take": {"num_frames": num_frames}},
            "counts": {"ok": num_frames},
            "events": Grown(num_bytes=3, sha256="abc"),
            "arrays": {"cloud/keys": np.arange(num_frames)},
            "session": session,
            **changes,
        }
    )


def test_the_newest_checkpoint_reads_back_as_it_was(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    assert checkpoints.newest() is None
    for num_frames in (5, 9):
        checkpoints.publish(saved(checkpoints, num_frames))
    newest = checkpoints.newest()
    assert newest is not None
    assert (newest.num_frames, newest.first_owed, newest.counts) == (9, 7, {"ok": 9})
    assert newest.arrays["cloud/keys"].tolist() == list(range(9))
    assert newest.session.read_bytes() == b"session"
    assert [path.name for path in (tmp_path / FOLDER).iterdir() if path.is_dir()] == ["000009"]


def test_a_checkpoint_on_its_way_outlives_the_publication_of_the_one_before(tmp_path: Path) -> None:
    """The session of the next is saved while the sinks still write what belongs to this one."""
    checkpoints = Checkpoints(tmp_path)
    first, second = saved(checkpoints, 5), saved(checkpoints, 9)
    checkpoints.publish(first)
    assert second.session.exists()
    checkpoints.publish(second)
    assert checkpoints.newest() is not None
    assert not first.session.exists()


def test_killed_before_the_last_line_the_one_before_is_the_newest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.publish(saved(checkpoints, 5))

    def killed(*_: object, **options: object) -> str:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("longtake.takes.sealed_json.json.dumps", killed)
        with pytest.raises(KeyboardInterrupt):
            checkpoints.publish(saved(checkpoints, 9))
    newest = checkpoints.newest()
    assert newest is not None
    assert newest.num_frames == 5


@pytest.mark.parametrize("damage", ["latest.json", "000005/arrays.npz"])
def test_damage_is_said_in_a_sentence(tmp_path: Path, damage: str) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.publish(saved(checkpoints, 5))
    (tmp_path / FOLDER / damage).write_bytes(b"{")
    with pytest.raises(InputError, match=r"is damaged or of another version .*; start again with"):
        checkpoints.newest()
    checkpoints.clear()
    assert checkpoints.newest() is None


def test_checkpoints_come_as_asked_or_as_often_as_costs_little() -> None:
    assert CheckpointRule(7).is_due(num_frames=7, seconds=0.1, cost_s=9.0)
    assert not CheckpointRule(7).is_due(num_frames=6, seconds=1e9, cost_s=0.0)
    usual = CheckpointRule()
    assert usual.is_due(num_frames=250, seconds=10.0, cost_s=0.4)
    assert not usual.is_due(num_frames=249, seconds=10.0, cost_s=0.1)
    assert not usual.is_due(num_frames=5000, seconds=10.0, cost_s=0.41)


def test_a_changed_number_of_an_array_is_noticed(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.publish(saved(checkpoints, 5))
    np.savez(tmp_path / FOLDER / "000005" / "arrays.npz", **{"cloud/keys": np.arange(5) + 1})
    with pytest.raises(InputError, match=r"the checksum of arrays.npz is another"):
        checkpoints.newest()


@pytest.mark.parametrize("num_bytes_left", [0, 100, -1])
def test_cut_arrays_are_a_sentence(tmp_path: Path, num_bytes_left: int) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.publish(saved(checkpoints, 5))
    arrays = tmp_path / FOLDER / "000005" / "arrays.npz"
    arrays.write_bytes(arrays.read_bytes()[:num_bytes_left])
    with pytest.raises(InputError, match="is damaged or of another version"):
        checkpoints.newest()


def test_a_changed_value_is_noticed_whichever_it_is(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.publish(saved(checkpoints, 5))
    path = tmp_path / FOLDER / "latest.json"
    text = path.read_text()
    assert '"num_frames": 5' in text
    path.write_text(text.replace('"num_frames": 5', '"num_frames": 4'))
    with pytest.raises(InputError, match="its checksum is another"):
        checkpoints.newest()


def test_the_session_of_another_run_is_noticed(tmp_path: Path) -> None:
    ours, others = Checkpoints(tmp_path / "ours"), Checkpoints(tmp_path / "others")
    for checkpoints, value in ((ours, 1.0), (others, 2.0)):
        checkpoint = saved(checkpoints, 5)
        write_tensors(checkpoint.session, {"keys": Pieces.of(torch.tensor([value]))}, {})
        checkpoints.publish(checkpoint)
    newest = others.newest()
    assert newest is not None
    shutil.copy(newest.session, ours.session_path(5))
    with pytest.raises(InputError, match=r"session\.safetensors is of another checkpoint\); start again with --over"):
        ours.newest()


@pytest.mark.parametrize("name", ["latest.json", "000005/arrays.npz", "000005/session.safetensors"])
def test_a_pipe_in_place_of_a_file_is_refused_without_waiting_for_it(tmp_path: Path, name: str) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.publish(saved(checkpoints, 5))
    (tmp_path / FOLDER / name).unlink()
    os.mkfifo(tmp_path / FOLDER / name)
    with pytest.raises(InputError, match=r"it is a pipe or a device\); start again with --overwrite"):
        checkpoints.newest()


def test_a_folder_of_somebody_else_beside_checkpoints_is_left_alone(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    (tmp_path / FOLDER / "notes").mkdir(parents=True)
    for num_frames in (5, 9):
        checkpoints.publish(saved(checkpoints, num_frames))
    assert sorted(path.name for path in (tmp_path / FOLDER).iterdir()) == ["000009", "latest.json", "notes"]
