"""A walk that is kept in memory where it ends, and where it goes on."""

import torch

from benchmarks.known_walk import KnownWalk
from benchmarks.loop_network import loop_network


def test_what_is_known_where_a_walk_goes_on_is_what_is_known_where_it_ends() -> None:
    """Windows of 120 frames: at 112 one is open, and what it said is provisional."""
    network = loop_network("micro-map")
    before, after = KnownWalk.walked(network, 18, 0, 112, 128)
    (ended,) = KnownWalk.walked(network, 18, 0, 112)
    assert len(before.frames) == len(ended.frames) == 112
    assert len(after.frames) == 128
    assert torch.equal(before.cameras, ended.cameras)
    assert torch.equal(before.truth, ended.truth)
    assert torch.equal(before.intrinsics, ended.intrinsics)
    assert before.pictures.keys() == ended.pictures.keys()
    for one, other in zip(before.frames, ended.frames, strict=True):
        assert torch.equal(one.depth, other.depth)
        assert one.window == other.window
    assert not torch.equal(after.cameras[:112], ended.cameras)
