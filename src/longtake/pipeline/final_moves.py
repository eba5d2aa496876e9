"""What became of frames whose results had been handed on as final."""

import bisect
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from longtake.spatial.similarity import Similarity
from longtake.takes.corrections import CorrectedSpan, Corrections
from longtake.types import MovedSpan

NOT_MOVED = Similarity(
    torch.ones((), dtype=torch.float64), torch.eye(3, dtype=torch.float64), torch.zeros(3, dtype=torch.float64)
)


class FinalMoves:
    """Pieces of the video, each with the similarity from where its cameras were said to be to where they are now."""

    def __init__(self) -> None:
        self._starts = [0]
        self._moves = [NOT_MOVED]
        self._corrections: Corrections | None = None

    def move(self, spans: Sequence[MovedSpan], num_final: int) -> None:
        """Move the frames of these spans along, as far as they come before this one: later ones are not final."""
        final = [span for span in spans if span.first_frame < num_final]
        for span in final:
            stop = min(span.last_frame + 1, num_final)
            first, last = self._piece_from(span.first_frame), self._piece_from(stop)
            now_from_before = Similarity.of_matrix(span.now_from_before.double())
            self._moves[first:last] = [now_from_before @ before for before in self._moves[first:last]]
        if final:
            self._corrections = self._put_together()

    @property
    def corrections(self) -> Corrections | None:
        """Of all frames so far; None where none has moved, and the same object until one moves."""
        return self._corrections

    def _put_together(self) -> Corrections | None:
        stops = [*self._starts[1:], self._starts[-1]]  # behind the last piece nothing is final
        spans = tuple(
            CorrectedSpan(first_frame=start, last_frame=stop - 1, known_from_said=moved)
            for start, stop, moved in zip(self._starts, stops, self._moves, strict=True)
            if moved is not NOT_MOVED
        )
        return Corrections(spans) if spans else None

    def state(self) -> Mapping[str, Any]:
        """As plain values."""
        return {
            "starts": list(self._starts),
            "moves": [None if moved is NOT_MOVED else list(moved.numbers()) for moved in self._moves],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        self._starts = list(state.get("starts", [0]))
        self._moves = [
            NOT_MOVED if numbers is None else Similarity.of_numbers(numbers, dtype=torch.float64)
            for numbers in state.get("moves", [None])
        ]
        self._corrections = self._put_together()

    def _piece_from(self, frame: int) -> int:
        """The place of the piece that begins with this frame, which is cut from the one it lies in."""
        place = bisect.bisect_left(self._starts, frame)
        if place == len(self._starts) or self._starts[place] != frame:
            self._starts.insert(place, frame)
            self._moves.insert(place, self._moves[place - 1])
        return place
