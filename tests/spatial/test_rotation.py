import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from longtake.spatial.pose import matrix_from_quaternion, nearest_rotation, quaternion_from_matrix

components = st.floats(-2, 2, allow_nan=False, width=32)


def quaternion(values):
    return torch.tensor(values, dtype=torch.float64)


def test_golden_matrices_and_quaternions(golden):
    want = golden("pose")
    want.check("mat", matrix_from_quaternion(want["quat_xyzw"]))
    want.check("quat_back", quaternion_from_matrix(want["mat"]))


@settings(max_examples=60, deadline=None)
@given(st.tuples(components, components, components, components).filter(lambda q: math.hypot(*q) > 1e-2))
def test_matrix_of_any_quaternion_is_a_rotation(values):
    matrix = matrix_from_quaternion(quaternion(values))
    torch.testing.assert_close(matrix @ matrix.T, torch.eye(3, dtype=torch.float64))
    torch.testing.assert_close(torch.linalg.det(matrix), torch.tensor(1.0, dtype=torch.float64))


@settings(max_examples=60, deadline=None)
@given(st.tuples(components, components, components, components).filter(lambda q: math.hypot(*q) > 1e-2))
def test_round_trip_gives_the_unit_quaternion_with_positive_w(values):
    unit = quaternion(values) / quaternion(values).norm()
    back = quaternion_from_matrix(matrix_from_quaternion(quaternion(values)))
    assert back[3] >= 0
    torch.testing.assert_close(back.norm(), torch.tensor(1.0, dtype=torch.float64))
    torch.testing.assert_close((back @ unit).abs(), torch.tensor(1.0, dtype=torch.float64))


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_half_turns_keep_the_largest_component_positive(axis):
    half_turn = torch.zeros(4)
    half_turn[axis] = 1
    assert torch.equal(quaternion_from_matrix(matrix_from_quaternion(-half_turn)), half_turn)


def test_zero_quaternion_turns_nothing_and_has_finite_gradients():
    zero = torch.zeros(2, 4, requires_grad=True)
    matrix = matrix_from_quaternion(zero)
    assert torch.equal(matrix, torch.eye(3).expand(2, 3, 3))
    matrix.sum().backward()
    assert zero.grad.isfinite().all()


def test_nearest_rotation_never_mirrors() -> None:
    matrix = torch.diag(torch.tensor([1.0, 1.0, -1.0]))
    rotation = nearest_rotation(matrix)
    assert float(torch.linalg.det(rotation)) == pytest.approx(1.0)
    turn = matrix_from_quaternion(torch.tensor([0.1, 0.2, 0.3, 0.9]))
    torch.testing.assert_close(nearest_rotation(turn * 3), turn)


def test_nearest_rotation_is_no_farther_than_any_other_and_proper() -> None:
    matrices = torch.randn(20, 3, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    nearest = nearest_rotation(matrices)
    torch.testing.assert_close(torch.linalg.det(nearest), torch.ones(20, dtype=torch.float64))
    torch.testing.assert_close(nearest @ nearest.transpose(1, 2), torch.eye(3).double().expand(20, 3, 3))
    others = matrix_from_quaternion(torch.randn(500, 4, generator=torch.Generator().manual_seed(1)).double())
    distance = (matrices[:, None] - others).norm(dim=(2, 3)).amin(dim=1)
    assert ((matrices - nearest).norm(dim=(1, 2)) <= distance).all()
    for rotation in others[:5]:
        torch.testing.assert_close(nearest_rotation(rotation), rotation)
