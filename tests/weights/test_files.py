import json
import os
from pathlib import Path

import pytest

from longtake.errors import CheckpointError
from longtake.weights.files import INDEX, is_index, locate, read_index


def test_file_stands_for_itself_and_a_folder_for_the_one_file_in_it(tmp_path: Path) -> None:
    file = tmp_path / "a.safetensors"
    file.touch()
    (tmp_path / "README.md").touch()
    assert locate(file) == locate(tmp_path) == file


def test_index_goes_before_the_files_it_joins(tmp_path: Path) -> None:
    for name in ("model-1.safetensors", "model-2.safetensors", INDEX):
        (tmp_path / name).touch()
    assert locate(tmp_path) == tmp_path / INDEX
    assert is_index(locate(tmp_path))


def test_missing_path_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"at \S+/gone\.pt, but nothing is there"):
        locate(tmp_path / "gone.pt")


def test_folder_without_weights_or_with_several_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    with pytest.raises(CheckpointError, match="holds none"):
        locate(tmp_path)
    for name in ("b.pt", "a.safetensors"):
        (tmp_path / name).touch()
    with pytest.raises(CheckpointError, match=r"holds 2 \(a\.safetensors, b\.pt\); give the path of one"):
        locate(tmp_path)


def test_index_says_which_file_holds_each_tensor(tmp_path: Path) -> None:
    index = tmp_path / INDEX
    index.write_text(json.dumps({"metadata": {}, "weight_map": {"a": "model-1.safetensors"}}))
    assert read_index(index) == {"a": "model-1.safetensors"}


@pytest.mark.parametrize("file", [INDEX, "../elsewhere.safetensors", "/etc/hostname", "", "n" * 5000])
def test_an_index_names_files_of_weights_beside_it_and_never_itself(file: str, tmp_path: Path) -> None:
    index = tmp_path / INDEX
    index.write_text(json.dumps({"weight_map": {"a": file}}))
    with pytest.raises(CheckpointError, match=r"Expected files of weights beside .*; fetch it again"):
        read_index(index)


@pytest.mark.parametrize("name", ["n" * 5000, "~nobody-of-this-name/model.pt"])
def test_a_name_that_can_be_no_path_is_one_sentence(name: str) -> None:
    with pytest.raises(CheckpointError, match="nothing is there; check the path"):
        locate(Path(name))


def test_a_pipe_is_refused_without_waiting_for_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "model.pt")
    with pytest.raises(CheckpointError, match="it is a pipe or a device"):
        locate(tmp_path / "model.pt")


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"weight_map": 3}', '{"weight_map": ["a"]}', "[" * 100_000])
def test_broken_index_is_refused(text: str, tmp_path: Path) -> None:
    index = tmp_path / INDEX
    index.write_text(text)
    with pytest.raises(CheckpointError, match="fetch it again"):
        read_index(index)
