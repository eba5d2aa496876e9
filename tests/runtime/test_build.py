"""A session is opened as its settings say."""

from dataclasses import replace

import pytest
import torch
from jaxtyping import Float
from selected import rest_in_extra
from torch import Tensor

from longtake.geometry.model import GeometryModel
from longtake.hub.load import random_model
from longtake.runtime.alignment import Alignment, Anchoring
from longtake.runtime.build import SMALL, open_session, usual_settings
from longtake.runtime.session import SequenceSession
from longtake.runtime.windowed import WindowedSession
from longtake.runtime.windows import Windows
from longtake.types import Geometry
from longtake.weights.presets import TINY, TINY_CAUSAL
from longtake.world.tour import Tour

SIZE = (28, 42)
WINDOWED = replace(SMALL, num_scale_frames=2, windows=Windows(size=6, overlap_frames=3))


@pytest.fixture(scope="module")
def model() -> GeometryModel:
    return random_model(TINY, torch.device("cpu"))


@pytest.fixture(scope="module")
def frames() -> Float[Tensor, "frames 3 height width"]:
    views = Tour(seed=9, width=SIZE[1], height=SIZE[0]).views(torch.device("cpu"))
    return torch.stack([view.image for view, _ in zip(views, range(12), strict=False)])


def cameras(session: SequenceSession | WindowedSession, frames: Tensor) -> Float[Tensor, "frames 4 4"]:
    return Geometry.join(list(session.run(frames))).world_from_camera


@pytest.mark.parametrize("anchoring", rest_in_extra(Anchoring, keep=1))
def test_windows_are_laid_as_the_settings_say(anchoring: Anchoring, model: GeometryModel, frames: Tensor) -> None:
    asked = replace(WINDOWED, alignment=Alignment(anchoring))
    opened = open_session(model, asked, SIZE)
    assert isinstance(opened, WindowedSession)
    assert asked.windows is not None
    twin = WindowedSession(opened.session, asked.windows, Alignment(anchoring))
    found = cameras(opened, frames)
    twin.session.clear()
    torch.testing.assert_close(cameras(twin, frames), found, atol=0, rtol=0)
    others = [rule for rule in Anchoring if rule is not anchoring]
    for rule in others:
        other = cameras(open_session(model, replace(asked, alignment=Alignment(rule)), SIZE), frames)
        assert torch.equal(other[:3], found[:3])  # the later window says what both have seen
        assert not torch.equal(other, found)


def test_trained_sizes_are_those_of_the_network() -> None:
    assert usual_settings(TINY) == SMALL
    sizes = ((28, 42), (42, 28))
    assert usual_settings(replace(TINY, sizes=sizes)) == replace(SMALL, sizes=sizes)
    assert usual_settings(replace(TINY_CAUSAL, sizes=sizes)).sizes == sizes


def test_one_sequence_has_no_windows(model: GeometryModel) -> None:
    assert isinstance(open_session(model, replace(WINDOWED, windows=None), SIZE), SequenceSession)
