"""A resumed run goes on with the source and the files that it began with: what it took stays, others are refused."""

import json
import re
import shutil
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from longtake.errors import InputError, SettingError
from longtake.exports.poses import KITTI_NAME
from longtake.exports.report.folder import EVENTS_NAME
from longtake.exports.take import TakeSettings
from longtake.geometry.model import GeometryModel
from longtake.pipeline.checkpoint import CheckpointRule, Checkpoints
from longtake.pipeline.events import Saved
from longtake.pipeline.outputs import Outputs
from longtake.pipeline.video_map import MapSettings, map_video
from longtake.runtime.build import SMALL
from longtake.takes.header import FRAMES_NAME, HEADER_NAME, POSES_NAME
from longtake.video.folders import FollowedFolder, FollowSettings
from longtake.video.reading import Source
from longtake.video.source import open_source

SETTINGS = MapSettings(
    session=replace(SMALL, image_size=56, num_scale_frames=2),
    outputs=Outputs(take=TakeSettings(images=None, depth=None, confidence=False), formats=("kitti",)),
    checkpoints=CheckpointRule(3),
)
FOLLOWING = FollowSettings(poll_s=0.02, idle_s=20.0)


def write_pictures(folder: Path, numbers: Iterable[int], shade: int = 0) -> None:
    """Uncompressed, so that all have one size."""
    folder.mkdir(exist_ok=True)
    for number in numbers:
        pixels = np.full((42, 56, 3), 10 * number + shade, np.uint8)
        Image.fromarray(pixels).save(folder / f"{number:06d}.bmp")


def map_until_saved(source: Source, model: GeometryModel, out: Path) -> None:
    """Left at the first checkpoint, as a kill would."""
    run = map_video(source, model, out, SETTINGS)
    for event in run:
        if isinstance(event, Saved):
            break
    run.close()


def mapped_names(out: Path) -> list[str]:
    return [json.loads(line)["source_name"] for line in (out / FRAMES_NAME).read_text().splitlines()]


@pytest.fixture(scope="module")
def broken_off(tmp_path_factory: pytest.TempPathFactory, load_tiny: Callable[..., GeometryModel]) -> Path:
    """A folder with pictures, of which one cannot be read, and a run that was left at its first checkpoint."""
    folder = tmp_path_factory.mktemp("broken off")
    write_pictures(folder / "pictures", range(6))
    (folder / "pictures" / "000001.bmp").write_text("no picture")
    map_until_saved(open_source(str(folder / "pictures")), load_tiny(), folder / "out")
    return folder


def changed(path: Path) -> None:
    """Its first digit."""
    text = path.read_text()
    place = next(place for place, letter in enumerate(text) if letter.isdigit())
    path.write_text(text[:place] + str((int(text[place]) + 1) % 10) + text[place + 1 :])


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:20])


@pytest.mark.parametrize("name", [HEADER_NAME, FRAMES_NAME, POSES_NAME, KITTI_NAME, EVENTS_NAME])
@pytest.mark.parametrize("damage", [changed, cut, Path.unlink])
def test_files_that_are_not_as_the_run_left_them_are_refused_with_the_way_out(
    tiny_model: GeometryModel, tmp_path: Path, broken_off: Path, name: str, damage: Callable[[Path], None]
) -> None:
    out = tmp_path / "out"
    shutil.copytree(broken_off / "out", out)
    damage(out / name)
    before = sorted(path.name for path in out.iterdir())
    with pytest.raises(InputError, match=rf"{re.escape(name)}.*; start again with --overwrite \(overwrite=True\)\.$"):
        map_video(open_source(str(broken_off / "pictures")), tiny_model, out, SETTINGS, resume=True)
    assert sorted(path.name for path in out.iterdir()) == before


def test_a_damaged_session_of_a_checkpoint_is_refused_with_the_way_out(
    broken_off: Path, tiny_model: GeometryModel, tmp_path: Path
) -> None:
    out = shutil.copytree(broken_off / "out", tmp_path / "out")
    checkpoint = Checkpoints(out).newest()  # the session of the next may be there too, which nothing names yet
    assert checkpoint is not None
    damaged = bytearray(checkpoint.session.read_bytes())
    damaged[-1] ^= 1
    checkpoint.session.write_bytes(damaged)
    with pytest.raises(InputError, match=r"checksum is another.*; start again with --overwrite \(overwrite=True\)\.$"):
        map_video(open_source(str(broken_off / "pictures")), tiny_model, out, SETTINGS, resume=True)


def test_a_followed_folder_goes_on_after_the_pictures_it_took_in_the_order_it_took_them(
    tiny_model: GeometryModel, tmp_path: Path
) -> None:
    folder, out = tmp_path / "pictures", tmp_path / "out"
    write_pictures(folder, (0, 1, 3, 4))
    map_until_saved(FollowedFolder(folder, following=FOLLOWING), tiny_model, out)
    write_pictures(folder, (2, 5, 6))
    (folder / ".done").touch()
    list(map_video(FollowedFolder(folder, following=FOLLOWING), tiny_model, out, SETTINGS, resume=True))
    names = mapped_names(out)
    assert names[:3] == ["000000", "000001", "000003"]
    assert sorted(names) == [f"{number:06d}" for number in range(7)]


@pytest.mark.parametrize(("change", "said"), [("other", "they are others"), ("gone", "000001.bmp is gone")])
def test_a_followed_folder_whose_pictures_were_replaced_is_refused(
    tiny_model: GeometryModel, tmp_path: Path, change: str, said: str
) -> None:
    folder, out = tmp_path / "pictures", tmp_path / "out"
    write_pictures(folder, range(4))
    map_until_saved(FollowedFolder(folder, following=FOLLOWING), tiny_model, out)
    if change == "other":
        write_pictures(folder, range(4), shade=5)
    else:
        (folder / "000001.bmp").unlink()
    with pytest.raises(InputError, match=rf"that the run has taken already, but {said}; put them back, or start again"):
        map_video(FollowedFolder(folder, following=FOLLOWING), tiny_model, out, SETTINGS, resume=True)


def test_another_folder_of_as_many_pictures_is_not_gone_on_with(
    tiny_model: GeometryModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where it has the same relative name, seen from elsewhere; with the same pictures it is the same."""
    for name, shade in (("here", 0), ("there", 5)):
        (tmp_path / name).mkdir()
        write_pictures(tmp_path / name / "pictures", range(6), shade)
    monkeypatch.chdir(tmp_path / "here")
    map_until_saved(open_source("pictures"), tiny_model, tmp_path / "out")
    monkeypatch.chdir(tmp_path / "there")
    with pytest.raises(SettingError, match=r'other settings \(source\.contents "\w+", now "\w+"\)'):
        map_video(open_source("pictures"), tiny_model, tmp_path / "out", SETTINGS, resume=True)
    shutil.copytree(tmp_path / "here", tmp_path / "copy")
    monkeypatch.chdir(tmp_path / "copy")
    list(map_video(open_source("pictures"), tiny_model, tmp_path / "out", SETTINGS, resume=True))
    assert mapped_names(tmp_path / "out") == [f"{number:06d}" for number in range(6)]


def test_another_take_of_as_many_frames_is_not_gone_on_with(tiny_model: GeometryModel, tmp_path: Path) -> None:
    with_images = replace(SETTINGS, outputs=Outputs(formats=()))
    for name, shade in (("first", 0), ("second", 90)):
        write_pictures(tmp_path / name, range(6), shade)
        list(map_video(open_source(str(tmp_path / name)), tiny_model, tmp_path / f"take {name}", with_images))
    take = (tmp_path / "take first").rename(tmp_path / "take")
    map_until_saved(open_source(str(take)), tiny_model, tmp_path / "out")
    shutil.rmtree(take)
    (tmp_path / "take second").rename(take)
    with pytest.raises(SettingError, match=r"source\.contents"):
        map_video(open_source(str(take)), tiny_model, tmp_path / "out", SETTINGS, resume=True)
