"""Lists of videos: whatever names them, each gets a folder of its own, or the whole is refused in a sentence."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from longtake.batch.manifest import Manifest, Row, open_manifest
from longtake.errors import InputError, LongtakeError, SettingError


def touch(folder: Path, *names: str) -> Path:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
    return folder


def names(manifest: Manifest) -> list[str]:
    return [row.name for row in manifest]


def test_a_tree_is_gone_through_in_natural_order_but_for_results(tmp_path: Path) -> None:
    touch(tmp_path, "b10.mp4", "b2.mp4", "more/c.mkv", "notes.txt", ".hidden.mp4", "out/x.mp4")
    manifest = open_manifest(tmp_path, apart_from=tmp_path / "out")
    assert names(manifest) == ["b2", "b10", "more_c"]
    assert [row.source for row in manifest] == [str(tmp_path / name) for name in ("b2.mp4", "b10.mp4", "more/c.mkv")]
    assert len(manifest) == 3


def test_files_that_differ_in_their_ending_alone_are_told_apart(tmp_path: Path) -> None:
    touch(tmp_path, "a.mp4", "a.avi", "b.mp4")
    assert names(open_manifest(tmp_path)) == ["a_avi", "a_mp4", "b"]


def test_a_glob_names_what_it_finds(tmp_path: Path) -> None:
    touch(tmp_path, "one/walk.mp4", "two/walk.mp4", "two/other.txt")
    assert names(open_manifest(f"{tmp_path}/**/*.mp4")) == ["one_walk", "two_walk"]


def test_lines_of_a_text_are_sources_beside_it(tmp_path: Path) -> None:
    listing = tmp_path / "list.txt"
    listing.write_text("# walks\n\na/walk.mp4\nb/walk.mp4\nworld:7?frames=9\n")
    rows = list(open_manifest(listing, {"fps": "5"}))
    assert [row.name for row in rows] == ["a_walk", "b_walk", "world_7_frames_9"]
    assert rows[0] == Row(name="a_walk", source=str(tmp_path / "a/walk.mp4"), settings={"fps": 5.0})
    assert rows[2].source == "world:7?frames=9"


def test_columns_of_a_table_are_settings_of_each_row(tmp_path: Path) -> None:
    listing = tmp_path / "list.csv"
    listing.write_text("source,name,fps,loops,size,spans\na.mp4,first,2.5,no,,3\nb.mp4,,,,126,\n")
    first, second = open_manifest(listing, {"fps": 10.0, "stride": 2}, spans=2)
    assert (first.name, first.settings, first.spans) == ("first", {"fps": 2.5, "stride": 2, "loops": False}, 3)
    assert (second.name, second.settings, second.spans) == ("b", {"fps": 10.0, "stride": 2, "size": 126}, 2)


def test_parquet_is_read_where_pyarrow_is_there(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "list.parquet"
    parquet.write_table(arrow.table({"source": ["a.mp4", "b.mp4"], "stride": [2, None]}), path)
    assert [row.settings for row in open_manifest(path)] == [{"stride": 2}, {}]


def test_parquet_without_pyarrow_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    touch(tmp_path, "list.parquet")
    with pytest.raises(LongtakeError, match="pip install pyarrow"):
        open_manifest(tmp_path / "list.parquet")


def test_a_program_may_list_sources_or_rows() -> None:
    rows: list[str | Mapping[str, object]] = ["world:1", {"source": "world:2", "name": "two", "fps": 3}]
    assert [(row.name, row.settings) for row in open_manifest(rows)] == [("world_1", {}), ("two", {"fps": 3})]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("source,fsp\na.mp4,3\n", "no setting 'fsp'; perhaps you mean 'fps'"),
        ("video\na.mp4\n", "Expected a column 'source' in .*, but it has video"),
        ("source,name\na.mp4,x\nb.mp4,x\n", "Rows 2 and 3 of .* would both go to 'x'"),
        ("source,name\na.mp4,../x\n", "Row 2 of .* a name of letters"),
        ("source,fps\na.mp4,fast\n", "Row 2 of .* Expected fps as a number, but got 'fast'"),
        ("source,name\n,x\n", "Row 2 of .* Expected a video in every row, but its 'source' is empty"),
        ("source,loops\na.mp4,maybe\n", "Expected loops as true or false, but got 'maybe'"),
        ("source,spans\na.mp4,0\n", "Expected spans as a whole number from 1, but got '0'"),
        ("source,fps\na.mp4\n", "Row 2 of .* Expected 2 values, as the first line names"),
        ("source\n\n", "Expected videos in .*, but there are none"),
        ("source,follow\na.mp4,yes\n", "no setting 'follow'"),
    ],
)
def test_a_table_that_cannot_be_used_is_refused_before_any_video(content: str, problem: str, tmp_path: Path) -> None:
    listing = tmp_path / "list.csv"
    listing.write_text(content)
    with pytest.raises(InputError, match=problem) as refused:
        open_manifest(listing)
    assert "\n" not in str(refused.value)


def test_all_rows_that_are_wrong_are_told_at_once(tmp_path: Path) -> None:
    listing = tmp_path / "list.csv"
    listing.write_text(
        "source,name,fps,spans\n"
        "a.mp4,x,fast,\n"  # 2
        "b.mp4,good,,\n"
        "c.mp4,good,,\n"  # 4
        "d.mp4,../d,,\n"  # 5
        ",e,,\n"  # 6
        "f.mp4\n"  # 7
        "g.mp4,g,,0\n"  # 8
        "h.mp4,h,,none\n"  # 9
    )
    with pytest.raises(InputError) as refused:
        open_manifest(listing)
    assert str(refused.value) == (
        f"Row 2 of {listing} cannot be used: Expected fps as a number, but got 'fast'. "
        "Rows 3 and 4 would both go to 'good'; give each a name of its own in a column 'name'. "
        "Row 5 cannot be used: Expected a name of letters, digits, '.', '_' and '-', but got '../d'. "
        "Row 6 cannot be used: Expected a video in every row, but its 'source' is empty. "
        "Row 7 cannot be used: Expected 4 values, as the first line names, but there are more or fewer; quote "
        "texts that have commas. 2 more rows are wrong."
    )


def test_all_rows_of_a_program_that_are_wrong_are_told_at_once() -> None:
    rows: list[str | Mapping[str, object]] = ["world:1", {"name": "x"}, {"source": "world:2", "fsp": 3}, "world:1"]
    with pytest.raises(InputError) as refused:
        open_manifest(rows)
    told = str(refused.value)
    assert told.startswith(
        "Row 2 of the list cannot be used: Expected a video in every row, but its 'source' is empty. "
    )
    assert "Row 3 cannot be used: There is no setting 'fsp'; perhaps you mean 'fps'" in told
    assert told.endswith("Rows 1 and 4 would both go to 'world_1'; give each a name of its own in a column 'name'.")


def test_a_row_that_became_wrong_since_the_list_was_checked_is_told(tmp_path: Path) -> None:
    listing = tmp_path / "list.csv"
    listing.write_text("source,fps\na.mp4,3\n")
    manifest = open_manifest(listing)
    listing.write_text("source,fps\na.mp4,fast\n")
    with pytest.raises(InputError, match=r"Row 2 of .* cannot be used: Expected fps as a number"):
        list(manifest)


def test_what_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"Expected a folder of videos, a glob, or a list"):
        open_manifest(tmp_path / "nowhere")
    with pytest.raises(InputError, match="Expected videos in the folder"):
        open_manifest(tmp_path)
    (tmp_path / "list.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="cannot be read"):
        open_manifest(tmp_path / "list.txt")


def test_a_default_without_a_meaning_is_refused() -> None:
    with pytest.raises(SettingError, match="no setting 'model_name'; perhaps you mean 'model'"):
        open_manifest(["world:1"], {"model_name": "tiny"})
