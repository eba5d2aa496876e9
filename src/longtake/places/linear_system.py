"""One step of the solver as a linear system: which strain costs least if residuals of loops change as they do here.

cost ≈ |y|² + |J y + b|²       y: the strain of each overlap, over its deviation; a row of J, b a loop that is believed

A loop sees the overlaps that it spans, each as the drift moves what lies behind it. So the system can be written by
nodes or by loops, and is as large as the fewer of the two are many:

by nodes    y = -(1 + Jᵀ J)⁻¹ Jᵀ b       Jᵀ J of two overlaps: what all loops say that span both of them
by loops    y = -Jᵀ (1 + J Jᵀ)⁻¹ b       J Jᵀ of two loops: the drift that the chain gathers where both of them span it
                                         (Woodbury's identity)
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from longtake.places.loops import Loops
from longtake.places.steady_solve import BLOCK, in_blocks, solve_positive
from longtake.spatial.similarities import TANGENT, Similarities, right_jacobian

_LOOPS_A_BLOCK = BLOCK // TANGENT


@dataclass(frozen=True, slots=True)
class Chain:
    """Nodes at one strain, one behind the other."""

    world_from_node: Similarities
    moved: Float64[np.ndarray, "nodes 7 7"]
    """What a strain of each overlap moves, in the world; over its deviation, so that the first node stays."""

    @classmethod
    def of(
        cls,
        world_from_node: Similarities,
        strain: Float64[np.ndarray, "nodes 7"],
        deviation: Float64[np.ndarray, "nodes 7"],
    ) -> "Chain":
        """Deviations of overlaps, each with the node before; that of the first node means nothing."""
        moved = world_from_node.adjoint() @ right_jacobian(strain) * deviation[:, None, :]
        moved[0] = 0
        return cls(world_from_node, moved)

    @property
    def drifts(self) -> Float64[np.ndarray, "nodes 7 7"]:
        """The covariance that each overlap adds to all nodes behind it, in the world."""
        added: Float64[np.ndarray, "nodes 7 7"] = self.moved @ self.moved.transpose(0, 2, 1)
        return added

    def shifts(self, loops: Loops, y: Float64[np.ndarray, "nodes 7"]) -> Float64[np.ndarray, "loops 7"]:
        """How far the second node of each loop goes from its first one, in the world."""
        gathered = np.cumsum((self.moved @ y[:, :, None])[:, :, 0], axis=0)
        apart: Float64[np.ndarray, "loops 7"] = gathered[loops.second] - gathered[loops.first]
        return apart

    def pulled(self, loops: Loops, pulls: Float64[np.ndarray, "loops 7"]) -> Float64[np.ndarray, "nodes 7"]:
        """By all loops that span each node's overlap with the one before: of `shifts`, the transpose."""
        ends = np.zeros((len(self.moved) + 1, TANGENT))
        np.add.at(ends, loops.first + 1, pulls)
        np.subtract.at(ends, loops.second + 1, pulls)
        summed = np.cumsum(ends, axis=0)[:-1]
        back: Float64[np.ndarray, "nodes 7"] = (self.moved.transpose(0, 2, 1) @ summed[:, :, None])[:, :, 0]
        return back


@dataclass(frozen=True, slots=True)
class LinearSystem:
    """J = rows · shifts of a chain, and b."""

    chain: Chain
    loops: Loops
    rows: Float64[np.ndarray, "loops 7 7"]
    """How a loop's residual changes as its second node goes from its first one, over its deviations."""
    b: Float64[np.ndarray, "loops 7"]

    def solved(self) -> Float64[np.ndarray, "nodes 7"]:
        """y, by whichever is the smaller system."""
        return self.solved_by_nodes() if len(self.chain.moved) < len(self.loops) else self.solved_by_loops()

    def solved_by_nodes(self) -> Float64[np.ndarray, "nodes 7"]:
        """The matrix is right in its lower triangle, which is all that is read: of an overlap and one not after it."""
        moved, count = self.chain.moved, len(self.chain.moved)
        said = np.zeros((count, count, TANGENT, TANGENT))
        ends = (count - 1 - self.loops.second, self.loops.first + 1)
        np.add.at(said, ends, self.rows.transpose(0, 2, 1) @ self.rows)
        for node in range(1, count):  # a row at a time, and a column, which takes far less time than numpy's cumsum
            said[node] += said[node - 1]
        for node in range(1, count):
            said[:, node] += said[:, node - 1]
        spanned = said[::-1]  # by loops that end not before a node, and begin before another
        half = moved.transpose(0, 2, 1) @ spanned.transpose(0, 2, 1, 3).reshape(count, TANGENT, -1)
        whole = half.reshape(count, TANGENT, count, TANGENT).transpose(2, 0, 1, 3).reshape(count, -1, TANGENT) @ moved
        matrix = whole.reshape(count, -1, TANGENT).transpose(1, 0, 2).reshape(count * TANGENT, -1)
        matrix[np.diag_indices(len(matrix))] += 1
        blocks = in_blocks(matrix)
        right = _padded(self.chain.pulled(self.loops, self._pulls(self.b)), len(blocks))
        return -solve_positive(blocks, right).reshape(-1, TANGENT)[:count]

    def solved_by_loops(self) -> Float64[np.ndarray, "nodes 7"]:
        loops, rows = self.loops, self.rows
        num_blocks = -(-len(loops) // _LOOPS_A_BLOCK)
        padding = num_blocks * _LOOPS_A_BLOCK - len(loops)
        first, second = np.pad(loops.first, (0, padding)), np.pad(loops.second, (0, padding))
        rows = np.pad(rows, ((0, padding), (0, 0), (0, 0)))
        columns, drift = rows.transpose(0, 2, 1), np.cumsum(self.chain.drifts, axis=0)
        blocks = np.empty((num_blocks, num_blocks, BLOCK, BLOCK))
        for block in range(num_blocks):
            here, before = slice(block * _LOOPS_A_BLOCK, (block + 1) * _LOOPS_A_BLOCK), (block + 1) * _LOOPS_A_BLOCK
            begin = np.maximum(first[here, None], first[None, :before])
            end = np.maximum(np.minimum(second[here, None], second[None, :before]), begin)
            products = rows[here, None] @ (drift[end] - drift[begin]) @ columns[None, :before]
            grouped = products.reshape(_LOOPS_A_BLOCK, block + 1, _LOOPS_A_BLOCK, TANGENT, TANGENT)
            blocks[block, : block + 1] = grouped.transpose(1, 0, 3, 2, 4).reshape(block + 1, BLOCK, BLOCK)
            blocks[block, block] += np.eye(BLOCK)
        forces = solve_positive(blocks, _padded(self.b, num_blocks)).reshape(-1, TANGENT)[: len(loops)]
        return -self.chain.pulled(loops, self._pulls(forces))

    def _pulls(self, forces: Float64[np.ndarray, "loops 7"]) -> Float64[np.ndarray, "loops 7"]:
        pulls: Float64[np.ndarray, "loops 7"] = (self.rows.transpose(0, 2, 1) @ forces[:, :, None])[:, :, 0]
        return pulls


def _padded(vectors: Float64[np.ndarray, "n 7"], num_blocks: int) -> Float64[np.ndarray, "blocks 56"]:
    """With zeros behind them."""
    flat = vectors.reshape(-1)
    return np.pad(flat, (0, num_blocks * BLOCK - len(flat))).reshape(num_blocks, BLOCK)
