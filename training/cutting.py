"""Which frames a clip for training has: one stretch of a walk, several that come back to a place, or a strange one.

walk        │ 40 41 42 43 44 45 46 47 48 49 50 51 │
returning   │ 40 42 44 46 48 50 │ 261 260 259 258 257 256 │     sees some of what the first stretch saw
strange     │ 40 42 44 46 48 50 │ 12 13 14 15 16 17 │           of another walk: where that is nobody can tell
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int64

from longtake.errors import SettingError

OVERLAP_EVERY = 8
"""Frames between those whose overlap is known."""
_SEEN_AGAIN = 0.25
"""Share of a frame's points that an earlier stretch saw, where it comes back to it."""
_LONG_AGO = 40
"""Frames of the walk that lie between at least."""
_FIRST = 8
"""Frames of the first stretch at least, or half of the clip."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClipFrames:
    """Frames of clips: of which walks, and whether where they were taken can be told from the first ones."""

    walk: Int64[np.ndarray, "clips frames"]
    frame: Int64[np.ndarray, "clips frames"]
    is_known: Bool[np.ndarray, "clips frames"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cutter:
    """How clips are cut from walks of so many frames."""

    num_filmed: int
    longest_stride: int
    returning: float
    """Share of clips that come back to a place."""
    strange: float
    """Share of clips with a stretch of another walk."""

    def cut(
        self,
        num_clips: int,
        num_frames: int,
        rng: np.random.Generator,
        overlaps: Sequence[Float[np.ndarray, "sampled sampled"]],
    ) -> ClipFrames:
        """Clips from anywhere in these walks, of whose frames every eighth's overlap is known."""
        if num_frames > self.num_filmed:
            raise SettingError(f"Expected clips of {self.num_filmed} frames at most, as filmed, but got {num_frames}.")
        clips = [self._clip(num_frames, rng, overlaps) for _ in range(num_clips)]
        return ClipFrames(
            walk=np.stack([walk for walk, _, _ in clips]),
            frame=np.stack([frame for _, frame, _ in clips]),
            is_known=np.stack([is_known for _, _, is_known in clips]),
        )

    def _clip(
        self, num_frames: int, rng: np.random.Generator, overlaps: Sequence[np.ndarray]
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        walk, kind = int(rng.integers(len(overlaps))), rng.random()
        is_strange = self.returning <= kind < self.returning + self.strange and len(overlaps) > 1
        lengths = _stretches(num_frames, rng) if kind < self.returning + self.strange else [num_frames]
        frames = [self._stretch(int(rng.integers(self.num_filmed)), lengths[0], rng)]
        walks, known = [np.full(lengths[0], walk)], [np.ones(lengths[0], dtype=np.bool_)]
        for number, length in enumerate(lengths[1:], start=1):
            if is_strange and number == 1:
                other = (walk + int(rng.integers(1, len(overlaps)))) % len(overlaps)
                place: int | None = int(rng.integers(self.num_filmed))
            else:
                other, before = walk, np.concatenate([f for f, w in zip(frames, walks, strict=True) if w[0] == walk])
                place = _seen_again(overlaps[walk], before, rng)
            if place is None:  # nothing of it is ever seen again: one stretch then
                return np.full(num_frames, walk), self._stretch(int(frames[0][0]), num_frames, rng), _all(num_frames)
            frames.append(self._stretch(place, length, rng))
            walks.append(np.full(length, other))
            known.append(np.full(length, other == walk))
        return np.concatenate(walks), np.concatenate(frames), np.concatenate(known)

    def _stretch(self, place: int, length: int, rng: np.random.Generator) -> Int64[np.ndarray, " frames"]:
        """So many frames around a place, with a stride of their own, forwards or backwards."""
        longest = max(1, min(self.longest_stride, (self.num_filmed - 1) // max(1, length - 1)))
        stride = int(rng.integers(1, longest, endpoint=True))
        reach = (length - 1) * stride
        start = min(max(0, place - stride * int(rng.integers(length))), self.num_filmed - 1 - reach)
        frames = start + stride * np.arange(length, dtype=np.int64)
        return frames[::-1] if rng.random() < 0.5 else frames


def _stretches(num_frames: int, rng: np.random.Generator) -> list[int]:
    """Lengths of two to four stretches, none of them short."""
    first = min(_FIRST, num_frames // 2)
    most = max(2, min(4, num_frames // 12))
    count = int(rng.integers(2, most, endpoint=True))
    shortest = max(1, (num_frames - first) // (2 * count))
    free = num_frames - first - shortest * (count - 1)
    ends = np.sort(rng.integers(0, free, endpoint=True, size=count - 1))
    shares = np.diff(np.concatenate([[0], ends, [free]]))
    return [first + int(shares[0]), *(shortest + int(share) for share in shares[1:])]


def _seen_again(
    overlap: Float[np.ndarray, "sampled sampled"], before: Int64[np.ndarray, " frames"], rng: np.random.Generator
) -> int | None:
    """A frame of the same walk, long before or after these, that sees some of what they saw."""
    at = np.unique(np.minimum(before // OVERLAP_EVERY, len(overlap) - 1))
    sampled = OVERLAP_EVERY * np.arange(len(overlap))
    is_apart = np.abs(sampled[:, None] - before[None]).min(axis=1) >= _LONG_AGO
    found = np.flatnonzero(is_apart & (overlap[:, at].max(axis=1) >= _SEEN_AGAIN))
    return int(sampled[rng.choice(found)]) if len(found) else None


def _all(num_frames: int) -> Bool[np.ndarray, " frames"]:
    return np.ones(num_frames, dtype=np.bool_)
