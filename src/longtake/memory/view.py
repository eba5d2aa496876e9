"""What a clip may see, as attention reads it: a few blocks of slots, each read in place or gathered.

A block is one stretch of tokens in a fixed order. Where its slots happen to lie one after another it is a slice of the
slab, without a copy; elsewhere it is gathered into a contiguous piece in the same order. So the numbers that come out
depend on the order of the tokens alone, never on where they lie.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from longtake.memory.tokens import Integers

Slots = Float[Tensor, "slots heads head_dim"]
Block = slice | Tensor


@dataclass(frozen=True, slots=True)
class View:
    """Disjoint blocks of slots; attention over each is merged by its log-sum-exp."""

    blocks: tuple[Block, ...]

    def read(self, storage: Slots) -> Iterator[Float[Tensor, "tokens heads head_dim"]]:
        return (storage[block] if isinstance(block, slice) else storage.index_select(0, block) for block in self.blocks)

    @property
    def in_place(self) -> bool:
        """Whether nothing has to be gathered."""
        return all(isinstance(block, slice) for block in self.blocks)


def view_of(sections: Iterable[Integers], device: torch.device) -> View:
    """One block for each section that is not empty."""
    return View(tuple(as_block(slot, device) for slot in sections if len(slot)))


def as_block(slot: Integers, device: torch.device) -> Block:
    """A slice where the slots follow one another, else their indices on the device."""
    first = int(slot[0])
    if int(slot[-1]) - first == len(slot) - 1 and bool(np.all(np.diff(slot) == 1)):
        return slice(first, first + len(slot))
    return torch.from_numpy(slot).to(device)
