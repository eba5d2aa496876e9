"""A frame's descriptor: the mean of its patches, the same bits streaming, in any clip it is shown with, and resumed."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import longtake
from longtake import GeometrySession
from longtake.geometry.model import GeometryModel
from longtake.hub.load import load_model
from longtake.runtime.build import SMALL, open_session
from longtake.types import FrameKind, Geometry
from longtake.video.frame import VideoFrame
from longtake.world.tour import Tour

SOURCE = "world:9?frames=30&size=126x98"
OPTIONS = {"windows": "12/4", "keyframes": "every:2"}


@pytest.fixture(scope="module")
def model() -> GeometryModel:
    return load_model("micro-map")


@pytest.fixture(scope="module")
def frames() -> list[VideoFrame]:
    return list(longtake.open_video(SOURCE))


def newest(session: GeometrySession, frames: list[VideoFrame]) -> dict[int, torch.Tensor]:
    """Of each frame, as it is known at the end."""
    found: dict[int, torch.Tensor] = {}

    def note(geometry: Geometry) -> None:
        for part in (geometry, *(() if geometry.moved is None else (geometry.moved.geometry,))):
            assert part.descriptor is not None
            found.update(zip(part.frame_index, part.descriptor, strict=True))

    for frame in frames:
        note(session.step(frame))
    note(session.finish())
    return found


def test_it_is_the_mean_of_the_patches_of_the_encoder(model: GeometryModel, frames: list[VideoFrame]) -> None:
    images = torch.stack([torch.from_numpy(np.array(frame.image)).permute(2, 0, 1) for frame in frames[:9]])
    said = Geometry.join(list(open_session(model, SMALL, (98, 126)).run(images)))
    with torch.no_grad():
        patches = model.encode(images[None] / 255, model.grid(98, 126))
    assert said.descriptor is not None
    torch.testing.assert_close(said.descriptor, patches[0].mean(dim=1), rtol=1e-5, atol=1e-6)


def test_a_resumed_session_says_the_same_bits(model: GeometryModel, frames: list[VideoFrame], tmp_path: Path) -> None:
    with GeometrySession.from_pretrained(model, **OPTIONS) as whole:
        want = newest(whole, frames)
    with GeometrySession.from_pretrained(model, **OPTIONS) as first:
        for frame in frames[:17]:
            first.step(frame)
        first.save(tmp_path / "session")
    with GeometrySession.resume(tmp_path / "session", model) as second:
        for index, descriptor in newest(second, frames[17:]).items():
            assert torch.equal(descriptor, want[index])
    assert len(want) == len(frames)


def test_a_take_keeps_that_of_every_keyframe_as_half_floats(model: GeometryModel, tmp_path: Path) -> None:
    take = longtake.map(SOURCE, tmp_path / "map", model=model, **OPTIONS)
    with GeometrySession.from_pretrained(model, **OPTIONS) as session:
        want = newest(session, list(longtake.open_video(SOURCE)))
    kept = [record.keyframe for record in take.records]
    assert 0 < sum(map(bool, kept)) < len(take)
    for record, descriptor in zip(take.records, take.descriptors(), strict=True):
        assert (descriptor is not None) == record.keyframe
        if descriptor is not None:
            np.testing.assert_array_equal(descriptor, want[record.index].half().float().numpy())
    assert (take.folder / "descriptors.txt").stat().st_size <= len(take) * 385


def test_the_same_place_looks_alike_and_another_does_not(model: GeometryModel) -> None:
    """House 9 from one place, from 10 cm beside, and house 19."""
    seen = [next(iter(Tour(seed=seed, width=126, height=98).views_at([at]))) for seed, at in ((9, 0), (9, 1), (19, 0))]
    with torch.no_grad():
        patches = model.encode(torch.stack([view.image for view in seen])[None], model.grid(98, 126))
        here, beside, elsewhere = model.descriptor(patches)[0]
    cosine = torch.nn.functional.cosine_similarity
    assert cosine(here, beside, dim=0) > cosine(here, elsewhere, dim=0)


def test_parts_that_lack_it_join_to_a_whole_without_it(model: GeometryModel, frames: list[VideoFrame]) -> None:
    with GeometrySession.from_pretrained(model) as session:
        parts = [session.step(frame) for frame in frames[:9]][-2:]
    joined = Geometry.join([parts[0], replace(parts[1], descriptor=None)])
    assert joined.descriptor is None
    assert len(joined) == len(parts[0]) + len(parts[1])
    assert joined.kind[0] is FrameKind.SCALE
