"""One graph of where windows lie: each after the one before by an overlap, which is trusted; known places by loops.

node      0 ── 1 ── 2 ── 3 ── 4 ┄┄ 5 ── 6        ──  overlap: each node measured in the one before it
               └──────── loop ─────────┘          ┄┄  broken: a new sub-map, of which only loops tell where it lies

Its state is `strain`: how far each node's place in the one before is from what was measured there. Without loops that
is nothing, and nodes lie as their overlaps say; `places.solver` finds the strain that costs least.

A graph is a value: adding to it makes another one, by composing one similarity and copying the rest.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float64, Int64
from numpy.typing import NDArray
from torch import Tensor

from longtake.errors import InputError, SavedSessionError, SettingError
from longtake.places.loops import Loops, Spread
from longtake.spatial.similarities import TANGENT, Similarities, exp
from longtake.spatial.similarity import Similarity

_SIMILARITY = 13
NODE_BYTES = 8 * (2 * _SIMILARITY + 3 + TANGENT) + 1
LOOP_BYTES = 8 * (3 + _SIMILARITY + 3 + 1) + 1
MAX_LOOPS = 128
"""Of the usual graph; a step of the solver takes time as their cube, and with so many half of 50 ms."""


_UNKNOWN = Spread(translation=1000.0, rotation_rad=30.0, log_scale=5.0)
"""Across a break: any loop outweighs it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceGraph:
    """Nodes in the order of time. `world_from_node[0]` never moves."""

    measured: Similarities
    """Each node in the one before it; the first one in the world."""
    spread: Float64[np.ndarray, "nodes 3"]
    is_broken: Bool[np.ndarray, " nodes"]
    """Whether nothing is known of a node's place in the one before it."""
    strain: Float64[np.ndarray, "nodes 7"]
    world_from_node: Similarities
    """measured · exp(strain), one after the other."""
    loops: Loops
    max_loops: int = MAX_LOOPS

    @classmethod
    def of_first(cls, world_from_node: Similarity, *, max_loops: int = MAX_LOOPS) -> "PlaceGraph":
        """A graph of one node."""
        if max_loops < 1:
            raise SettingError(f"Expected room for one loop at least, but got {max_loops}.")
        first = Similarities.of([world_from_node])
        return cls(
            measured=first,
            spread=np.ones((1, 3)),
            is_broken=np.zeros(1, dtype=bool),
            strain=np.zeros((1, TANGENT)),
            world_from_node=first,
            loops=Loops.none(),
            max_loops=max_loops,
        )

    def __len__(self) -> int:
        return len(self.spread)

    @property
    def num_bytes(self) -> int:
        """Of all that `tensors` holds."""
        return NODE_BYTES * len(self) + LOOP_BYTES * len(self.loops)

    @property
    def most_bytes(self) -> int:
        """With as many loops as there may be between these nodes."""
        return NODE_BYTES * len(self) + LOOP_BYTES * self.max_loops

    def node(self, index: int) -> Similarity:
        """`world_from_node`, in double precision on the host."""
        return self.world_from_node.one(index)

    def followed_by(self, previous_from_node: Similarity, spread: Spread) -> "PlaceGraph":
        """With one more node, measured in the last one."""
        return self._with_node(Similarities.of([previous_from_node]), spread, is_broken=False)

    def followed_by_sub_map(self, world_from_node: Similarity) -> "PlaceGraph":
        """With one more node that shares nothing with the last one; it lies as is said here until a loop tells more."""
        last = self.world_from_node[slice(-1, None)]
        return self._with_node(last.inverse() @ Similarities.of([world_from_node]), _UNKNOWN, is_broken=True)

    def with_loop(self, first: int, second: int, first_from_second: Similarity, spread: Spread) -> "PlaceGraph":
        """With one more loop, between nodes there are; nothing moves. Where there are too many, one leaves."""
        if not 0 <= first < second < len(self):
            raise InputError(
                f"Expected a loop from an earlier to a later of {len(self)} nodes, but got {first} and {second}."
            )
        number = int(self.loops.number.max(initial=-1)) + 1
        loops = self.loops.followed_by(Loops.one(number, (first, second), first_from_second, spread))
        if len(loops) > self.max_loops:
            loops = loops[np.delete(np.arange(len(loops)), loops.least_missed())]
        return replace(self, loops=loops)

    def now_from(self, before: "PlaceGraph") -> Similarities:
        """now_from_before of each node that an earlier graph had: what moves all that lies in its window."""
        return self.world_from_node[slice(len(before))] @ before.world_from_node.inverse()

    def islands(self) -> Int64[np.ndarray, " nodes"]:
        """Of each node the first one with which overlaps and loops that are believed connect it."""
        begins = np.maximum.accumulate(np.where(self.is_broken, np.arange(len(self)), 0))
        island = {int(begin): int(begin) for begin in begins}
        for loop in np.flatnonzero(~self.loops.is_withdrawn):
            ends = (island[int(begins[self.loops.first[loop]])], island[int(begins[self.loops.second[loop]])])
            island = {begin: min(ends) if found in ends else found for begin, found in island.items()}
        return np.array([island[int(begin)] for begin in begins])

    def tensors(self) -> dict[str, Tensor]:
        """All of it, to be saved."""
        nodes = {
            "measured": self.measured,
            "world_from_node": self.world_from_node,
            "loop_measured": self.loops.measured,
        }
        arrays = {
            "spread": self.spread,
            "is_broken": self.is_broken.astype(np.uint8),
            "strain": self.strain,
            "loop_nodes": np.stack([self.loops.number, self.loops.first, self.loops.second], axis=1),
            "loop_spread": self.loops.spread,
            "loop_weight": self.loops.weight,
            "loop_is_withdrawn": self.loops.is_withdrawn.astype(np.uint8),
            **{name: _numbers(similarities) for name, similarities in nodes.items()},
        }
        return {name: torch.from_numpy(array.copy()) for name, array in arrays.items()}

    @classmethod
    def of_tensors(cls, tensors: Mapping[str, Tensor], *, max_loops: int = MAX_LOOPS) -> "PlaceGraph":
        """What `tensors` gave, to the bit."""
        count, num_loops = (len(tensors[name]) if name in tensors else 0 for name in ("spread", "loop_nodes"))
        nodes = array_of(tensors, "loop_nodes", torch.int64, (num_loops, 3))
        number, first, second = np.ascontiguousarray(nodes.T)
        inside = (first >= 0) & (first < second) & (second < count)
        if count < 1 or num_loops > max_loops or not inside.all():
            raise SavedSessionError("The saved graph has no nodes, or loops between others than it has; save it again.")
        return cls(
            measured=_similarities(tensors, "measured", count),
            spread=array_of(tensors, "spread", torch.float64, (count, 3)),
            is_broken=array_of(tensors, "is_broken", torch.uint8, (count,)).astype(bool),
            strain=array_of(tensors, "strain", torch.float64, (count, TANGENT)),
            world_from_node=_similarities(tensors, "world_from_node", count),
            loops=Loops(
                number=number,
                first=first,
                second=second,
                measured=_similarities(tensors, "loop_measured", num_loops),
                spread=array_of(tensors, "loop_spread", torch.float64, (num_loops, 3)),
                weight=array_of(tensors, "loop_weight", torch.float64, (num_loops,)),
                is_withdrawn=array_of(tensors, "loop_is_withdrawn", torch.uint8, (num_loops,)).astype(bool),
            ),
            max_loops=max_loops,
        )

    def _with_node(self, measured: Similarities, spread: Spread, *, is_broken: bool) -> "PlaceGraph":
        last = self.world_from_node[slice(-1, None)]
        return replace(
            self,
            measured=self.measured.followed_by(measured),
            spread=np.concatenate([self.spread, [spread.numbers]]),
            is_broken=np.append(self.is_broken, is_broken),
            strain=np.concatenate([self.strain, np.zeros((1, TANGENT))]),
            world_from_node=self.world_from_node.followed_by(last @ measured),
        )


def placed(measured: Similarities, strain: Float64[np.ndarray, "nodes 7"]) -> Similarities:
    """`world_from_node` of nodes that lie so far from where each was measured in the one before."""
    return (measured @ exp(strain)).products()


def _numbers(similarities: Similarities) -> Float64[np.ndarray, "n 13"]:
    rotation = similarities.rotation.reshape(-1, 9)
    return np.concatenate([similarities.scale[:, None], rotation, similarities.translation], axis=1)


def _similarities(tensors: Mapping[str, Tensor], name: str, count: int) -> Similarities:
    numbers = array_of(tensors, name, torch.float64, (count, _SIMILARITY))
    return Similarities(numbers[:, 0].copy(), numbers[:, 1:10].reshape(-1, 3, 3), numbers[:, 10:].copy())


def array_of(tensors: Mapping[str, Tensor], name: str, dtype: torch.dtype, shape: tuple[int, ...]) -> NDArray[Any]:
    """A tensor of this type and shape with finite numbers, else a sentence."""
    if name not in tensors:
        raise SavedSessionError(f"The saved graph has no tensor '{name}'; save it again.")
    tensor = tensors[name]
    if tensor.dtype != dtype or tuple(tensor.shape) != shape or not bool(tensor.isfinite().all()):
        raise SavedSessionError(
            f"Expected '{name}' of the saved graph as {shape} finite numbers of {dtype}, but got "
            f"{tuple(tensor.shape)} of {tensor.dtype}; save it again."
        )
    return tensor.numpy().copy()
