"""How far a video is from what a network was trained on, by what its own encoder makes of the frames.

Of each family of worlds in training there is a normal distribution of descriptors: a mean, a few directions in which
they vary most, and one variance for all others. A frame is as far as the nearest of them is, in standard deviations a
channel; a video is as far as its first frames are in the mean. `limit` is what most unseen houses stay below, and most
worlds that were held out exceed.
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from longtake import __version__
from longtake.errors import CheckpointError, SavedSessionError
from longtake.memory.saved import Pieces, SavedTensors, write_tensors

SUFFIX = ".familiarity"
"""Of the file beside that of the weights."""
CLIP_FRAMES = 48
"""The first frames of a video, by which it is judged."""
FEWEST_FRAMES = 8
"""Of a shorter video; of fewer nothing is said."""
CLIP_GRIDS, FEWEST_GRIDS = 8, 2
"""The same of a language model, which looks at pairs of frames."""
_VERSION = 1
_DIRECTIONS = 8


@dataclass(frozen=True, slots=True)
class Judged:
    """How far the first frames of a video, or pairs of them, were from what a network knows, added up."""

    number: int = 0
    distance_sum: float = 0.0

    def with_distances(self, distances: Float[Tensor, " frames"]) -> "Judged":
        """Once these are among them."""
        return Judged(self.number + len(distances), self.distance_sum + float(distances.sum()))


UNJUDGED = Judged()


@dataclass(frozen=True, slots=True, kw_only=True)
class Familiarity:
    """Statistics of a network's descriptors over its training, and what is calibrated by them."""

    mean: Float[Tensor, "families channels"]
    directions: Float[Tensor, "families directions channels"]
    """Of length 1 and at right angles to each other."""
    variance: Float[Tensor, "families directions"]
    rest: Float[Tensor, " families"]
    """Variance along every other direction."""
    limit: float
    """Mean distance between that of unseen houses and of worlds that were held out."""

    @classmethod
    def of(cls, families: Sequence[Float[Tensor, "frames channels"]], limit: float = math.inf) -> "Familiarity":
        """From descriptors of frames for training, family by family."""
        parts = [_principal(descriptors.double()) for descriptors in families]
        mean, directions, variance, rest = (torch.stack(column).float() for column in zip(*parts, strict=True))
        return cls(
            # as a file holds them
            mean=mean.half().float(),
            directions=directions.half().float(),
            variance=variance,
            rest=rest,
            limit=limit,
        )

    def distances(self, descriptors: Float[Tensor, "frames channels"]) -> Float[Tensor, " frames"]:
        """Of each frame from the nearest family; about 1 for those of training."""
        away = descriptors.float()[:, None] - self.mean
        along = torch.einsum("fnc,ndc->fnd", away, self.directions)
        beside = (away.square().sum(dim=-1) - along.square().sum(dim=-1)).clamp_min(0)
        squares = (along.square() / self.variance).sum(dim=-1) + beside / self.rest
        return (squares / away.shape[-1]).sqrt().amin(dim=1)

    def unlikeness(self, mean_distance: float) -> float:
        """Over the limit: above 1, a video is unlike what the network knows."""
        return mean_distance / self.limit

    def save(self, weights: Path) -> Path:
        """Into a file beside that of the weights, whose SHA-256 it says; returns where."""
        tensors = {
            "mean": Pieces.of(self.mean.half()),
            "directions": Pieces.of(self.directions.half()),
            "variance": Pieces.of(self.variance),
            "rest": Pieces.of(self.rest),
        }
        record = {"longtake": __version__, "version": _VERSION, "weights": _sha256(weights), "limit": self.limit}
        write_tensors(weights.with_suffix(SUFFIX), tensors, record)
        return weights.with_suffix(SUFFIX)


def read_familiarity(weights: Path) -> Familiarity | None:
    """What `save` wrote beside these weights; none where there is nothing, or it is of others or of a later version."""
    path = weights.with_suffix(SUFFIX)
    if not path.is_file():
        return None
    try:
        saved = SavedTensors(path)
        if saved.record.get("version") != _VERSION or saved.record.get("weights") != _sha256(weights):
            return None
        mean = saved.read("mean", torch.float16, (None, None)).float()
        families, channels = mean.shape
        return Familiarity(
            mean=mean,
            directions=saved.read("directions", torch.float16, (families, None, channels)).float(),
            variance=saved.read("variance", torch.float32, (families, None)).clone(),
            rest=saved.read("rest", torch.float32, (families,)).clone(),
            limit=float(_record_number(saved.record, "limit")),
        )
    except SavedSessionError as error:
        raise CheckpointError(f"{path} is damaged ({error}); install longtake again, or delete the file.") from error


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _record_number(record: Mapping[str, object], name: str) -> float:
    value = record.get(name)
    if not isinstance(value, int | float) or not value > 0:
        raise SavedSessionError(f"its {name} is {value}")
    return value


def _principal(descriptors: Float[Tensor, "frames channels"]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Mean, directions, variances along them, and the mean variance along all others."""
    mean = descriptors.mean(dim=0)
    away = descriptors - mean
    values, vectors = torch.linalg.eigh(away.T @ away / len(away))
    count = min(_DIRECTIONS, len(values) // 2)
    rest = values[:-count].clamp_min(0).mean().clamp_min(1e-12)
    return mean, vectors[:, -count:].T, values[-count:].clamp_min(float(rest)), rest
