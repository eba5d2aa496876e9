"""Which model a file of weights is of, told by the names in it."""

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from longtake.weights import published


@dataclass(frozen=True, slots=True)
class Family:
    """Files that look alike: some name begins with each of `has`, none with any of `lacks`."""

    title: str
    has: tuple[str, ...]
    lacks: tuple[str, ...] = ()
    file: str = ""
    """What the file's own name contains."""
    skipped: str | None = None
    """How the names of a part begin that longtake knows and does not load."""
    our_name: Callable[[str], str | None] = published.our_name
    """Our name of a tensor of such a file; None for one that has no place in the model."""

    def fits(self, names: Collection[str], file: str) -> bool:
        def begins(pattern: str) -> bool:
            return any(re.match(pattern, name) for name in names)

        return self.file in file and all(map(begins, self.has)) and not any(map(begins, self.lacks))

    def skips(self, name: str) -> bool:
        """Whether a tensor belongs to the part that is not loaded."""
        return self.skipped is not None and re.match(self.skipped, name) is not None


_TRUNK = r"aggregator\."
_SCALE = r"aggregator\.scale_token"
_POINTS = r"point_head\."
_TRACKS = r"track_head\."
_STAGE_1 = "LingBot-Map's first training stage, a bidirectional VGGT"

LONGTAKE = Family(
    "longtake's own model",
    has=(r"encoder\.positions", r"tokens\.camera", r"trunk\.frame_blocks\."),
    our_name=lambda name: name,
)
LINGBOT_MAP = Family("LingBot-Map", has=(_TRUNK, _SCALE))
STREAM3R = Family("STream3R", has=(_TRUNK, _POINTS), lacks=(_SCALE, _TRACKS))
VGGT = Family("VGGT", has=(_TRUNK, _TRACKS), lacks=(_SCALE,), skipped=_TRACKS)
STREAMVGGT = replace(VGGT, title="StreamVGGT")
VGGT_OR_STREAMVGGT = replace(VGGT, title="VGGT or StreamVGGT")
"""One set of names for both; only who fetched the file can say which it is."""
UNKNOWN = Family("no model known to longtake", has=())

# The keys of lingbot-map-stage1 were never seen; its card says that it loads into a bidirectional VGGT.
_FAMILIES = (
    Family("a session saved by longtake", has=(r"num_kept$", r"\w+\.num_settled")),
    LONGTAKE,
    LINGBOT_MAP,
    Family(_STAGE_1, has=(_TRUNK,), lacks=(_SCALE,), file="stage1"),
    VGGT_OR_STREAMVGGT,
    STREAM3R,
    Family(_STAGE_1, has=(_TRUNK,), lacks=(_SCALE, _POINTS, _TRACKS)),
    Family(
        "a Qwen model in the layout of transformers", has=(r"model\.(language_model\.)?layers\.|(model\.)?visual\.",)
    ),
)


def recognise(names: Collection[str], file: str) -> Family:
    """The first family that fits the names of the tensors and of the file."""
    return next((family for family in _FAMILIES if family.fits(names, file)), UNKNOWN)
