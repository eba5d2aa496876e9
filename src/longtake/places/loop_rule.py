"""How a session looks for places that it knows, and when it acts on them."""

from dataclasses import dataclass

from longtake.errors import SettingError
from longtake.places.graph import LOOP_BYTES, MAX_LOOPS, NODE_BYTES
from longtake.places.index import IndexRule
from longtake.places.kept_view import KeptView
from longtake.places.loops import Spread
from longtake.places.tracking import TrackingRule

_MOST_PICTURES = 64
"""That wait for an answer, and of what an overlay is found by."""
_MANY_NODES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopRule:
    """Limits and numbers of frames."""

    index: IndexRule = IndexRule(max_places=768)  # noqa: RUF009 (a frozen value)
    least_similarity: float = 0.1
    """Of candidates that are verified."""
    verify_every: int = 8
    """Frames between two candidates that are verified."""
    adopt_after: int = 16
    """Frames from when a loop is believed until what was said moves."""
    longest_node: int = 52
    """Frames of a node, where windows are longer or there are none; half of what a window of micro-map adds."""
    drift: Spread = Spread(translation=0.06, rotation_rad=0.045, log_scale=0.03)  # noqa: RUF009
    """From one node to the next; the translation over the median depth."""
    most_turn_deg: float = 40.0
    most_surprise: float = 40.0
    """How far a loop may be from where its nodes lie: by its turn, once other loops bear that out, and squared, in
    standard deviations of its own and of the drift between them. Corners of a room look alike, turned by 90 degrees."""
    unproven_drift: float = 3.0
    """How many times as far overlaps may drift as is usual, while no loops bear out that they do not."""
    tracking: TrackingRule = TrackingRule()  # noqa: RUF009

    def most_bytes(self, size: tuple[int, int], num_channels: int) -> int:
        """That a walk may come to hold of frames of this height and width and descriptors so long, however it goes.

        Nodes are counted for some 200,000 frames; a longer walk holds a third of a kilobyte more with each.
        """
        height, width = size
        pictures = _MOST_PICTURES * 3 * height * width
        graph = NODE_BYTES * _MANY_NODES + LOOP_BYTES * MAX_LOOPS
        views = self.index.max_places * KeptView.bytes_for(size)
        return pictures + views + self.index.num_bytes(num_channels) + graph

    def __post_init__(self) -> None:
        if min(self.verify_every, self.adopt_after, self.longest_node) < 1:
            raise SettingError(f"Expected numbers of frames from 1 on in a rule for loops, but got {self}.")
