"""What to think of a frame's result, from its picture, its confidence and the camera's last steps."""

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from longtake.exports.frame import FrameStatus

_BLOCKS = 32
"""Blocks each way in which pictures are compared."""
_TONES = 6
"""Steps of red, green and blue each by which colours are told apart."""
_REMEMBERED = 30
"""Frames by which the usual step and confidence are judged."""
_ENOUGH = 5
"""Frames without which nothing is usual yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusRule:
    """Where each judgement begins."""

    same_difference: float = 1.5
    """Of the block that differs most, of 255, up to which a picture is the same again; an encoder may add as much."""
    shared_colours: float = 0.5
    """Share of the colours in common with the last picture, below which the scene has changed."""
    jump_steps: float = 10.0
    """How many usual steps a camera may make at once."""
    jump_turn_deg: float = 60.0
    weak_share: float = 0.4
    """Share of the usual confidence below which a result is weak; confidence counts from its least value, 1."""


@dataclass(frozen=True, slots=True)
class PictureSummary:
    """What is compared of two pictures."""

    blocks: Float[np.ndarray, "blocks blocks"]
    """Mean grey of blocks."""
    colours: Float[np.ndarray, "bins"]
    """Share of the pixels of each colour."""

    @classmethod
    def of(cls, image: UInt8[np.ndarray, "height width 3"]) -> "PictureSummary":
        return cls(_blocks(image), _colours(image))


@dataclass(frozen=True, slots=True)
class _Last:
    """The last frame that counted: repeated ones do not, so that motion too slow to be seen between two adds up."""

    picture: PictureSummary
    pose: Float[Tensor, "4 4"]


class StatusJudge:
    """Judges frame after frame; its state is small and can be saved."""

    def __init__(self, rule: StatusRule | None = None) -> None:
        self._rule = rule or StatusRule()
        self._last: _Last | None = None
        self._steps: deque[float] = deque(maxlen=_REMEMBERED)
        self._confidences: deque[float] = deque(maxlen=_REMEMBERED)

    def copy(self) -> "StatusJudge":
        """One that goes on from here on its own."""
        other = StatusJudge(self._rule)
        other._last, other._steps, other._confidences = self._last, self._steps.copy(), self._confidences.copy()
        return other

    def judge(
        self,
        picture: PictureSummary,
        world_from_camera: Float[Tensor, "4 4"],
        confidence: Float[np.ndarray, "height width"],
    ) -> FrameStatus:
        """The status of the next frame: the first that applies of repeated, cut, jump and weak."""
        now = _Last(picture, world_from_camera)
        sureness = float(confidence.mean()) - 1
        status = FrameStatus.OK if self._last is None else self._compare(self._last, now)
        if status is FrameStatus.OK and self._is_weak(sureness):
            status = FrameStatus.WEAK
        if status is FrameStatus.OK:
            self._confidences.append(sureness)
            if self._last is not None:
                self._steps.append(_step(self._last, now))
        if status is not FrameStatus.REPEATED:
            self._last = now
        return status

    def state(self) -> dict[str, Any]:
        """All that the next judgements depend on, as plain values."""
        return {
            "picture": None if self._last is None else self._last.picture.blocks.tolist(),
            "colours": None if self._last is None else self._last.picture.colours.tolist(),
            "pose": None if self._last is None else self._last.pose.tolist(),
            "steps": list(self._steps),
            "confidences": list(self._confidences),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a state."""
        self._last = None
        if state["picture"] is not None:
            pose = torch.tensor(state["pose"], dtype=torch.float64)
            picture = PictureSummary(np.array(state["picture"]), np.array(state["colours"]))
            self._last = _Last(picture, pose)
        self._steps = deque(state["steps"], maxlen=_REMEMBERED)
        self._confidences = deque(state["confidences"], maxlen=_REMEMBERED)

    def _compare(self, last: _Last, now: _Last) -> FrameStatus:
        if np.abs(now.picture.blocks - last.picture.blocks).max() <= self._rule.same_difference:
            return FrameStatus.REPEATED
        if np.minimum(now.picture.colours, last.picture.colours).sum() < self._rule.shared_colours:
            return FrameStatus.CUT
        far = len(self._steps) >= _ENOUGH and _step(last, now) > self._rule.jump_steps * median(self._steps)
        return FrameStatus.JUMP if far or _turn_deg(last, now) > self._rule.jump_turn_deg else FrameStatus.OK

    def _is_weak(self, sureness: float) -> bool:
        usual = median(self._confidences) if len(self._confidences) >= _ENOUGH else 0.0
        return sureness < self._rule.weak_share * usual


def _blocks(image: UInt8[np.ndarray, "height width 3"]) -> Float[np.ndarray, "blocks blocks"]:
    """Mean grey of blocks, as many each way whatever the size."""
    grey = torch.from_numpy(image).double().mean(dim=-1)
    return torch.nn.functional.adaptive_avg_pool2d(grey[None], _BLOCKS)[0].numpy()


def _colours(image: UInt8[np.ndarray, "height width 3"]) -> Float[np.ndarray, "bins"]:
    red, green, blue = np.moveaxis(image.astype(np.int64) * _TONES // 256, -1, 0)
    counts = np.bincount(((red * _TONES + green) * _TONES + blue).ravel(), minlength=_TONES**3)
    return np.asarray(counts / (image.shape[0] * image.shape[1]))


def _step(last: _Last, now: _Last) -> float:
    return float((now.pose[:3, 3] - last.pose[:3, 3]).norm())


def _turn_deg(last: _Last, now: _Last) -> float:
    cosine = (float((last.pose[:3, :3] * now.pose[:3, :3]).sum()) - 1) / 2
    return math.degrees(math.acos(min(1.0, max(-1.0, cosine))))
