"""Castle-simu as a take of one camera: the other's depth lands where this one sees it."""

from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.castle import NUM_FRAMES, castle_intrinsics, seen_from_colour, write_castle
from longtake.errors import InputError
from longtake.spatial.pinhole import unproject
from longtake.takes.take import read_take

CASTLE = Path(__file__).parents[2] / ".oracles" / "visp" / "Castle-simu"


def test_a_wall_is_as_far_from_both_cameras_and_hides_what_is_behind() -> None:
    depth = np.full((480, 640), 2.5)
    depth[:, 200:300] = 1.0
    seen = seen_from_colour(depth)
    # 5 cm at 1 m are 35 pixels, at 2.5 m 14
    assert (seen[:, 235:335] == 1).all()
    assert (seen[:, 335:] == 2.5).all()
    assert (seen[:, 14:214] == 2.5).all()
    assert (seen[:, 214:235] == 0).all()  # which the near wall hides from the right camera
    assert (seen[:, :14] == 0).all()  # which lies outside of its picture


def test_a_sequence_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="run: make castle"):
        write_castle(tmp_path / "nowhere", tmp_path / "out")


@pytest.mark.extra
@pytest.mark.skipif(not CASTLE.is_dir(), reason="Castle-simu is not here; `make test-extra` tries to fetch it")
def test_points_of_one_frame_are_met_in_another(tmp_path: Path) -> None:
    write_castle(CASTLE, tmp_path / "castle")
    take = read_take(tmp_path / "castle")
    assert len(take) == NUM_FRAMES
    assert take.image(0).std() > 5
    here, there = 0, 5
    depth = torch.from_numpy(take.depth(here)).double()
    points = unproject(depth, castle_intrinsics(), take.trajectory.world_from_camera[here])[depth > 0]
    camera_from_world = torch.linalg.inv(take.trajectory.world_from_camera[there])
    at = castle_intrinsics() @ (camera_from_world[:3, :3] @ points.T + camera_from_world[:3, 3:])
    column, row = (at[:2] / at[2]).round().long()
    inside = (column >= 0) & (column < 640) & (row >= 0) & (row < 480)
    met = torch.from_numpy(take.depth(there)).double()[row[inside], column[inside]]
    known = met > 0
    assert known.double().mean() > 0.7
    assert ((met - at[2][inside]).abs() / met)[known].median() < 0.005
