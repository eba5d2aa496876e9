"""How well candidates for loops are judged: errors of those that are believed, and thresholds chosen by them."""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from benchmarks.loop_candidates import Candidate, Kind
from longtake.errors import InputError
from longtake.evaluation.motion import rotation_angle_deg
from longtake.places.evidence import Evidence, examine
from longtake.places.loop_card import LoopCard, SideLimits
from longtake.places.loops import Spread
from longtake.places.side_look import Clips, SideLook, SideWord
from longtake.places.verification import Disagreement, doubt_of, median_depth
from longtake.spatial.similarity import Similarity

_RIGHT_DEG, _RIGHT_M = 5.0, 0.3
"""Up to which a similarity is right; what is worse counts as a wrong loop."""
_FEWEST_RIGHT = 8
_CHI_3, _CHI_1 = 2.5, 1.645
"""What 90 % of normal errors in three directions, and in one, stay below, in standard deviations."""


class Method(StrEnum):
    """Who is asked."""

    POINTS = "points"
    NETWORK = "network"
    BOTH = "both"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopError:
    """Of a similarity."""

    turn_deg: float
    shift_m: float
    scale_percent: float
    shift: float
    """Over the median depth of the new view."""

    @classmethod
    def of(cls, found: Similarity, candidate: Candidate) -> "LoopError | None":
        """None where there is no truth, as of two different places."""
        truth = candidate.new_from_old
        if truth is None:
            return None
        away = float((found.translation.double() - truth.translation).norm())
        return cls(
            turn_deg=float(rotation_angle_deg(truth.rotation.T @ found.rotation.double())),
            shift_m=away * candidate.metres,
            scale_percent=100 * abs(float(found.scale / truth.scale) - 1),
            shift=away / median_depth(candidate.new),
        )

    @property
    def is_right(self) -> bool:
        return self.turn_deg <= _RIGHT_DEG and self.shift_m <= _RIGHT_M


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One candidate, by points and by the network."""

    kind: Kind
    family: str
    seed: int
    old_frame: int
    new_frame: int
    evidence: Evidence | None
    error: LoopError | None
    """Of the points."""
    side_error: LoopError | None
    disagreement: Disagreement | None
    log_confidence: float | None

    @property
    def is_right(self) -> bool:
        return self.error is not None and self.error.is_right

    def to_record(self) -> dict[str, Any]:
        record = {name: getattr(self, name) for name in ("kind", "family", "seed", "old_frame", "new_frame")}
        evidence = None
        if self.evidence is not None:
            names = ("num_matches", "num_agreeing", "overlap", *_SHARES)
            evidence = {name: getattr(self.evidence, name) for name in names}
        parts = {"error": self.error, "side_error": self.side_error, "disagreement": self.disagreement}
        written = {name: None if part is None else asdict(part) for name, part in parts.items()}
        return record | {"evidence": evidence, "log_confidence": self.log_confidence} | written


_SHARES = ("agreeing_share", "depth_agreement", "colour_agreement", "texture_agreement")


def judge(candidate: Candidate, side: SideLook | None) -> Judged:
    """Without any threshold."""
    old, new = candidate.old, candidate.new
    evidence = examine(old, new)
    word: SideWord | None = None
    if side is not None:
        word = side.look(old, new, Clips(old=candidate.old_clip, new=candidate.new_clip))
    disagreement = None
    if evidence is not None and word is not None:
        disagreement = Disagreement.between(word.new_from_old, evidence.new_from_old, median_depth(new))
    return Judged(
        kind=candidate.kind,
        family=candidate.family,
        seed=candidate.seed,
        old_frame=old.frame_index,
        new_frame=new.frame_index,
        evidence=evidence,
        error=None if evidence is None else LoopError.of(evidence.new_from_old, candidate),
        side_error=None if word is None else LoopError.of(word.new_from_old, candidate),
        disagreement=disagreement,
        log_confidence=None if word is None else word.log_confidence,
    )


def choose_card(judged: Sequence[Judged], known_family: str) -> LoopCard:
    """Limits halfway between what 95 % of the false stay below and what 90 % of the right ones of a family reach.

    Agreeing points are half as many again, at least, as of any false candidate that keeps all other limits. The network
    may disagree by a quarter more than it does about 98 % of the right ones.
    """
    right = [one for one in judged if one.is_right and one.family == known_family]
    false = [one.evidence for one in judged if not one.is_right and one.evidence is not None]
    if len(right) < _FEWEST_RIGHT:
        raise InputError(
            f"Expected {_FEWEST_RIGHT} right loops at least to choose limits by, but of {len(judged)} candidates there "
            f"are {len(right)}; take more --worlds."
        )
    good = [one.evidence for one in right if one.evidence is not None]

    def between(of: Callable[[Evidence], float]) -> float:
        reached = float(np.quantile([of(one) for one in good], 0.1))
        return (min(float(np.quantile([of(one) for one in false], 0.95)), reached) + reached) / 2 if false else reached

    shares = {
        "least_agreeing_share": round(between(lambda one: one.agreeing_share), 3),
        "least_depth_agreement": round(between(lambda one: one.depth_agreement), 3),
        "least_colour_agreement": round(between(lambda one: one.colour_agreement), 3),
        "least_texture_agreement": round(between(lambda one: one.texture_agreement), 3),
    }
    noise = Spread(translation=1.0, rotation_rad=1.0, log_scale=1.0)
    card = LoopCard(least_agreeing=1, noise=noise, side=None, **shares)
    passing = [one.num_agreeing for one in false if doubt_of(one, card) is None]
    fewest = max(between(lambda one: one.num_agreeing), 1.5 * max(passing, default=0))
    card = LoopCard(least_agreeing=math.ceil(fewest), noise=noise, side=_side_limits(right), **shares)
    return LoopCard(
        least_agreeing=card.least_agreeing,
        noise=_noise([one for one in right if is_accepted(one, card, Method.BOTH)]),
        side=card.side,
        **shares,
    )


def _side_limits(right: Sequence[Judged]) -> SideLimits | None:
    said = [one.disagreement for one in right if one.disagreement is not None]
    if len(said) < _FEWEST_RIGHT:
        return None

    def limit(of: Callable[[Disagreement], float]) -> float:
        return round(1.25 * float(np.quantile([of(one) for one in said], 0.98)), 3)

    return SideLimits(
        turn_deg=limit(lambda one: one.turn_deg),
        shift=limit(lambda one: one.shift),
        log_scale=limit(lambda one: one.log_scale),
    )


def _noise(accepted: Sequence[Judged]) -> Spread:
    errors = [one.error for one in accepted if one.error is not None]

    def above(of: Callable[[LoopError], float]) -> float:
        return float(np.quantile([of(one) for one in errors], 0.9))

    return Spread(
        translation=round(above(lambda one: one.shift) / _CHI_3, 4),
        rotation_rad=round(math.radians(above(lambda one: one.turn_deg)) / _CHI_3, 4),
        log_scale=round(above(lambda one: one.scale_percent) / 100 / _CHI_1, 4),
    )


def is_accepted(one: Judged, card: LoopCard, method: Method) -> bool:
    """As the verifier decides; without limits of its own the network alone accepts whatever it has a word on."""
    agrees = one.evidence is not None and doubt_of(one.evidence, card) is None
    if method is Method.POINTS:
        return agrees
    if method is Method.NETWORK:
        return one.log_confidence is not None
    if card.side is None:
        return agrees
    return agrees and one.disagreement is not None and not one.disagreement.exceeds(card.side)


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodFigures:
    """Of one family and method."""

    family: str
    method: Method
    num_true: int
    num_false: int
    num_accepted: int
    """Of the true ones."""
    num_wrong: int
    """True ones that are accepted with a similarity that is wrong."""
    num_false_accepted: int
    recall_at_precision_1: float
    """Share of the true ones that are right and score higher than all that is false or wrong: by points that agree (of
    both: if the network does not object), by confidence of the network."""
    turn_deg: tuple[float, float] | None
    shift_m: tuple[float, float] | None
    scale_percent: tuple[float, float] | None
    """Median and 90 % quantile over those accepted; None where there are none."""


def figures(judged: Sequence[Judged], card: LoopCard, method: Method) -> MethodFigures:
    """Of candidates of one family."""
    true = [one for one in judged if one.kind is Kind.TRUE]
    accepted = [one for one in true if is_accepted(one, card, method)]
    errors = [error for one in accepted if (error := _error(one, method)) is not None]
    false = [one for one in judged if one.kind is not Kind.TRUE]

    def quantiles(of: Callable[[LoopError], float]) -> tuple[float, float] | None:
        values = [of(error) for error in errors]
        return (float(np.quantile(values, 0.5)), float(np.quantile(values, 0.9))) if values else None

    return MethodFigures(
        family=judged[0].family,
        method=method,
        num_true=len(true),
        num_false=len(false),
        num_accepted=len(accepted),
        num_wrong=sum(not error.is_right for error in errors),
        num_false_accepted=sum(is_accepted(one, card, method) for one in false),
        recall_at_precision_1=_recall(judged, card, method),
        turn_deg=quantiles(lambda one: one.turn_deg),
        shift_m=quantiles(lambda one: one.shift_m),
        scale_percent=quantiles(lambda one: one.scale_percent),
    )


def _error(one: Judged, method: Method) -> LoopError | None:
    return one.side_error if method is Method.NETWORK else one.error


def _recall(judged: Sequence[Judged], card: LoopCard, method: Method) -> float:
    scores = [_score(one, card, method) for one in judged]
    is_right = [(error := _error(one, method)) is not None and error.is_right for one in judged]
    highest = max((score for score, right in zip(scores, is_right, strict=True) if not right), default=-math.inf)
    above = sum(right and score > highest for score, right in zip(scores, is_right, strict=True))
    return above / max(sum(one.kind is Kind.TRUE for one in judged), 1)


def _score(one: Judged, card: LoopCard, method: Method) -> float:
    if method is Method.NETWORK:
        return -math.inf if one.log_confidence is None else one.log_confidence
    if one.evidence is None:
        return -math.inf
    objects = card.side is not None and (one.disagreement is None or one.disagreement.exceeds(card.side))
    return -math.inf if method is Method.BOTH and objects else float(one.evidence.num_agreeing)
