"""The precision benchmark compares the same frames, and would notice a worse path."""

import pytest
import torch

from benchmarks.precision import measure_precision, relative_error
from longtake.attention.backend import Attended, Keys, Queries, SdpaBackend
from longtake.weights.presets import TINY


class RoughBackend(SdpaBackend):
    """Loses most of the digits of its values."""

    name = "rough"

    def attend(self, q: Queries, k: Keys, v: Keys) -> Attended:
        attended = super().attend(q, k, v)
        return Attended((attended.values * 8).round() / 8, attended.log_sum_exp)


def test_own_path_is_as_exact_as_the_plain_one_and_a_rough_one_is_not() -> None:
    figures = list(
        measure_precision(
            TINY,
            (28, 42),
            at_frames=(12, 20),
            backends=(SdpaBackend(), RoughBackend()),
            device=torch.device("cpu"),
            progress=lambda _: None,
        )
    )
    assert [(row.frame, row.backend) for row in figures] == [
        (frame, backend) for frame in (12, 20) for backend in ("sdpa", "rough")
    ]
    for row in figures:
        assert row.plain_pose_error > 0
        if row.backend == "rough":
            assert row.worst_ratio > 2
        else:
            assert row.worst_ratio < 1.5


def test_relative_error_is_a_norm_over_a_norm() -> None:
    assert relative_error(torch.tensor([3.0, 4.0]), torch.tensor([3.0, 0.0])) == pytest.approx(4 / 3)
