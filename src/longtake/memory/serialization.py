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
    live = tuple(
        _saved_tokens(saved, name, stream, len(nothing.layer_stats))
        for name, nothing in zip(stream.set_names, stream.nothing(), strict=True)
    )
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


def _saved_tokens(saved: SavedTensors, name: str, stream: Stream, num_layer_stats: int) -> LiveSet:
    frame = saved.read(f"{name}.frame", torch.int64, (None,)).numpy()
    index = saved.read(f"{name}.index", torch.int64, (len(frame),)).numpy()
    num_retained = int(saved.read(f"{name}.num_settled", torch.int64))
    _require(0 <= num_retained <= len(frame), f"at most {len(frame)} retained tokens in '{name}'")
    num_kept = int(saved.read("num_kept", torch.int64))
    _require(bool(((frame >= 0) & (frame < num_kept)).all()), f"tokens of {num_kept} frames in '{name}'")
    tokens_per_frame = stream.plan.layout.tokens_per_frame
    _require(bool(((index >= 0) & (index < tokens_per_frame)).all()), f"{tokens_per_frame} tokens a frame in '{name}'")
    token_stats, layer_stats = np.zeros((len(frame), 0), dtype=np.float32), ()
    if stream.keeps_stats:
        token_stats = saved.read(f"{name}.notes", torch.float32, (len(frame), None)).numpy().copy()
        _require(
            not len(frame) or token_stats.shape[1] == stream.num_token_stats,
            f"{stream.num_token_stats} statistics a token in '{name}.notes'",
        )
        layer_stats = tuple(saved.read(f"{name}.memo", torch.float64, (num_layer_stats,)).tolist())
    queue = Tokens(frame, index, np.arange(len(frame)), token_stats)
    retained, evict_next = np.split(np.arange(len(frame)), [num_retained])
    return LiveSet((), queue.take(retained), queue.take(evict_next), layer_stats)


def _write_rows(saved: SavedTensors, name: str, slot: Integers, slab: Slab) -> None:
    block, layout = torch.from_numpy(slot).to(slab.device), slab.layout
    shape = (len(slot), layout.num_heads, layout.head_dim)
    for layer in range(layout.num_layers):
        names = (f"{name}.{layer}.keys", f"{name}.{layer}.values")
        rows = [saved.read(tensor, layout.dtype, shape) for tensor in names]
        for tensor, numbers in zip(names, rows, strict=True):
            _require(bool(numbers.isfinite().all()), f"only finite numbers in '{tensor}'")
        slab.write(layer, block, *rows)


def _require(holds: bool, expected: str) -> None:
    if not holds:
        raise SavedSessionError(f"Expected {expected} of the saved session, but got others; save it again.")
