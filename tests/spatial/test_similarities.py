"""Many similarities at once: their exponential against the matrix one, the way back, and what small changes do."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.linalg import expm

from longtake.errors import InputError
from longtake.spatial.similarities import (
    Similarities,
    bracket,
    cross,
    exp,
    inverse_right_jacobian,
    right_jacobian,
)
from longtake.spatial.similarity import Similarity


def tangents(seed: int, *, angle: float, log_scale: float, count: int = 20) -> NDArray[np.float64]:
    numbers = np.random.default_rng(seed).normal(size=(count, 7))
    numbers[:, 3:6] *= angle / np.linalg.norm(numbers[:, 3:6], axis=1, keepdims=True)
    numbers[:, 6] *= log_scale
    return numbers


def matrices(similarities: Similarities) -> NDArray[np.float64]:
    whole = np.tile(np.eye(4), (len(similarities), 1, 1))
    whole[:, :3, :3] = similarities.scale[:, None, None] * similarities.rotation
    whole[:, :3, 3] = similarities.translation
    return whole


def generators(tangent: NDArray[np.float64]) -> NDArray[np.float64]:
    whole = np.zeros((len(tangent), 4, 4))
    whole[:, :3, :3] = cross(tangent[:, 3:6]) + tangent[:, 6, None, None] * np.eye(3)
    whole[:, :3, 3] = tangent[:, :3]
    return whole


@pytest.mark.parametrize("log_scale", [0.0, 1e-12, 1e-6, 1e-2, 1.0])
@pytest.mark.parametrize("angle", [0.0, 1e-300, 1e-12, 1e-7, 1e-4, 0.03, 0.999, 1.0, 2.5, 3.14159])
def test_exponential_is_that_of_the_matrix_and_the_logarithm_leads_back(angle: float, log_scale: float) -> None:
    tangent = tangents(1, angle=angle, log_scale=log_scale)
    found = exp(tangent)
    wanted = np.stack([expm(generator) for generator in generators(tangent)])
    np.testing.assert_allclose(matrices(found), wanted, rtol=1e-12, atol=1e-12 * np.abs(wanted).max())
    np.testing.assert_allclose(found.log(), tangent, rtol=1e-9, atol=1e-14)


def test_tiny_turns_keep_all_their_digits() -> None:
    tangent = tangents(2, angle=1e-9, log_scale=1e-9)
    np.testing.assert_allclose(exp(tangent).log()[:, 3:6], tangent[:, 3:6], rtol=1e-15)
    np.testing.assert_allclose(exp(tangent).log()[:, 6], tangent[:, 6], rtol=1e-6)  # 1 + 1e-9 has no more digits


def test_half_turns_come_back_as_half_turns() -> None:
    for axis in np.eye(3):
        tangent = np.concatenate([[1.0, 2.0, 3.0], np.pi * axis, [0.2]])[None]
        again = exp(exp(tangent).log())
        np.testing.assert_allclose(matrices(again), matrices(exp(tangent)), atol=1e-14)


@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 10_000), angle=st.floats(0, 3.1), log_scale=st.floats(0, 1))
def test_they_form_a_group_that_acts_on_tangents_by_its_adjoint(seed: int, angle: float, log_scale: float) -> None:
    a, b = exp(tangents(seed, angle=angle, log_scale=log_scale)), exp(tangents(seed + 1, angle=1, log_scale=0.3))
    np.testing.assert_allclose(matrices(a @ b), matrices(a) @ matrices(b), atol=1e-11)
    np.testing.assert_allclose(matrices(a.inverse() @ a), np.tile(np.eye(4), (20, 1, 1)), atol=1e-10)
    small = tangents(seed + 2, angle=0.1, log_scale=0.1)
    moved = exp((a.adjoint() @ small[:, :, None])[:, :, 0])
    np.testing.assert_allclose(matrices(moved), matrices(a @ exp(small) @ a.inverse()), rtol=1e-9, atol=1e-9)


def test_products_are_those_of_one_after_the_other() -> None:
    for count in (1, 2, 3, 4, 5, 16, 17, 50):
        each = exp(tangents(count, angle=0.4, log_scale=0.1, count=count))
        whole = np.eye(4)
        for index, product in enumerate(matrices(each.products())):
            whole = whole @ matrices(each)[index]
            np.testing.assert_allclose(product, whole, atol=1e-11)


def test_adjoint_of_an_exponential_is_the_exponential_of_its_bracket() -> None:
    tangent = tangents(5, angle=0.7, log_scale=0.3, count=5)
    for adjoint, small in zip(exp(tangent).adjoint(), bracket(tangent), strict=True):
        np.testing.assert_allclose(adjoint, expm(small), atol=1e-12)


@pytest.mark.parametrize("size", [1e-3, 0.02])
def test_jacobians_say_what_small_changes_do(size: float) -> None:
    tangent = size * tangents(6, angle=1, log_scale=1)
    for axis in range(7):
        change = np.zeros_like(tangent)
        change[:, axis] = 1e-6
        moved = (exp(tangent - change).inverse() @ exp(tangent + change)).log() / 2e-6
        np.testing.assert_allclose(right_jacobian(tangent)[:, :, axis], moved, atol=1e-8)
    wide = tangents(7, angle=0.8, log_scale=0.2)
    for axis in range(7):
        change = np.zeros_like(wide)
        change[:, axis] = 1e-6
        moved = ((exp(wide) @ exp(change)).log() - (exp(wide) @ exp(-change)).log()) / 2e-6
        np.testing.assert_allclose(inverse_right_jacobian(wide)[:, :, axis], moved, atol=1e-5)


def test_single_ones_come_out_as_they_went_in() -> None:
    turned = exp(np.array([[0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7]])).one(0)
    rounded = Similarity(turned.scale.float(), turned.rotation.float(), turned.translation.float())
    kept = Similarities.of([turned, rounded])
    torch.testing.assert_close(kept.one(0).matrix, turned.matrix, rtol=0, atol=1e-15)
    np.testing.assert_allclose(
        kept.rotation @ kept.rotation.transpose(0, 2, 1), np.tile(np.eye(3), (2, 1, 1)), atol=1e-15
    )
    torch.testing.assert_close(kept.one(1).matrix, turned.matrix, rtol=0, atol=1e-6)


def test_what_is_no_similarity_is_refused() -> None:
    whole = Similarity.identity(torch.device("cpu"))
    for broken in (
        Similarity(torch.tensor(0.0), whole.rotation, whole.translation),
        Similarity(whole.scale, whole.rotation * torch.nan, whole.translation),
        Similarity(whole.scale, whole.rotation, whole.translation + torch.inf),
    ):
        with pytest.raises(InputError, match="finite numbers and scales above 0"):
            Similarities.of([whole, broken])
