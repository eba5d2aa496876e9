"""The header of a take, `take.json`: its content, sizes, units and files."""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from longtake import __version__
from longtake.errors import InputError, SettingError
from longtake.spatial.placement import Placement
from longtake.takes.depth_files import CONFIDENCE_FILES, DepthFiles
from longtake.takes.fields import JsonObject, content_of
from longtake.takes.images import ImageFiles

HEADER_NAME = "take.json"
FRAMES_NAME = "frames.jsonl"
POSES_NAME = "poses.tum"
QUESTIONS_NAME = "questions.json"
ANSWERS_NAME = "answers.json"
DESCRIPTORS_NAME = "descriptors.txt"
ONLINE_POSES_NAME = "poses_online.tum"
CORRECTIONS_NAME = "corrections.json"
NUMBERED_FOLDERS = ("images", "depth", "confidence")
"""With a file a frame."""
_FORMAT = "longtake-take"
_VERSION = 1
_DESCRIPTORS_VERSION = 1


class Content(StrEnum):
    """Whether a take holds what is true or what was estimated."""

    TRUTH = "truth"
    RESULT = "result"


class Unit(StrEnum):
    """What lengths are measured in: poses, depth, the step of depth."""

    METRE = "m"
    MODEL = "model"
    """The estimating network's own, of unknown length."""

    @property
    def in_words(self) -> str:
        """Behind a number."""
        return "m" if self is Unit.METRE else "model units"


@dataclass(frozen=True, slots=True)
class Network:
    """What estimated a result, and can know its places again."""

    name: str
    """By which it is loaded."""
    fingerprint: str
    """The same for the same weights, in whatever number type they were computed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeHeader:
    """A take's sizes, units and files."""

    content: Content
    width: int
    height: int
    """Of images, depth and confidence alike, and what intrinsics refer to."""
    unit: Unit = Unit.METRE
    fps: float | None = None
    """Frames per second in name; each frame has its own timestamp."""
    images: ImageFiles | None = None
    depth: DepthFiles | None = None
    confidence: bool = False
    """Whether each frame has a confidence of its depth."""
    source: Placement | None = None
    """Where the video's own pixels lie in the take's, where those are others."""
    descriptor_channels: int | None = None
    """Numbers by which keyframes are found again; None where there are none."""
    network: Network | None = None
    """None where it has no name, or nobody said."""
    world: Mapping[str, Any] | None = None
    """Whatever the maker knows of the world: seed, rooms, things."""
    made_by: str = f"longtake {__version__}"
    num_frames: int | None = None
    """How many there are, once the writer has closed the take; None while it grows, and where the writer was killed."""

    def __post_init__(self) -> None:
        if self.width < 1 or self.height < 1:
            raise SettingError(f"Expected a take of at least 1x1 pixels, but got {self.width}x{self.height}.")
        if self.fps is not None and not (math.isfinite(self.fps) and self.fps > 0):
            raise SettingError(f"Expected more than 0 frames per second or none, but got {self.fps}.")

    @property
    def size(self) -> tuple[int, int]:
        """(height, width)."""
        return self.height, self.width

    @property
    def patterns(self) -> list[str]:
        """Names of the files that hold pixels, to be formatted with a frame's index."""
        depth = None if self.depth is None else self.depth.pattern
        confidence = CONFIDENCE_FILES if self.confidence else None
        return [pattern for pattern in (self.images, depth, confidence) if pattern is not None]

    def to_json(self) -> str:
        record = {
            "format": _FORMAT,
            "version": _VERSION,
            "made_by": self.made_by,
            "content": self.content,
            "width": self.width,
            "height": self.height,
            "unit": self.unit,
            "fps": self.fps,
            "images": self.images,
            "depth": None if self.depth is None else self.depth.to_json(),
            "confidence": {"files": CONFIDENCE_FILES} if self.confidence else None,
            "source": None if self.source is None else placement_to_json(self.source),
            "descriptors": _descriptors_to_json(self.descriptor_channels),
            "world": self.world,
        }
        if self.network is not None:
            record["network"] = asdict(self.network)
        if self.num_frames is not None:
            record["num_frames"] = self.num_frames
        try:
            return json.dumps(record, indent=2, allow_nan=False) + "\n"
        except (TypeError, ValueError) as error:
            raise SettingError(f"Expected texts, lists and finite numbers as a take's world, but {error}.") from error


def is_take(folder: Path) -> bool:
    """Whether the folder's header says it is a take, of whatever version."""
    try:
        return JsonObject.parse(content_of(folder / HEADER_NAME), str(folder)).fields.get("format") == _FORMAT
    except (OSError, InputError):
        return False


def read_header(folder: Path) -> TakeHeader:
    """The header of a folder that must be a take."""
    path = folder / HEADER_NAME
    try:
        record = JsonObject.parse(content_of(path), str(path))
    except OSError as error:
        raise InputError(
            f"Expected a take in {folder}, but its {HEADER_NAME} cannot be read ({error.strerror}); name a folder "
            "that longtake wrote."
        ) from error
    _require_version(record)
    return TakeHeader(
        made_by=record.text("made_by"),
        content=record.choice("content", Content),
        width=record.integer("width", least=1),
        height=record.integer("height", least=1),
        unit=record.choice("unit", Unit),
        fps=record.optional("fps", record.positive_number),
        images=record.optional("images", lambda name: record.choice(name, ImageFiles)),
        depth=record.optional("depth", lambda name: DepthFiles.from_json(record.object(name))),
        confidence=record.optional("confidence", lambda name: _is_confidence(record.object(name))) is not None,
        source=record.optional("source", lambda name: placement_from_json(record.object(name))),
        descriptor_channels=record.optional("descriptors", lambda name: _descriptors_from_json(record.object(name))),
        network=record.optional("network", lambda name: _network_from_json(record.object(name))),
        world=record.optional("world", lambda name: record.object(name).fields),
        num_frames=record.optional("num_frames", record.integer),
    )


def _require_version(record: JsonObject) -> None:
    if record.fields.get("format") != _FORMAT:
        raise record.refuse("format", f"'{_FORMAT}'")
    if record.integer("version") > _VERSION:
        raise InputError(
            f"Expected a take of version {_VERSION} or older in {record.where}, but got version "
            f"{record.fields['version']}; read it with what made it, {record.fields.get('made_by')}."
        )


def _is_confidence(record: JsonObject) -> bool:
    if record.text("files") != CONFIDENCE_FILES:
        raise record.refuse("files", f"'{CONFIDENCE_FILES}'")
    return True


def _descriptors_to_json(channels: int | None) -> dict[str, Any] | None:
    if channels is None:
        return None
    return {"file": DESCRIPTORS_NAME, "version": _DESCRIPTORS_VERSION, "channels": channels}


def _descriptors_from_json(record: JsonObject) -> int | None:
    """How many numbers one has; those that a later version writes in another way are as if they were not there."""
    if record.integer("version", least=1) > _DESCRIPTORS_VERSION:
        return None
    if record.text("file") != DESCRIPTORS_NAME:
        raise record.refuse("file", f"'{DESCRIPTORS_NAME}'")
    return record.integer("channels", least=1)


def _network_from_json(record: JsonObject) -> Network:
    return Network(record.text("name"), record.text("fingerprint"))


def placement_to_json(placement: Placement) -> dict[str, Any]:
    """Where the pixels of a take lie in those of the video it was made from."""
    return {
        "width": placement.source_width,
        "height": placement.source_height,
        "scale": [placement.scale_x, placement.scale_y],
        "offset": [placement.offset_x, placement.offset_y],
    }


def placement_from_json(record: JsonObject) -> Placement:
    scale_x, scale_y = record.numbers("scale", 2)
    if not (scale_x > 0 and scale_y > 0):
        raise record.refuse("scale", "2 numbers greater than 0")
    offset_x, offset_y = record.numbers("offset", 2)
    width, height = record.integer("width", least=1), record.integer("height", least=1)
    return Placement(width, height, scale_x, scale_y, offset_x, offset_y)
