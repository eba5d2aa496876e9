"""The page of a mapped folder: what it embeds is what the files say, it stays small, and it never trusts a text."""

import base64
import io
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from longtake.errors import InputError
from longtake.exports.cloud import Cloud, CloudSettings
from longtake.exports.frame import FrameStatus, MappedFrame
from longtake.exports.ply import PlySink, write_ply
from longtake.exports.report.asked import ASKED_NAME, Asked, AskedQuestion
from longtake.exports.report.page import REPORT_NAME, write_report
from longtake.exports.report.payload import MOST_CLOUD_POINTS
from longtake.exports.report.plan import MOST_POINTS
from longtake.exports.report.strips import LARGEST_EDGE, MOST_STRIPS
from longtake.exports.report.truth import TRUTH_NAME, Figure, Truth
from longtake.exports.take import TakeSettings, TakeSink
from longtake.takes.depth_files import DepthFiles
from longtake.takes.frames import TakeFrame
from longtake.takes.header import Content, TakeHeader, Unit
from longtake.takes.images import ImageFiles
from longtake.takes.take import read_take
from longtake.takes.writer import TakeWriter

VOID = {"meta", "link", "br", "img", "input"}
LARGEST_PAGE = 3_000_000


@dataclass
class Page(HTMLParser):
    """What a page says; refuses tags that are not closed in order."""

    text: str
    open_tags: list[str] = field(default_factory=list)
    tags: list[tuple[str, dict[str, str | None]]] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    data: str = ""

    def __post_init__(self) -> None:
        super().__init__()
        self.feed(self.text)
        self.close()
        assert not self.open_tags

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open_tags.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open_tags.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open_tags[-1:] == ["script"]:
            self.data = self.data or data
        elif self.open_tags[-1:] != ["style"]:
            self.words.append(data)

    @property
    def said(self) -> str:
        return re.sub(r"\s+", " ", "".join(self.words))

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]

    def classed(self, name: str) -> list[dict[str, str | None]]:
        return [attributes for _, attributes in self.tags if name in (attributes.get("class") or "").split()]


def page_of(folder: Path) -> Page:
    return Page(write_report(folder).read_text(encoding="utf-8"))


def numbers_in(text: str, kind: str) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text), kind).reshape(-1, 3)


def write_map(folder: Path, frames: Sequence[MappedFrame], settings: TakeSettings | None = None) -> None:
    sinks = [TakeSink(folder, settings or TakeSettings()), PlySink(folder / "cloud.ply", CloudSettings())]
    for frame in frames:
        for sink in sinks:
            sink.write(frame)
    for sink in sinks:
        sink.close()


def write_lines(path: Path, *lines: object) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.fixture
def mapped(tmp_path: Path, frames: list[MappedFrame]) -> Path:
    """All that a run leaves: frame 3 is weak, frame 5 could not be read."""
    folder = tmp_path / "map"
    shown = [replace(frame, status=FrameStatus.WEAK if frame.index == 3 else FrameStatus.OK) for frame in frames]
    write_map(folder, [frame for frame in shown if frame.index != 5])
    write_lines(folder / "events.jsonl", {"index": 5, "timestamp_s": 2.5, "problem": "no keyframe before it"})
    rows = [{"index": index, "seconds": index / 8, "resident_bytes": 10**9} for index in (1, 5, 9)]
    write_lines(folder / "progress.jsonl", *rows)
    summary = {"source": "walk.mp4", "is_complete": True, "frames_per_s": 8.0, "num_windows": 3, "longtake": "9.8.7"}
    more = {"settings": {"memory": {"budget": "4 GB"}}, "versions": {"torch": "2.99"}}
    (folder / "summary.json").write_text(json.dumps(summary | more))
    return folder


@pytest.fixture
def truth() -> Truth:
    centres = np.array([[0.0, 0.0, 0.0], [0.5, 0.0, 4.0], [9.0, 0.0, 30.0]])
    figures = (Figure(name="ATE <b>", result="2 %", baseline="line & 8 %"), Figure(name="Rotation", result="1°"))
    return Truth(about="A walk <i>", centres=centres, figures=figures)


def test_truth_is_shown_beside_the_result_in_plan_view_and_table(mapped: Path, truth: Truth) -> None:
    plain = page_of(mapped)
    truth.write(mapped / TRUTH_NAME)
    page = page_of(mapped)
    assert "Against the truth" not in plain.said
    assert not plain.classed("true-way")
    assert json.loads(plain.data)["truth"] is None
    for words in ("Against the truth", "A walk <i>", "ATE <b>", "line & 8 %", "1°", "Grey: the true way"):
        assert words in page.said
    assert json.loads(page.data)["truth"] == truth.centres.ravel().tolist()
    (drawn,) = page.classed("true-way")
    places = np.array([place.split(",") for place in (drawn["points"] or "").split()], dtype=float)
    assert len(places) == 3
    (box,) = page.classed("plan")
    width, height = (float(side) for side in (box["viewbox"] or "").split()[2:])
    assert (places > 0).all()
    assert (places < (width, height)).all()


def test_true_way_lies_on_a_result_that_equals_it(tmp_path: Path) -> None:
    places = [(0, 0, 0), (1, 0, 2), (3, 0, 3)]
    folder = write_take(tmp_path / "map", [frame_at(index, place) for index, place in enumerate(places)])
    Truth(about="", centres=np.array(places, dtype=float), figures=()).write(folder / TRUTH_NAME)
    page = page_of(folder)
    (true_way,) = page.classed("true-way")
    pieces = [(piece["points"] or "").split() for piece in page.classed("way")]
    assert (true_way["points"] or "").split() == [pieces[0][0], *(piece[-1] for piece in pieces)]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", "Expected a JSON object"),
        ('{"about": "", "figures": [], "way": []}', "it has no places"),
        ('{"about": "", "figures": [], "way": [{"centre": [1, 2]}]}', "3 finite numbers"),
        ('{"about": "", "figures": [{"name": 3}], "way": []}', "a text as 'name'"),
    ],
)
def test_damaged_truth_is_a_problem_on_the_page_and_nothing_else(mapped: Path, text: str, sentence: str) -> None:
    (mapped / TRUTH_NAME).write_text(text)
    page = page_of(mapped)
    assert sentence in page.said
    assert not page.classed("true-way")


def asked_question(**changes: object) -> AskedQuestion:
    question = AskedQuestion(
        time_s=4.0,
        kind="first",
        question="which <b> came first ?",
        answer="red & box",
        truth="blue box",
        is_right=False,
        looked_s=(1.0, 1.5),
        moments_s=(1.5,),
        met_by_chance=0.25,
    )
    return replace(question, **changes)  # type: ignore[arg-type]


def test_questions_are_shown_with_answer_truth_and_what_was_looked_at(mapped: Path) -> None:
    questions = (
        asked_question(),
        asked_question(looked_s=(2.0, 3.0), is_right=True, answer="yes"),
        asked_question(looked_s=None, answer=""),
        asked_question(moments_s=(), looked_s=(0.0, 4.0), met_by_chance=0.0),
    )
    plain = page_of(mapped)
    Asked(about="Who <i>", questions=questions).write(mapped / ASKED_NAME)
    page = page_of(mapped)
    assert "Asked on the way" not in plain.said
    for words in ("Asked on the way", "Who <i>", "which <b> came first?", "red & box", "blue box", "4.0 s", "nothing"):
        assert words in page.said
    assert "1 of 4 answers are right; of 3 that frames justify, 1 looked most at a span" in page.said
    assert "holds such a frame, 0.8 would by chance." in page.said
    assert "1.0 to 1.5 s, which holds the true moment" in page.said
    assert "2.0 to 3.0 s, not the true moment" in page.said
    assert page.said.count("wrong") == 3
    assert [len(page.classed(name)) for name in ("looked", "met", "missed", "moment")] == [3, 1, 2, 2]
    assert Asked.parse((mapped / ASKED_NAME).read_bytes(), "x").questions == questions


def test_bars_of_what_was_looked_at_stay_within_the_video(mapped: Path) -> None:
    questions = (asked_question(time_s=0.0, looked_s=(0.0, 0.0)), asked_question(looked_s=(-1.0, 99.0)))
    Asked(about="", questions=questions).write(mapped / ASKED_NAME)
    bars = page_of(mapped).classed("span")
    assert len(bars) == 2
    for bar in bars:
        assert 0 <= float(bar["x"] or "nan") <= float(bar["x"] or "nan") + float(bar["width"] or "nan") <= 240


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[]", "Expected a JSON object"),
        ('{"about": "", "questions": [{"time_s": "now"}]}', "a finite number as 'time_s'"),
        ('{"about": "", "questions": 3}', "a list of objects as 'questions'"),
    ],
)
def test_damaged_questions_are_a_problem_on_the_page_and_nothing_else(mapped: Path, text: str, sentence: str) -> None:
    (mapped / ASKED_NAME).write_text(text)
    page = page_of(mapped)
    assert sentence in page.said
    assert "Asked on the way" not in page.said


def test_true_places_without_end_are_drawn_all_the_same(mapped: Path, truth: Truth) -> None:
    far = np.array([[0.0, 0.0, 0.0], [1e300, -1e300, 1e300]])
    replace(truth, centres=far).write(mapped / TRUTH_NAME)
    assert page_of(mapped).classed("true-way")


def test_cloud_of_the_page_is_that_of_the_file(mapped: Path) -> None:
    data = json.loads(page_of(mapped).data)
    header, _, body = (mapped / "cloud.ply").read_bytes().partition(b"end_header\n")
    count = int(re.search(rb"element vertex (\d+)", header).group(1))
    rows = np.frombuffer(body, np.uint8).reshape(count, 31)
    places, normals = (np.ascontiguousarray(rows[:, part]).view("<f4") for part in (np.s_[:12], np.s_[12:24]))
    assert data["cloud"]["count"] == count
    np.testing.assert_array_equal(numbers_in(data["cloud"]["positions"], "<f4"), places)
    np.testing.assert_array_equal(numbers_in(data["cloud"]["colours"], "u1"), rows[:, 24:27])
    np.testing.assert_allclose(numbers_in(data["cloud"]["normals"], "i1") / 127, normals, atol=0.5 / 127 + 1e-6)


def test_way_of_the_page_is_that_of_the_poses(mapped: Path) -> None:
    way = json.loads(page_of(mapped).data)["trajectory"]
    poses = np.loadtxt(mapped / "poses.tum")
    assert way["indices"] == [0, 1, 2, 3, 4, 6, 7, 8, 9]
    np.testing.assert_allclose(np.reshape(way["positions"], (-1, 3)), poses[:, 1:4], rtol=1e-7)


def test_page_says_what_came_of_the_run(mapped: Path) -> None:
    page = page_of(mapped)
    expected = ["walk.mp4", "complete", "ok 8", "weak 1", "unreadable 1", "Frame 5 (2.50 s): no keyframe before it"]
    expected += [
        "Frames9 of 10",
        "memory.budget4 GB",
        "torch2.99",
        "longtake9.8.7",
        "8 frames/s",
        "model units",
        "to 1 GB",
    ]
    assert [words for words in expected if words not in page.said] == []
    _, _, folded = (mapped / REPORT_NAME).read_text(encoding="utf-8").partition("<details>")
    assert "memory.budget" in folded.partition("</details>")[0]


def test_strips_of_time_lie_where_their_frames_do(mapped: Path) -> None:
    page = page_of(mapped)
    where = {
        name: [(float(r["x"] or ""), float(r["width"] or "")) for r in page.named("rect") if r["class"] == name]
        for name in ("status weak", "status unreadable", "window", "window odd")
    }
    assert where["status weak"] == [(300, 100)]
    assert where["status unreadable"] == [(500, 100)]
    windows = [frame.window for frame in read_take(mapped).records]
    assert len(where["window"]) + len(where["window odd"]) >= len(set(windows))


def test_where_the_camera_was_lost_and_what_lies_apart_is_drawn(mapped: Path) -> None:
    """Nine frames, without frame 5."""
    assert not page_of(mapped).classed("track")
    ok, weak, lost = ("ok", None), ("weak", "too fast"), ("lost", "cut")
    told = [(*ok, 0), (*ok, 0), (*weak, 0), (*lost, None), (*ok, 1), (*lost, None), *[(*ok, 2)] * 3]
    lines = [json.loads(line) for line in (mapped / "frames.jsonl").read_text().splitlines()]
    for line, (state, reason, sub_map) in zip(lines, told, strict=True):
        line["tracking"] = {"state": state, "reason": reason, "sub_map": sub_map}
    write_lines(mapped / "frames.jsonl", *lines)
    counted = {"states": {"ok": 6, "weak": 1, "lost": 2}, "reasons": {}, "num_sub_maps": 3, "apart": [2]}
    summary = json.loads((mapped / "summary.json").read_text())
    loops = {"num_loops": 1234, "num_withdrawn": 34}
    (mapped / "summary.json").write_text(json.dumps(summary | {"tracking": counted, "loops": loops}))
    page = page_of(mapped)
    drawn = [(band["class"], float(band["x"] or ""), float(band["width"] or "")) for band in page.classed("track")]
    assert drawn == [
        ("track", 0, 200),
        ("track weak", 200, 100),
        ("track lost", 300, 100),
        ("track odd", 400, 100),
        ("track lost", 600, 100),
        ("track apart", 700, 300),
    ]
    keys = [key["class"] for key in page.classed("key") if "track" in (key["class"] or "")]
    assert keys == ["key of-track", "key of-track-odd", "key of-track-apart", "key of-track-weak", "key of-track-lost"]
    assert re.search(r"joined, in shades by sub-map 3\s*not joined to the first 3\s*weak 1\s*lost 2", page.said)
    assert "3 sub-maps, 1 of them not joined. A sub-map that is not joined lies where" in page.said
    assert [note["class"] for note in page.classed("note")] == ["note"]
    assert re.search(r"Loops closed\s*1,200", page.said)


def test_walks_that_were_joined_and_never_lost_are_no_warning(mapped: Path) -> None:
    joined = {"states": {"ok": 9}, "reasons": {}, "num_sub_maps": 2, "apart": []}
    summary = json.loads((mapped / "summary.json").read_text())
    (mapped / "summary.json").write_text(json.dumps(summary | {"tracking": joined}))
    page = page_of(mapped)
    assert "Tracking: 2 sub-maps, all joined." in page.said
    assert [note["class"] for note in page.classed("note")] == ["note quiet"]


def test_speed_is_that_between_two_moments(mapped: Path) -> None:
    speed, memory = (curve["points"] for curve in page_of(mapped).classed("curve"))
    assert speed == "550.0,0.0 950.0,0.0"
    assert memory == "150.0,0.0 550.0,0.0 950.0,0.0"


def test_a_resumed_run_counts_what_it_did_again_once_and_its_clock_anew(mapped: Path) -> None:
    moments = [(0, 1.0), (2, 2.0), (4, 3.0), (3, 0.5), (5, 1.5), (9, 2.5)]
    rows = [{"index": index, "seconds": seconds, "resident_bytes": 100} for index, seconds in moments]
    write_lines(mapped / "progress.jsonl", *rows)
    curves = [curve["points"] for curve in page_of(mapped).classed("curve")]
    assert curves[:2] == ["250.0,45.0 350.0,45.0", "550.0,45.0 950.0,0.0"]
    assert curves[2:] == ["50.0,0.0 250.0,0.0", "350.0,0.0 550.0,0.0 950.0,0.0"]


def test_depth_is_coloured_from_near_to_far(mapped: Path) -> None:
    shots = page_of(mapped).named("img")
    assert len(shots) == 2 * 9
    assert all(shot["alt"] for shot in shots)
    pictures = [Image.open(io.BytesIO(base64.b64decode((shot["src"] or "").partition(",")[2]))) for shot in shots]
    depth = read_take(mapped).depth(0)
    shades = np.asarray(pictures[1])
    assert [picture.format for picture in pictures] == ["JPEG", "PNG"] * 9
    assert pictures[1].mode == "P"
    order = np.argsort(depth, axis=None)
    assert (np.diff(shades.ravel()[order].astype(int)) >= 0).all()


def test_page_needs_nothing_from_elsewhere(mapped: Path) -> None:
    page = page_of(mapped)
    links = [value for _, attributes in page.tags for name, value in attributes.items() if name in ("src", "href")]
    assert all((link or "").startswith("data:") for link in links)
    assert not re.search(r"https?://|@import|url\(", page.text)
    assert [a for a in page.named("svg") if a.get("role") != "img" or not a.get("aria-label")] == []


def test_same_folder_gives_the_same_page(mapped: Path) -> None:
    first = write_report(mapped).read_bytes()
    assert write_report(mapped).read_bytes() == first
    assert list(mapped.glob("report.html*")) == [mapped / "report.html"]


def test_bare_take_has_a_page_that_says_what_is_missing(tmp_path: Path, frames: list[MappedFrame]) -> None:
    folder = tmp_path / "map"
    write_map(folder, frames[:1], TakeSettings(depth=None, images=None, confidence=False))
    (folder / "cloud.ply").unlink()
    page = page_of(folder)
    expected = ["no summary", "There is no cloud.ply", "has no depth", "Without progress.jsonl"]
    assert [words for words in expected if words not in page.said] == []
    data = json.loads(page.data)
    assert data["cloud"] is None
    assert data["radius"] > 0
    write_lines(folder / "progress.jsonl", {"index": 0, "seconds": 0.1, "resident_bytes": 1})
    said = page_of(folder).said
    assert "Of a run this short progress.jsonl has one moment" in said
    assert "Without progress.jsonl" not in said


def test_run_without_a_result_has_a_page(tmp_path: Path) -> None:
    (tmp_path / "summary.json").write_text('{"source": "dark.mp4", "is_complete": false, "frames_per_s": NaN}')
    write_lines(tmp_path / "events.jsonl", {"index": 0, "timestamp_s": 0.0, "problem": "damaged"})
    page = page_of(tmp_path)
    assert "dark.mp4" in page.said
    assert "stopped early" in page.said
    assert "unreadable 1" in page.said
    assert page.named("canvas") == []
    assert json.loads(page.data) == {}


def test_folder_without_a_map_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="Expected a mapped video"):
        write_report(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("summary.json", b"[1]", "Expected a JSON object"),
        ("events.jsonl", b'{"index": -1}\n', "whole number from 0"),
        ("progress.jsonl", b'{"index": 1, "seconds": NaN, "resident_bytes": 2}\n', "finite number"),
        ("cloud.ply", b"solid\n", "no header"),
        ("cloud.ply", b"ply\nformat ascii 1.0\nelement vertex 1\nproperty float x\nend_header\n1\n", "another sort"),
        ("depth/000004.png", b"", "000004.png"),
        ("images/000004.jpg", b"", "000004.jpg"),
    ],
)
def test_damaged_part_is_left_out_with_a_word(mapped: Path, name: str, content: bytes, words: str) -> None:
    (mapped / name).write_bytes(content)
    assert words in page_of(mapped).said


def test_cloud_that_ends_early_is_left_out_with_a_word(mapped: Path) -> None:
    cloud = mapped / "cloud.ply"
    cloud.write_bytes(cloud.read_bytes()[:-1])
    assert "ends before them" in page_of(mapped).said


def test_texts_of_a_run_are_shown_and_never_obeyed(mapped: Path) -> None:
    evil = '</script><script>alert("1")</script><img src=x onerror=alert(2)>&amp;'
    (mapped / "summary.json").write_text(json.dumps({"source": evil, evil: evil, "settings": {evil: {evil: evil}}}))
    write_lines(mapped / "events.jsonl", {"index": 5, "timestamp_s": 2.5, "problem": evil})
    page = page_of(mapped)
    assert len(page.named("script")) == 2
    assert all("onerror" not in attributes for _, attributes in page.tags)
    assert page.said.count(evil) >= 5


def test_points_that_are_not_finite_are_left_out(mapped: Path) -> None:
    points = np.array([[0, 1, 2], [np.nan, 0, 0], [0, np.inf, 0], [3, 4, 5]], dtype=np.float32)
    cloud = Cloud(
        points=points,
        normals=np.full((4, 3), np.nan, dtype=np.float32),
        colours=np.zeros((4, 3), dtype=np.uint8),
        confidence=np.ones(4, dtype=np.float32),
        voxel=None,
    )
    write_ply(mapped / "cloud.ply", cloud, unit=Unit.MODEL)
    data = json.loads(page_of(mapped).data)
    assert numbers_in(data["cloud"]["positions"], "<f4").tolist() == [[0, 1, 2], [3, 4, 5]]
    assert not numbers_in(data["cloud"]["normals"], "i1").any()


def frame_at(index: int, place: Sequence[float], size: tuple[int, int] | None = None) -> TakeFrame:
    """Looks along z; with a size, its pixels are noise, which no picture format makes smaller."""
    random = np.random.default_rng(index)
    pose = torch.eye(4, dtype=torch.float64)
    pose[:3, 3] = torch.tensor(place, dtype=torch.float64)
    return TakeFrame(
        index=index,
        timestamp_s=float(index),
        world_from_camera=pose,
        intrinsics=torch.eye(3, dtype=torch.float64),
        image=None if size is None else random.integers(0, 256, size=(*size, 3), dtype=np.uint8),
        depth=None if size is None else random.uniform(1, 9, size=size).astype(np.float32),
        status=list(FrameStatus)[index % 5].value,
        window=index,
    )


def write_take(folder: Path, frames: Sequence[TakeFrame], header: TakeHeader | None = None) -> Path:
    bare = TakeHeader(content=Content.RESULT, width=200, height=200, unit=Unit.METRE)
    with TakeWriter(folder, header or bare) as writer:
        for frame in frames:
            writer.write(frame)
    return folder


def way_in_plan(page: Page) -> np.ndarray:
    """Columns and rows."""
    pieces = [piece["points"] or "" for piece in page.classed("way")]
    return np.array([[float(number) for number in place.split(",")] for piece in pieces for place in piece.split()])


def test_plan_shows_forward_up_and_right_to_the_right_in_one_scale(tmp_path: Path) -> None:
    places = [(0.0, 0.0, 0.0), (0.0, -7.0, 2.0), (4.0, 0.0, 2.0)]
    page = page_of(write_take(tmp_path / "map", [frame_at(index, place) for index, place in enumerate(places)]))
    first, second, _, third = way_in_plan(page)
    np.testing.assert_allclose(second - first, (0, -320), atol=0.2)
    np.testing.assert_allclose(third - second, (640, 0), atol=0.2)
    assert "0.5 m" in page.said


def test_plan_is_the_same_however_the_world_is_turned(tmp_path: Path, mapped: Path) -> None:
    """Above is where the cameras say, not where an axis of the world points."""
    take = read_take(mapped)
    poses = take.trajectory.world_from_camera
    turn = torch.linalg.qr(torch.randn(3, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)).Q
    world = torch.eye(4, dtype=torch.float64)
    world[:3, :3] = turn * torch.linalg.det(turn)
    turned = [replace(frame_at(index, (0, 0, 0)), world_from_camera=pose) for index, pose in enumerate(world @ poses)]
    found = way_in_plan(page_of(write_take(tmp_path / "turned", turned)))
    np.testing.assert_allclose(found, way_in_plan(page_of(mapped)), atol=0.2)


@pytest.mark.parametrize("far", [0.0, 1e-300, 1e300])
def test_way_of_any_length_is_drawn_with_finite_numbers(tmp_path: Path, far: float) -> None:
    page = page_of(write_take(tmp_path / "map", [frame_at(0, (0, 0, -far)), frame_at(1, (0, far, far))]))
    assert np.isfinite(way_in_plan(page)).all()
    assert json.loads(page.data)["radius"] > 0


def test_truth_whose_images_are_a_video_is_shown_with_them(tmp_path: Path) -> None:
    header = TakeHeader(
        content=Content.TRUTH, width=32, height=24, unit=Unit.METRE, images=ImageFiles.VIDEO, depth=DepthFiles(0.001)
    )
    page = page_of(write_take(tmp_path / "map", [frame_at(n, (0, 0, n), (24, 32)) for n in range(15)], header))
    assert "ground truth" in page.said
    assert [(shot["src"] or "")[:15] for shot in page.named("img")] == ["data:image/jpeg", "data:image/png;"] * 12


def test_text_that_no_file_can_hold_is_replaced(mapped: Path) -> None:
    (mapped / "summary.json").write_text('{"source": "\\ud800.mp4", "deep": ' + '{"a": ' * 300 + "1" + "}" * 301)
    assert "?.mp4" in page_of(mapped).said


def test_page_of_noise_stays_small(tmp_path: Path) -> None:
    """The largest pictures there can be leave room for the largest of the rest."""
    size = (LARGEST_EDGE, LARGEST_EDGE)
    header = TakeHeader(
        content=Content.RESULT, width=size[1], height=size[0], images=ImageFiles.PNG, depth=DepthFiles(None)
    )
    frames = [frame_at(index, (0, 0, index), size) for index in range(MOST_STRIPS)]
    page = page_of(write_take(tmp_path / "map", frames, header))
    assert len(page.named("img")) == 2 * MOST_STRIPS
    assert len(page.text.encode()) < 0.45 * LARGEST_PAGE


@pytest.mark.extra
def test_page_of_a_long_video_stays_small(tmp_path: Path) -> None:
    count, num_points = 2600, MOST_CLOUD_POINTS + 5000
    random = np.random.default_rng(3)
    places = random.normal(size=(count, 3)).tolist()
    folder = write_take(tmp_path / "map", [frame_at(index, place) for index, place in enumerate(places)])
    cloud = Cloud(
        points=random.normal(size=(num_points, 3)).astype(np.float32),
        normals=random.normal(size=(num_points, 3)).astype(np.float32),
        colours=random.integers(0, 256, size=(num_points, 3), dtype=np.uint8),
        confidence=np.ones(num_points, dtype=np.float32),
        voxel=None,
    )
    write_ply(folder / "cloud.ply", cloud, unit=Unit.METRE)
    events = ({"index": count + n, "timestamp_s": 1.0, "problem": "x" * 5000} for n in range(300))
    write_lines(folder / "events.jsonl", *events)
    rows = ({"index": n, "seconds": n * 0.1 + 0.1, "resident_bytes": 5 + n} for n in range(count))
    write_lines(folder / "progress.jsonl", *rows)
    page = page_of(folder)
    data = json.loads(page.data)
    chosen = {tuple(point) for point in numbers_in(data["cloud"]["positions"], "<f4").tolist()}
    assert data["cloud"]["count"] == MOST_CLOUD_POINTS == len(chosen)
    assert chosen <= {tuple(point) for point in cloud.points.tolist()}
    assert len(data["trajectory"]["indices"]) == MOST_POINTS
    assert data["trajectory"]["indices"][:: MOST_POINTS - 1] == [0, count - 1]
    assert len(page.text.encode()) < 0.55 * LARGEST_PAGE


EXPORT = {
    "result": "map",
    "frames": 9,
    "files": {"ply": "map/export/cloud.ply", "colmap": "map/export/<b>colmap"},
    "unit": "m",
    "scale_from": "distance:0,57=2.4m",
    "metres_per_unit": 0.125,
    "intrinsics": [500.0, 501.0, 319.5, 239.5],
    "fixed_camera": True,
    "up": "auto",
    "floor_share": 0.4,
    "exported_from_saved": [],
    "notes": [],
}


def write_record(folder: Path, **changes: object) -> None:
    (folder / "export").mkdir(exist_ok=True)
    (folder / "export" / "export.json").write_text(json.dumps(EXPORT | changes))


def test_what_was_exported_is_told_with_its_scale_camera_and_up(mapped: Path) -> None:
    write_record(mapped)
    said = page_of(mapped).said
    assert "In the folder export: cloud.ply, <b>colmap." in said
    assert "Lengths are in metres, 0.125 m for each unit here, from distance:0,57=2.4m." in said
    assert "one camera, the median of what the network found: fx, fy, cx, cy of 500, 501, 319.5, 239.5" in said
    assert "The floor, 40% of all surfaces, is level and at y = 0." in said


def test_an_export_without_wishes_is_told_as_such(mapped: Path) -> None:
    plain = {"unit": "model", "scale_from": None, "metres_per_unit": None, "intrinsics": None, "fixed_camera": False}
    write_record(mapped, **plain, up="none", floor_share=None)
    said = page_of(mapped).said
    assert "Lengths are in the model's own unit." in said
    assert "Each frame has the camera that the network found for it." in said
    assert "The world is as it was mapped." in said
    write_record(mapped, **plain, up="auto", floor_share=None)
    assert "No floor was found convincingly, so that the world is as it was mapped." in page_of(mapped).said


def test_without_an_export_nothing_is_said_of_it(mapped: Path) -> None:
    page = page_of(mapped)
    assert all(attributes.get("id") != "export-heading" for attributes in page.named("h2"))


def test_a_damaged_record_of_an_export_is_a_problem_and_not_the_end(mapped: Path) -> None:
    write_record(mapped, metres_per_unit="many")
    assert "'metres_per_unit' in" in page_of(mapped).said
