"""What became of the frames of a finished take when more of the video was known: `corrections.json`."""

import bisect
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import torch
from jaxtyping import Float64
from torch import Tensor

from longtake.errors import InputError
from longtake.spatial.similarity import Similarity
from longtake.takes.atomic_files import writing
from longtake.takes.fields import JsonObject, parse_file
from longtake.takes.header import CORRECTIONS_NAME, ONLINE_POSES_NAME, POSES_NAME
from longtake.takes.sealed_json import sealed, unsealed

_FORMAT = "longtake-corrections"
_VERSION = 1
_ROUNDING = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrectedSpan:
    """Neighbouring frames that moved as a whole."""

    first_frame: int
    last_frame: int
    """By their places in the video, as `frames.jsonl` has them."""
    known_from_said: Similarity
    """In float64: from where these cameras were said to be to where they are. Depth is scaled along."""


@dataclass(frozen=True, slots=True)
class Corrections:
    """Spans in the order of the video, none of which overlap; other frames stay where they were."""

    spans: tuple[CorrectedSpan, ...]
    poses_sha256: str = ""
    """Of the poses that are known by them."""

    def __post_init__(self) -> None:
        ends = [(-1, -1), *((span.first_frame, span.last_frame) for span in self.spans)]
        for (_, earlier), (first, last) in pairwise(ends):
            if not earlier < first <= last:
                raise InputError(
                    f"Expected corrected spans in the order of the video, but frames {first} to {last} follow "
                    f"frame {earlier}."
                )

    def at(self, frame: int) -> Similarity | None:
        """`known_from_said` of a frame, None where it has not moved."""
        place = bisect.bisect_left(self.spans, frame, key=lambda span: span.last_frame)
        if place == len(self.spans) or self.spans[place].first_frame > frame:
            return None
        return self.spans[place].known_from_said

    def of_pose(self, frame: int, said: Float64[Tensor, "4 4"]) -> Float64[Tensor, "4 4"]:
        """Where the camera of a frame is, that was said to be there."""
        moved = self.at(frame)
        return said if moved is None else moved.of_cameras(said)

    def scale_at(self, frame: int) -> float:
        """By which the depth of a frame is to be multiplied."""
        moved = self.at(frame)
        return 1.0 if moved is None else float(moved.scale)

    def after(self, before: "Corrections | None") -> "Corrections":
        """What moves frames that others have moved already, from where they were first said to be."""
        if before is None:
            return self
        edges = sorted({edge for one in (before, self) for span in one.spans for edge in _edges(span)})
        spans = []
        for first, stop in pairwise(edges):
            moves = [moved for moved in (self.at(first), before.at(first)) if moved is not None]
            if moves:
                known_from_said = moves[0] if len(moves) == 1 else moves[0] @ moves[1]
                spans.append(CorrectedSpan(first_frame=first, last_frame=stop - 1, known_from_said=known_from_said))
        return Corrections(tuple(spans))

    def require_theirs(self, path: Path, lines: Sequence[bytes]) -> None:
        """Refuse poses that are not the ones known by these corrections."""
        if sha256_of_lines(lines) != self.poses_sha256:
            raise InputError(
                f"Expected in {path} the poses that {CORRECTIONS_NAME} beside it belongs to, but they were changed; "
                "read the take again if it was being written, or else make it again."
            )

    def content(self) -> bytes:
        """Of the file."""
        return sealed(self.to_record())

    def to_record(self) -> dict[str, object]:
        """As plain values."""
        spans = [_to_json(span) for span in self.spans]
        return {"format": _FORMAT, "version": _VERSION, "poses_sha256": self.poses_sha256, "spans": spans}

    @classmethod
    def from_record(cls, record: JsonObject) -> "Corrections":
        """What `to_record` gave."""
        if record.fields.get("format") != _FORMAT:
            raise record.refuse("format", f"'{_FORMAT}'")
        if record.integer("version", least=1) > _VERSION:
            raise record.refuse("version", f"a version of up to {_VERSION}")
        return cls(tuple(map(_from_json, record.objects("spans"))), record.text("poses_sha256"))


def _edges(span: CorrectedSpan) -> tuple[int, int]:
    return span.first_frame, span.last_frame + 1


def sha256_of_lines(lines: Iterable[bytes]) -> str:
    """Of lines without their ends, as they are in a file."""
    digest = hashlib.sha256()
    for line in lines:
        digest.update(line + b"\n")
    return digest.hexdigest()


def restore_online(folder: Path) -> None:
    """Put the poses back that were said while the video ran; where nothing was corrected, nothing is done."""
    with writing(f"The take {folder}"):
        if (folder / ONLINE_POSES_NAME).exists():
            (folder / CORRECTIONS_NAME).unlink(missing_ok=True)
            (folder / ONLINE_POSES_NAME).replace(folder / POSES_NAME)


def read_corrections(folder: Path) -> Corrections | None:
    """Of a take; None where nothing was moved."""
    return parse_file(folder / CORRECTIONS_NAME, _parsed)


def _parsed(content: bytes, where: str) -> Corrections:
    return Corrections.from_record(unsealed(JsonObject.parse(content, where)))


def _to_json(span: CorrectedSpan) -> dict[str, object]:
    moved = span.known_from_said
    return {
        "first_frame": span.first_frame,
        "last_frame": span.last_frame,
        "scale": float(moved.scale),
        "rotation": moved.rotation.flatten().tolist(),
        "translation": moved.translation.tolist(),
    }


def _from_json(record: JsonObject) -> CorrectedSpan:
    rotation = torch.tensor(record.numbers("rotation", 9), dtype=torch.float64).reshape(3, 3)
    if not torch.allclose(rotation @ rotation.T, torch.eye(3, dtype=torch.float64), atol=_ROUNDING):
        raise record.refuse("rotation", "a rotation, row by row")
    return CorrectedSpan(
        first_frame=record.integer("first_frame"),
        last_frame=record.integer("last_frame"),
        known_from_said=Similarity(
            torch.tensor(record.positive_number("scale"), dtype=torch.float64),
            rotation,
            torch.tensor(record.numbers("translation", 3), dtype=torch.float64),
        ),
    )
