"""Where the nodes of a graph lie, by all overlaps and loops: Gauss-Newton on the strain, in steps of bounded time.

                     2                          2
cost = Σ |strain / σ|  + Σ loss(|residual / σ| ),    residual = log(measured⁻¹ · node_first⁻¹ · node_second)
       overlaps          loops

Strains are numbers in a straight space, and overlaps depend on nothing else; so only loops are linearised, and a step
is a dense system as large as the loops are many, or the nodes where those are fewer (`linear_system`).

The loss of Cauchy lets a wrong loop pull less the farther away it is, and leads home from far: over random walks it
withdrew as many wrong loops as sharper ones (Geman and McClure, graduated or not) and, where overlaps are worse than
they say, a tenth of the right ones that those did. Loops that are hardly believed after some steps are withdrawn, and
the rest is solved to the end.

Every solution begins with all loops and nothing strained: what was withdrawn returns when others speak for it, and a
solution depends on what a graph holds and on nothing before.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Float64
from torch import Tensor

from longtake.errors import SettingError
from longtake.places.graph import MAX_LOOPS, PlaceGraph, array_of, placed
from longtake.places.linear_system import Chain, LinearSystem
from longtake.places.loops import Loops, Spread, by_number
from longtake.places.sub_maps import with_sub_maps_laid
from longtake.spatial.similarities import TANGENT, Similarities, inverse_right_jacobian
from longtake.spatial.similarity import Similarity

_SHORTER = (1.0, 0.5, 0.25, 0.125)


@dataclass(frozen=True, slots=True, kw_only=True)
class SolverRule:
    """How far loops are believed, and how many steps a solution has."""

    square: float = 18.5
    """Squared distance in standard deviations at which a loop is half believed: 99 % of right ones are nearer."""
    withdrawn_below: float = 0.2
    num_first: int = 8
    """Steps with all loops."""
    num_last: int = 6
    """Steps with those that were not withdrawn then."""
    settled: float = 1e-4
    """Share of the cost that a step must bring, else it is not taken, nor looked for again."""

    def __post_init__(self) -> None:
        shares = (self.withdrawn_below, self.settled)
        if not self.square > 0 or not all(0 <= one < 1 for one in shares) or min(self.num_first, self.num_last) < 1:
            raise SettingError(
                "Expected a squared distance above 0, shares from 0 to below 1 and a step at least before and after "
                f"loops are withdrawn, but got {self}."
            )

    @property
    def num_steps(self) -> int:
        return self.num_first + self.num_last

    def cost(self, distance: Float64[np.ndarray, " loops"]) -> Float64[np.ndarray, " loops"]:
        """Of squared distances."""
        return self.square * np.log1p(distance / self.square)

    def weight(self, distance: Float64[np.ndarray, " loops"]) -> Float64[np.ndarray, " loops"]:
        """How much of a loop is believed: the cost's slope."""
        return self.square / (self.square + distance)


@dataclass(frozen=True, slots=True, kw_only=True)
class Solving:
    """A solution on its way. Each step makes another value, in a time that the size of the graph bounds."""

    graph: PlaceGraph
    """As it was when the solution began, its sub-maps laid by their loops."""
    rule: SolverRule
    strain: Float64[np.ndarray, "nodes 7"]
    is_withdrawn: Bool[np.ndarray, " loops"]
    num_done: int = 0
    laid: "_Laid | None" = None
    """By the strain, as the step before has found it; None where it has to be found anew. It is not saved."""

    @classmethod
    def of(cls, graph: PlaceGraph, rule: SolverRule | None = None) -> "Solving":
        """Before its first step, with nothing strained and all loops."""
        rule = rule or SolverRule()
        return cls(
            graph=with_sub_maps_laid(graph, rule.cost),
            rule=rule,
            strain=np.zeros_like(graph.strain),
            is_withdrawn=np.zeros(len(graph.loops), dtype=bool),
        )

    @property
    def is_done(self) -> bool:
        return self.num_done >= self.rule.num_steps or not len(self.graph.loops)

    def stepped(self) -> "Solving":
        """One step further; the same value when it is done."""
        if self.is_done:
            return self
        after = replace(self._improved(), num_done=self.num_done + 1)
        if after.num_done == self.rule.num_first:
            is_withdrawn = after.weights < self.rule.withdrawn_below
            return replace(after, is_withdrawn=is_withdrawn, laid=None if is_withdrawn.any() else after.laid)
        return after._no_worse_than_nothing() if after.is_done else after

    def solved(self) -> "Solving":
        """After all steps."""
        solving = self
        while not solving.is_done:
            solving = solving.stepped()
        return solving

    @property
    def cost(self) -> float:
        """Of the strain so far, over loops that are not withdrawn."""
        return self._laid.cost

    @property
    def weights(self) -> Float64[np.ndarray, " loops"]:
        """How much of each loop is believed."""
        world_from_node = placed(self.graph.measured, self.strain) if self.laid is None else self.laid.world_from_node
        return self.rule.weight(self.graph.loops.distances(world_from_node))

    def adopted_by(self, graph: PlaceGraph) -> PlaceGraph:
        """A graph that this one has since become, laid by this solution; nodes added since follow by their overlaps."""
        known, added = len(self.graph), len(graph) - len(self.graph)
        measured = self.graph.measured.followed_by(graph.measured[slice(known, None)])
        strain = np.concatenate([self.strain, np.zeros((added, TANGENT))])
        judged = self.graph.loops.number.tolist()
        verdicts = dict(zip(judged, zip(self.weights.tolist(), self.is_withdrawn.tolist(), strict=True), strict=True))
        found = [verdicts.get(number, (1.0, False)) for number in graph.loops.number.tolist()]
        loops = replace(
            graph.loops,
            weight=np.array([weight for weight, _ in found], dtype=np.float64),
            is_withdrawn=np.array([is_withdrawn for _, is_withdrawn in found], dtype=bool),
        )
        return replace(graph, measured=measured, strain=strain, world_from_node=placed(measured, strain), loops=loops)

    def tensors(self) -> dict[str, Tensor]:
        """All but the rule, to be saved."""
        return {
            **{f"graph.{name}": tensor for name, tensor in self.graph.tensors().items()},
            "strain": torch.from_numpy(self.strain.copy()),
            "is_withdrawn": torch.from_numpy(self.is_withdrawn.astype(np.uint8)),
            "num_done": torch.tensor(self.num_done),
        }

    @classmethod
    def of_tensors(
        cls, tensors: Mapping[str, Tensor], rule: SolverRule | None = None, *, max_loops: int = MAX_LOOPS
    ) -> "Solving":
        """What `tensors` gave, to the bit."""
        inside = {name.removeprefix("graph."): tensor for name, tensor in tensors.items() if name.startswith("graph.")}
        graph = PlaceGraph.of_tensors(inside, max_loops=max_loops)
        return cls(
            graph=graph,
            rule=rule or SolverRule(),
            strain=array_of(tensors, "strain", torch.float64, (len(graph), TANGENT)),
            is_withdrawn=array_of(tensors, "is_withdrawn", torch.uint8, (len(graph.loops),)).astype(bool),
            num_done=int(array_of(tensors, "num_done", torch.int64, ())),
        )

    @property
    def _believed(self) -> Loops:
        return self.graph.loops[np.flatnonzero(~self.is_withdrawn)]

    @property
    def _laid(self) -> "_Laid":
        return self.laid or _Laid.of(self.graph, self.strain, self._believed, self.rule)

    def _improved(self) -> "Solving":
        """With a strain that costs less; the same one if none does on the way to what the linear system says.

        What a step would bring is a question to the strain alone: a solution that was saved meanwhile ends alike.
        """
        loops = self._believed
        if not len(loops):
            return replace(self, strain=np.zeros_like(self.strain), laid=None)
        laid = self._laid
        if laid.is_best:
            return self
        target = self._least_strain(loops, laid)
        for share in _SHORTER:
            strain: Float64[np.ndarray, "nodes 7"] = self.strain + share * (target - self.strain)
            found = _Laid.of(self.graph, strain, loops, self.rule)
            if found.cost < laid.cost:
                break
        if found.cost < (1 - self.rule.settled) * laid.cost:
            return replace(self, strain=strain, laid=found)
        return replace(self, laid=replace(laid, is_best=True))

    def _least_strain(self, loops: Loops, laid: "_Laid") -> Float64[np.ndarray, "nodes 7"]:
        """What costs least if residuals change as they do here."""
        overlaps, deviations = by_number(self.graph.spread), by_number(loops.spread)
        chain = Chain.of(laid.world_from_node, self.strain, overlaps)
        trust = np.sqrt(self.rule.weight(((laid.residual / deviations) ** 2).sum(axis=1)))[:, None] / deviations
        back = laid.world_from_node[loops.second].inverse().adjoint()
        rows = trust[:, :, None] * (inverse_right_jacobian(laid.residual) @ back)
        moved = (rows @ chain.shifts(loops, self.strain / overlaps)[:, :, None])[:, :, 0]
        least: Float64[np.ndarray, "nodes 7"] = (
            overlaps * LinearSystem(chain, loops, rows, trust * laid.residual - moved).solved()
        )
        return least

    def _no_worse_than_nothing(self) -> "Solving":
        """Without any strain, should loops cost more with it: they then contradict the overlaps."""
        unstrained = replace(self, strain=np.zeros_like(self.strain), laid=None)
        return unstrained if unstrained.cost < self.cost else self


def surprise(graph: PlaceGraph, first: int, second: int, first_from_second: Similarity, spread: Spread) -> float:
    """How far a loop is from where nodes lie, squared, in standard deviations of its own and of the overlaps between.

    About 7 for a right one if all spreads are; nothing else than overlaps is asked.
    """
    loop = Loops.one(0, (first, second), first_from_second, spread)
    residual = loop.residuals(graph.world_from_node)
    rows = inverse_right_jacobian(residual) @ graph.world_from_node[loop.second].inverse().adjoint()
    spanned = slice(first, second + 1)
    chain = Chain.of(graph.world_from_node[spanned], graph.strain[spanned], by_number(graph.spread[spanned]))
    between = chain.drifts.sum(axis=0)
    covariance = rows[0] @ between @ rows[0].T + np.diag(by_number(loop.spread)[0] ** 2)
    return float(residual[0] @ np.linalg.solve(covariance, residual[0]))


@dataclass(frozen=True, slots=True)
class _Laid:
    """Nodes as a strain lays them, and what that costs."""

    world_from_node: Similarities
    residual: Float64[np.ndarray, "loops 7"]
    """Of the loops that are believed."""
    cost: float
    is_best: bool = False
    """Whether a step found nothing that costs less, so that the next one need not look again."""

    @classmethod
    def of(cls, graph: PlaceGraph, strain: Float64[np.ndarray, "nodes 7"], loops: Loops, rule: SolverRule) -> "_Laid":
        world_from_node = placed(graph.measured, strain)
        residual = loops.residuals(world_from_node)
        overlaps = float(((strain / by_number(graph.spread)) ** 2).sum())
        distances = ((residual / by_number(loops.spread)) ** 2).sum(axis=1)
        return cls(world_from_node, residual, overlaps + float(rule.cost(distances).sum()))
