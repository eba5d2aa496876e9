"""Stretches of a walk that move as one: where each begins, and where its first camera was said to be."""

import bisect
from dataclasses import dataclass

from longtake.spatial.similarity import Similarity


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Nodes:
    """In the order of time."""

    starts: tuple[int, ...] = ()
    """First frame of each."""
    windows: tuple[int, ...] = ()
    is_lost: tuple[bool, ...] = ()
    """Whether each is of frames that are."""
    anchors: tuple[Similarity, ...] = ()
    """Where each first camera was said to be before any loop."""

    def __len__(self) -> int:
        return len(self.starts)

    def followed_by(self, *, start: int, window: int, is_lost: bool, anchor: Similarity) -> "Nodes":
        return Nodes(
            starts=(*self.starts, start),
            windows=(*self.windows, window),
            is_lost=(*self.is_lost, is_lost),
            anchors=(*self.anchors, anchor),
        )

    def of_frame(self, frame: int) -> int:
        """Which one a frame is of."""
        return bisect.bisect_right(self.starts, frame) - 1

    def sub_map_of(self, node: int) -> int | None:
        """Which one a node is of, from 0; None of frames that are lost."""
        return None if self.is_lost[node] else bisect.bisect_right(self.sub_maps, node) - 1

    @property
    def sub_maps(self) -> list[int]:
        """The first node of each."""
        return [at for at, is_lost in enumerate(self.is_lost) if not is_lost and (at == 0 or self.is_lost[at - 1])]
