"""The way of a walk through what an earlier take knows: looked for in the order of the walk's frames.

new places   0  1  2  3  4  5 ...          every one, with several candidates, until two frames agree
                ▲     ▲                    two agree: the way is known from here on
                         ▲ ... ▲ ... ▲     then every few, so that what drifted can be laid straight
"""

import math
from dataclasses import dataclass

import numpy as np

from longtake.errors import SettingError
from longtake.evaluation.motion import rotation_angle_deg
from longtake.places.known_world import KnownWorld
from longtake.places.links import FEWEST_FRAMES, Link, agreed, known_places
from longtake.places.verification import Verifier

_DEVIATIONS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SeekRule:
    """How hard a way is looked for; a candidate takes about 50 ms on one core."""

    candidates: int = 4
    """Of each place, while nothing is known."""
    patience: int = 32
    """Places without a way after which not every one is looked at any more."""
    spacing: int = 4
    """Places from one that is looked at to the next, from then on or once the way is known; with half as many
    candidates."""

    def __post_init__(self) -> None:
        if min(self.candidates, self.patience, self.spacing) < 1:
            raise SettingError(f"Expected numbers from 1 on of places and candidates, but got {self}.")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Way:
    """Where a walk goes in the world of an earlier take."""

    links: tuple[Link, ...]
    """That agree, in the order of the walk."""

    @property
    def known_at(self) -> int:
        """The frame with which enough of them had agreed."""
        return sorted({link.new_frame for link in self.links})[FEWEST_FRAMES - 1]

    @property
    def at_first(self) -> tuple[Link, ...]:
        """Those that had agreed by then."""
        return tuple(link for link in self.links if link.new_frame <= self.known_at)

    @property
    def position_bound(self) -> float:
        """Within which the camera was located, in the old world's unit: two deviations of the card, or how far the
        links that agreed differ where that is more."""
        apart = [
            float(
                (one.old_from_new.of_cameras(two.new_camera) - two.old_from_new.of_cameras(two.new_camera))[
                    :3, 3
                ].norm()
            )
            for one in self.at_first
            for two in self.at_first
        ]
        return max([*apart, *(_DEVIATIONS * link.noise.translation for link in self.at_first)])

    @property
    def rotation_bound_deg(self) -> float:
        """The same for its rotation."""
        apart = [
            float(rotation_angle_deg(one.old_from_new.rotation.T @ two.old_from_new.rotation))
            for one in self.at_first
            for two in self.at_first
        ]
        return max([*apart, *(math.degrees(_DEVIATIONS * link.noise.rotation_rad) for link in self.at_first)])


def find_way(old: KnownWorld, new: KnownWorld, verifier: Verifier, rule: SeekRule | None = None) -> Way | None:
    """None where no two frames of the new take agree on a place of the old one."""
    rule, links, is_known = rule or SeekRule(), list[Link](), False
    for place, frame in enumerate(new.index.frame.tolist()):
        is_sparse = is_known or place >= rule.patience
        if is_sparse and place % rule.spacing:
            continue
        count = -(-rule.candidates // 2) if is_sparse else rule.candidates
        descriptors = new.index.descriptor[place : place + 1].astype(np.float32)
        links += known_places(old, new.view(frame), new.camera(frame), descriptors, verifier, count)
        is_known = is_known or bool(agreed(links))
    return Way(links=tuple(agreed(links))) if is_known else None
