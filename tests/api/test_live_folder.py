"""Whatever ends a save into the folder of a live session, what is in it is one save: the earlier or the new one."""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest
import torch
from broken import Break

from longtake.api.camera_trail import CameraTrail
from longtake.api.live_folder import read_live_folder, write_live_folder
from longtake.errors import InputError, SavedSessionError
from longtake.memory.saved import Pieces, SavedTensors, write_tensors
from longtake.takes.sealed_json import sealed

ROOMS = ("api", "memory", "takes")


def saving(value: int) -> Callable[[Path], None]:
    return lambda path: write_tensors(path, {"value": Pieces.of(torch.tensor(value))}, {"value": value})


def write(folder: Path, value: int) -> None:
    write_live_folder(folder, saving(value), saving(value), CameraTrail(1.0, last_s=float(value)))


def read(folder: Path) -> set[float]:
    """The values of all three parts."""
    files, trail = read_live_folder(folder)
    assert trail.last_s is not None
    return {float(SavedTensors(path)["value"]) for path in (files.map, files.dialogue)} | {trail.last_s}


def write_as_before(folder: Path, value: int, version: int) -> None:
    """As earlier versions did."""
    folder.mkdir()
    for name in ("map", "dialogue"):
        saving(value)(folder / f"{name}.safetensors")
    record = {"format": version, **CameraTrail(1.0, last_s=float(value)).to_record()}
    (folder / "live.json").write_bytes(json.dumps(record).encode() if version == 1 else sealed(record))


@dataclass
class Killed(Break):
    """Copies a folder after every line that changed it, as a kill at that moment would leave it."""

    folder: Path = Path()
    content: dict[str, bytes] = field(default_factory=dict)
    copies: list[Path] = field(default_factory=list)

    def _count(self, at: str) -> None:
        content = {path.name: path.read_bytes() for path in self.folder.iterdir()}
        if content != self.content:
            self.content = content
            self.copies.append(self.folder.with_name(f"killed-{len(self.copies)}"))
            shutil.copytree(self.folder, self.copies[-1])


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_save_killed_at_any_line_leaves_one_whole_save(tmp_path: Path, version: int) -> None:
    folder = tmp_path / "live"
    write(folder, 1) if version == 3 else write_as_before(folder, 1, version)
    killed = Killed(None, ROOMS, folder=folder)
    killed.during(partial(write, folder, 2))
    found = [read(copy) for copy in killed.copies]
    assert len(found) > 5
    assert found[0] == {1.0}
    assert found[-1] == {2.0}
    assert all(values in ({1.0}, {2.0}) for values in found)
    for copy in killed.copies:
        write(copy, 3)
        assert read(copy) == {3.0}
        if version == 3:  # the names of earlier versions may be of other files
            assert len(list(copy.iterdir())) == 3, "nothing of a save that was broken off stays behind the next"


@pytest.mark.parametrize("is_first", [True, False])
def test_an_error_at_any_line_leaves_one_whole_save_or_none(tmp_path: Path, is_first: bool) -> None:
    whole = Break(None, ROOMS)
    whole.during(partial(write, tmp_path / "whole", 1))
    for number in whole.first_and_last():
        folder = tmp_path / str(number)
        if not is_first:
            write(folder, 1)
        Break(number, ROOMS, KeyboardInterrupt).during(partial(write, folder, 2))
        if is_first and not (folder / "live.json").exists():
            continue
        assert read(folder) in ({1.0}, {2.0})


def test_a_save_that_fails_leaves_nothing_of_itself(tmp_path: Path) -> None:
    def fails(path: Path) -> None:
        raise InputError(f"{path} cannot be written (no space left).")

    for folder in (tmp_path / "new", tmp_path / "old"):
        if folder.name == "old":
            write(folder, 1)
        before = {path.name for path in folder.glob("*")}
        with pytest.raises(InputError, match="no space left"):
            write_live_folder(folder, saving(2), fails, CameraTrail(1.0))
        assert {path.name for path in folder.glob("*")} == before
    assert read(tmp_path / "old") == {1.0}
    assert not (tmp_path / "new").exists()


def test_files_of_two_saves_are_refused(tmp_path: Path) -> None:
    for value in (1, 2):
        write(tmp_path / str(value), value)
    shutil.copy(tmp_path / "2" / "live-1-map.safetensors", tmp_path / "1")
    with pytest.raises(SavedSessionError, match=r"live-1-map\.safetensors or .* is of another save; save the session"):
        read_live_folder(tmp_path / "1")
    (tmp_path / "1" / "live-1-map.safetensors").unlink()
    with pytest.raises(SavedSessionError, match="There is no saved session at"):
        read_live_folder(tmp_path / "1")


def test_files_of_others_stay(tmp_path: Path) -> None:
    others = [tmp_path / name for name in ("map.safetensors", "live-x-map.safetensors", "live-1-map.safetensors.txt")]
    for path in others:
        path.write_text("mine")
    for value in (1, 2):
        write(tmp_path, value)
    assert [path.read_text() for path in others] == ["mine"] * 3
    assert read(tmp_path) == {2.0}
