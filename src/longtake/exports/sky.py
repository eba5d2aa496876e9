"""Sky masks: which pixels show no sky, by the score map of a segmentation model."""

from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float, UInt8
from PIL import Image
from torch import Tensor

from longtake.errors import InputError
from longtake.extras import import_from_extra

LEAST_GROUND = 0.1
"""Confidence that a pixel is not sky, from 0 to 1, which it must exceed to be kept."""

_SIDE = 320
_MEAN, _DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_TOLERANCE = 1e-3


@runtime_checkable
class SkyModel(Protocol):
    """Tells how surely each place of an image is sky."""

    def score(self, image: UInt8[np.ndarray, "height width 3"]) -> Float[np.ndarray, "rows columns"]:
        """From 0 to 1, in as many rows and columns as the model likes, over the whole image."""
        ...


class OnnxSky:
    """A sky model in an ONNX file: it takes 320x320 RGB images, normalised as ImageNet's are, and gives score maps."""

    def __init__(self, path: Path) -> None:
        runtime = import_from_extra("onnxruntime", "sky", "Finding sky")
        if not path.is_file():
            raise InputError(f"Expected a sky model at {path}, but there is no such file; check the path.")
        self._path = path
        self._errors = _errors_of(runtime)
        try:
            self._session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        except self._errors as error:
            raise InputError(
                f"Expected a sky model as an ONNX file in {path}, but it cannot be read ({error})."
            ) from error
        self._input = self._session.get_inputs()[0].name

    def __reduce__(self) -> tuple[type["OnnxSky"], tuple[Path]]:
        """Another process opens the file anew."""
        return OnnxSky, (self._path,)

    def score(self, image: UInt8[np.ndarray, "height width 3"]) -> Float[np.ndarray, "rows columns"]:
        try:
            score = np.asarray(self._session.run(None, {self._input: _as_input(image)})[0])
        except self._errors as error:
            raise InputError(
                f"Expected a sky model that takes 1x3x{_SIDE}x{_SIDE} in {self._path}, but it does not ({error})."
            ) from error
        if not _is_score_map(score):
            raise InputError(
                f"Expected one map of scores from 0 to 1 from the sky model {self._path}, but got shape {score.shape} "
                f"with numbers from {score.min(initial=np.inf):.3g} to {score.max(initial=-np.inf):.3g}."
            )
        return score.reshape(score.shape[-2:]).astype(np.float32)


def shows_ground(
    image: UInt8[np.ndarray, "height width 3"], model: SkyModel, least_ground: float = LEAST_GROUND
) -> Bool[np.ndarray, "height width"]:
    """Where a model leaves enough confidence that an image shows no sky.

    The published tool stretches each image's scores to the full range first, and so finds sky in every image.
    """
    height, width, _ = image.shape
    score = Image.fromarray(np.rint(model.score(image).clip(0, 1) * 255).astype(np.uint8))
    resized = np.array(score.resize((width, height), Image.Resampling.BILINEAR))
    return keep_ground(torch.from_numpy(resized), least_ground).numpy()


def keep_ground(
    score: UInt8[Tensor, "*batch height width"], least_ground: float = LEAST_GROUND
) -> Bool[Tensor, "*batch height width"]:
    """Where a map of sky scores, 255 for certain sky, leaves enough confidence in ground.

    The published tool clips the scores to 0 and 1 first, and so keeps only what scored exactly 0.
    """
    return 1 - score.float() / 255 > least_ground


def _as_input(image: UInt8[np.ndarray, "height width 3"]) -> Float[np.ndarray, "1 3 side side"]:
    small = np.asarray(Image.fromarray(image).resize((_SIDE, _SIDE), Image.Resampling.BILINEAR), dtype=np.float32) / 255
    normal = (small - np.array(_MEAN, np.float32)) / np.array(_DEVIATION, np.float32)
    return np.ascontiguousarray(normal.transpose(2, 0, 1)[None])


def _is_score_map(score: np.ndarray) -> bool:
    is_map = score.ndim >= 2 and 0 < score.size == score.shape[-2] * score.shape[-1]
    return is_map and bool(((score >= -_TOLERANCE) & (score <= 1 + _TOLERANCE)).all())


def _errors_of(runtime: Any) -> tuple[type[Exception], ...]:
    """What onnxruntime raises; its errors have no common base of their own."""
    state = runtime.capi.onnxruntime_pybind11_state
    return (
        state.Fail,
        state.InvalidArgument,
        state.InvalidGraph,
        state.InvalidProtobuf,
        state.NotImplemented,
        state.NoSuchFile,
        state.RuntimeException,
        RuntimeError,
        ValueError,
    )
