"""A shelf to a file and back: its tokens, what a policy noted about them, their keys and values."""

import numpy as np
import torch

from longtake.errors import SavedSessionError
from longtake.memory.eviction import Eviction
from longtake.memory.saved import Pieces, SavedTensors
from longtake.memory.shared_pool import LayerSlots
from longtake.memory.slab import SlotState
from longtake.memory.stream import LiveSet
from longtake.memory.tokens import Integers, Tokens
from longtake.memory.view import view_of


def layer_slots_pieces(name: str, layer_slots: LayerSlots, live: LiveSet) -> dict[str, Pieces]:
    """What `restore_layer_slots` needs, to be written piece by piece; nothing may be borrowed."""
    slab, own = layer_slots.slab, live.own
    tensors = {
        f"{name}.num_settled": Pieces.of(torch.tensor(len(live.retained))),
        f"{name}.frame": Pieces.of(torch.from_numpy(own.frame)),
        f"{name}.index": Pieces.of(torch.from_numpy(own.index)),
    }
    if isinstance(layer_slots.plan.policy, Eviction):
        tensors[f"{name}.notes"] = Pieces.of(torch.from_numpy(own.token_stats))
        tensors[f"{name}.memo"] = Pieces.of(torch.tensor(live.layer_stats, dtype=torch.float64))
    view = view_of((live.retained.slot, live.evict_next.slot), slab.device)
    shape = (len(own), slab.layout.num_heads, slab.layout.head_dim)
    for layer in range(slab.layout.num_layers):
        tensors[f"{name}.{layer}.keys"] = Pieces(slab.layout.dtype, shape, view.read(slab.keys[layer]))
        tensors[f"{name}.{layer}.values"] = Pieces(slab.layout.dtype, shape, view.read(slab.values[layer]))
    return tensors


def restore_layer_slots(saved: SavedTensors, name: str, layer_slots: LayerSlots) -> LiveSet:
    """What was remembered, its keys and values written into free slots; the caller settles them."""
    slab, live = layer_slots.slab, _saved_tokens(saved, name, layer_slots)
    slot = _slots_for(live, layer_slots)
    block = torch.from_numpy(slot).to(slab.device)
    for layer in range(slab.layout.num_layers):
        slab.write(layer, block, saved[f"{name}.{layer}.keys"], saved[f"{name}.{layer}.values"])
    return live.at(slot)


def _saved_tokens(saved: SavedTensors, name: str, layer_slots: LayerSlots) -> LiveSet:
    frame, index = saved[f"{name}.frame"].numpy(), saved[f"{name}.index"].numpy()
    token_stats, layer_stats = np.zeros((len(frame), 0), dtype=np.float32), ()
    if isinstance(layer_slots.plan.policy, Eviction):
        token_stats, layer_stats = saved[f"{name}.notes"].numpy().copy(), tuple(saved[f"{name}.memo"].tolist())
    queue = Tokens(frame, index, np.arange(len(frame)), token_stats)
    retained, evict_next = np.split(np.arange(len(frame)), [int(saved[f"{name}.num_settled"])])
    return LiveSet((), queue.take(retained), queue.take(evict_next), layer_stats)


def _slots_for(live: LiveSet, layer_slots: LayerSlots) -> Integers:
    slab, num_taken = layer_slots.slab, layer_slots.slab.count(SlotState.LIVE)
    if len(live) > slab.num_slots - num_taken:
        raise SavedSessionError(
            f"The saved session holds {len(live)} tokens of stream '{layer_slots.stream}', but there are only "
            f"{slab.num_slots - num_taken} slots; resume it with the budget and policy it was saved with."
        )
    if isinstance(layer_slots.plan.policy, Eviction):  # layers share the slab, one after another
        return num_taken + np.arange(len(live))
    return live.packed_slots(slab.layout.tokens_per_frame, slab.num_slots)
