"""Frames beneath an overlay that is found while they are provisional: told once and again, and after a break, alike."""

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from longtake.hub.load import load_model, loop_card_of
from longtake.places.build import resume_session, with_loops
from longtake.places.looped_session import LoopedSession
from longtake.places.saved_walk import walk_tensors
from longtake.runtime.build import open_session, usual_settings
from longtake.types import Geometry
from longtake.world.tour import Tour

pytestmark = pytest.mark.extra

SIZE = (98, 126)
LOGO_FROM, SAVED_AFTER, NUM_FRAMES = 46, 113, 118
"""The logo is known some 60 frames after it came, while frames from 104 on wait for the next window."""


def pictures() -> list[Tensor]:
    views = itertools.islice(Tour(seed=8, width=SIZE[1], height=SIZE[0]).views(), NUM_FRAMES)
    logo = torch.from_numpy(np.random.default_rng(0).integers(0, 2, (4, 12)).repeat(3, 0).repeat(3, 1) * 255)
    shown = [(view.image * 255).round().byte() for view in views]
    for number, picture in enumerate(shown):
        if number >= LOGO_FROM:
            picture[:, 80:92, 80:116] = logo.byte()
        if number >= LOGO_FROM + 3:
            picture[:, 4:16, 4:40] = logo.byte()
    return shown


def confidences(told: list[Geometry]) -> dict[int, Tensor]:
    """Of each frame as it was told last."""
    said: dict[int, Tensor] = {}
    for geometry in told:
        parts = [geometry] if geometry.moved is None else [geometry, geometry.moved.geometry]
        for part in parts:
            said |= dict(zip(part.frame_index, part.depth_confidence, strict=True))
    return said


def test_provisional_frames_are_as_they_were_told_and_a_resumed_session_tells_the_same(tmp_path: Path) -> None:
    model = load_model("micro-map")
    inner = open_session(model, usual_settings(model.config), SIZE, reserve_frames=64)
    session = with_loops(inner, loop_card_of("micro-map"))
    assert isinstance(session, LoopedSession)
    shown, told, masks = pictures(), list[Geometry](), set[int]()
    for picture in shown[:SAVED_AFTER]:
        told.append(session.step(picture))
        owed, said = session.provisional, confidences(told)
        for frame, confidence in zip(owed.frame_index, owed.depth_confidence, strict=True):
            assert torch.equal(confidence, said[frame]), frame
            masks.add(int((confidence == 0).sum()))
    assert len(masks) >= 3  # none, one logo, both
    session.save(tmp_path / "session.safetensors")
    again = resume_session(tmp_path / "session.safetensors", model)
    assert isinstance(again, LoopedSession)
    assert again.walk.num_bytes == session.walk.num_bytes <= session.walk.most_bytes(SIZE)
    require_same(confidences([session.provisional]), confidences([again.provisional]))
    for picture in shown[SAVED_AFTER:]:
        require_same(confidences([session.step(picture)]), confidences([again.step(picture)]))
    require_same(confidences([session.finish()]), confidences([again.finish()]))
    for name, tensor in walk_tensors(session.walk).items():
        assert torch.equal(tensor, walk_tensors(again.walk)[name]), name


def require_same(one: dict[int, Tensor], other: dict[int, Tensor]) -> None:
    assert list(one) == list(other)
    for frame, confidence in one.items():
        assert torch.equal(confidence, other[frame]), frame
