import pytest
import torch

from longtake.geometry.heads.activations import CONFIDENCE_ACTIVATIONS, VALUE_ACTIVATIONS
from longtake.geometry.heads.camera import activate_pose


@pytest.mark.parametrize("name", VALUE_ACTIVATIONS)
def test_values_match_golden(golden, name):
    want = golden("activations")
    want.check(f"pts_{name}", VALUE_ACTIVATIONS[name](want["raw"][:, :3].movedim(1, -1)))


@pytest.mark.parametrize("name", CONFIDENCE_ACTIVATIONS)
def test_confidences_match_golden(golden, name):
    want = golden("activations")
    want.check(f"conf_{name}", CONFIDENCE_ACTIVATIONS[name](want["raw"][:, 3]))


def test_pose_matches_golden(golden):
    want = golden("activations")
    want.check("pose_act", activate_pose(want["pose_raw"]))


@pytest.mark.parametrize("name", VALUE_ACTIVATIONS)
def test_zero_gives_finite_values_and_gradients(name):
    raw = torch.zeros(2, 3, requires_grad=True)
    values = VALUE_ACTIVATIONS[name](raw)
    values.sum().backward()
    assert values.isfinite().all()
    assert raw.grad.isfinite().all()
