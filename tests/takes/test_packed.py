"""Takes that were downloaded as one file."""

import zipfile
from pathlib import Path

import pytest

from longtake.errors import InputError
from longtake.takes.header import HEADER_NAME
from longtake.takes.packed import unpacked


def archive(path: Path, *names: str) -> Path:
    with zipfile.ZipFile(path, "w") as file:
        for name in names:
            file.writestr(name, "{}")
    return path


@pytest.mark.parametrize("inside", ["", "take/"])
def test_what_is_inside_is_there_until_the_end(tmp_path: Path, inside: str) -> None:
    with unpacked(archive(tmp_path / "take.zip", f"{inside}{HEADER_NAME}", f"{inside}images/000000.png")) as folder:
        assert (folder / HEADER_NAME).exists()
        assert (folder / "images" / "000000.png").exists()
    assert not folder.exists()


def test_a_folder_is_left_as_it_is(tmp_path: Path) -> None:
    with unpacked(tmp_path) as folder:
        assert folder == tmp_path
    assert tmp_path.exists()


def test_names_that_lead_elsewhere_stay_inside(tmp_path: Path) -> None:
    with unpacked(archive(tmp_path / "take.zip", HEADER_NAME, "../../elsewhere.txt")) as folder:
        assert (folder / "elsewhere.txt").exists()
    assert not list(tmp_path.parent.rglob("elsewhere.txt"))


def test_what_is_no_take_or_damaged_is_refused_in_a_sentence(tmp_path: Path) -> None:
    with (
        pytest.raises(InputError, match=r"no take\.json in it; name one"),
        unpacked(archive(tmp_path / "a.zip", "b.txt")),
    ):
        pass
    whole = archive(tmp_path / "whole.zip", HEADER_NAME).read_bytes()
    damaged = tmp_path / "damaged.zip"
    damaged.write_bytes(whole.replace(b"{}", b"[]", 1))
    with pytest.raises(InputError, match="cannot be unpacked"), unpacked(damaged):
        pass
