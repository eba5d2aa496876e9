"""Trainings put away and taken up again: equal weights, moments within bfloat16, and nothing half way."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from selected import rest_in_extra
from torch import Tensor

from longtake.errors import InputError
from longtake.geometry.model import GeometryModel
from longtake.weights.presets import MICRO, TINY
from training.checkpoint import MOST_BYTES, Reached, is_training, resume_training, save_training
from training.footage import Clips
from training.learning import ClipTrainer
from training.losses import targets, weighted
from training.optimise import Optimisers, initialise
from training.recording import prepare_gradients
from training.stream_pattern import StreamPattern

REACHED = Reached(step=7, worlds=40)
RESUMED_LOSS_TOLERANCE = 0.01
"""Of the loss: what keeping moments in bfloat16 may change in the ten steps after resuming."""


class Learner:
    """Learns one clip by heart."""

    def __init__(self, clips: Clips, seed: int = 0) -> None:
        torch.manual_seed(seed)
        self.model = GeometryModel(TINY)
        initialise(self.model)
        self.optimisers = Optimisers(self.model, weight_decay=0.02)
        self.weights = list(self.model.parameters())
        prepare_gradients(self.weights)
        grid = self.model.grid(*clips.depth.shape[-2:])
        self.trainer = ClipTrainer(
            self.model, StreamPattern(num_frames=10, num_scale_frames=2, window=4, interval=1), grid
        )
        truth, deep = targets(clips, 2), torch.tensor([0, 4, 9])
        self.inputs = [clips.image, truth.pose, truth.is_known, truth.depth[:, deep], deep]

    def losses(self, num_steps: int) -> list[float]:
        losses = []
        for _ in range(num_steps):
            parts = self.trainer.learn(self.inputs, self.weights, None)
            self.optimisers.step(1e-3)
            losses.append(float(weighted(parts)))
        return losses

    def state(self) -> dict[str, Tensor]:
        weights = {name: weight.detach().clone() for name, weight in self.model.named_parameters()}
        return weights | {name: value.clone() for name, value in self.optimisers.live().items()}


@pytest.fixture
def learner(wandering: Clips) -> Learner:
    learner = Learner(wandering)
    learner.losses(3)
    return learner


@pytest.fixture(scope="module")
def trained(wandering: Clips) -> Learner:
    """Tests share it and must leave it as it is."""
    learner = Learner(wandering)
    learner.losses(3)
    return learner


@pytest.fixture
def in_small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("training.checkpoint.MOST_BYTES", 1_000_000)


def equal(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.usefixtures("in_small_parts")
def test_weights_come_back_as_they_were_and_moments_rounded(trained: Learner, wandering: Clips, tmp_path: Path) -> None:
    assert not is_training(tmp_path / "new")
    save_training(tmp_path / "new", trained.model, trained.optimisers, REACHED)
    assert is_training(tmp_path / "new")
    assert len(list((tmp_path / "new").iterdir())) > 2
    other = Learner(wandering, seed=1)
    assert resume_training(tmp_path / "new", other.model, other.optimisers) == REACHED
    before, after = trained.state(), other.state()
    assert before.keys() == after.keys()
    for name, value in before.items():
        rounded = value.bfloat16().float() if "/" in name and value.ndim else value
        assert torch.equal(after[name], rounded), name


@pytest.mark.extra
def test_moments_in_bfloat16_change_the_next_losses_by_little(
    learner: Learner, wandering: Clips, tmp_path: Path
) -> None:
    save_training(tmp_path, learner.model, learner.optimisers, REACHED)
    resumed = Learner(wandering, seed=1)
    resume_training(tmp_path, resumed.model, resumed.optimisers)
    unbroken, again = learner.losses(10), resumed.losses(10)
    assert again[0] == unbroken[0]
    away = [abs(one - other) / other for one, other in zip(again, unbroken, strict=True)]
    print(f"resumed losses differ by at most {max(away):.1e}")
    assert 0 < max(away) < RESUMED_LOSS_TOLERANCE
    forgetful = Learner(wandering, seed=1)
    resume_training(tmp_path, forgetful.model, forgetful.optimisers)
    for value in forgetful.optimisers.live().values():
        value.zero_()
    without = forgetful.losses(10)
    worst = max(abs(one - other) / other for one, other in zip(without, unbroken, strict=True))
    assert worst > 3 * max(away)


def test_a_training_that_has_not_begun_can_be_put_away(wandering: Clips, tmp_path: Path) -> None:
    fresh, other = Learner(wandering), Learner(wandering, seed=1)
    save_training(tmp_path, fresh.model, fresh.optimisers, Reached(step=0, worlds=0))
    resume_training(tmp_path, other.model, other.optimisers)
    assert equal(fresh.state(), other.state())
    assert fresh.losses(2) == other.losses(2)


def test_no_file_of_micro_map_is_too_large_to_send(tmp_path: Path) -> None:
    model = GeometryModel(MICRO)
    save_training(tmp_path, model, Optimisers(model, weight_decay=0.0), REACHED)
    sizes = [path.stat().st_size for path in tmp_path.iterdir()]
    assert max(sizes) <= MOST_BYTES == 15_000_000
    assert len(sizes) == 3
    assert sum(sizes) < 40_000_000


@pytest.mark.usefixtures("in_small_parts")
def test_a_later_step_takes_the_place_of_an_earlier_one(learner: Learner, tmp_path: Path) -> None:
    save_training(tmp_path, learner.model, learner.optimisers, REACHED)
    names = {path.name for path in tmp_path.iterdir()}
    learner.losses(1)
    save_training(tmp_path, learner.model, learner.optimisers, Reached(step=8, worlds=44))
    assert {path.name for path in tmp_path.iterdir()} == names
    assert resume_training(tmp_path, learner.model, learner.optimisers).step == 8


def test_what_fails_while_it_is_written_leaves_the_last_training(
    learner: Learner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("training.checkpoint.MOST_BYTES", 1_000_000)
    save_training(tmp_path, learner.model, learner.optimisers, REACHED)
    written: list[Path] = []

    def fail_at_the_second(tensors: dict[str, Tensor], path: Path, said: dict[str, str]) -> None:
        if written:
            raise OSError("no space left")
        written.append(path)
        save_file(tensors, path, said)

    monkeypatch.setattr("training.checkpoint.save_file", fail_at_the_second)
    learner.losses(1)
    with pytest.raises(InputError, match=r"cannot be put away.*no space left.*the last one there stays"):
        save_training(tmp_path, learner.model, learner.optimisers, Reached(step=8, worlds=44))
    assert resume_training(tmp_path, learner.model, learner.optimisers) == REACHED


def remove(part: Path) -> None:
    part.unlink()


def cut_short(part: Path) -> None:
    part.write_bytes(part.read_bytes()[:-100])


def say_nothing(part: Path) -> None:
    save_file(load_file(part), part)


def say_something_else(part: Path) -> None:
    save_file(load_file(part), part, {"record": "[1, 2]"})


def be_of_another_step(part: Path) -> None:
    with safe_open(part, framework="pt") as file:
        record = json.loads(file.metadata()["record"])
    save_file(load_file(part), part, {"record": json.dumps(record | {"step": 99})})


def lack_a_tensor(part: Path) -> None:
    with safe_open(part, framework="pt") as file:
        said = file.metadata()
    save_file(dict(list(load_file(part).items())[1:]), part, said)


@pytest.mark.parametrize(
    ("damage", "told"),
    rest_in_extra(
        [
            (cut_short, r"training-1\.safetensors, but it cannot be read"),
            (be_of_another_step, "of different steps"),
            (remove, r"training-1\.safetensors, but it cannot be read"),
            (say_nothing, r"training-1\.safetensors, but it cannot be read"),
            (say_something_else, r"training-1\.safetensors, but it cannot be read"),
            (lack_a_tensor, "of another network"),
        ],
        keep=2,
    ),
    ids=lambda value: value.__name__ if callable(value) else "",
)
@pytest.mark.usefixtures("in_small_parts")
def test_a_damaged_training_is_refused_and_changes_nothing(
    damage: Callable[[Path], None], told: str, trained: Learner, wandering: Clips, tmp_path: Path
) -> None:
    save_training(tmp_path, trained.model, trained.optimisers, REACHED)
    damage(tmp_path / "training-1.safetensors")
    other = Learner(wandering, seed=1)
    before = other.state()
    with pytest.raises(InputError, match=told) as refused:
        resume_training(tmp_path, other.model, other.optimisers)
    assert "\n" not in str(refused.value)
    assert equal(before, other.state())


def test_a_training_of_another_network_is_refused(trained: Learner, tmp_path: Path) -> None:
    save_training(tmp_path, trained.model, trained.optimisers, REACHED)
    other = GeometryModel(MICRO)
    with pytest.raises(InputError, match="of another network"):
        resume_training(tmp_path, other, Optimisers(other, weight_decay=0.0))
