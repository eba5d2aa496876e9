import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from longtake.spatial.rotation import matrix_from_quaternion, quaternion_from_matrix

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
