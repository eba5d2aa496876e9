"""Judged by the truth: the truth itself is without error."""

import math

import pytest
import torch

from longtake.geometry.model import GeometryModel
from longtake.spatial.pose import matrix_from_quaternion
from longtake.weights.presets import TINY
from training.footage import Clips, Footage
from training.losses import targets
from training.validation import judge, path_errors


def test_a_path_is_compared_after_the_best_similarity(wandering: Clips) -> None:
    truth = targets(wandering, 4).pose
    moved = truth.clone()
    turn = matrix_from_quaternion(torch.tensor([0.3, -0.2, 0.5, 1.0]))
    moved[..., :3] = 3 * truth[..., :3] @ turn.T + torch.tensor([1.0, 2.0, 3.0])
    assert float(path_errors(truth, truth).max()) < 1e-6
    assert float(path_errors(moved, truth).max()) < 1e-6


def test_an_error_is_measured_in_lengths_of_the_path() -> None:
    truth = torch.zeros(1, 3, 9)
    truth[0, :, 0] = torch.tensor([0.0, 1.0, 2.0])
    aside = truth.clone()
    aside[0, 1, 0] = 0.0
    # after the best scale and shift of 0, 0, 2 to 0, 1, 2
    said, true = torch.tensor([-2.0, -2.0, 4.0]) / 3, torch.tensor([-1.0, 0.0, 1.0])
    away = said * (said @ true) / (said @ said) - true
    expected = math.sqrt(float(away.square().mean())) / 2
    assert float(path_errors(aside, truth)) == pytest.approx(expected, rel=1e-5)
    assert float(path_errors(10 * aside, truth)) == pytest.approx(expected, rel=1e-5)


def test_the_model_is_judged_at_each_length_and_left_as_it_is(filmed: Footage) -> None:
    torch.manual_seed(0)
    model = GeometryModel(TINY)
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    with torch.no_grad():
        grid = model.grid(28, 42)
    figures = judge(model, grid, filmed, 12)
    assert figures.keys() == {"path_error_12", "depth_error_12"}
    assert all(math.isfinite(value) and value > 0 for value in figures.values())
    assert all(weight.grad is None for weight in model.parameters())
    assert all(torch.equal(before[name], weight) for name, weight in model.state_dict().items())
    assert judge(model, grid, filmed, 12) == figures
