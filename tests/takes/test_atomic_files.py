"""Files that are whole at every moment: grown by pieces, replaced at once, kept when something fails."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from longtake.errors import InputError
from longtake.takes.atomic_files import GrowingFile, Grown, replacing, require_writable, sync_path, writing


def test_pieces_are_in_the_file_as_soon_as_they_are_appended(tmp_path: Path) -> None:
    with GrowingFile(tmp_path / "a") as file:
        for count in range(1, 4):
            file.append(b"piece\n")
            assert (tmp_path / "a").read_bytes() == b"piece\n" * count
            assert file.num_bytes == 6 * count
        file.sync()


@pytest.mark.parametrize("room", [0, 1, 9, 10, 11, 19, 25])
def test_piece_that_does_not_fit_leaves_the_pieces_before_it(
    tmp_path: Path, room: int, files_no_longer_than: Callable[[int], AbstractContextManager[None]]
) -> None:
    with GrowingFile(tmp_path / "a") as file, files_no_longer_than(room):
        for _ in range(room // 10):
            file.append(b"123456789\n")
        with pytest.raises(OSError, match="File too large"):
            file.append(b"123456789\n")
        assert (tmp_path / "a").read_bytes() == b"123456789\n" * (room // 10)
    with GrowingFile(tmp_path / "a", kept=Grown(num_bytes=room // 10 * 10)) as file:
        file.append(b"end\n")
    assert (tmp_path / "a").read_bytes() == b"123456789\n" * (room // 10) + b"end\n"


def test_file_goes_on_after_the_bytes_that_are_kept(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"kept\nlost\n")
    with GrowingFile(tmp_path / "a", kept=Grown(num_bytes=5)) as file:
        assert (tmp_path / "a").read_bytes() == b"kept\n"
        file.append(b"new\n")
    assert (tmp_path / "a").read_bytes() == b"kept\nnew\n"
    with pytest.raises(InputError, match=r"Expected 10 bytes to go on after in .*a, but it has 9; start again with"):
        GrowingFile(tmp_path / "a", kept=Grown(num_bytes=10))
    GrowingFile(tmp_path / "a").close()
    assert (tmp_path / "a").read_bytes() == b""


def test_file_is_replaced_at_once_or_not_at_all(
    tmp_path: Path, files_no_longer_than: Callable[[int], AbstractContextManager[None]]
) -> None:
    def write(data: bytes, *, fails: bool) -> None:
        with replacing(tmp_path / "a") as file:
            file.write(data)
            file.flush()
            assert not (tmp_path / "a").exists() or (tmp_path / "a").read_bytes() == b"first"
            if fails:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write(b"never", fails=True)
    assert list(tmp_path.iterdir()) == []
    write(b"first", fails=False)
    with pytest.raises(KeyboardInterrupt):
        write(b"never", fails=True)
    with files_no_longer_than(3), pytest.raises(OSError, match="File too large"):
        write(b"longer", fails=False)
    assert (tmp_path / "a").read_bytes() == b"first"
    write(b"second", fails=False)
    assert (tmp_path / "a").read_bytes() == b"second"
    assert list(tmp_path.iterdir()) == [tmp_path / "a"]


def test_files_and_folders_can_be_synced(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"")
    sync_path(tmp_path / "a")
    sync_path(tmp_path)
    with pytest.raises(FileNotFoundError):
        sync_path(tmp_path / "b")


def test_writable_path_is_left_as_it_is(tmp_path: Path) -> None:
    require_writable(tmp_path / "new" / "a", overwrite=False)
    assert list((tmp_path / "new").iterdir()) == []
    (tmp_path / "a").write_bytes(b"mine")
    require_writable(tmp_path / "a", overwrite=True)
    assert (tmp_path / "a").read_bytes() == b"mine"


def test_path_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"mine")
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match="file exists already; name another, or replace it with --overwrite"):
        require_writable(tmp_path / "file", overwrite=False)
    with pytest.raises(InputError, match="folder is a folder; name a file"):
        require_writable(tmp_path / "folder", overwrite=True)
    for path in (tmp_path / "file" / "a", tmp_path / "file" / "b" / "a", tmp_path / ("long" * 100)):
        with pytest.raises(InputError, match=r"cannot be written \(.*\); make room there or name another folder"):
            require_writable(path, overwrite=True)


def test_only_errors_of_the_disk_become_a_sentence() -> None:
    with pytest.raises(InputError, match=r"The map cannot be written \(odd\); make room"), writing("The map"):
        raise OSError("odd")
    with pytest.raises(ValueError, match="odd"), writing("The map"):
        raise ValueError("odd")
