"""What a model knows, computed in miniature: a file beside the weights, a limit that its own houses stay below."""

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from benchmarks.familiarity import WorldClip, describe_clip, familiarity, filmed, learn, limited, unlikeness
from benchmarks.video_clips import video_clips
from longtake.errors import SettingError
from longtake.geometry.model import GeometryModel
from longtake.hub.load import random_model
from longtake.video.resize import Preprocessor
from longtake.weights.familiarity import CLIP_FRAMES, SUFFIX, Familiarity, read_familiarity
from longtake.weights.load import save_geometry
from longtake.weights.presets import TINY
from longtake.world.families import Family

SMALL = replace(TINY, sizes=((42, 56), (56, 42)))


@pytest.fixture(scope="module")
def model() -> GeometryModel:
    return random_model(SMALL, torch.device("cpu"))


def test_nineteen_of_twenty_unseen_houses_are_accepted_in_every_size(model: GeometryModel) -> None:
    asked: list[WorldClip] = []

    def describe(clips: Sequence[WorldClip]) -> list[torch.Tensor]:
        asked.extend(clips)
        return [describe_clip(model, clip) for clip in clips]

    assert SMALL.sizes is not None
    found = learn(describe, SMALL.sizes, [Family.HOUSE, Family.CLUTTER], num_worlds=2, num_houses=10)
    assert len(set(asked)) == len(asked) == 2 * (2 * 2 + 2 * 10)
    assert found.mean.shape == (2, TINY.width)
    houses = [clip for seed in range(8, 108, 10) for clip in video_clips(model, f"world:{seed}?frames=48&size=56x42")]
    accepted = [found.unlikeness(float(found.distances(clip).mean())) <= 1 for clip in houses]
    assert sum(accepted) >= 7


def test_the_limit_is_halfway_between_most_that_is_known_and_most_that_is_not() -> None:
    """By ratio; twenty clips of each whose distances are known, of which one may be on the other side."""
    known = Familiarity.of([torch.randn(64, 8, generator=torch.Generator().manual_seed(0))])
    far = known.mean + 10 * known.rest.sqrt() * torch.eye(8)[:1]
    away = float(known.distances(far))
    clips = [known.mean + (far - known.mean) * share / away for share in (*[1.0] * 20, 9.0, *[4.0] * 20, 0.1)]
    found = limited(known, clips[:21], clips[21:])
    assert found.limit == pytest.approx(math.sqrt(1.0 * 4.0), rel=0.2)
    distances = [float(known.distances(clip)) for clip in clips]
    assert sum(one <= found.limit for one in distances[:21]) == 20
    assert sum(one > found.limit for one in distances[21:]) == 20
    assert limited(known, clips[21:41], clips[:20]).limit == pytest.approx(4.0, rel=0.01)


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


def test_two_processes_learn_and_say_the_same_as_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "model.safetensors"
    save_geometry(random_model(replace(SMALL, sizes=((42, 56),)), torch.device("cpu")), path)
    learnt, said = [], []
    for processes in (1, 2):
        familiarity(path, worlds=2, houses=3, processes=processes)
        learnt.append(path.with_suffix(SUFFIX).read_bytes())
        capsys.readouterr()
        unlikeness(model=str(path), worlds=1, processes=processes, as_json=True)
        said.append(capsys.readouterr().out)
    assert learnt[0] == learnt[1]
    assert said[0] == said[1]


@pytest.mark.parametrize("way", [0, 1])
def test_clips_are_scaled_as_those_of_a_session(model: GeometryModel, way: int) -> None:
    """But for what rounding differs by between Pillow and torch."""
    clip = WorldClip(family=Family.HOUSE, seed=9, size=(42, 56), way=way)
    prepare = Preprocessor(size=56, sizes=((42, 56), (56, 42)))
    frames = filmed(clip.family, clip.seed, clip.size, clip.way)
    pixels = torch.stack([prepare(image).pixels for image in frames])[None] / 255
    want = model.descriptor(model.encode(pixels, model.grid(*clip.size)))[0]
    assert torch.allclose(describe_clip(model, clip), want, atol=0.01 * float(want.std()))


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
