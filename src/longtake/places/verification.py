"""Whether a candidate for a loop is believed: points, depths, colours and the network's own word must agree.

Cheap questions come first: the network is asked only about what points speak for.
"""

import math
from dataclasses import dataclass
from enum import StrEnum

import torch
from jaxtyping import Float
from torch import Tensor

from longtake.errors import InputError, SettingError
from longtake.evaluation.motion import rotation_angle_deg
from longtake.places.evidence import Comparison, Evidence
from longtake.places.key_view import KeyView
from longtake.places.loop_card import LoopCard, SideLimits
from longtake.places.loops import Spread
from longtake.places.side_look import Clips, SideLook
from longtake.spatial.similarity import Similarity


class Doubt(StrEnum):
    """Why a candidate is not believed."""

    NOTHING_MATCHES = "no similarity is agreed on by any few points"
    FEW_POINTS = "too few points agree"
    VAGUE = "the points that agree leave the turn open"
    SMALL_SHARE = "too small a share of the points that look alike agrees"
    DEPTHS = "depths disagree"
    COLOURS = "colours disagree"
    TEXTURES = "textures disagree"
    NETWORK = "the network itself disagrees"


@dataclass(frozen=True, slots=True, kw_only=True)
class Disagreement:
    """Between two similarities of one jump."""

    turn_deg: float
    shift: float
    """Over the median depth of the new view."""
    log_scale: float

    @classmethod
    def between(cls, one: Similarity, other: Similarity, median_depth: float) -> "Disagreement":
        turn = one.rotation.double().T @ other.rotation.double()
        return cls(
            turn_deg=float(rotation_angle_deg(turn)),
            shift=float((one.translation.double() - other.translation.double()).norm()) / median_depth,
            log_scale=abs(math.log(float(one.scale) / float(other.scale))),
        )

    def exceeds(self, limits: SideLimits) -> bool:
        return self.turn_deg > limits.turn_deg or self.shift > limits.shift or self.log_scale > limits.log_scale


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What was found of a candidate."""

    doubt: Doubt | None
    """None where it is believed."""
    evidence: Evidence | None = None
    """None where too few points agree for anything else to be asked."""
    side: Disagreement | None = None
    """Of the network with the points; none where it was not asked, or had nothing to say."""
    noise: Spread | None = None
    """Of a loop that is believed, in the unit of the new view."""

    @property
    def is_accepted(self) -> bool:
        return self.doubt is None

    @property
    def new_from_old(self) -> Similarity:
        """Between the cameras of a loop that is believed, each in its own unit; in double precision, on the host."""
        assert self.evidence is not None
        return self.evidence.new_from_old


@dataclass(frozen=True, slots=True)
class Verifier:
    """A network's card, and the network itself where the card asks it."""

    card: LoopCard
    side: SideLook | None = None

    def __post_init__(self) -> None:
        if self.card.side is not None and self.side is None:
            raise SettingError("This card asks the network about loops, but none was given; give a side look too.")

    def verify(self, old: KeyView, new: KeyView, clips: Clips | None = None) -> Verdict:
        """Pure: the same views give the same verdict to the bit, and nothing is kept.

        Clips end with the old view and begin with the new one; they are needed where the card asks the network.
        """
        if self.card.side is not None and clips is None:
            raise InputError("This card asks the network about loops, which needs clips of both views; give them.")
        compared = Comparison.of(old, new)
        if compared is None:
            return Verdict(doubt=Doubt.NOTHING_MATCHES)
        if (doubt := _doubt_of_points(compared, self.card)) is not None:
            return Verdict(doubt=doubt)
        evidence = compared.evidence()
        if (doubt := doubt_of(evidence, self.card)) is not None:
            return Verdict(doubt=doubt, evidence=evidence)
        depth, side = median_depth(new), None
        if self.card.side is not None:
            assert self.side is not None
            assert clips is not None
            said = self.side.look(old, new, clips)
            side = None if said is None else Disagreement.between(said.new_from_old, evidence.new_from_old, depth)
            if side is None or side.exceeds(self.card.side):
                return Verdict(doubt=Doubt.NETWORK, evidence=evidence, side=side)
        noise = self.card.noise
        return Verdict(
            doubt=None,
            evidence=evidence,
            side=side,
            noise=Spread(
                translation=noise.translation * depth, rotation_rad=noise.rotation_rad, log_scale=noise.log_scale
            ),
        )


def between_windows(
    new_from_old: Similarity,
    old_window_from_camera: Float[Tensor, "4 4"],
    new_window_from_camera: Float[Tensor, "4 4"],
) -> Similarity:
    """`old_window_from_new_window` of a loop between two of their cameras, depths in each window's own unit.

    In double precision, on the host.
    """
    old_camera, new_camera = (rigid(pose) for pose in (old_window_from_camera, new_window_from_camera))
    return old_camera @ new_from_old.inverse() @ new_camera.inverse()


def rigid(pose: Float[Tensor, "4 4"]) -> Similarity:
    """A pose as a similarity of scale 1, in double precision, on the host."""
    pose = pose.detach().double().cpu()
    return Similarity(torch.ones((), dtype=torch.float64), pose[:3, :3].clone(), pose[:3, 3].clone())


def doubt_of(evidence: Evidence, card: LoopCard) -> Doubt | None:
    """What points, depths and colours leave to doubt."""
    if (doubt := _doubt_of_points(evidence, card)) is not None:
        return doubt
    if evidence.depth_agreement < card.least_depth_agreement:
        return Doubt.DEPTHS
    if evidence.colour_agreement < card.least_colour_agreement:
        return Doubt.COLOURS
    return Doubt.TEXTURES if evidence.texture_agreement < card.least_texture_agreement else None


def _doubt_of_points(found: Comparison | Evidence, card: LoopCard) -> Doubt | None:
    if found.num_agreeing < card.least_agreeing:
        return Doubt.FEW_POINTS
    if found.turn_deviation_rad > card.most_turn_deviation_rad:
        return Doubt.VAGUE
    return Doubt.SMALL_SHARE if found.agreeing_share < card.least_agreeing_share else None


def median_depth(view: KeyView) -> float:
    """Of what has depth."""
    depth = view.depth.double().cpu()
    usable = depth[depth.isfinite() & (depth > 0)]
    return float(usable.median()) if usable.numel() else 1.0
