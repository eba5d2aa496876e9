from dataclasses import replace
from pathlib import Path

import pytest
import torch
from selected import rest_in_extra
from torch import Tensor

from longtake.attention.backend import Backend
from longtake.attention.masks import clip_mask
from longtake.bench import exactness
from longtake.bench.exactness import measure_exactness
from longtake.geometry.model import GeometryModel
from longtake.memory.policies.lockstep import ContextRetention
from longtake.runtime.build import SMALL, open_session
from longtake.runtime.keyframes import EveryNth
from longtake.runtime.steps import VideoSession

SETTINGS = replace(SMALL, num_scale_frames=2, retention=ContextRetention(anchors=2, window=2, history=16))
CLOSE = 2e-5


@pytest.fixture(scope="module")
def images(golden_frames: Tensor) -> Tensor:
    return golden_frames[0]


@pytest.mark.parametrize("interval", rest_in_extra([2, 1], keep=1))
def test_streaming_with_eviction_is_exact(tiny_model: GeometryModel, images: Tensor, interval: int) -> None:
    found = measure_exactness(tiny_model, images, replace(SETTINGS, keyframes=EveryNth(interval)))
    assert found.stream_to_clip_error < CLOSE
    assert found.resumed_is_identical


@pytest.mark.parametrize("num_frames", [1, 2, 3])
def test_clip_may_be_shorter_than_the_scale_block(tiny_model: GeometryModel, images: Tensor, num_frames: int) -> None:
    found = measure_exactness(tiny_model, images[:num_frames], replace(SETTINGS, num_scale_frames=4))
    assert found.stream_to_clip_error < CLOSE
    assert found.resumed_is_identical


def test_stream_that_forgets_otherwise_than_its_mask_is_found(
    tiny_model: GeometryModel, images: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def seeing_all(*arguments: object) -> Tensor:
        return torch.ones_like(clip_mask(*arguments))  # type: ignore[arg-type]

    monkeypatch.setattr(exactness, "clip_mask", seeing_all)
    assert measure_exactness(tiny_model, images, SETTINGS).stream_to_clip_error > 10 * CLOSE


def test_session_that_lost_its_memory_is_found(
    tiny_model: GeometryModel, images: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forgetful(path: Path, model: GeometryModel, backend: Backend | None) -> VideoSession:
        return open_session(model, replace(SETTINGS, windows=None), (images.shape[-2], images.shape[-1]))

    monkeypatch.setattr(exactness, "resume_session", forgetful)
    assert not measure_exactness(tiny_model, images, SETTINGS).resumed_is_identical
