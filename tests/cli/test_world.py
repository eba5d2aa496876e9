import json
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from longtake.cli.world import world
from longtake.errors import InputError, SettingError
from longtake.spatial.pinhole import unproject
from longtake.spatial.pose import invert_rigid
from longtake.takes.folder_lock import locked
from longtake.takes.take import read_take
from longtake.world.families import Family
from longtake.world.question import Question
from longtake.world.tour import Tour


def film(out: Path, *, as_json: bool = False, **changes: Any) -> None:
    world(**{"out": out, "seed": 9, "frames": 2, "size": "64x48", "questions": 0} | changes, as_json=as_json)


@pytest.fixture(scope="module")
def walk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("walks") / "walk"
    film(folder, frames=60, questions=12)
    return folder


def test_a_walk_reads_back_as_the_tour_it_was(walk: Path) -> None:
    take = read_take(walk)
    assert len(take) == 60
    tour = Tour(seed=9, width=64, height=48)
    for index, (view, image) in enumerate(zip(tour.views(), take.images(), strict=False)):
        assert torch.allclose(take.trajectory.world_from_camera[index], view.world_from_camera, rtol=0, atol=1e-12)
        assert torch.allclose(take.intrinsics[index].float(), view.intrinsics)
        assert (torch.as_tensor(take.depth(index)) - view.depth).abs().max() <= take.header.depth.step / 2 + 1e-6
        assert (torch.as_tensor(image).float() - view.image.movedim(0, -1) * 255).abs().median() < 4
        visible = {seen.thing: seen.pixels for seen in take.records[index].visible}
        house = tour.house()
        assert visible == {house.things[k].name: int(n) for k, n in enumerate(view.pixels) if n > 0}
        if index == 20:
            break


def test_points_of_one_written_frame_land_on_those_of_another(walk: Path) -> None:
    """The depth of 16 bits and the poses on disk are enough for a fifth of a pixel."""
    take = read_take(walk)
    poses, intrinsics = take.trajectory.world_from_camera, take.intrinsics.double()
    i, j = 10, 14
    points = unproject(torch.as_tensor(take.depth(i)).double(), intrinsics[i], poses[i]).flatten(0, 1)
    other = invert_rigid(poses[j])
    seen = points @ other[:3, :3].T + other[:3, 3]
    pixels = seen @ intrinsics[j].T
    u, v = pixels[:, 0] / seen[:, 2], pixels[:, 1] / seen[:, 2]
    tour = Tour(seed=9, width=64, height=48)
    exact = [view for view, _ in zip(tour.views(), range(i + 1), strict=False)][i]
    true = unproject(exact.depth.double(), intrinsics[i], poses[i]).flatten(0, 1) @ other[:3, :3].T + other[:3, 3]
    true_pixels = true @ intrinsics[j].T
    inside = (true[:, 2] > 0.1) & (true_pixels[:, 0] / true[:, 2] > 0) & (true_pixels[:, 0] / true[:, 2] < 63)
    apart = torch.hypot(u - true_pixels[:, 0] / true[:, 2], v - true_pixels[:, 1] / true[:, 2])
    assert inside.double().mean() > 0.5
    assert apart[inside].max() < 0.2


def test_the_world_and_its_questions_are_written_as_json(walk: Path) -> None:
    header = json.loads((walk / "take.json").read_text())
    assert header["world"]["seed"] == 9
    assert header["world"]["split"] == "test"
    assert {"name", "colour", "kind", "room"} == set(header["world"]["things"][0])
    questions = [Question.from_json(fields) for fields in json.loads((walk / "questions.json").read_text())]
    assert 0 < len(questions) <= 12
    assert all(question.answer in question.choices for question in questions)
    assert all(max(question.evidence, default=0) <= question.frame < 60 for question in questions)


def test_a_sheet_shows_a_dozen_frames(walk: Path) -> None:
    with Image.open(walk / "sheet.png") as sheet:
        assert sheet.size == (4 * 64, 3 * 48)


def test_images_and_npz_depth_are_written_on_demand(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "walk"
    film(out, images="png", depth="npz", frames=3, size="33x25", as_json=True)
    assert json.loads(capsys.readouterr().out)["frames"] == 3
    assert len(list((out / "images").iterdir())) == len(list((out / "depth").iterdir())) == len(read_take(out)) == 3
    assert not (out / "questions.json").exists()


@pytest.mark.parametrize(
    ("changes", "kind", "sentence"),
    [
        ({"depth": "exr"}, SettingError, "Expected depth as png, npz, none, but got 'exr'"),
        ({"images": "gif"}, SettingError, "Expected images as mp4, png, jpg, but got 'gif'"),
        ({"size": "big"}, SettingError, "Expected a size such as"),
        ({"fps": 0.0}, SettingError, "Expected more than 0 frames a second"),
        ({"size": "33x25"}, SettingError, "even"),
        ({"device": "toaster"}, SettingError, "no device 'toaster'"),
    ],
)
def test_what_cannot_be_filmed_is_said_in_a_sentence(
    changes: dict[str, Any], kind: type[Exception], sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(kind, match=sentence):
        film(tmp_path / "walk", **changes)
    assert not (tmp_path / "walk").exists()


def test_a_take_that_is_there_is_replaced_only_when_asked(tmp_path: Path) -> None:
    out = tmp_path / "walk"
    film(out)
    with pytest.raises(InputError, match=r"holds a take already; name another folder, or replace it with --overwrite"):
        film(out)
    with locked(out), pytest.raises(InputError, match="Another run is writing to"):
        film(out, overwrite=True)
    film(out, frames=1, overwrite=True)
    assert len(read_take(out)) == 1


def test_another_family_is_filmed_without_names_or_questions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "street"
    film(out, family="outdoors", questions=None)
    assert "2 frames of outdoors 9 (test), in" in capsys.readouterr().out
    take = read_take(out)
    assert take.header.world == {"seed": 9, "family": "outdoors", "split": "test"}
    assert take.records[0].room is None
    assert not (out / "questions.json").exists()
    view = next(Tour(seed=9, width=64, height=48, family=Family.OUTDOORS).views())
    depth = torch.as_tensor(take.depth(0))
    assert torch.equal(depth == 0, view.depth.isinf())
    assert (depth == 0).any()
    assert (depth - view.depth)[depth > 0].abs().max() <= take.header.depth.step / 2 + 1e-4


def test_only_houses_can_be_asked_about(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="Only houses can be asked about, but the family is table"):
        film(tmp_path / "table", family="table", questions=3)
    with pytest.raises(SettingError, match="no family of worlds 'moon'"):
        film(tmp_path / "moon", family="moon")
