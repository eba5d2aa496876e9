"""The sky mask by its own statement, beside what the published tool makes of the same scores."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from longtake.errors import InputError, MissingExtraError
from longtake.exports.sky import OnnxSky, SkyModel, keep_ground, shows_ground


def test_pixels_are_kept_by_confidence_and_not_only_where_the_score_is_zero(golden: Callable[[str], Any]) -> None:
    published = golden("sky")
    score = published["score_u8_resized_42x70"]
    kept, kept_as_published = keep_ground(score), published["keep_mask_asis"] > 0.5
    assert torch.equal(kept_as_published, score == 0)
    assert torch.equal(kept, score < 230)
    assert bool((kept | ~kept_as_published).all())
    assert int(kept.sum()) > int(kept_as_published.sum())


def test_certain_sky_goes_and_the_threshold_is_the_callers() -> None:
    score = torch.tensor([[0, 128, 229, 230, 255]], dtype=torch.uint8)
    assert keep_ground(score).tolist() == [[True, True, True, False, False]]
    assert keep_ground(score, least_ground=0.6).tolist() == [[True, False, False, False, False]]


class Rows:
    """Scores a fixed column of numbers, whatever the image."""

    def __init__(self, *scores: float) -> None:
        self.scores = scores

    def score(self, image: np.ndarray) -> np.ndarray:
        return np.array(self.scores)[:, None].repeat(3, axis=1)


def test_image_shows_ground_where_the_model_finds_no_sky() -> None:
    image = np.zeros((40, 30, 3), np.uint8)
    ground = shows_ground(image, Rows(1.0, 0.0))
    assert isinstance(Rows(), SkyModel)
    assert ground.shape == (40, 30)
    assert not ground[:10].any()
    assert ground[30:].all()
    # between the middles of the two rows, at 10 and 30, scores fall evenly; 0.9 is at row 12
    assert ground[:, 0].tolist() == sorted(ground[:, 0].tolist())
    assert abs(int(ground[:, 0].argmax()) - 12) <= 1


def test_image_without_sky_is_kept_whole_and_one_of_sky_is_dropped_whole() -> None:
    image = np.zeros((10, 10, 3), np.uint8)
    assert shows_ground(image, Rows(0.0, 0.2)).all()
    assert not shows_ground(image, Rows(0.95, 1.0)).any()
    assert shows_ground(image, Rows(0.95, 1.0), least_ground=-1.0).all()


def test_missing_package_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(MissingExtraError, match=r'Finding sky needs onnxruntime.*pip install "longtake\[sky\]"'):
        OnnxSky(tmp_path / "sky.onnx")


def field(number: int, value: bytes | int) -> bytes:
    """A field of a protocol buffer."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def varint(value: int) -> bytes:
    return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + varint(value >> 7)


def onnx_file(path: Path, *operators: tuple[str, bytes], shape: tuple[int, ...] = (1, 3, 320, 320)) -> Path:
    """A model that applies operators one after another to floats of this shape."""
    dimensions = b"".join(field(1, field(1, size)) for size in shape)
    tensor = field(1, field(1, 1) + field(2, dimensions))
    nodes = b"".join(
        field(
            1, field(1, f"v{place}".encode()) + field(2, f"v{place + 1}".encode()) + field(4, name.encode()) + attribute
        )
        for place, (name, attribute) in enumerate(operators)
    )
    given, found = (field(1, name.encode()) for name in ("v0", f"v{len(operators)}"))
    graph = (
        nodes
        + field(2, b"g")
        + field(11, given + field(2, tensor))
        + field(12, found + field(2, field(1, field(1, 1))))
    )
    path.write_bytes(field(1, 8) + field(7, graph) + field(8, field(2, 13)))
    return path


def whole_numbers(name: str, *values: int) -> bytes:
    return field(5, field(1, name.encode()) + b"".join(field(8, value) for value in values) + field(20, 7))


MEAN_COLOUR = ("ReduceMean", whole_numbers("axes", 1))


@pytest.fixture
def runtime() -> None:
    pytest.importorskip("onnxruntime")


@pytest.mark.usefixtures("runtime")
def test_onnx_model_scores_what_it_is_shown(tmp_path: Path) -> None:
    model = OnnxSky(onnx_file(tmp_path / "sky.onnx", MEAN_COLOUR, ("Sigmoid", b"")))
    image = np.zeros((48, 64, 3), np.uint8)
    image[:20] = 255
    score = model.score(image)
    assert score.shape == (320, 320)
    deviations = (np.array([[0.0], [1.0]]) - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]
    black, white = 1 / (1 + np.exp(-deviations.mean(axis=1)))
    np.testing.assert_allclose(score[:100], white, atol=1e-5)
    np.testing.assert_allclose(score[200:], black, atol=1e-5)
    ground = shows_ground(image, model)
    assert not ground[:18].any()
    assert ground[22:].all()


@pytest.mark.usefixtures("runtime")
def test_file_that_is_no_sky_model_is_one_sentence(tmp_path: Path) -> None:
    image = np.zeros((48, 64, 3), np.uint8)
    with pytest.raises(InputError, match=r"Expected a sky model at .*none\.onnx, but there is no such file"):
        OnnxSky(tmp_path / "none.onnx")
    (tmp_path / "bad.onnx").write_bytes(b"no model")
    with pytest.raises(InputError, match=r"as an ONNX file in .*bad\.onnx, but it cannot be read"):
        OnnxSky(tmp_path / "bad.onnx")
    with pytest.raises(InputError, match=r"that takes 1x3x320x320 in .*small\.onnx, but it does not"):
        OnnxSky(onnx_file(tmp_path / "small.onnx", MEAN_COLOUR, shape=(1, 3, 32, 32))).score(image)
    with pytest.raises(
        InputError, match=r"scores from 0 to 1 from .*raw\.onnx, but got shape \(1, 1, 320, 320\) with num"
    ):
        OnnxSky(onnx_file(tmp_path / "raw.onnx", MEAN_COLOUR)).score(image)
    with pytest.raises(InputError, match=r"but got shape \(1, 3, 320, 320\)"):
        OnnxSky(onnx_file(tmp_path / "colours.onnx", ("Sigmoid", b""))).score(image)
