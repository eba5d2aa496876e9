"""A stream to a file and back: its tokens, a policy's statistics of them, their keys and values.

Tensors keep the names they had in the first files: `num_settled` counts retained tokens, `notes` are the statistics of
tokens and `memo` those of the layer.
"""

import numpy as np
import torch

from longtake.errors import SavedSessionError
from longtake.memory.live_set import LiveSet
from longtake.memory.saved import Pieces, SavedTensors
from longtake.memory.slots import Slab, view_of
from longtake.memory.stream import Live, Stream
from longtake.memory.tokens import Integers, Tokens


def stream_pieces(stream: Stream, live: Live) -> dict[str, Pieces]:
    """What `restored_stream` needs, to be written piece by piece; nothing may be borrowed."""
    tensors: dict[str, Pieces] = {}
    for name, part in zip(stream.set_names, live, strict=True):
        tensors |= _token_pieces(name, part, keeps_stats=stream.keeps_stats)
        tensors |= _row_pieces(name, part, stream.slab)
    return tensors


def restored_stream(stream: Stream, saved: SavedTensors) -> Live:
    """What was remembered, its keys and values written into the slots it names; the caller commits them."""
    live = tuple(_saved_tokens(saved, name, keeps_stats=stream.keeps_stats) for name in stream.set_names)
    num_tokens, num_slots = sum(map(len, live)), stream.plan.num_slots
    if num_tokens > num_slots:
        raise SavedSessionError(
            f"The saved session holds {num_tokens} tokens of stream '{stream.name}', but there are only {num_slots} "
            "slots; resume it with the budget and policy it was saved with."
        )
    slots = stream.slots_for(live)
    for name, slot in zip(stream.set_names, slots, strict=True):
        _write_rows(saved, name, slot, stream.slab)
    return tuple(part.at(slot) for part, slot in zip(live, slots, strict=True))


def _token_pieces(name: str, live: LiveSet, *, keeps_stats: bool) -> dict[str, Pieces]:
    own = live.own
    tensors = {
        f"{name}.num_settled": Pieces.of(torch.tensor(len(live.retained))),
        f"{name}.frame": Pieces.of(torch.from_numpy(own.frame)),
        f"{name}.index": Pieces.of(torch.from_numpy(own.index)),
    }
    if keeps_stats:
        tensors[f"{name}.notes"] = Pieces.of(torch.from_numpy(own.token_stats))
        tensors[f"{name}.memo"] = Pieces.of(torch.tensor(live.layer_stats, dtype=torch.float64))
    return tensors


def _row_pieces(name: str, live: LiveSet, slab: Slab) -> dict[str, Pieces]:
    layout, tensors = slab.layout, dict[str, Pieces]()
    view = view_of((live.retained.slot, live.evict_next.slot), slab.device)
    shape = (len(live.own), layout.num_heads, layout.head_dim)
    for layer in range(layout.num_layers):
        tensors[f"{name}.{layer}.keys"] = Pieces(layout.dtype, shape, view.read(slab.keys[layer]))
        tensors[f"{name}.{layer}.values"] = Pieces(layout.dtype, shape, view.read(slab.values[layer]))
    return tensors


def _saved_tokens(saved: SavedTensors, name: str, *, keeps_stats: bool) -> LiveSet:
    frame, index = saved[f"{name}.frame"].numpy(), saved[f"{name}.index"].numpy()
    token_stats, layer_stats = np.zeros((len(frame), 0), dtype=np.float32), ()
    if keeps_stats:
        token_stats, layer_stats = saved[f"{name}.notes"].numpy().copy(), tuple(saved[f"{name}.memo"].tolist())
    queue = Tokens(frame, index, np.arange(len(frame)), token_stats)
    retained, evict_next = np.split(np.arange(len(frame)), [int(saved[f"{name}.num_settled"])])
    return LiveSet((), queue.take(retained), queue.take(evict_next), layer_stats)


def _write_rows(saved: SavedTensors, name: str, slot: Integers, slab: Slab) -> None:
    block = torch.from_numpy(slot).to(slab.device)
    for layer in range(slab.layout.num_layers):
        slab.write(layer, block, saved[f"{name}.{layer}.keys"], saved[f"{name}.{layer}.values"])
