"""Lists of videos: whatever names them, each gets a folder of its own, or the whole is refused in a sentence."""

from collections.abc import Callable, Mapping
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import longtake
from longtake.batch import row_check
from longtake.batch.asked import asked_of
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


@pytest.fixture(scope="module")
def monday(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A result that can be continued."""
    out = tmp_path_factory.mktemp("results") / "monday"
    longtake.map("world:3?frames=6&size=112x84", out, size=56, format="depth,images")
    return out


def test_a_tree_is_gone_through_in_natural_order_but_for_results(tmp_path: Path) -> None:
    touch(tmp_path, "b10.mp4", "b2.mp4", "more/c.mkv", "notes.txt", ".hidden.mp4", "out/x.mp4")
    manifest = open_manifest(tmp_path, apart_from=tmp_path / "out")
    assert names(manifest) == ["b2", "b10", "more_c_mkv"]
    assert [row.source for row in manifest] == [str(tmp_path / name) for name in ("b2.mp4", "b10.mp4", "more/c.mkv")]
    assert len(manifest) == 3


def test_a_folder_of_pictures_is_a_video(tmp_path: Path) -> None:
    frames = touch(tmp_path / "frames", "1.jpg", "2.jpg")
    assert list(open_manifest(frames, spans=2)) == [Row(name="frames", source=str(frames), spans=2)]
    touch(frames, "more/a.mp4")
    assert names(open_manifest(frames)) == ["more_a"]
    with pytest.raises(InputError, match=r"or pictures in it, but there are none; .* as .*/x/\*"):
        open_manifest(touch(tmp_path / "x", "one/1.jpg"))


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


def test_paths_of_a_table_are_beside_it_and_spans_continue_nothing(monday: Path, tmp_path: Path) -> None:
    (tmp_path / "monday").symlink_to(monday)
    (tmp_path / "list.csv").write_text(f"source,continue_from\na.mp4,monday\nb.mp4,\nc.mp4,{monday}\n")
    rows = list(open_manifest(tmp_path / "list.csv"))
    assert [row.settings.get("continue_from") for row in rows] == [str(tmp_path / "monday"), None, str(monday)]
    (tmp_path / "list.csv").write_text("source,continue_from,spans\na.mp4,monday,3\n")
    with pytest.raises(InputError, match="Expected one span of a video that continues another result, but got 3"):
        open_manifest(tmp_path / "list.csv")


def test_a_video_whose_name_has_a_colon_is_no_address_wherever_the_shell_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (touch(tmp_path, "walks/12:30.mp4", "other/x") / "walks/list.txt").write_text("12:30.mp4\nworld:7?frames=9\n")
    for shell, named in (
        ("walks", "list.txt"),
        ("other", "../walks/list.txt"),
        (".", str(tmp_path / "walks/list.txt")),
    ):
        monkeypatch.chdir(tmp_path / shell)
        film, world = open_manifest(named)
        assert film.name == "12_30"
        assert Path(film.source).samefile(tmp_path / "walks/12:30.mp4")
        assert world.source == "world:7?frames=9"
    (tmp_path / "walks/12:30.mp4").unlink()
    assert asked_of(film)["video"] is None  # it is not another one


def test_paths_of_settings_are_the_same_from_every_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    touch(tmp_path, "other/x").joinpath("list.csv").write_text("source,mask,sky\nworld:1,masks,sky.onnx\nworld:2,,\n")
    expected = {"mask": str(tmp_path / "masks"), "sky": str(tmp_path / "sky.onnx")}
    for shell, named in ((tmp_path, "list.csv"), (tmp_path / "other", str(tmp_path / "list.csv"))):
        monkeypatch.chdir(shell)
        assert [row.settings for row in open_manifest(named)] == [expected, {}]
    monkeypatch.chdir(tmp_path)
    rows: list[Mapping[str, object]] = [{"source": "world:1", "mask": Path("masks"), "sky": "sky.onnx"}]
    assert [row.settings for row in open_manifest(rows)] == [expected]
    assert [row.settings for row in open_manifest(["world:1"], {"mask": "masks", "sky": Path("sky.onnx")})] == [
        expected
    ]


def test_a_table_with_gaps_may_write_whole_numbers_as_others(tmp_path: Path) -> None:
    (tmp_path / "list.csv").write_text("source,spans,stride\na.mp4,2.0,3.0\nb.mp4,,\n")
    rows: list[Mapping[str, object]] = [{"source": "c.mp4", "spans": 4.0, "stride": 5.0}]
    found = [*open_manifest(tmp_path / "list.csv"), *open_manifest(rows)]
    assert [(row.spans, row.settings) for row in found] == [(2, {"stride": 3}), (1, {}), (4, {"stride": 5})]


@pytest.mark.parametrize("spans", ["2.5", 2.5, "0.0", "nan", float("nan"), "1e1", True])
def test_spans_that_are_no_whole_number_are_refused(spans: object) -> None:
    with pytest.raises(InputError, match=f"Expected spans as a whole number from 1, but got '{spans}'"):
        open_manifest([{"source": "world:1", "spans": spans}])


def test_rows_that_a_spreadsheet_leaves_empty_are_none(tmp_path: Path) -> None:
    listing = tmp_path / "list.csv"
    listing.write_bytes(b"\xef\xbb\xbfsource,name,fps\r\na.mp4,first,\r\n\r\n,,\r\nb.mp4,,2\r\n,,\r\n")
    assert [(row.name, row.settings) for row in open_manifest(listing)] == [("first", {}), ("b", {"fps": 2.0})]


@pytest.mark.extra
def test_parquet_is_read_where_pyarrow_is_there(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "list.parquet"
    parquet.write_table(arrow.table({"source": ["a.mp4", "b.mp4"], "stride": [2, None]}), path)
    assert [row.settings for row in open_manifest(path)] == [{"stride": 2}, {}]


@pytest.mark.extra
def test_parquet_that_is_damaged_anywhere_is_a_sentence(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "list.parquet"
    parquet.write_table(arrow.table({"source": [f"{number}.mp4" for number in range(200)]}), path)
    whole, refused = path.read_bytes(), 0
    for place in range(4, len(whole), len(whole) // 60):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x41]) + whole[place + 1 :])
        try:
            assert list(open_manifest(path))
        except LongtakeError:
            refused += 1
    assert refused > 10


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
        ("source,nme\na.mp4,x\n", "no setting 'nme'; perhaps you mean 'name'; choose among source, name, spans, model"),
        ("source, name\na.mp4,x\n", "no setting ' name'; perhaps you mean 'name'"),
        ("source,fps\na.mp4,-5\n", "Row 2 of .* Expected more than 0 frames a second, but got -5"),
        ("source,memory\na.mp4,3 bananas\n", "Row 2 of .* Expected a memory such as 4GB, .* but got '3 bananas'"),
        ("source,format\na.mp4,tumm\n", "Row 2 of .* Expected format as tum, .* but got 'tumm'"),
        ("source,continue_from\na.mp4,nofolder\n", "Row 2 of .* Expected a take in .*/nofolder, but"),
        ("source,device\na.mp4,cdua\n", "Row 2 of .* There is no device 'cdua'; choose one of cpu, cuda"),
        ("source,precision\na.mp4,fp17\n", "Row 2 of .* There is no precision 'fp17'"),
        ("source,backend\na.mp4,fast\n", "Row 2 of .* There is no attention backend 'fast'"),
        ("source,picture_fps\na.mp4,0\n", "Row 2 of .* Expected more than 0 pictures a second, but got 0"),
        ("source,fps,name,fps\na.mp4,2,x,5\n", "Expected each column of .* once, but fps comes more than once"),
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
        "Rows 3 and 4 would both go to 'good'; give each its own name, in a column 'name' of a .csv. "
        "Row 5 cannot be used: Expected a name of letters, digits, '.', '_' and '-', but got '../d'. "
        "Row 6 cannot be used: Expected a video in every row, but its 'source' is empty. "
        "Row 7 cannot be used: Expected 4 values, as the first line names, but there are more or fewer; quote "
        "texts that have commas. 2 more rows are wrong."
    )


def test_values_that_no_video_can_have_are_told_with_the_other_wrong_rows(tmp_path: Path) -> None:
    listing = tmp_path / "list.csv"
    listing.write_text(
        "source,fps,memory,format,continue_from,spans\n"
        "a.mp4,-5,,,,\n"  # 2
        "b.mp4,,3 bananas,,,\n"
        "c.mp4,,4GB,,,none\n"  # 4
        "d.mp4,,,tumm,,\n"
        "e.mp4,,,,nofolder,\n"  # 6
        "f.mp4,-5,,,,\n"
        "g.mp4,5,,,,\n"  # 8
    )
    with pytest.raises(InputError) as refused:
        open_manifest(listing)
    told = str(refused.value)
    assert [number for number in range(1, 9) if f"Row {number} " in told] == [2, 3, 4, 5, 6]
    assert told.endswith(" 1 more row is wrong.")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("start", datetime(2020, 1, 1)), ("sky", datetime(2020, 1, 1)), ("format", {"a": 1}), ("format", [["ply"]])),
        *(("model", b"micro-map"), ("fps", Decimal("2.5")), ("stride", 1.5), ("loops", 1), ("memory", True)),
    ],
)
def test_values_of_other_types_are_refused_with_the_list(name: str, value: object) -> None:
    with pytest.raises(LongtakeError, match=rf"^Row 2 of the list cannot be used: Expected {name} as "):
        open_manifest(["a.mp4", {"source": "b.mp4", name: value}])


def test_numbers_of_a_table_become_those_of_a_setting() -> None:
    row = {"source": "a.mp4", "stride": np.int64(2), "fps": np.float32(2.5), "format": ["tum", "ply"], "memory": 10**7}
    (found,) = open_manifest([row])
    assert found.settings == {"stride": 2, "fps": 2.5, "format": ("tum", "ply"), "memory": 10**7}
    assert type(found.settings["stride"]) is int
    assert type(found.settings["fps"]) is float


@pytest.mark.parametrize("rows", [[3], [None], [b"a.mp4"], [{"source": "a.mp4", 3: "x"}]])
def test_what_is_no_video_of_a_program_is_refused(rows: list[Any]) -> None:
    with pytest.raises(LongtakeError, match="Expected each video as a text, a path, or its settings by name"):
        list(open_manifest(rows))


def test_masks_of_a_row_are_no_affair_of_the_list(tmp_path: Path) -> None:
    (tmp_path / "list.csv").write_text("source,mask\na.mp4,nowhere\nb.mp4,\n")
    assert names(open_manifest(tmp_path / "list.csv")) == ["a", "b"]


def test_a_result_that_is_continued_may_be_made_by_the_batch_itself(tmp_path: Path) -> None:
    (tmp_path / "list.csv").write_text("source,continue_from\na.mp4,\nb.mp4,out/a\n")
    assert names(open_manifest(tmp_path / "list.csv", apart_from=tmp_path / "out")) == ["a", "b"]
    with pytest.raises(InputError, match=r"Row 3 of .* Expected a take in .*/out/a, but"):
        open_manifest(tmp_path / "list.csv", apart_from=tmp_path / "other")


def test_what_rows_ask_for_in_the_same_words_is_looked_at_once(
    monday: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[str] = []

    def counting(name: str) -> Callable[[Any], object]:
        look = getattr(row_check, name)

        def counted(what: Any) -> object:
            looked.append(name)
            return look(what)

        return counted

    for name in ("_problem_of_words", "_problem_of_earlier"):
        monkeypatch.setattr(row_check, name, counting(name))
    lines = [f"{number}.mp4,{2 if number % 2 else ''},{monday}\n" for number in range(100)]
    (tmp_path / "list.csv").write_text(f"source,fps,continue_from\n{''.join(lines)}")
    assert len(open_manifest(tmp_path / "list.csv")) == 100
    assert sorted(looked) == ["_problem_of_earlier", "_problem_of_words", "_problem_of_words"]


def test_all_rows_of_a_program_that_are_wrong_are_told_at_once() -> None:
    rows: list[str | Mapping[str, object]] = ["world:1", {"name": "x"}, {"source": "world:2", "fsp": 3}, "world:1"]
    with pytest.raises(InputError) as refused:
        open_manifest(rows)
    told = str(refused.value)
    assert told.startswith(
        "Row 2 of the list cannot be used: Expected a video in every row, but its 'source' is empty. "
    )
    assert "Row 3 cannot be used: There is no setting 'fsp'; perhaps you mean 'fps'" in told
    assert told.endswith(
        "Rows 1 and 4 would both go to 'world_1'; give each its own name, in a column 'name' of a .csv."
    )


def _changed(listing: Path) -> None:
    listing.write_text("source,fps\na.mp4,fast\na.mp4,fast\n")


@pytest.mark.parametrize("change", [_changed, Path.unlink])
def test_what_becomes_of_a_list_while_it_is_worked_through_is_for_another_batch(
    change: Callable[[Path], None], tmp_path: Path
) -> None:
    listing = tmp_path / "list.csv"
    listing.write_text("source,fps\na.mp4,3\nb.mp4,2\n")
    manifest = open_manifest(listing)
    change(listing)
    assert [(row.name, row.settings) for row in manifest] == [("a", {"fps": 3.0}), ("b", {"fps": 2.0})]


@pytest.mark.parametrize(("ending", "between"), [("csv", ";"), ("csv", "\t"), ("tsv", "\t")])
def test_spreadsheets_of_other_languages_put_other_signs_between(between: str, ending: str, tmp_path: Path) -> None:
    listing = tmp_path / f"list.{ending}"
    rows = ("name", "source", "fps"), ("one", "a, b.mp4", "2"), ("two", "world:1", "")
    listing.write_text("".join(f"{between.join(row)}\r\n" for row in rows), encoding="utf-8-sig", newline="")
    assert [(row.name, Path(row.source).name, row.settings) for row in open_manifest(listing)] == [
        ("one", "a, b.mp4", {"fps": 2.0}),
        ("two", "world:1", {}),
    ]


def test_lines_that_end_as_on_an_old_mac_are_read(tmp_path: Path) -> None:
    (tmp_path / "list.csv").write_bytes(b"source;name\ra.mp4;one\rworld:1;two\r")
    assert [row.name for row in open_manifest(tmp_path / "list.csv")] == ["one", "two"]


def test_a_list_in_another_code_says_which_is_read(tmp_path: Path) -> None:
    listing = tmp_path / "list.csv"
    for code in ("utf-16", "latin-1"):
        listing.write_text("source,name\ncafé.mp4,x\n", encoding=code)
        with pytest.raises(InputError, match=r"list.csv cannot be read as UTF-8 \(.*\); save it as that"):
            open_manifest(listing)


def test_an_empty_text_is_not_the_folder_of_the_shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(touch(tmp_path, "a.mp4"))
    with pytest.raises(InputError, match="Expected videos, but got an empty text"):
        open_manifest("")


def test_a_path_that_no_system_takes_is_one_sentence(tmp_path: Path) -> None:
    long = "x" * 300
    with pytest.raises(InputError, match=r"'xxx.*' cannot be looked at \(File name too long\)"):
        open_manifest(f"{long}.mp4")
    (tmp_path / "list.txt").write_text(f"ab:{long}\n")
    assert len(open_manifest(tmp_path / "list.txt")) == 1  # that video is set aside


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
