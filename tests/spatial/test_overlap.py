"""What frames share, against what the renderer says of the same points."""

from itertools import islice

import torch

from longtake.spatial.overlap import overlaps
from longtake.spatial.pose import invert_rigid
from longtake.world.tour import Tour


def test_every_frame_sees_itself_and_less_of_those_farther_away() -> None:
    views = list(islice(Tour(seed=3, width=126, height=98).views(), 60))[40::4]
    poses = torch.stack([view.world_from_camera for view in views]).float()
    got = overlaps(torch.stack([view.depth for view in views]), poses, torch.stack([view.intrinsics for view in views]))
    assert bool((got.diagonal() > 0.98).all())
    neighbours, farther = got.diagonal(offset=1), got.diagonal(offset=4)
    assert float(neighbours.min()) > float(farther.max())


def test_shares_are_those_of_points_that_are_met_again() -> None:
    views = list(islice(Tour(seed=7, width=56, height=42).views(), 9))[::4]
    poses = torch.stack([view.world_from_camera for view in views]).float()
    lens = views[0].intrinsics
    got = overlaps(torch.stack([view.depth for view in views]), poses, lens.repeat(len(views), 1, 1))
    for one, from_one in zip(views, got, strict=True):
        for other, share in zip(views, from_one, strict=True):
            met = []
            for row in range(7, 42, 14):
                for column in range(7, 56, 14):
                    ray = torch.tensor([(column - lens[0, 2]) / lens[0, 0], (row - lens[1, 2]) / lens[1, 1], 1.0])
                    point = one.world_from_camera.float() @ torch.cat([ray * one.depth[row, column], torch.ones(1)])
                    x, y, z = (invert_rigid(other.world_from_camera.float()) @ point)[:3].tolist()
                    u, v = (round(float(lens[i, i]) * at / abs(z)) + half for i, at, half in ((0, x, 28), (1, y, 21)))
                    inside = z > 0 and 0 <= u < 56 and 0 <= v < 42
                    met.append(inside and abs(float(other.depth[v, u]) - z) < 0.1 * z)
            assert abs(float(share) - sum(met) / len(met)) < 0.1


def test_sky_is_seen_by_nobody() -> None:
    depth = torch.full((2, 28, 28), 2.0)
    depth[:, :14] = torch.inf
    lens = torch.tensor([[20.0, 0.0, 14.0], [0.0, 20.0, 14.0], [0.0, 0.0, 1.0]])
    got = overlaps(depth, torch.eye(4).repeat(2, 1, 1), lens.repeat(2, 1, 1))
    assert torch.equal(got, torch.full((2, 2), 0.5))
