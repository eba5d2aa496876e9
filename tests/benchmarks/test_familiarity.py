"""What a model knows, computed in miniature: a file beside the weights, a limit that its own houses stay below."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from benchmarks.familiarity import familiarity, learn, unlikeness, video_clips
from longtake.errors import SettingError
from longtake.geometry.model import GeometryModel
from longtake.hub.load import random_model
from longtake.weights.familiarity import CLIP_FRAMES, read_familiarity
from longtake.weights.load import save_geometry
from longtake.weights.presets import TINY
from longtake.world.families import Family

SMALL = replace(TINY, sizes=((42, 56), (56, 42)))


@pytest.fixture(scope="module")
def model() -> GeometryModel:
    return random_model(SMALL, torch.device("cpu"))


def test_nineteen_of_twenty_unseen_houses_are_accepted_in_every_size(model: GeometryModel) -> None:
    ticks: list[int] = []
    found = learn(model, [Family.HOUSE, Family.CLUTTER], num_worlds=2, num_houses=10, progress=ticks.append)
    assert sum(ticks) == 2 * (2 * 2 + 10)
    assert found.mean.shape == (2, TINY.width)
    houses = [clip for seed in range(8, 108, 10) for clip in video_clips(model, f"world:{seed}?frames=48&size=56x42")]
    accepted = [found.unlikeness(float(found.distances(clip).mean())) <= 1 for clip in houses]
    assert sum(accepted) >= 7


def test_statistics_lie_beside_the_file_and_are_used(
    model: GeometryModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "model.safetensors"
    save_geometry(random_model(replace(SMALL, sizes=((42, 56),)), torch.device("cpu")), path)
    familiarity(path, worlds=2, houses=20)
    known = read_familiarity(path)
    assert known is not None
    assert f"limit {known.limit:.4f}" in capsys.readouterr().out
    unlikeness([f"world:9?frames={CLIP_FRAMES}&size=56x42"], model=str(path), worlds=1, as_json=True)
    rows = json.loads(capsys.readouterr().out)
    assert [row["clips"] for row in rows][:2] == ["table", "house"]
    assert rows[-1]["clips"] == "noise"
    assert all(0 <= row["accepted"] <= 1 for row in rows)


def test_the_held_out_family_and_a_model_without_statistics_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_geometry(random_model(TINY, torch.device("cpu")), path)
    with pytest.raises(SettingError, match="table is no part of training"):
        familiarity(path, family="all")
    with pytest.raises(SettingError, match="no statistics beside"):
        unlikeness(model=str(path))


def test_a_video_shorter_than_a_clip_is_one_and_the_rest_of_a_longer_one_none(model: GeometryModel) -> None:
    lengths = {20: 1, 50: 1, 7: 0, 96: 2}
    for num_frames, expected in lengths.items():
        assert len(list(video_clips(model, f"world:9?frames={num_frames}&size=28x21"))) == expected
