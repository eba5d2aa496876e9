import json
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


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"weight_map": 3}', '{"weight_map": ["a"]}'])
def test_broken_index_is_refused(text: str, tmp_path: Path) -> None:
    index = tmp_path / INDEX
    index.write_text(text)
    with pytest.raises(CheckpointError, match="fetch it again"):
        read_index(index)
