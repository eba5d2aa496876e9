"""`locate`, `merge` and `map --continue` as users meet them, on walks through one house by the network."""

import errno
import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from done import Done
from PIL import Image

import longtake
from longtake.cli.main import main
from longtake.cli.program import UNKNOWN_PLACE
from longtake.errors import InputError, LongtakeError, SettingError
from longtake.evaluation.motion import rotation_angle_deg
from longtake.pipeline import continuing
from longtake.spatial.similarity import best_similarity
from longtake.takes.frames import TakeFrame
from longtake.takes.header import Network, read_header
from longtake.takes.writer import TakeWriter
from longtake.world.tour import Tour

SEED = 9
SIZE = {"width": 126, "height": 98}
WORLD = f"world:{SEED}?frames=64&size=126x98"
FORMATS = "tum,depth,confidence,images"


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every other frame of a walk, 0 to 62."""
    out = tmp_path_factory.mktemp("places") / "first"
    longtake.map(WORLD, out, stride=2, format=FORMATS)
    return out


@pytest.fixture(scope="module")
def second(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The frames between, from 25 to 63, in a world and a unit of their own."""
    out = tmp_path_factory.mktemp("places") / "second"
    longtake.map(WORLD, out, start=2.5, stride=2, format=FORMATS)
    return out


@pytest.fixture(scope="module")
def strange(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("places") / "strange"
    longtake.map("world:19?frames=20&size=126x98", out, format=FORMATS)
    return out


@pytest.fixture
def say(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    def run(*arguments: str | Path) -> Done:
        monkeypatch.setattr(sys, "argv", ["longtake", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        return Done(int(ended.value.code or 0), said.out, said.err)

    return run


def true_cameras() -> torch.Tensor:
    return Tour(seed=SEED, **SIZE).cameras(64)


def picture(path: Path, frame: int, seed: int = SEED, **size: int) -> Path:
    (view,) = Tour(seed=seed, **(size or SIZE)).views_at([frame])
    Image.fromarray((view.image.movedim(0, -1) * 255).round().byte().numpy()).save(path)
    return path


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def with_header(folder: Path, copy: Path, **changes: object) -> Path:
    shutil.copytree(folder, copy)
    (copy / "take.json").write_text(replace(read_header(copy), **changes).to_json())  # type: ignore[arg-type]
    return copy


def test_a_picture_is_located_where_it_was_taken(first: Path, tmp_path: Path) -> None:
    before = contents(first)
    found = longtake.locate(first, picture(tmp_path / "photo.png", 41))
    assert found is not None
    take, truth = longtake.open_take(first), true_cameras()
    metres_from_unit = best_similarity(take.trajectory.world_from_camera[:, :3, 3].contiguous(), truth[::2, :3, 3])
    camera = metres_from_unit.of_cameras(found.world_from_camera)
    assert float((camera[:3, 3] - truth[41, :3, 3]).norm()) < 0.3
    assert float(rotation_angle_deg(camera[:3, :3].T @ truth[41, :3, :3])) < 6
    assert 0.5 < found.confidence <= 1
    assert found.num_points >= 51
    assert contents(first) == before


def test_a_model_that_is_loaded_locates_the_same_from_pixels(first: Path, tmp_path: Path) -> None:
    path = picture(tmp_path / "photo.png", 41)
    by_name = longtake.locate(first, path)
    loaded = longtake.load_model("micro-map", device="cpu")
    by_model = longtake.locate(longtake.open_take(first), np.asarray(Image.open(path)), model=loaded, device="cpu")
    assert by_name is not None
    assert by_model is not None
    assert torch.equal(by_name.world_from_camera, by_model.world_from_camera)


def test_the_command_says_where_and_what_it_does_not_know(
    first: Path, tmp_path: Path, say: Callable[..., Done]
) -> None:
    known, unknown = picture(tmp_path / "known.png", 41), picture(tmp_path / "unknown.png", 5, seed=19)
    done = say("locate", first, known, unknown, "--json")
    assert done.returncode == UNKNOWN_PLACE
    one, other = json.loads(done.stdout)["pictures"]
    assert (one["is_known"], other) == (True, {"picture": str(unknown), "is_known": False})
    assert np.array(one["world_from_camera"]).shape == (4, 4)
    done = say("locate", first, unknown)
    assert (done.returncode, done.stderr) == (UNKNOWN_PLACE, "")
    assert "does not know the place" in done.stdout
    assert say("locate", first, known).returncode == 0


def parted(folder: Path, copy: Path) -> Path:
    """As if the camera had been lost with frame 19, and nothing had joined what came after."""
    shutil.copytree(folder, copy)
    lines = [json.loads(line) for line in (copy / "frames.jsonl").read_text().splitlines()]
    lines[19]["tracking"] = {"state": "lost", "reason": "cut", "sub_map": None}
    for line in lines[20:]:
        line["tracking"]["sub_map"] = 1
    (copy / "frames.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    summary = json.loads((copy / "summary.json").read_text())
    summary["tracking"] |= {"num_sub_maps": 2, "apart": [1]}
    (copy / "summary.json").write_text(json.dumps(summary))
    return copy


def test_no_place_is_known_by_frames_that_are_lost_or_lie_apart(
    first: Path, second: Path, strange: Path, tmp_path: Path
) -> None:
    """Where such frames lie says nothing of the world of the others."""
    lost = parted(first, tmp_path / "lost")
    photo = picture(tmp_path / "photo.png", 41)  # between frames 20 and 21
    whole, found = longtake.locate(first, photo), longtake.locate(lost, photo)
    assert whole is not None
    assert whole.frame > 19
    assert found is None or found.frame < 19
    merged = longtake.merge(lost, second, tmp_path / "both")
    tracking = json.loads((merged.folder / "merge.json").read_text())["tracking"]
    assert (tracking["apart"], tracking["frames_apart"]) == ([1], 12)
    other = longtake.merge(second, lost, tmp_path / "other way").folder
    tracking = json.loads((other / "merge.json").read_text())["tracking"]
    assert (tracking["apart"], tracking["frames_apart"]) == ([2], 12)
    again = longtake.locate(merged, photo)
    assert again is None or not 19 <= again.frame < 32
    with pytest.raises(InputError, match=r"no two frames of .* show what .* knows"):
        longtake.merge(parted(strange, tmp_path / "strange"), lost, tmp_path / "other")


def test_two_takes_become_one_in_the_world_of_the_first(first: Path, second: Path, tmp_path: Path) -> None:
    before = contents(first), contents(second)
    both = longtake.merge(first, second, tmp_path / "both")
    assert (contents(first), contents(second)) == before
    old, new = longtake.open_take(first), longtake.open_take(second)
    assert len(both) == len(old) + len(new)
    indices = [record.index for record in both.records]
    assert indices == [*range(len(old)), *range(len(old), len(old) + len(new))]
    truth = torch.cat([true_cameras()[::2], true_cameras()[25::2]])
    cameras = both.trajectory.world_from_camera
    moved = best_similarity(cameras[:, :3, 3].contiguous(), truth[:, :3, 3]).of_cameras(cameras)
    assert float((moved[:, :3, 3] - truth[:, :3, 3]).norm(dim=1).max()) < 0.3
    assert torch.allclose(cameras[0], old.trajectory.world_from_camera[0], atol=1e-9)
    assert [one is None for one in both.descriptors()] == [one is None for one in old.descriptors() + new.descriptors()]
    # depth of the second is in the unit of the first: both see the same walls
    ratio = np.median(both.depth(len(old))) / np.median(both.depth(12))  # frames 25 and 24
    assert ratio == pytest.approx(1, rel=0.15)
    assert (both.folder / "cloud.ply").exists()
    assert longtake.locate(both, picture(tmp_path / "photo.png", 41)) is not None
    assert '<span class="badge complete">merged</span>' in (both.folder / "report.html").read_text()


def test_the_picture_that_cannot_be_looked_for_is_named(first: Path, tmp_path: Path, say: Callable[..., Done]) -> None:
    known, wide = picture(tmp_path / "known.png", 41), picture(tmp_path / "wide.png", 41, width=160, height=90)
    done = say("locate", first, tmp_path / "none.png", known, wide)
    assert done.returncode == 1
    assert "wide.png cannot be looked for: Expected a picture of" in " ".join(done.stderr.split())
    assert "none.png cannot be looked for: " in " ".join(done.stderr.split())
    assert "known.png" in done.stdout  # which was found all the same
    records = json.loads(say("locate", first, tmp_path / "none.png", known, "--json").stdout)["pictures"]
    assert [one["is_known"] for one in records] == [None, True]
    assert "none.png" in records[0]["problem"]


def test_a_merge_is_the_same_to_the_byte(first: Path, second: Path, tmp_path: Path, say: Callable[..., Done]) -> None:
    longtake.merge(first, second, tmp_path / "one" / "both")
    done = say("merge", first, second, "--out", tmp_path / "other" / "both", "--json")
    assert done.returncode == 0
    said = json.loads(done.stdout)
    assert said["num_frames"] == [32, 20]
    assert said["num_places"] >= 2
    names = {"merge.json"}  # says where it lies
    one, other = (contents(tmp_path / name / "both") for name in ("one", "other"))
    assert {name: one[name] for name in one.keys() - names} == {name: other[name] for name in other.keys() - names}


@pytest.mark.parametrize("number", [0, 25, 40])
def test_a_merge_that_fails_half_way_leaves_nothing(first: Path, second: Path, tmp_path: Path, number: int) -> None:
    """The disk is full with one of its frames, or one of theirs is gone; a folder that was there is empty again."""
    out = tmp_path / "both"
    out.mkdir()
    damaged = shutil.copytree(first, tmp_path / "damaged")
    passing = [place for place, one in enumerate(longtake.open_take(first).descriptors()) if one is None]
    (damaged / "depth" / f"{passing[-1]:06d}.png").unlink()
    with pytest.raises(InputError, match="but it is missing"):
        longtake.merge(damaged, second, out)
    wrote = TakeWriter.write_pixels

    def full(writer: TakeWriter, frame: TakeFrame) -> int:
        if frame.index == number:
            raise OSError(errno.ENOSPC, "No space left on device")
        return wrote(writer, frame)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TakeWriter, "write_pixels", full)
        with pytest.raises((LongtakeError, OSError), match="No space left"):
            longtake.merge(first, second, out)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["both", "damaged"]
    assert not any(out.iterdir())
    assert len(longtake.merge(first, second, out)) == 52


def test_results_that_are_merged_or_continued_stay_as_they_are(first: Path, second: Path) -> None:
    """Not even a folder within them is written."""
    before = contents(first)
    for out in (first / "both", first / "images" / "both"):
        with pytest.raises(InputError, match=r"Expected a folder outside of .*first"):
            longtake.merge(second, first, out)
        with pytest.raises(SettingError, match=r"Expected a folder outside of .*first"):
            longtake.map(WORLD, out, continue_from=first, format=FORMATS)
    with pytest.raises(InputError, match=r"Expected two takes, but got .*first twice"):
        longtake.merge(first, first, first.parent / "both")
    assert contents(first) == before
    assert not (first.parent / "both").exists()


def test_takes_are_not_merged_into_the_folder_where_one_is(
    first: Path, second: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"Expected a folder beside or below .*, where you are"):
        longtake.merge(first, second, ".")
    assert not list(tmp_path.iterdir())


def test_a_place_that_can_be_no_folder_is_a_sentence(first: Path, second: Path, tmp_path: Path) -> None:
    circle = tmp_path / "circle"
    circle.symlink_to(circle)
    for out in (circle, tmp_path / ("a" * 250), tmp_path / ("a" * 300)):
        with pytest.raises(InputError, match=r"names no place \(.*\); name another\."):
            longtake.merge(first, second, out)
    with pytest.raises(InputError, match=r"names no place"):
        longtake.map(WORLD, circle, continue_from=first, format=FORMATS)


def test_a_merge_whose_record_was_changed_is_no_place_to_be_known_by(first: Path, second: Path, tmp_path: Path) -> None:
    merged = longtake.merge(first, second, tmp_path / "both").folder
    record = json.loads((merged / "merge.json").read_text())
    record["tracking"]["apart"] = [0]
    (merged / "merge.json").write_text(json.dumps(record))
    with pytest.raises(InputError, match=r"merge\.json was damaged or changed"):
        longtake.locate(merged, picture(tmp_path / "photo.png", 41))


def test_what_a_killed_merge_left_is_not_taken_for_a_result(first: Path, second: Path, tmp_path: Path) -> None:
    left = tmp_path / "both.unfinished"
    left.mkdir()
    with pytest.raises(InputError, match=r"Expected no .*both\.unfinished, which a run that was killed leaves"):
        longtake.merge(first, second, tmp_path / "both")
    assert list(tmp_path.iterdir()) == [left]


def test_takes_that_share_nothing_are_not_merged(first: Path, strange: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no two frames of .* show what .* knows"):
        longtake.merge(first, strange, tmp_path / "both")
    assert not (tmp_path / "both").exists()


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"num_frames": None}, "Expected a finished take .* broken off"),
        ({"descriptor_channels": None}, "the take has no descriptors; name a result of longtake map"),
        ({"network": None}, "which model made it, but it does not"),
        ({"images": None}, "it has no images"),
        ({"depth": None}, "it has no depth"),
        ({"network": Network("micro-map", "0" * 16)}, "other weights"),
    ],
)
def test_takes_whose_places_cannot_be_known_are_refused(
    first: Path, second: Path, tmp_path: Path, changes: dict[str, object], sentence: str
) -> None:
    wrong = with_header(first, tmp_path / "wrong", **changes)
    before = contents(wrong)
    with pytest.raises(InputError, match=sentence):
        longtake.merge(wrong, second, tmp_path / "both")
    with pytest.raises(InputError, match=sentence):
        longtake.locate(wrong, picture(tmp_path / "photo.png", 41))
    assert contents(wrong) == before
    assert not (tmp_path / "both").exists()


def test_a_take_that_lost_lines_or_was_broken_off_is_refused(first: Path, second: Path, tmp_path: Path) -> None:
    damaged, photo = shutil.copytree(first, tmp_path / "damaged"), picture(tmp_path / "photo.png", 41)
    lines = (damaged / "descriptors.txt").read_bytes().splitlines(keepends=True)
    (damaged / "descriptors.txt").write_bytes(b"".join(lines[:-3]))
    with pytest.raises(InputError, match=r"Expected 32 lines in .*descriptors\.txt, but it has 29"):
        longtake.merge(second, damaged, tmp_path / "both")
    (damaged / "descriptors.txt").write_bytes(b"".join([*lines, lines[-1]]))
    with pytest.raises(InputError, match=r"Expected 32 lines in .*descriptors\.txt, but it has 33"):
        longtake.merge(second, damaged, tmp_path / "both")
    stopped = shutil.copytree(first, tmp_path / "stopped")
    summary = json.loads((stopped / "summary.json").read_text())
    (stopped / "summary.json").write_text(json.dumps(summary | {"is_complete": False}))
    with pytest.raises(InputError, match="Expected a finished take"):
        longtake.merge(second, stopped, tmp_path / "both")
    (stopped / "summary.json").unlink()  # the last thing that a run writes, also of one that continues another
    for use in (lambda: longtake.merge(second, stopped, tmp_path / "both"), lambda: longtake.locate(stopped, photo)):
        with pytest.raises(InputError, match="Expected a finished take"):
            use()
    with pytest.raises(InputError, match="Expected a new or empty folder"):
        longtake.merge(first, second, first)
    assert not (tmp_path / "both").exists()


def test_a_model_without_a_card_of_places_is_refused(first: Path, second: Path, tmp_path: Path) -> None:
    wrong = with_header(first, tmp_path / "wrong", network=Network("tiny", "0" * 16))
    with pytest.raises(InputError, match="Expected a card of tiny"):
        longtake.locate(wrong, picture(tmp_path / "photo.png", 41))
    with pytest.raises(InputError, match="Expected a card of tiny"):
        longtake.merge(wrong, second, tmp_path / "both")
    with pytest.raises(InputError, match="Expected two takes of one model"):
        longtake.merge(second, wrong, tmp_path / "both")


def test_pictures_that_cannot_be_read_or_are_of_another_camera_are_refused(
    first: Path, tmp_path: Path, say: Callable[..., Done]
) -> None:
    (tmp_path / "torn.jpg").write_bytes(b"\xff\xd8\xff no picture")
    done = say("locate", first, tmp_path / "torn.jpg")
    assert done.returncode == 1
    assert "Expected a picture at" in done.stderr
    with pytest.raises(InputError, match="in the shape of 126x98, but got 160x90"):
        longtake.locate(first, picture(tmp_path / "wide.png", 41, width=160, height=90))
    with Image.open(picture(tmp_path / "large.png", 35, width=504, height=392)) as photo:
        zoomed, plain = photo.crop((84, 65, 420, 327)), photo.resize((126, 98))  # the middle two thirds, and the whole
    with pytest.raises(InputError, match=r"fits one of about .*with the same camera and zoom"):
        longtake.locate(first, np.asarray(zoomed))
    assert longtake.locate(first, np.asarray(plain)) is not None


def test_a_take_in_the_videos_pixels_locates_no_picture(first: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="Expected a take in the network's pixels"):
        longtake.locate(with_header(first, tmp_path / "wrong", source=None), picture(tmp_path / "photo.png", 41))


def test_a_video_goes_on_in_the_world_of_an_earlier_one(first: Path, second: Path, tmp_path: Path) -> None:
    before = contents(first)
    take = longtake.map(WORLD, tmp_path / "on", start=2.5, stride=2, format=f"{FORMATS},ply", continue_from=first)
    assert contents(first) == before
    assert take.summary is not None
    continued = take.summary["continued"]
    assert continued["is_known"]
    assert continued["known_at_frame"] < 15
    assert any("goes on in the world of" in note for note in take.summary["notes"])
    assert any("degrees of the place it was known by (what that map" in note for note in take.summary["notes"])
    old, truth = longtake.open_take(first), true_cameras()
    metres_from_unit = best_similarity(old.trajectory.world_from_camera[:, :3, 3].contiguous(), truth[::2, :3, 3])
    cameras = metres_from_unit.of_cameras(take.trajectory.world_from_camera)
    assert float((cameras[:, :3, 3] - truth[25::2, :3, 3]).norm(dim=1).max()) < 0.3
    turned_deg = rotation_angle_deg(cameras[:, :3, :3].transpose(1, 2) @ truth[25::2, :3, :3])
    assert (
        float(turned_deg[: 1 + continued["known_at_frame"]].max()) < 6
    )  # as it is located; from there on the map's own
    assert float(turned_deg.median()) < 6
    assert float(turned_deg.max()) < 10
    # what was said while it ran is what is said without an earlier take
    assert (take.folder / "poses_online.tum").read_bytes() == (second / "poses.tum").read_bytes()
    ratio = np.median(take.depth(0)) / np.median(old.depth(12))  # frames 25 and 24
    assert ratio == pytest.approx(1, rel=0.15)


def test_a_strange_place_is_never_claimed_and_the_map_is_as_without(first: Path, strange: Path, tmp_path: Path) -> None:
    take = longtake.map("world:19?frames=20&size=126x98", tmp_path / "on", format=FORMATS, continue_from=first)
    assert take.summary is not None
    assert take.summary["continued"] == {"take": str(first), "is_known": False}
    assert any("does not know the place" in note for note in take.summary["notes"])
    assert (take.folder / "poses.tum").read_bytes() == (strange / "poses.tum").read_bytes()


def test_broken_off_while_it_looks_for_its_way_it_goes_on_to_the_same_bytes(
    first: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mapped(out: Path, *, resume: bool = False, earlier: Path = first) -> longtake.Take:
        return longtake.map(
            WORLD,
            out,
            start=2.5,
            stride=2,
            format=FORMATS,
            checkpoint_every=8,
            continue_from=earlier,
            resume=resume,
        )

    unbroken = mapped(tmp_path / "unbroken")
    with monkeypatch.context() as patch:
        patch.setattr(continuing, "find_way", Mock(side_effect=RuntimeError("the power is gone")))
        with pytest.raises(RuntimeError, match="the power is gone"):
            mapped(tmp_path / "broken")
    other = shutil.copytree(first, tmp_path / "other")
    with pytest.raises(SettingError, match="begun with other settings"):
        mapped(tmp_path / "broken", resume=True, earlier=other)
    resumed = mapped(tmp_path / "broken", resume=True)
    require_same_way(unbroken.folder, resumed.folder)


def require_same_way(one: Path, other: Path) -> None:
    """All files but what was told of times, and the same word on where it went on."""
    timed = {"summary.json", "progress.jsonl", "report.html"}
    first, second = contents(one), contents(other)
    assert {name: first[name] for name in first.keys() - timed} == {
        name: second[name] for name in second.keys() - timed
    }
    said, again = (json.loads((folder / "summary.json").read_text()) for folder in (one, other))
    for name in ("continued", "tracking", "statuses", "num_keyframes", "notes"):
        assert said[name] == again[name], name


@pytest.mark.by_hand
@pytest.mark.timeout(600)
@pytest.mark.parametrize("after", [8, 16, 20])
def test_killed_on_its_way_it_goes_on_to_the_same_bytes(first: Path, tmp_path: Path, after: int) -> None:
    """The command itself, by kill -9: soon after it has saved so many frames, and while it looks for its way."""
    walk = [WORLD, "--start", "2.5", "--stride", "2", "--format", FORMATS, "--checkpoint-every", "4"]
    program = [sys.executable, "-m", "longtake", "map", *walk, "--continue", str(first), "--json", "--out"]
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    subprocess.run([*program, str(whole)], check=True, capture_output=True)
    with subprocess.Popen([*program, str(cut)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            event = json.loads(line)
            if event["event"] == "saved" and event["num_frames"] >= after:
                process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    subprocess.run([*program, str(cut), "--resume"], check=True, capture_output=True)
    assert json.loads((whole / "summary.json").read_text())["continued"]["is_known"]
    require_same_way(whole, cut)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"model": "tiny", "size": 126}, "Expected the model that made .*, micro-map, but got another"),
        ({"format": "tum,depth"}, "Expected images and depth in the model's pixels"),
        ({"source": "world:9?frames=4&size=160x90"}, "Expected a video of the camera of .* 126x98 pixels"),
        ({"out": "first"}, "which is continued and stays"),
    ],
)
def test_what_could_not_go_on_is_refused_and_nothing_is_written(
    first: Path, tmp_path: Path, arguments: dict[str, Any], sentence: str
) -> None:
    before = contents(first)
    out = first if arguments.pop("out", None) else tmp_path / "on"
    source = arguments.pop("source", "world:9?frames=4&size=126x98")
    with pytest.raises(LongtakeError, match=sentence):
        longtake.map(source, out, continue_from=first, overwrite=True, **arguments)
    assert contents(first) == before
    assert not (tmp_path / "on").exists() or not contents(tmp_path / "on")


def test_an_unfinished_take_is_not_continued(first: Path, tmp_path: Path, say: Callable[..., Done]) -> None:
    wrong = with_header(first, tmp_path / "wrong", num_frames=None)
    done = say("map", WORLD, "--continue", wrong, "--out", tmp_path / "on")
    assert done.returncode == 1
    assert "Expected a finished take" in done.stderr
    assert not (tmp_path / "on").exists()
