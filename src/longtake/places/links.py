"""Places of one take that are known in another: candidates by descriptors, believed by points against points.

old world  ◀── old camera ◀── new camera ◀── new world         a link: the similarity that leads all the way
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float64
from torch import Tensor

from longtake.evaluation.motion import rotation_angle_deg
from longtake.places.key_view import KeyView
from longtake.places.known_world import KnownWorld
from longtake.places.loops import Spread
from longtake.places.verification import Verdict, Verifier, between_windows, median_depth
from longtake.spatial.similarity import Similarity

_MOST_TURN_DEG = 6.0
_MOST_SHIFT = 0.15
"""Over the depth of what both saw."""
_MOST_LOG_SCALE = 0.12
FEWEST_FRAMES = 2
"""That must agree before a way is known."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Link:
    """A place that was known."""

    old_frame: int
    new_frame: int
    old_camera: Float64[Tensor, "4 4"]
    new_camera: Float64[Tensor, "4 4"]
    """Each in its own world."""
    verdict: Verdict
    median_depth: float
    """Of the old view."""

    @property
    def old_from_new(self) -> Similarity:
        """Between the two worlds."""
        return between_windows(self.verdict.new_from_old, self.old_camera, self.new_camera)

    @property
    def num_agreeing(self) -> int:
        """Points."""
        assert self.verdict.evidence is not None
        return self.verdict.evidence.num_agreeing

    @property
    def noise(self) -> Spread:
        """Of the new camera in the old world, in the unit of that."""
        noise = self.verdict.noise
        assert noise is not None
        scale = float(self.old_from_new.scale)
        return Spread(translation=noise.translation * scale, rotation_rad=noise.rotation_rad, log_scale=noise.log_scale)

    def agrees_with(self, other: "Link") -> bool:
        """Whether both lay the other's camera to about the same place, and depth to the same size."""
        mine, theirs = self.old_from_new, other.old_from_new
        if abs(math.log(float(mine.scale) / float(theirs.scale))) > _MOST_LOG_SCALE:
            return False
        one, two = mine.of_cameras(other.new_camera), theirs.of_cameras(other.new_camera)
        shift = float((one[:3, 3] - two[:3, 3]).norm()) / max(self.median_depth, other.median_depth)
        turn_deg = float(rotation_angle_deg(one[:3, :3].T @ two[:3, :3]))
        return shift <= _MOST_SHIFT and turn_deg <= _MOST_TURN_DEG


def known_places(
    old: KnownWorld,
    view: KeyView,
    camera: Float64[Tensor, "4 4"],
    descriptors: Float[np.ndarray, "frames channels"],
    verifier: Verifier,
    count: int,
) -> list[Link]:
    """Of so many places of a take that look most like a view those that are believed to be what it shows.

    `descriptors` are of the view alone, or of places around it.
    """
    links = []
    for match in old.index.matches(descriptors, count):
        old_view = old.view(match.frame)
        verdict = verifier.verify(old_view, view)
        if verdict.is_accepted:
            links.append(
                Link(
                    old_frame=match.frame,
                    new_frame=view.frame_index,
                    old_camera=old.camera(match.frame),
                    new_camera=camera,
                    verdict=verdict,
                    median_depth=median_depth(old_view),
                )
            )
    return links


def agreed(links: Sequence[Link]) -> list[Link]:
    """Those that agree on where one world lies in the other, each with another one of them; in their order.

    They are of two frames at least; where several such groups are as large, those of the earliest frames.
    """
    groups: list[list[int]] = []
    for number, link in enumerate(links):
        near = [group for group in groups if any(link.agrees_with(links[other]) for other in group)]
        apart = [group for group in groups if group not in near]
        groups = [*apart, sorted([number, *(other for group in near for other in group)])]
    ways = [[links[number] for number in group] for group in groups]
    frames = [sorted({link.new_frame for link in way}) for way in ways]
    enough = [place for place in range(len(ways)) if len(frames[place]) >= FEWEST_FRAMES]
    best = max(enough, key=lambda place: (len(frames[place]), -frames[place][FEWEST_FRAMES - 1]), default=None)
    return [] if best is None else ways[best]
