"""What a client asks of a session: what watches, where frames come from and how, how much it may take."""

import math
import re
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any

from longtake.errors import SettingError
from longtake.takes.fields import JsonObject
from longtake.video.addresses import shown_address
from longtake.video.source import open_source


class Delivery(StrEnum):
    """What happens to frames while the session is busy."""

    NEWEST = "newest"
    """One waits, and a newer one takes its place; what is dropped is told."""
    EVERY = "every"
    """All are taken, in order; the sender waits."""


PUSH, UPLOAD = "push", "upload"
_WORLD = re.compile(r"world(:[\w-]+)?(\?[\w=&.,:-]*)?")
_MAX_WORLD_PIXELS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSpec:
    """All that decides a session."""

    source: str = PUSH
    model: str | None = None
    """Of the map; None for questions alone."""
    language: str | None = None
    """Of questions; None for a map alone."""
    memory_bytes: int
    share: float = 0.5
    """The map's part of the memory, where there are both."""
    ask_fps: float = 2.0
    """Frames a second that the dialogue sees at most, where there is a map too."""
    fps: float | None = None
    """Frames a second that the session wants to be served, or that are taken of a video."""
    delivery: Delivery = Delivery.EVERY
    max_tokens: int = 64
    loops: bool = True
    """Whether the map closes loops, where its model's card says how."""
    title: str | None = None
    """What people call it; None for what its source says."""

    def __post_init__(self) -> None:
        if self.model is None and self.language is None:
            raise SettingError("Expected a model for the map, a language model for questions, or both.")
        if self.memory_bytes < 1 or self.max_tokens < 1:
            raise SettingError("Expected memory and max_tokens above 0.")
        if not 0 < self.share < 1:
            raise SettingError(f"Expected share between 0 and 1, the map's part of the memory, but got {self.share:g}.")
        for name, rate in (("ask_fps", self.ask_fps), ("fps", self.fps)):
            if rate is not None and not 0 < rate < math.inf:
                raise SettingError(f"Expected {name} above 0, but got {rate:g}.")

    @property
    def is_pushed(self) -> bool:
        return self.source == PUSH

    @property
    def is_world(self) -> bool:
        return _WORLD.fullmatch(self.source) is not None

    @property
    def is_address(self) -> bool:
        """Whether it names something that the server would have to open: a URL, a camera, a path."""
        return not (self.is_pushed or self.is_world or self.source == UPLOAD)

    @property
    def shown(self) -> "SessionSpec":
        """Without the secrets of an address."""
        return replace(self, source=shown_address(self.source)) if self.is_address else self

    @property
    def map_bytes(self) -> int:
        if self.model is None:
            return 0
        return self.memory_bytes if self.language is None else int(self.memory_bytes * self.share)

    def require_modest_world(self) -> None:
        """Refuse a world whose pictures would take more than a client may ask for."""
        if not self.is_world:
            return
        width, height = (open_source(self.source).identity[side] for side in ("width", "height"))
        if width * height > _MAX_WORLD_PIXELS:
            raise SettingError(f"Expected a world of at most {_MAX_WORLD_PIXELS} pixels, but got {width}x{height}.")

    def to_record(self) -> dict[str, Any]:
        """The spec as plain values for JSON."""
        return asdict(self)

    @classmethod
    def from_record(cls, record: JsonObject) -> "SessionSpec":
        return cls(
            source=record.text("source"),
            model=record.optional("model", record.text),
            language=record.optional("language", record.text),
            memory_bytes=record.integer("memory_bytes", least=1),
            share=record.positive_number("share"),
            ask_fps=record.positive_number("ask_fps"),
            fps=record.optional("fps", record.positive_number),
            delivery=record.choice("delivery", Delivery),
            max_tokens=record.integer("max_tokens", least=1),
            loops=record.optional("loops", record.boolean) or False,  # earlier versions closed none
            title=record.optional("title", record.text),
        )
