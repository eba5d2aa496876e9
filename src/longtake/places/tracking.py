"""Whether a frame goes on from the one before it: by colours, brightness, motion, and by what the network says of it.

before the network looks     darkness, or colours of another scene: the frame is lost
after it has looked          the same, with how alike it finds the two frames, or that the camera turned away from all
                             it saw: lost, unless the pixels of the one are found in the other; its confidence and
                             the camera's step against the recent past: weak

All is a value and a pure function of pictures and results; no clock is asked.
"""

import math
from dataclasses import dataclass, replace
from statistics import median

import numpy as np
from jaxtyping import Bool, Float64, Int32, UInt8
from torch import Tensor

from longtake.errors import SettingError
from longtake.places.common_view import common_share
from longtake.places.overlay import Overlay
from longtake.places.pictures import LONGEST_SIDE
from longtake.types import Geometry, TrackingReason, TrackingState

_TONES = 6
"""Steps of red, green and blue each by which colours are told apart."""
_BLOCK = 7
"""Pixels along each side of a block of which the mean is compared."""
_REMEMBERED = 30
"""Frames of the recent past."""
_ENOUGH = 5
"""Frames without which nothing is usual yet."""
_PLACES_APART = 1e-6
"""A camera's step over the depth, below which it is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackingRule:
    """Where each judgement begins; chosen for micro-map by `python -m benchmarks tracking`."""

    least_shared_colours: float = 0.5
    """Share of the colours in common with the picture before, where the network has not spoken of both."""
    other_colours: float = 0.25
    """The same share, below which it need not be asked."""
    least_likeness: float = 0.4
    """The share, less `per_angle` times the network's distance (1 - cosine) between the two frames."""
    per_angle: float = 10.0
    least_common: float = 0.3
    """Share of the squares of the picture before that are found again, from which on it is the same view anyway."""
    dark: float = 20.0
    """Mean brightness of 255, below which a picture is dark."""
    plain: float = 3.0
    """Deviation of brightness of 255, below which there is nothing to be seen."""
    dark_frames: int = 3
    """After so many the camera is lost; it is weak before."""
    still: float = 1.0
    """Of the block that differs most, of 255, up to which a picture is the same."""
    still_frames: int = 20
    usual_likeness: float = 0.6
    """Of the frames before, below which it was too fast and not a cut."""
    least_overlay: float = 0.005
    """Share of the picture from which on an overlay is told."""
    weak_share: float = 0.05
    """Share of the usual confidence."""
    fast_steps: float = 12.0
    """How many usual steps a camera may make at once."""
    fast_turn_deg: float = 15.0

    def __post_init__(self) -> None:
        if min(self.dark_frames, self.still_frames) < 1:
            raise SettingError(f"Expected numbers of frames from 1 on in a rule for tracking, but got {self}.")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sight:
    """What is compared of two pictures."""

    blocks: Float64[np.ndarray, "rows columns"]
    """Mean grey."""
    colours: Float64[np.ndarray, " tones"]
    """Share of the pixels of each colour."""
    grey: UInt8[np.ndarray, "height width"]

    @classmethod
    def of(
        cls, pixels: UInt8[np.ndarray, "3 height width"], covered: Bool[np.ndarray, "height width"] | None
    ) -> "Sight":
        """Of what is not covered."""
        total = pixels.sum(axis=0, dtype=np.int32)
        if covered is None or covered.all():
            return cls._of(total, pixels.reshape(3, -1))
        free = ~covered
        return cls._of(np.where(covered, np.int32(total[free].mean()), total), pixels[:, free])

    @classmethod
    def _of(cls, total: Int32[np.ndarray, "height width"], pixels: UInt8[np.ndarray, "3 pixels"]) -> "Sight":
        return cls(blocks=_blocks(total), colours=_colours(pixels), grey=(total // 3).astype(np.uint8))

    @property
    def brightness(self) -> float:
        return float(self.blocks.mean())

    @property
    def contrast(self) -> float:
        return float(self.blocks.std())

    def shared_colours(self, other: "Sight") -> float:
        return float(np.minimum(self.colours, other.colours).sum())

    def difference(self, other: "Sight") -> float:
        """Of the block that differs most."""
        return float(np.abs(self.blocks - other.blocks).max())


@dataclass(frozen=True, slots=True, kw_only=True)
class Recent:
    """Of the frames before, as far as they were tracked."""

    likeness: tuple[float, ...] = ()
    sureness: tuple[float, ...] = ()
    """Mean confidence of depth, from its least value, 1."""
    steps: tuple[float, ...] = ()
    """Over the median depth."""

    def followed_by(self, *, likeness: float, sureness: float, step: float) -> "Recent":
        return Recent(
            likeness=(*self.likeness, likeness)[-_REMEMBERED:],
            sureness=(*self.sureness, sureness)[-_REMEMBERED:],
            steps=(*self.steps, step)[-_REMEMBERED:],
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tracker:
    """How the last frame was tracked, and what the next one is judged by."""

    rule: TrackingRule
    state: TrackingState = TrackingState.OK
    reason: TrackingReason | None = None
    sight: Sight | None = None
    """Of the last frame that was not dark."""
    before: Sight | None = None
    """Of the one before it, until the network has looked."""
    overlay: Overlay = Overlay()  # noqa: RUF009 (a frozen value)
    num_dark: int = 0
    num_still: int = 0
    likeness: float = 1.0
    """Of the last frame's colours, with those of the one before."""
    descriptor: Float64[np.ndarray, " channels"] | None = None
    """Of the last frame, where it was answered in its step and not dark."""
    pose: Float64[np.ndarray, "4 4"] | None = None
    """Of the last frame that was answered and not lost, as the session said it."""
    recent: Recent = Recent()

    @property
    def is_lost(self) -> bool:
        return self.state is TrackingState.LOST

    def seeing(self, picture: UInt8[Tensor, "3 height width"]) -> "Tracker":
        """After one more picture, before the network has looked at it."""
        pixels, rule = _smaller(picture), self.rule
        sight = Sight.of(pixels, self.overlay.covered)
        if sight.brightness < rule.dark or sight.contrast < rule.plain:
            is_lost = self.is_lost or self.num_dark + 1 >= rule.dark_frames
            return replace(
                self._judged(is_lost=is_lost, reason=TrackingReason.DARKNESS),
                num_dark=self.num_dark + 1,
                num_still=0,
                descriptor=None,
            )
        before = self.sight
        likeness = 1.0 if before is None else sight.shared_colours(before)
        is_same = before is not None and sight.difference(before) <= rule.still
        seen = replace(
            self,
            sight=sight,
            before=before,
            overlay=self.overlay.seeing(pixels),
            num_dark=0,
            num_still=self.num_still + 1 if is_same else 0,
            likeness=likeness,
        )
        least = rule.least_shared_colours if self.descriptor is None else rule.other_colours
        if likeness < least:
            return seen._judged(is_lost=True, reason=seen._why_unlike)
        if seen.num_still >= rule.still_frames:
            return seen._judged(is_lost=False, reason=TrackingReason.STANDING_STILL)
        is_covered = seen.overlay.share >= rule.least_overlay
        return replace(seen, state=TrackingState.OK, reason=TrackingReason.OVERLAY if is_covered else None)

    def told(self, geometry: Geometry) -> "Tracker":
        """After the network has looked at the same picture; with no result of it, as it waits, nothing is added."""
        if not len(geometry) or self.num_dark:
            return replace(self, descriptor=None, before=None)
        descriptor, pose = _descriptor(geometry), geometry.world_from_camera[-1].detach().double().cpu().numpy()
        sureness = float(geometry.depth_confidence[-1].detach().double().mean().cpu()) - 1
        step, turn_deg = _motion(self.pose, pose, geometry)
        likeness = self.likeness
        if descriptor is not None and self.descriptor is not None:
            likeness -= self.rule.per_angle * _angle(self.descriptor, descriptor)
        told = replace(self, descriptor=descriptor, before=None)
        is_elsewhere = turn_deg > _widest_view_deg(geometry)  # by the network's own word the two share nothing
        if (likeness < self.rule.least_likeness or is_elsewhere) and not self._has_common_view:
            return told._judged(is_lost=True, reason=self._why_unlike)
        after = replace(
            told, pose=pose, recent=self.recent.followed_by(likeness=likeness, sureness=sureness, step=step)
        )
        if self.state is not TrackingState.OK:
            return after
        reason = self._doubt(sureness, step, turn_deg)
        return after if reason is None else after._judged(is_lost=False, reason=reason)

    def lost(self, geometry: Geometry) -> "Tracker":
        """Of a frame that is lost, looked at alone: all that is usual begins anew."""
        descriptor = None if self.num_dark else _descriptor(geometry)
        return replace(self, descriptor=descriptor, pose=None, recent=Recent(), before=None)

    def cut_off(self) -> "Tracker":
        """Where whoever shows the frames says that it is the last one of its kind."""
        return self._judged(is_lost=True, reason=TrackingReason.CUT)

    def _judged(self, *, is_lost: bool, reason: TrackingReason) -> "Tracker":
        return replace(self, state=TrackingState.LOST if is_lost else TrackingState.WEAK, reason=reason)

    @property
    def _has_common_view(self) -> bool:
        if self.sight is None or self.before is None:
            return False
        return common_share(self.before.grey, self.sight.grey) >= self.rule.least_common

    @property
    def _why_unlike(self) -> TrackingReason:
        if self.is_lost and self.reason is not None:
            return self.reason
        before = self.recent.likeness[-_ENOUGH:]
        if before and median(before) < self.rule.usual_likeness:
            return TrackingReason.TOO_FAST
        is_alike = self.likeness >= self.rule.least_shared_colours
        return TrackingReason.NO_COMMON_VIEW if is_alike else TrackingReason.CUT

    def _doubt(self, sureness: float, step: float, turn_deg: float) -> TrackingReason | None:
        recent = self.recent
        if len(recent.steps) < _ENOUGH:
            return None
        if step > self.rule.fast_steps * median(recent.steps) + _PLACES_APART or turn_deg > self.rule.fast_turn_deg:
            return TrackingReason.TOO_FAST
        return TrackingReason.NO_COMMON_VIEW if sureness < self.rule.weak_share * median(recent.sureness) else None


def _smaller(picture: UInt8[Tensor, "3 height width"]) -> UInt8[np.ndarray, "3 rows columns"]:
    """Every so many pixels, a copy."""
    step = -(-max(picture.shape[1:]) // LONGEST_SIDE)
    return picture[:, step // 2 :: step, step // 2 :: step].numpy().copy(order="C")


def _blocks(total: Int32[np.ndarray, "height width"]) -> Float64[np.ndarray, "rows columns"]:
    """Of sums of three colours; what is left over at the right and below is left out."""
    size = min(_BLOCK, *total.shape)
    rows, columns = (side // size for side in total.shape)
    squares = total[: rows * size, : columns * size].reshape(rows, size, columns, size)
    return np.asarray(squares.sum(axis=(1, 3)) / (3 * size * size))


def _colours(pixels: UInt8[np.ndarray, "3 pixels"]) -> Float64[np.ndarray, " tones"]:
    red, green, blue = pixels.astype(np.uint16) * _TONES >> 8
    counts = np.bincount((red * _TONES + green) * _TONES + blue, minlength=_TONES**3)
    return np.asarray(counts / counts.sum())


def _descriptor(geometry: Geometry) -> Float64[np.ndarray, " channels"] | None:
    """Of the last frame."""
    if geometry.descriptor is None:
        return None
    return np.asarray(geometry.descriptor[-1].detach().double().cpu().numpy())


def _angle(one: Float64[np.ndarray, " channels"], other: Float64[np.ndarray, " channels"]) -> float:
    """1 - cosine."""
    lengths = math.sqrt(float((one * one).sum()) * float((other * other).sum()))
    return 1 - float((one * other).sum()) / max(lengths, 1e-12)


def _widest_view_deg(geometry: Geometry) -> float:
    """Of the last frame, from edge to edge."""
    height, width = geometry.depth.shape[-2:]
    focal_x, focal_y = (float(geometry.intrinsics[-1, axis, axis]) for axis in (0, 1))
    return math.degrees(2 * math.atan(max(width / focal_x, height / focal_y) / 2))


def _motion(
    before: Float64[np.ndarray, "4 4"] | None, pose: Float64[np.ndarray, "4 4"], geometry: Geometry
) -> tuple[float, float]:
    """The last frame's step over its median depth, and its turn in degrees."""
    if before is None:
        return 0.0, 0.0
    depth = geometry.depth[-1].detach().float().cpu().numpy()
    usable = depth[np.isfinite(depth) & (depth > 0)]
    middle = (len(usable) - 1) // 2
    unit = float(np.partition(usable, middle)[middle]) if len(usable) else 1.0
    cosine = (float((before[:3, :3] * pose[:3, :3]).sum()) - 1) / 2
    step = math.sqrt(float(((pose[:3, 3] - before[:3, 3]) ** 2).sum())) / unit
    return step, math.degrees(math.acos(min(1.0, max(-1.0, cosine))))
