"""Names of folders: each video has one of its own, and keeps it whatever comes to lie beside it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from longtake.batch.manifest import Manifest, open_manifest
from longtake.batch.naming import plain_name
from longtake.errors import InputError


def names_below(folder: Path, *videos: str) -> dict[str, str]:
    """By video, after these came to a folder."""
    for video in videos:
        path = folder / video
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
    return by_video(open_manifest(folder), folder)


def by_video(rows: Manifest, folder: Path) -> dict[str, str]:
    return {str(Path(row.source).relative_to(folder)): row.name for row in rows}


def test_a_name_is_where_a_video_lies_with_any_ending_but_the_usual(tmp_path: Path) -> None:
    assert names_below(tmp_path, "a b/c.mp4", "a b/c.mov", "d.MP4", "e.mkv") == {
        "a b/c.mp4": "a_b_c",
        "a b/c.mov": "a_b_c_mov",
        "d.MP4": "d",
        "e.mkv": "e_mkv",
    }


@pytest.mark.parametrize("later", ["walk.mp4", "tuesday/walk.mp4", "monday/walk.avi", "monday/more/walk.mp4"])
def test_a_video_that_comes_later_leaves_the_names_of_others(later: str, tmp_path: Path) -> None:
    before = names_below(tmp_path, "monday/walk.mp4")
    after = names_below(tmp_path, later)
    assert len(set(after.values())) == 2
    assert before.items() <= after.items()


def test_so_does_one_that_a_glob_finds_later(tmp_path: Path) -> None:
    names_below(tmp_path, "walks/monday/a.mp4")
    before = by_video(open_manifest(f"{tmp_path}/walks/**/*.mp4"), tmp_path)
    names_below(tmp_path, "walks/b.mp4")
    after = by_video(open_manifest(f"{tmp_path}/walks/**/*.mp4"), tmp_path)
    assert after == {"walks/monday/a.mp4": "monday_a", "walks/b.mp4": "b"}
    assert before.items() <= after.items()


@pytest.mark.parametrize("write", [lambda name, _: name, lambda name, folder: str(folder / name)])
def test_so_does_one_that_is_listed_later(write: Callable[[str, Path], str], tmp_path: Path) -> None:
    listing = tmp_path / "list.txt"
    listing.write_text(write("walks/a.mp4", tmp_path))
    before = by_video(open_manifest(listing), tmp_path)
    listing.write_text(f"{write('walks/a.mp4', tmp_path)}\n{write('b.mp4', tmp_path)}")
    after = by_video(open_manifest(listing), tmp_path)
    assert after == {"walks/a.mp4": "walks_a", "b.mp4": "b"}
    assert before.items() <= after.items()


def test_what_lies_elsewhere_is_called_by_its_whole_path(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text("/data/walks/a.mp4\n../b.mp4\n")
    assert [row.name for row in open_manifest(tmp_path / "list.txt")] == ["data_walks_a", "b"]
    assert [row.name for row in open_manifest(["/data/walks/a.mp4", "walks/b.mp4"])] == ["data_walks_a", "walks_b"]


def test_videos_of_one_name_are_told_apart(tmp_path: Path) -> None:
    found = names_below(tmp_path, "a/b.mp4", "a_b.mp4", "a b.mp4", "c.mp4", "c.MP4", "!!.mp4", "??.mp4", "d.mp4")
    assert len(set(found.values())) == 8
    assert all(name.startswith(("a_b-", "c-", "video-")) for video, name in found.items() if video != "d.mp4")
    assert found["d.mp4"] == "d"


def test_a_name_that_no_folder_can_have_is_cut_or_refused(tmp_path: Path) -> None:
    deep = "/".join("ä" * 60 for _ in range(3))
    found = names_below(tmp_path, f"{deep}/a.mp4", f"{deep}/b.mp4")
    assert len(set(found.values())) == 2
    assert all(len(name.encode()) <= 200 for name in found.values())
    with pytest.raises(InputError, match=r"Row 1 of .* a name of 200 bytes at most, but 'xxx.*…' has 300"):
        open_manifest([{"source": "world:1", "name": "x" * 300}])


@pytest.mark.parametrize(
    "own", ["videos.csv", "Videos.CSV", "batch-lease.json", "a.span-1-of-2", "a.joining", "a.coming", "a.unfinished"]
)
def test_what_a_batch_calls_its_own_is_no_folder_of_a_video(own: str, tmp_path: Path) -> None:
    (found,) = names_below(tmp_path, f"{own}.mp4").values()
    assert found.startswith(f"{own}-")
    assert found == plain_name(found)
    with pytest.raises(InputError, match=f"another name than '{own}'"):
        plain_name(own)


@pytest.mark.parametrize("name", ["conjoining", "videos_csv", "a.span-1-of-2.b"])
def test_names_that_are_alike_are_free(name: str, tmp_path: Path) -> None:
    assert names_below(tmp_path, f"{name}.mp4") == {f"{name}.mp4": name}
    assert plain_name(name) == name


def test_odd_paths_have_names(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text("..mp4\n.\n")
    with pytest.raises(InputError, match="would both go to 'video'"):
        open_manifest(tmp_path / "list.txt")
