"""Nodes of a walk come in the order of time, however windows overlap."""

import itertools
from dataclasses import replace

import pytest
import torch

from longtake.hub.load import load_model, loop_card_of
from longtake.places.build import with_loops
from longtake.places.loop_rule import LoopRule
from longtake.places.looped_session import LoopedSession
from longtake.runtime.build import SMALL, open_session
from longtake.runtime.keyframes import EveryNth
from longtake.runtime.windows import Windows

SIZE, NUM_FRAMES = (42, 56), 64


@pytest.mark.parametrize("longest", [5, 7, 9, 30])
@pytest.mark.parametrize("interval", [1, 2])
def test_each_node_begins_after_the_last_and_none_among_frames_that_are_looked_at_again(
    interval: int, longest: int
) -> None:
    model, windows = load_model("tiny"), Windows(size=14, overlap_frames=6)
    settings = replace(SMALL, num_scale_frames=4, keyframes=EveryNth(interval), windows=windows)
    inner = open_session(model, settings, SIZE)
    session = with_loops(inner, loop_card_of("micro-map"), LoopRule(longest_node=longest))
    assert isinstance(session, LoopedSession)
    image = torch.randint(0, 256, (3, 6, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    image = image.repeat_interleave(7, dim=1).repeat_interleave(7, dim=2)
    for number in range(NUM_FRAMES):
        session.step(image.roll(number % 2, dims=2))
    starts = session.walk.nodes.starts
    assert all(one < other for one, other in itertools.pairwise(starts)), starts
    step = 4 + (14 - 4) * interval - 6
    assert set(range(0, NUM_FRAMES - 6 - 4, step)) <= set(starts)
