"""Storage of a stream: written and read in every layer, copied, and revised in all layers or in none."""

import numpy as np
import pytest
import torch
from torch import Tensor

from longtake.memory.slots import Slab
from longtake.memory.tokens import StreamLayout

LAYOUT = StreamLayout(num_layers=2, num_heads=1, head_dim=3, tokens_per_frame=2)


def new_slab(num_slots: int = 10, layout: StreamLayout = LAYOUT) -> Slab:
    return Slab(layout, num_slots, torch.device("cpu"))


def written_slab(rows: Tensor) -> Slab:
    """A slab with these rows, a layer after another, as keys and their opposites as values."""
    slab = new_slab(rows.shape[1])
    for layer in range(2):
        slab.write(layer, slice(0, rows.shape[1]), rows[layer], -rows[layer])
    return slab


def test_write_and_read_back_every_layer_in_the_stream_type() -> None:
    slab = new_slab(layout=StreamLayout(num_layers=2, num_heads=1, head_dim=3, tokens_per_frame=2, dtype=torch.float16))
    rows = torch.randn(2, 1, 3)
    slab.write(1, torch.tensor([4, 2]), rows, -rows)
    slab.write(0, slice(4, 6), 2 * rows, 3 * rows)
    assert torch.equal(slab.keys[1][[4, 2]], rows.half())
    assert torch.equal(slab.values[1][[4, 2]], -rows.half())
    assert torch.equal(slab.keys[0][4:6], (2 * rows).half())
    assert torch.equal(slab.values[0][4:6], (3 * rows).half())


def test_bytes_are_those_of_the_layout() -> None:
    slab = new_slab(7)
    assert slab.num_bytes == 7 * LAYOUT.bytes_per_slot == sum(t.nbytes for t in (*slab.keys, *slab.values))


def test_copied_tokens_are_in_both_places_in_every_layer() -> None:
    rows = torch.randn(2, 6, 1, 3)
    slab = written_slab(rows)
    slab.copy(np.array([3, 4, 5]), np.array([1, 0, 2]))
    for layer in range(2):
        for slots in ([1, 0, 2], [3, 4, 5]):
            assert torch.equal(slab.keys[layer][slots], rows[layer, 3:])
            assert torch.equal(slab.values[layer][slots], -rows[layer, 3:])


@pytest.mark.parametrize("fails_at", [1, 2])
def test_keys_are_revised_in_every_layer_or_in_none(fails_at: int) -> None:
    rows = torch.randn(2, 6, 1, 3)
    slab, calls = written_slab(rows), 0

    def spoil_and_fail(keys: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        keys.zero_()
        if calls == fails_at:
            raise MemoryError
        return keys

    with pytest.raises(MemoryError):
        slab.revise_keys(np.array([4, 1]), spoil_and_fail)
    assert all(torch.equal(keys, rows[layer]) for layer, keys in enumerate(slab.keys))
    assert slab.revise_keys(np.array([4, 1]), lambda keys: keys + 1)
    changed = rows.clone()
    changed[:, [4, 1]] += 1
    assert all(torch.equal(keys, changed[layer]) for layer, keys in enumerate(slab.keys))
