"""A whole training in miniature: it learns, is put away, goes on with other houses, and ends when it must."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from longtake.errors import InputError, SettingError
from longtake.geometry.model import GeometryModel
from longtake.weights.load import load_geometry, save_geometry
from longtake.weights.presets import MICRO, TINY
from longtake.world.seeds import Split, split_of
from training.checkpoint import is_training
from training.losses import PARTS
from training.micro_map import MicroMapTraining
from training.recipe import Recipe, Stage
from training.trainer import Fall, Piece


@pytest.fixture
def train(miniature: Recipe, tmp_path: Path, asked_seeds: list[int]) -> Callable[..., MicroMapTraining]:
    """Makes trainings of the miniature in one folder: the first is begun, the others take it up."""

    def make(
        tell: Any = lambda line: None, *, seconds: float = 1000.0, falls: Fall | None = None, **changes: Any
    ) -> MicroMapTraining:
        piece = Piece(folder=tmp_path, seconds=seconds, device=torch.device("cpu"), processes=1, falls=falls)
        return MicroMapTraining(replace(miniature, **changes), piece, tell, network=TINY)

    return make


def curve(folder: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (folder / "curve.jsonl").read_text().splitlines()]


@pytest.mark.extra
def test_a_miniature_is_trained_to_its_end(train: Callable[..., MicroMapTraining], tmp_path: Path) -> None:
    told: list[dict[str, float]] = []
    training = train(told.append)
    before = {name: weight.clone() for name, weight in training.model.state_dict().items()}
    assert not training.is_done
    training.run()
    assert training.is_done
    assert not training.is_stopped
    assert training.step == 8
    lines = curve(tmp_path)
    assert lines == told
    assert [line["step"] for line in lines] == [0, 1, 4, 8, 8]
    assert {"loss", *(f"loss_{part}" for part in PARTS)} <= lines[1].keys() == lines[3].keys()
    assert all({"path_error_8", "depth_error_8"} <= line.keys() for line in (lines[2], lines[4]))
    assert all(math.isfinite(value) for line in lines for value in line.values())
    unchanged = [name for name, weight in training.model.state_dict().items() if torch.equal(weight, before[name])]
    assert unchanged == []
    assert train().is_done


@pytest.mark.extra
def test_a_training_goes_on_where_it_was_put_away_with_other_houses(
    train: Callable[..., MicroMapTraining], asked_seeds: list[int], tmp_path: Path
) -> None:
    first = train(lambda line: first.stop() if line["step"] == 1 else None)
    first.run()
    assert first.is_stopped
    assert not first.is_done
    assert first.step == 1
    seen = list(asked_seeds)
    asked_seeds.clear()
    second = train()
    assert second.step == 1
    for name, weight in first.model.state_dict().items():
        assert torch.equal(weight, second.model.state_dict()[name])
    second.run()
    assert second.step == 8
    assert [line["step"] for line in curve(tmp_path) if "loss" not in line and "began_s" not in line] == [1, 4, 8]
    by_split = [
        {split: [seed for seed in some if split_of(seed) is split] for split in Split} for some in (seen, asked_seeds)
    ]
    assert by_split[0][Split.VALIDATION] == by_split[1][Split.VALIDATION] == [8, 18] * 4
    filmed = by_split[1][Split.TRAINING][0]
    assert by_split[0][Split.TRAINING] == [0, 1, 2, 3]
    assert by_split[1][Split.TRAINING] == [filmed, filmed + 1, filmed + 2, filmed + 3]
    assert filmed in (2, 4)
    assert by_split[0][Split.TEST] == by_split[1][Split.TEST] == []


@pytest.mark.extra
def test_what_was_learned_is_put_away_before_it_is_judged(
    train: Callable[..., MicroMapTraining], monkeypatch: pytest.MonkeyPatch
) -> None:
    training = train()

    def killed(known: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(training, "_judge", killed)
    with pytest.raises(KeyboardInterrupt):
        training.run()
    assert train().step == training.step == 4


@pytest.mark.extra
def test_no_house_for_validation_is_learned_from(
    train: Callable[..., MicroMapTraining], miniature: Recipe, asked_seeds: list[int]
) -> None:
    odd = replace(miniature.judge, worlds=1, every_steps=100)
    training = train(judge=odd, film=replace(miniature.film, worlds=3, first_worlds=3))
    learned = []
    learn = training._learn

    def note(footage: Any) -> Any:
        learned.append(footage.num_worlds)
        return learn(footage)

    training._learn = note
    training.run()
    assert asked_seeds == [8] * 4 + [0, 1, 2]  # houses, clutter, what is held out, and houses of the other size
    assert set(learned) == {3}


@pytest.mark.extra
def test_the_same_seeds_give_the_same_training(miniature: Recipe, tmp_path: Path, asked_seeds: list[int]) -> None:
    curves = []
    for name in ("a", "b"):
        piece = Piece(folder=tmp_path / name, seconds=1000.0, device=torch.device("cpu"))
        all_at_once = replace(miniature, film=replace(miniature.film, worlds=2))
        MicroMapTraining(all_at_once, piece, lambda line: None, network=TINY).run()
        lines = curve(tmp_path / name)
        curves.append(
            [{key: value for key, value in line.items() if not key.endswith(("seconds", "_s"))} for line in lines]
        )
    assert curves[0] == curves[1]


def test_time_that_is_up_before_the_first_step_leaves_nothing(
    train: Callable[..., MicroMapTraining], tmp_path: Path
) -> None:
    training = train(seconds=0.0)
    training.run()
    assert training.step == 0
    assert not is_training(tmp_path)
    stopped = train()
    stopped.stop()
    stopped.run()
    assert stopped.step == 0
    assert not is_training(tmp_path)


@pytest.mark.extra
@pytest.mark.parametrize(("falls", "shares"), [("1..0", (1, 16, 12, 8, 4)), ("0.5..0.1", (0.5, 8.1, 6.5, 4.9, 3.3))])
def test_the_rate_falls_in_the_time_of_a_piece_and_the_training_ends(
    falls: str, shares: tuple[float, ...], train: Callable[..., MicroMapTraining], monkeypatch: pytest.MonkeyPatch
) -> None:
    training = train(seconds=100.0, falls=Fall.parse(falls), warmup_steps=0, cooldown_steps=0)
    rates: list[float] = []

    def step(rate: float) -> None:
        rates.append(rate)

    monkeypatch.setattr(training._optimisers, "step", step)
    monkeypatch.setattr(training, "_elapsed", lambda: 20.0 * training.step)
    training.run()
    assert training.step == 5
    assert training.is_done
    first, *later = shares
    left = [first, *(share / 17 for share in later)]
    assert rates == pytest.approx([training._schedule.rate * share for share in left])
    assert not train(seconds=0.0, falls=Fall.parse(falls)).is_done


@pytest.mark.parametrize("text", ["", "1", "0..1", "1..", "2..0", "0..0", "nan..0", "a..b", "1..0..0"])
def test_a_rate_that_does_not_fall_is_refused_in_a_sentence(text: str) -> None:
    with pytest.raises(SettingError, match=r"between which it falls, such as 1\.\.0 or 0\.6\.\.0\.3, but got"):
        Fall.parse(text)


@pytest.mark.extra
@pytest.mark.parametrize(("broken", "step"), [("loss", 10), ("weights", 8)])
def test_a_training_that_went_astray_is_refused_and_not_put_away(
    broken: str, step: int, train: Callable[..., MicroMapTraining], miniature: Recipe, tmp_path: Path
) -> None:
    train(stages=(Stage(steps=4, clip_frames=(4,)),)).run()
    kept = {path.name: path.read_bytes() for path in tmp_path.glob("training-*")}
    longer = (Stage(steps=30, clip_frames=(4,)),)
    if broken == "weights":
        training = train(stages=longer, rate=1e30)
    else:
        training = train(stages=longer, judge=replace(miniature.judge, every_steps=100))
        with torch.no_grad():
            training.model.camera_head.first_pose.fill_(math.nan)
    with pytest.raises(SettingError, match=f"went astray by step {step}.*smaller rate") as refused:
        training.run()
    assert "\n" not in str(refused.value)
    assert {path.name: path.read_bytes() for path in tmp_path.glob("training-*")} == kept
    assert train().step == 4


def test_pictures_that_patches_do_not_divide_are_refused(
    train: Callable[..., MicroMapTraining], miniature: Recipe
) -> None:
    with pytest.raises(InputError, match="multiples of 14"):
        train(film=replace(miniature.film, sizes=((30, 42),)))


def test_the_model_is_written_in_half_and_read_as_any_other(
    train: Callable[..., MicroMapTraining], tmp_path: Path
) -> None:
    training = train()
    training.export(tmp_path / "model.safetensors")
    read = load_geometry(tmp_path / "model.safetensors")
    assert read.config == TINY
    assert read.config.sizes == tuple(dict.fromkeys(training._recipe.film.sizes))
    for name, weight in training.model.state_dict().items():
        assert weight.dtype is torch.float32
        assert torch.equal(read.state_dict()[name], weight.half().float())


def test_micro_map_is_small_enough_to_come_with_the_package(tmp_path: Path) -> None:
    model = GeometryModel(MICRO)
    assert sum(weight.numel() for weight in model.parameters()) <= 6_000_000
    save_geometry(model.half(), tmp_path / "micro-map.safetensors")
    assert (tmp_path / "micro-map.safetensors").stat().st_size <= 12_000_000


def test_a_training_may_begin_with_the_weights_of_a_model_of_its_kind(miniature: Recipe, tmp_path: Path) -> None:
    torch.manual_seed(5)
    known = GeometryModel(TINY)
    save_geometry(known.half(), tmp_path / "known.safetensors")
    piece = Piece(
        folder=tmp_path / "training",
        seconds=1.0,
        device=torch.device("cpu"),
        begin_with=tmp_path / "known.safetensors",
    )
    begun = MicroMapTraining(miniature, piece, lambda line: None, network=TINY)
    want = known.float().state_dict()
    assert all(torch.equal(weight, want[name]) for name, weight in begun.model.state_dict().items())
    with pytest.raises(InputError, match=r"known\.safetensors is another network"):
        MicroMapTraining(miniature, piece, lambda line: None, network=MICRO)
