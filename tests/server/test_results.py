from collections.abc import Sequence
from dataclasses import fields

import pytest
import torch
from served import QUESTION, same

import longtake
from longtake.api.live_session import LiveSession
from longtake.errors import InputError
from longtake.server.networks import Networks
from longtake.server.results import answer_of, answer_record, geometry_bytes, geometry_of
from longtake.types import Geometry
from longtake.video.frame import VideoFrame


@pytest.fixture(scope="module")
def steps(networks: Networks, frames: Sequence[VideoFrame]) -> list[Geometry]:
    """Of a session with windows, so that earlier frames move."""
    session = longtake.GeometrySession.from_pretrained(networks.map_named("micro-map"), windows="14/4")
    with session:
        return [session.step(frame) for frame in frames]


def test_geometry_comes_back_to_the_bit_with_all_that_moved(steps: Sequence[Geometry]) -> None:
    assert any(step.moved is not None for step in steps)
    for step in steps:
        again = geometry_of(geometry_bytes(step))
        assert same(again, step)
        for field in fields(step):
            before, after = getattr(step, field.name), getattr(again, field.name)
            if isinstance(before, torch.Tensor):
                assert torch.equal(before, after)
                assert before.dtype == after.dtype
            elif field.name != "moved":
                assert before == after
        assert (again.moved is None) == (step.moved is None)
        if step.moved is not None and again.moved is not None:
            assert again.moved.version == step.moved.version
            assert same(again.moved.geometry, step.moved.geometry)
            for one, other in zip(again.moved.spans, step.moved.spans, strict=True):
                assert torch.equal(one.now_from_before, other.now_from_before)


@pytest.mark.parametrize("content", [b"", b"x" * 20, geometry_bytes.__name__.encode()])
def test_what_is_no_geometry_is_refused(content: bytes) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        geometry_of(content)


def test_an_answer_comes_back_to_the_bit(networks: Networks, frames: Sequence[VideoFrame]) -> None:
    session = LiveSession.from_pretrained(
        map=networks.map_named("micro-map"), ask=networks.language_named("micro-vqa"), memory="40MB", ask_fps=5.0
    )
    with session:
        for frame in frames[:10]:
            session.step(frame)
        answer = session.ask(QUESTION)
        *pieces, last = session.ask_stream(QUESTION)
        refused = session.ask("Is there a dragon?")
    assert "".join(piece for piece in pieces if isinstance(piece, str)) == answer.text
    assert not isinstance(last, str)
    assert (last.text, last.answer.evidence) == (answer.text, answer.answer.evidence)
    again = answer_of(answer_record(answer))
    assert again.answer == answer.answer
    assert again.world_from_camera is not None
    assert answer.world_from_camera is not None
    assert torch.equal(again.world_from_camera, answer.world_from_camera)
    assert answer_record(again) == answer_record(answer)
    assert refused.answer.refusal is not None
    assert answer_of(answer_record(refused)).answer == refused.answer
