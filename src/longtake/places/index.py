"""An index of places by what they look like, bounded in bytes; those that a walk may have come back to.

places    0  1  2  3  4  5  ...  95 96 97 98          keyframes, a few frames apart
             └──┼──┘                 └──┼──┘
             forwards: 1~96 2~97 3~98, or backwards: 3~96 2~97 1~98

A place is like an old one if its neighbours are like the old one's, in either order: the mean of their cosines counts.
So the last place is judged when the next one has come. An index is a value: what is added makes another one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Float, Float16, Float32, Float64, Int64
from torch import Tensor

from longtake.errors import InputError, SavedSessionError, SettingError
from longtake.places.graph import array_of
from longtake.places.whitening import MOST_CHANNELS, Whitening

_LARGEST_HALF = float(np.finfo(np.float16).max)
_NEVER = -2.0
"""Below any cosine."""
_FACTS_BYTES = 8 * 3
"""Frame, window and time of a place."""
_REFRESH_SHARE = 8
"""Keys are computed anew once a part of the places is newer than what whitens them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexRule:
    """What becomes a place, and which places may be the same."""

    every_frames: int = 4
    """From one place to the next, at least."""
    max_places: int = 4096
    gap_frames: int = 100
    """Between a place and an old one that may be the same, at least."""
    gap_s: float = 0.0
    """The same in time."""
    reach: int = 1
    """Neighbours on either side that have to agree."""

    def __post_init__(self) -> None:
        if (
            min(self.every_frames, self.gap_frames) < 1
            or min(self.reach, self.gap_s) < 0
            or self.max_places < 2 * self.reach + 2
        ):
            raise SettingError(
                "Expected places every 1 frame or more, a gap of 1 frame or more, numbers of neighbours and "
                f"seconds from 0 on, and room for more places than those neighbours, but got {self}."
            )

    def num_bytes(self, num_channels: int) -> int:
        """Of an index of descriptors so long, when it is full."""
        return _num_bytes(self.max_places, num_channels)

    @classmethod
    def within(cls, max_bytes: int, num_channels: int) -> "IndexRule":
        """With as many places as fit into so many bytes, and no more than usual."""
        usual = cls()
        fewest = 2 * usual.reach + 2
        none = _num_bytes(0, num_channels)
        room = (max_bytes - none) // (_num_bytes(1, num_channels) - none)
        if room < fewest:
            least = _num_bytes(fewest, num_channels)
            raise SettingError(f"Expected room for an index of places, {least} bytes at least, but got {max_bytes}.")
        return replace(usual, max_places=min(usual.max_places, room))


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A place that may be the same as an older one."""

    frame: int
    window: int
    old_frame: int
    old_window: int
    similarity: float
    """Mean cosine of the place and its neighbours with the old one and its neighbours, -1 to 1."""
    own_similarity: float
    """Of the two places alone."""
    is_backwards: bool
    """Whether the old place was passed the other way round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """A place that what was asked about is like."""

    frame: int
    window: int
    similarity: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceIndex:
    """Places in the order of time."""

    rule: IndexRule
    descriptor: Float16[np.ndarray, "places channels"]
    key: Float32[np.ndarray, "places width"]
    frame: Int64[np.ndarray, " places"]
    window: Int64[np.ndarray, " places"]
    timestamp_s: Float64[np.ndarray, " places"]
    whitening: Whitening
    num_since: int = 0
    """Places that came since `whitening` was computed."""

    @classmethod
    def empty(cls, num_channels: int, rule: IndexRule | None = None) -> "PlaceIndex":
        """Of descriptors so long."""
        if num_channels < 1:
            raise SettingError(f"Expected descriptors of 1 number or more, but got {num_channels}.")
        nothing = np.empty(0, dtype=np.int64)
        return cls(
            rule=rule or IndexRule(),
            descriptor=np.empty((0, num_channels), dtype=np.float16),
            key=np.empty((0, min(num_channels, MOST_CHANNELS)), dtype=np.float32),
            frame=nothing,
            window=nothing,
            timestamp_s=np.empty(0),
            whitening=Whitening.none(num_channels),
        )

    def __len__(self) -> int:
        return len(self.frame)

    @property
    def num_channels(self) -> int:
        return int(self.descriptor.shape[1])

    @property
    def num_bytes(self) -> int:
        """Of places and what whitens them, now."""
        return _num_bytes(len(self), self.num_channels)

    def with_keyframe(
        self, descriptor: Float[np.ndarray, " channels"], *, frame: int, window: int, timestamp_s: float
    ) -> "PlaceIndex":
        """With one more keyframe seen; whether it became a place is told by `len`."""
        if descriptor.shape != (self.num_channels,) or not np.isfinite(descriptor).all():
            raise InputError(
                f"Expected a descriptor of {self.num_channels} finite numbers, but got one of {descriptor.shape}; "
                "use the index with the model that it was made with."
            )
        if len(self) and frame <= self.frame[-1]:
            raise InputError(f"Expected keyframes in order of time after frame {self.frame[-1]}, but got {frame}.")
        if len(self) and frame - self.frame[-1] < self.rule.every_frames:
            return self
        room = self if len(self) < self.rule.max_places else self._kept(self._all_but_the_plainest())
        half = _halves(descriptor[None])
        added = replace(
            room,
            descriptor=np.concatenate([room.descriptor, half]),
            key=np.concatenate([room.key, room.whitening.keys(half)]),
            frame=np.append(room.frame, frame),
            window=np.append(room.window, window),
            timestamp_s=np.append(room.timestamp_s, timestamp_s),
            num_since=room.num_since + 1,
        )
        return added._refreshed()

    @property
    def judged(self) -> int | None:
        """The place that `candidates` is about: the last one whose neighbours are all known."""
        return len(self) - 1 - self.rule.reach if len(self) > 2 * self.rule.reach else None

    def candidates(self, count: int = 5, *, since: int = 0) -> list[Candidate]:
        """The most similar old places for the one that `judged` says, no two of them neighbours; best first.

        From the frame `since` on the walk was another one, and places before it are old without any gap.
        """
        place = self.judged
        if place is None:
            return []
        reach = self.rule.reach
        cosines = self._cosines(self.key[place - reach : place + reach + 1])
        forwards, backwards = _in_order(cosines), _in_order(cosines[::-1])
        similarity = np.maximum(forwards, backwards)
        is_new = self.frame > self.frame[place] - self.rule.gap_frames
        is_new |= self.timestamp_s > self.timestamp_s[place] - self.rule.gap_s
        similarity[is_new & ((self.frame >= since) | (self.frame[place] < since))] = _NEVER
        return [
            Candidate(
                frame=int(self.frame[place]),
                window=int(self.window[place]),
                old_frame=int(self.frame[old]),
                old_window=int(self.window[old]),
                similarity=float(similarity[old]),
                own_similarity=float(cosines[reach, old]),
                is_backwards=bool(backwards[old] > forwards[old]),
            )
            for old in _peaks(similarity, count, reach)
        ]

    def matches(self, descriptors: Float[np.ndarray, "frames channels"], count: int = 5) -> list[Match]:
        """The places most like a frame of another take, or some frames that lie `every_frames` apart; best first."""
        if descriptors.shape[1] != self.num_channels:
            raise InputError(
                f"Expected descriptors of {self.num_channels} numbers, but got {descriptors.shape[1]}; use the model "
                "that the places were seen with."
            )
        cosines = self._cosines(self.whitening.keys(_halves(descriptors)))
        similarity = np.maximum(_in_order(cosines), _in_order(cosines[::-1]))
        return [
            Match(frame=int(self.frame[place]), window=int(self.window[place]), similarity=float(similarity[place]))
            for place in _peaks(similarity, count, max(1, len(descriptors) // 2))
        ]

    def tensors(self) -> dict[str, Tensor]:
        """All but the rule, to be saved."""
        arrays = {
            "descriptor": self.descriptor,
            "key": self.key,
            "frame": self.frame,
            "window": self.window,
            "timestamp_s": self.timestamp_s,
            "num_since": np.array([self.num_since]),
        }
        return {**{name: torch.from_numpy(array.copy()) for name, array in arrays.items()}, **self.whitening.tensors()}

    @classmethod
    def of_tensors(cls, tensors: Mapping[str, Tensor], rule: IndexRule | None = None) -> "PlaceIndex":
        """What `tensors` gave, to the bit."""
        rule = rule or IndexRule()
        count, num_channels = tensors["descriptor"].shape if "descriptor" in tensors else (0, 1)
        index = cls(
            rule=rule,
            descriptor=array_of(tensors, "descriptor", torch.float16, (count, num_channels)),
            key=array_of(tensors, "key", torch.float32, (count, min(num_channels, MOST_CHANNELS))),
            frame=array_of(tensors, "frame", torch.int64, (count,)),
            window=array_of(tensors, "window", torch.int64, (count,)),
            timestamp_s=array_of(tensors, "timestamp_s", torch.float64, (count,)),
            whitening=Whitening.of_tensors(tensors, num_channels),
            num_since=int(array_of(tensors, "num_since", torch.int64, (1,))[0]),
        )
        if count > rule.max_places or (np.diff(index.frame) <= 0).any() or index.num_since < 0:
            raise SavedSessionError("The saved index has too many places, or not in order of time; save it again.")
        return index

    def _all_but_the_plainest(self) -> Bool[np.ndarray, " places"]:
        """Without the place that differs least from those before and behind it; the first and the newest stay."""
        likeness = np.einsum("pc,pc->p", self.key[:-1], self.key[1:])
        between = likeness[:-1] + likeness[1:]
        between[len(between) - 2 * self.rule.reach :] = 2 * _NEVER
        kept = np.ones(len(self), dtype=bool)
        kept[1 + int(between.argmax())] = False
        return kept

    def _kept(self, chosen: Bool[np.ndarray, " places"]) -> "PlaceIndex":
        return replace(
            self,
            descriptor=self.descriptor[chosen],
            key=self.key[chosen],
            frame=self.frame[chosen],
            window=self.window[chosen],
            timestamp_s=self.timestamp_s[chosen],
        )

    def _refreshed(self) -> "PlaceIndex":
        """With keys by the places there are now, if many have come since the last time."""
        if self.num_since < max(_REFRESH_SHARE, len(self) // _REFRESH_SHARE):
            return self
        whitening = Whitening.of(self.descriptor)
        return replace(self, whitening=whitening, key=whitening.keys(self.descriptor), num_since=0)

    def _cosines(self, keys: Float32[np.ndarray, "asked width"]) -> Float32[np.ndarray, "asked places"]:
        """By sums of one thread."""
        return np.stack([np.einsum("pc,c->p", self.key, key) for key in keys])


def _num_bytes(num_places: int, num_channels: int) -> int:
    """A place has its descriptor, a key in single precision and three facts."""
    width = min(num_channels, MOST_CHANNELS)
    return num_places * (2 * num_channels + 4 * width + _FACTS_BYTES) + Whitening.num_bytes(num_channels)


def _halves(descriptors: Float[np.ndarray, "frames channels"]) -> Float16[np.ndarray, "frames channels"]:
    """As a take holds them."""
    return descriptors.clip(-_LARGEST_HALF, _LARGEST_HALF).astype(np.float16)


def _in_order(cosines: Float32[np.ndarray, "asked places"]) -> Float32[np.ndarray, " places"]:
    """Mean cosine of what was asked, one after the other, with as many places that follow each other.

    At the middle one of those; below any cosine where there are not so many.
    """
    asked, places = cosines.shape
    found = np.full(places, _NEVER, dtype=np.float32)
    runs = places - asked + 1
    if runs > 0:
        total = sum(cosines[offset, offset : offset + runs] for offset in range(asked))
        found[asked // 2 : asked // 2 + runs] = total / np.float32(asked)
    return found


def _peaks(similarity: Float32[np.ndarray, " places"], count: int, reach: int) -> list[int]:
    """The highest ones, none within reach of a higher one."""
    left, peaks = similarity.copy(), list[int]()
    while len(peaks) < count and len(left) and left.max() > _NEVER:
        peaks.append(int(left.argmax()))
        left[max(0, peaks[-1] - reach) : peaks[-1] + reach + 1] = _NEVER
    return peaks
