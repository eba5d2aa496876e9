"""Pictures of frames in files that grow, and are cut back to what was kept."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from longtake.errors import InputError, SavedSessionError
from longtake.server.pictures import (
    PER_FILE,
    KeptPictures,
    PictureLog,
    as_jpeg,
    frame_at,
    is_full,
    read_jpeg,
    read_times,
    smaller,
)
from longtake.takes.fields import JsonObject


def jpeg(number: int) -> bytes:
    return b"picture %d" % number


def write(folder: Path, numbers: range, kept: KeptPictures) -> KeptPictures:
    log = PictureLog(folder, kept)
    for number in numbers:
        log.add(jpeg(number), number / 10)
    log.sync()
    log.close()
    return log.kept


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("first", [0, 1, PER_FILE - 1, PER_FILE, PER_FILE + 1, 2 * PER_FILE])
def test_a_log_that_is_cut_back_grows_to_the_same_bytes(tmp_path: Path, first: int) -> None:
    num_pictures = 2 * PER_FILE + 9
    write(tmp_path / "whole", range(num_pictures), KeptPictures())
    kept = write(tmp_path / "cut", range(first), KeptPictures())
    kept = KeptPictures.from_record(JsonObject(kept.to_record(), "a save"))
    assert kept.num_pictures == first
    other = write(tmp_path / "cut", range(first, first + PER_FILE + 3), kept)
    assert other.num_pictures == first + PER_FILE + 3
    write(tmp_path / "cut", range(first, num_pictures), kept)
    assert contents(tmp_path / "cut") == contents(tmp_path / "whole")


def test_each_picture_is_found_by_its_number(tmp_path: Path) -> None:
    assert read_jpeg(tmp_path, 0) is None
    assert read_times(tmp_path) == []
    write(tmp_path, range(PER_FILE + 2), KeptPictures())
    for number in (0, 1, PER_FILE - 1, PER_FILE, PER_FILE + 1):
        assert read_jpeg(tmp_path, number) == jpeg(number)
    assert read_jpeg(tmp_path, PER_FILE + 2) is None
    assert read_times(tmp_path) == [number / 10 for number in range(PER_FILE + 2)]


def test_pictures_that_were_changed_are_not_gone_on_with(tmp_path: Path) -> None:
    kept = write(tmp_path, range(3), KeptPictures())
    (tmp_path / "000000.jpegs").write_bytes(b"x" * kept.newest.num_bytes)
    with pytest.raises(InputError, match="was changed"):
        PictureLog(tmp_path, kept)
    with pytest.raises(InputError, match="bytes to go on after"):
        PictureLog(tmp_path, replace(kept, index=replace(kept.index, num_bytes=160, sha256=None)))


def test_files_are_full_when_no_kept_picture_follows_in_them(tmp_path: Path) -> None:
    assert not is_full(tmp_path / "000000.jpegs", PER_FILE - 1)
    assert is_full(tmp_path / "000000.jpegs", PER_FILE)
    assert not is_full(tmp_path / f"{PER_FILE:06d}.jpegs", PER_FILE + 1)


def test_pictures_are_kept_small_and_made_smaller() -> None:
    wide = np.random.default_rng(0).integers(0, 255, (300, 1200, 3), np.uint8)
    kept = as_jpeg(wide)
    assert smaller(kept, 640) is kept
    assert len(smaller(kept, 64)) < len(kept) / 10
    assert as_jpeg(wide) == kept


@pytest.mark.parametrize("damaged", [b"", b"no picture", None])
def test_a_damaged_picture_is_refused_in_a_sentence(damaged: bytes | None) -> None:
    whole = as_jpeg(np.zeros((98, 126, 3), np.uint8))
    with pytest.raises(SavedSessionError, match="damaged or changed on the server's disk"):
        smaller(whole[: len(whole) // 2] if damaged is None else damaged, 32)


def test_a_frame_is_found_by_its_time(tmp_path: Path) -> None:
    assert frame_at(tmp_path, 0.0) is None
    write(tmp_path, range(37), KeptPictures())
    assert [frame_at(tmp_path, number / 10) for number in range(38)] == [*range(37), None]
    assert frame_at(tmp_path, 0.15) is None
