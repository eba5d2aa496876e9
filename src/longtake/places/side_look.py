"""The network's own word on a jump: a session beside the main one sees old frames, then new ones.

old clip                  new clip
│ 0  1  2  3  4  5  6  7  │ 8  9 10 11 12 13 14 15 │     one fresh sequence on the same weights
                      old └ new view
"""

from dataclasses import dataclass

from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from longtake.errors import InputError
from longtake.geometry.model import GeometryModel
from longtake.places.key_view import KeyView
from longtake.runtime.build import SessionSettings, open_session
from longtake.spatial.pose import invert_rigid
from longtake.spatial.similarity import Similarity
from longtake.types import Geometry

CLIP = 8
"""Frames of each side: as many old ones as form the scale block of the published networks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clips:
    """Frames as sessions take them."""

    old: Shaped[Tensor, "..."]
    """Frames x 3 x height x width, checked here; ends with the old view."""
    new: Shaped[Tensor, "..."]
    """Begins with the new view."""

    def __post_init__(self) -> None:
        is_clip = self.old.dim() == self.new.dim() == 4 and min(len(self.old), len(self.new)) > 0
        if not (is_clip and self.old.shape[1:] == self.new.shape[1:]):
            raise InputError(
                f"Expected clips of frames of one size, but got {tuple(self.old.shape)} and {tuple(self.new.shape)}; "
                "give frames of one video, or of two with pictures of the same size."
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class SideWord:
    """What a network says of a jump."""

    new_from_old: Similarity
    """Between the cameras, in the units of the views' depths; in double precision, on the host."""
    log_confidence: float
    """Mean logarithm of the confidence of depth over all pixels of the new clip."""


@dataclass(frozen=True, slots=True)
class SideLook:
    """A network and how it is run; nothing is kept between looks, and no other session is touched."""

    model: GeometryModel
    settings: SessionSettings

    def look(self, old: KeyView, new: KeyView, clips: Clips) -> SideWord | None:
        """What the network says; none where poses or depths are of no use."""
        height, width = clips.old.shape[-2:]
        session = open_session(self.model, self.settings, (height, width))
        found = Geometry.join(list(session.run([*clips.old, *clips.new])))
        session.close()
        old_place = len(clips.old) - 1
        cameras = found.world_from_camera.double().cpu()
        new_from_old = invert_rigid(cameras[old_place + 1]) @ cameras[old_place]
        old_unit = _depth_ratio(old.depth, found.depth[old_place])
        new_unit = _depth_ratio(new.depth, found.depth[old_place + 1])
        if old_unit is None or new_unit is None or not bool(new_from_old.isfinite().all()):
            return None
        return SideWord(
            new_from_old=Similarity(new_unit / old_unit, new_from_old[:3, :3], new_unit * new_from_old[:3, 3]),
            log_confidence=float(found.depth_confidence[old_place + 1 :].double().log().mean()),
        )


def _depth_ratio(one: Float[Tensor, "height width"], other: Float[Tensor, "height width"]) -> Float[Tensor, ""] | None:
    one, other = one.double().cpu(), other.double().cpu()
    usable: Bool[Tensor, "height width"] = one.isfinite() & other.isfinite() & (one > 0) & (other > 0)
    return (one[usable] / other[usable]).median() if bool(usable.any()) else None
