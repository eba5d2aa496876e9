"""Which frames a clip for training has: one stretch of a walk, several that come back to a place, or a strange one.

walk        │ 40 41 42 43 44 45 46 47 48 49 50 51 │
returning   │ 40 42 44 46 48 50 │ 261 260 259 258 257 256 │     sees some of what is remembered of the first stretch
strange     │ 40 42 44 46 48 50 │ 12 13 14 15 16 17 │           of another walk: where that is nobody can tell
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int64

from longtake.errors import SettingError

OVERLAP_EVERY = 8
"""Frames between those whose overlap is known."""
_SEEN_AGAIN = 0.25
"""Share of a frame's points that a remembered one saw, where a clip comes back to it."""
_LONG_AGO = 40
"""Frames of the walk that lie between at least."""
_FIRST = 8
"""Frames of the first stretch at least, or half of the clip."""
_TRIES = 4
"""To find a stretch that something sees again."""

Remembered = Callable[[int], Int64[np.ndarray, " frames"]]
"""Of which frames of a clip the patches are still there, by how many came before: what was forgotten cannot be known
again, and asking for it teaches nothing."""


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
        remembered: Remembered,
    ) -> ClipFrames:
        """Clips from anywhere in these walks, of whose frames every eighth's overlap is known."""
        if num_frames > self.num_filmed:
            raise SettingError(f"Expected clips of {self.num_filmed} frames at most, as filmed, but got {num_frames}.")
        return _together([self._clip(num_frames, rng, overlaps, remembered) for _ in range(num_clips)], num_frames)

    def pairs(
        self,
        length: int,
        rng: np.random.Generator,
        overlaps: Sequence[Float[np.ndarray, "sampled sampled"]],
        *,
        strange: bool,
    ) -> ClipFrames:
        """A stretch of each walk, then one as long of the same place much later, or of another walk; a walk that sees
        nothing again has none."""
        lengths = [length, length]
        tried = [
            self._jumping(walk, lengths, rng, overlaps, np.arange, is_strange=strange) for walk in range(len(overlaps))
        ]
        return _together([clip for clip in tried if clip is not None], 2 * length)

    def _clip(
        self, num_frames: int, rng: np.random.Generator, overlaps: Sequence[np.ndarray], remembered: Remembered
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        walk, kind = int(rng.integers(len(overlaps))), rng.random()
        if kind < self.returning + self.strange:
            is_strange = kind >= self.returning and len(overlaps) > 1
            for _ in range(_TRIES):
                lengths = _stretches(num_frames, rng)
                jumping = self._jumping(walk, lengths, rng, overlaps, remembered, is_strange=is_strange)
                if jumping is not None:
                    return jumping
        frames = self._stretch(int(rng.integers(self.num_filmed)), num_frames, rng)
        return np.full(num_frames, walk), frames, np.ones(num_frames, dtype=np.bool_)

    def _jumping(
        self,
        walk: int,
        lengths: Sequence[int],
        rng: np.random.Generator,
        overlaps: Sequence[np.ndarray],
        remembered: Remembered,
        *,
        is_strange: bool,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
        """Walks, frames and whether they are known, of stretches of these lengths; None where nothing is seen again."""
        walks, frames = [walk], [self._stretch(int(rng.integers(self.num_filmed)), lengths[0], rng)]
        for number, length in enumerate(lengths[1:], start=1):
            if is_strange and number == 1:
                other = (walk + int(rng.integers(1, len(overlaps)))) % len(overlaps)
                place: int | None = int(rng.integers(self.num_filmed))
            else:
                so_far, of_walk = np.concatenate(frames), np.repeat(walks, lengths[:number]) == walk
                whole = remembered(len(so_far))
                other, place = walk, _seen_again(overlaps[walk], so_far[whole[of_walk[whole]]], rng)
            if place is None:
                return None
            walks.append(other)
            frames.append(self._from(place, length, rng))
        of_frames = np.repeat(walks, lengths)
        return of_frames, np.concatenate(frames), of_frames == walk

    def _stretch(self, place: int, length: int, rng: np.random.Generator) -> Int64[np.ndarray, " frames"]:
        """So many frames around a place, with a stride of their own, forwards or backwards."""
        stride = self._stride(length, rng)
        reach = (length - 1) * stride
        start = min(max(0, place - stride * int(rng.integers(length))), self.num_filmed - 1 - reach)
        frames = start + stride * np.arange(length, dtype=np.int64)
        return frames[::-1] if rng.random() < 0.5 else frames

    def _from(self, place: int, length: int, rng: np.random.Generator) -> Int64[np.ndarray, " frames"]:
        """So many frames that begin at a place, or as near to it as there is room, forwards or backwards."""
        stride = self._stride(length, rng)
        reach, last = (length - 1) * stride, self.num_filmed - 1
        ways = [way for way in (1, -1) if 0 <= place + way * reach <= last] or [1 if 2 * place < last else -1]
        way = int(rng.choice(ways))
        start = min(place, last - reach) if way == 1 else max(place, reach)
        return start + way * stride * np.arange(length, dtype=np.int64)

    def _stride(self, length: int, rng: np.random.Generator) -> int:
        longest = max(1, min(self.longest_stride, (self.num_filmed - 1) // max(1, length - 1)))
        return int(rng.integers(1, longest, endpoint=True))


def _together(clips: Sequence[tuple[np.ndarray, np.ndarray, np.ndarray]], num_frames: int) -> ClipFrames:
    if not clips:
        nothing = np.zeros((0, num_frames), dtype=np.int64)
        return ClipFrames(walk=nothing, frame=nothing, is_known=nothing.astype(np.bool_))
    walk, frame, is_known = (np.stack(columns) for columns in zip(*clips, strict=True))
    return ClipFrames(walk=walk, frame=frame, is_known=is_known)


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
    if not len(before):
        return None
    at = np.unique(np.minimum(before // OVERLAP_EVERY, len(overlap) - 1))
    sampled = OVERLAP_EVERY * np.arange(len(overlap))
    is_apart = np.abs(sampled[:, None] - before[None]).min(axis=1) >= _LONG_AGO
    found = np.flatnonzero(is_apart & (overlap[:, at].max(axis=1) >= _SEEN_AGAIN))
    return int(sampled[rng.choice(found)]) if len(found) else None
