"""Files are known again by their names, sizes and parts; whatever is wrong with one is no error."""

import os
from pathlib import Path

from longtake.video.contents import contents_of


def test_another_byte_at_the_beginning_in_the_middle_or_at_the_end_is_noticed(tmp_path: Path) -> None:
    path, num_bytes = tmp_path / "video.mp4", 1_000_000
    path.write_bytes(bytes(num_bytes))
    before = contents_of([path])
    assert before["num_bytes"] == num_bytes
    assert contents_of([path]) == before
    for place in (0, num_bytes // 2, num_bytes - 1):
        content = bytearray(num_bytes)
        content[place] = 1
        path.write_bytes(content)
        assert contents_of([path]) != before


def test_names_and_sizes_of_all_files_count(tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}.png" for number in range(200)]
    for path in paths:
        path.write_bytes(b"picture")
    before = contents_of(paths)
    assert contents_of([*paths[:-1], paths[-2]]) != before
    for path in paths:
        path.write_bytes(b"longer picture")
        assert contents_of(paths) != before
        path.write_bytes(b"picture")
    assert contents_of(paths) == before


def test_what_is_not_there_or_is_no_file_is_told_apart_and_never_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    absent = contents_of([path])
    os.mkfifo(path)
    assert contents_of([path]) == absent
    path.unlink()
    path.touch()
    assert contents_of([path]) != absent
    assert contents_of([]) == {}
