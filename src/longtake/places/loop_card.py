"""What a network's card says of loops: how much must agree before one is believed, and how exact those are then.

Chosen for one set of weights by `python -m benchmarks loop-pairs` and kept beside them; a network without such a file
closes no loops.
"""

import hashlib
import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from longtake.errors import CheckpointError, SettingError
from longtake.places.loops import Spread
from longtake.records import parse_json

SUFFIX = ".loops"
"""Of the file beside that of the weights."""
_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SideLimits:
    """How far the network's own word on a jump may be from that of matched points."""

    turn_deg: float
    shift: float
    """Over the median depth of the new view."""
    log_scale: float

    def __post_init__(self) -> None:
        _require_positive(asdict(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopCard:
    """All that depends on the network."""

    least_agreeing: int
    """Matched points that agree on one similarity."""
    least_agreeing_share: float
    """Of those that look alike."""
    least_depth_agreement: float
    least_colour_agreement: float
    least_texture_agreement: float
    most_turn_deviation_rad: float = math.radians(5.0) / 3
    """Of the turn, by where the agreeing points are seen: three deviations are what a loop may be off by."""
    noise: Spread
    """Of accepted loops; translation over the median depth of the new view."""
    side: SideLimits | None = None
    """None where the network is not asked."""

    def __post_init__(self) -> None:
        _require_positive(
            {
                "least_agreeing": float(self.least_agreeing),
                "most_turn_deviation_rad": self.most_turn_deviation_rad,
            }
        )
        shares = (
            self.least_agreeing_share,
            self.least_depth_agreement,
            self.least_colour_agreement,
            self.least_texture_agreement,
        )
        if not all(0 <= share <= 1 for share in shares):
            raise SettingError(f"Expected shares from 0 to 1 on a card of loops, but got {shares}.")

    def to_record(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> "LoopCard":
        """What `to_record` gave."""
        side = record["side"]
        parts = {"noise": Spread(**record["noise"]), "side": None if side is None else SideLimits(**side)}
        return cls(**record | parts)

    def save(self, weights: Path) -> Path:
        """Into a file beside that of the weights, whose SHA-256 it says; returns where."""
        path = weights.with_suffix(SUFFIX)
        record = {"version": _VERSION, "weights": _sha256(weights), "loops": self.to_record()}
        path.write_text(json.dumps(record, indent=1) + "\n")
        return path


def read_loop_card(weights: Path) -> LoopCard | None:
    """What `save` wrote beside these weights; none where there is nothing, or it is of others or of a later version."""
    path = weights.with_suffix(SUFFIX)
    if not path.is_file():
        return None
    try:
        record = parse_json(path.read_text())
        if record["version"] != _VERSION or record["weights"] != _sha256(weights):
            return None
        return LoopCard.from_record(record["loops"])
    except (KeyError, TypeError, ValueError, SettingError) as error:
        raise CheckpointError(f"{path} is damaged ({error}); install longtake again, or delete the file.") from error


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _require_positive(numbers: dict[str, float]) -> None:
    if not all(0 < number < float("inf") for number in numbers.values()):
        raise SettingError(f"Expected finite numbers above 0 on a card of loops, but got {numbers}.")
