"""Storage of one stream: keys and values in preallocated slots, a tensor a layer."""

from collections.abc import Callable

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from longtake.memory.layout import StreamLayout
from longtake.memory.tokens import Integers
from longtake.memory.view import Block

Rows = Float[Tensor, "tokens heads head_dim"]


class Slab:
    """Keys and values of one stream. Only slots that nobody reads are written, but for `revise_keys`."""

    def __init__(self, layout: StreamLayout, num_slots: int, device: torch.device) -> None:
        shape = (num_slots, layout.num_heads, layout.head_dim)
        layers = range(layout.num_layers)
        self.layout = layout
        self.num_slots = num_slots
        self.device = device
        self.keys = [torch.empty(shape, dtype=layout.dtype, device=device) for _ in layers]
        self.values = [torch.empty(shape, dtype=layout.dtype, device=device) for _ in layers]

    @property
    def num_bytes(self) -> int:
        return sum(tensor.nbytes for tensor in (*self.keys, *self.values))

    def write(
        self, layer: int, block: Block, k: Float[Tensor, "new heads dim"], v: Float[Tensor, "new heads dim"]
    ) -> None:
        self.keys[layer][block] = k.to(self.device, self.layout.dtype)
        self.values[layer][block] = v.to(self.device, self.layout.dtype)

    def copy(self, source: Integers, target: Integers) -> None:
        """Keys and values of every layer into other slots, none of which is a source."""
        sources = torch.from_numpy(source).to(self.device)
        targets = torch.from_numpy(target).to(self.device)
        for storage in (*self.keys, *self.values):
            storage.index_copy_(0, targets, storage.index_select(0, sources))

    def revise_keys(self, slot: Integers, revise: Callable[[Rows], Rows]) -> bool:
        """Replace the keys in these slots in every layer, or on an error in none: those replaced are put back.

        True once it is done, so that nothing can fail in between.
        """
        slots = torch.from_numpy(slot).to(self.device)
        before: list[Rows] = []
        try:
            return all(_revise(keys, slots, revise, before) for keys in self.keys)
        except BaseException:
            for keys, rows in zip(self.keys, before, strict=False):
                keys[slots] = rows.to(self.device)
            raise


def _revise(
    keys: Float[Tensor, "slots heads head_dim"],
    slots: Int64[Tensor, "_"],
    revise: Callable[[Rows], Rows],
    before: list[Rows],
) -> bool:
    """Replace keys of one layer, once the old ones are put aside on the host."""
    rows = keys.index_select(0, slots)
    before.append(rows.to("cpu", copy=True))
    keys[slots] = revise(rows)
    return True
