"""What a branch remembers once a clip is kept: retention policies look at frames, evictions at what layers learned."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from jaxtyping import Float32
from torch import Tensor

from longtake.memory.eviction import Clip, Eviction, LayerBook
from longtake.memory.ground import Ground
from longtake.memory.retention import Retention
from longtake.memory.stream import LiveSet
from longtake.memory.tokens import Integers, Tokens
from longtake.memory.transaction import Rows, Staged, Transaction

Outcome = tuple[LiveSet, Integers]
"""What is remembered on a shelf, and the branch's own slots that it gives up."""


def live_after(
    transaction: Transaction, ground: Ground, live: Mapping[str, LiveSet], *, num_kept: int
) -> dict[str, Outcome]:
    """The outcome on every shelf, once `num_kept` frames are kept, the last of them the transaction's."""
    new = {name: _new_tokens(name, ground, transaction) for name in transaction.staged}
    outcomes: dict[str, Outcome] = {}
    for stream, plan in ground.plans.items():
        if isinstance(plan.policy, Retention):
            outcomes[stream] = live[stream].after_commit(new[stream], plan.policy, num_kept=num_kept)
        else:
            outcomes |= _judged(plan.policy, ground.shelves_of(stream), transaction, live, new, num_kept=num_kept)
    return outcomes


def _judged(
    policy: Eviction,
    shelves: Sequence[str],
    transaction: Transaction,
    live: Mapping[str, LiveSet],
    new: Mapping[str, Tokens],
    *,
    num_kept: int,
) -> dict[str, Outcome]:
    """The outcome of a stream whose layers forget on their own, judged together."""
    received = _on_host([transaction.received[name] for name in shelves]) if policy.wants_received else None
    books = [
        LayerBook(
            tokens=live[name].with_clip(new[name]),
            received=None if received is None else received[layer],
            keys=_keys(transaction.staged[name]) if policy.wants_keys else None,
            memo=live[name].memo,
        )
        for layer, name in enumerate(shelves)
    ]
    layout, num_frames = transaction.staged[shelves[0]].slab.layout, len(transaction.ordinals)
    clip = Clip(
        num_kept=num_kept,
        num_frames=num_frames,
        tokens_per_frame=layout.tokens_per_frame,
        num_heads=layout.num_heads,
    )
    verdicts = zip(shelves, policy.judge(books, clip), strict=True)
    return {name: live[name].after_verdict(new[name], verdict) for name, verdict in verdicts}


def _new_tokens(name: str, ground: Ground, transaction: Transaction) -> Tokens:
    shelf, slot = ground.shelves[name], transaction.staged[name].slot
    return Tokens.of_frames(transaction.ordinals, shelf.plan.layout.tokens_per_frame, slot, shelf.num_notes)


def _keys(staged: Staged) -> Rows:
    return torch.cat(list(staged.view.read(staged.slab.keys[0])))


def _on_host(received: Sequence[Float32[Tensor, "_"]]) -> list[Float32[np.ndarray, "_"]]:
    """All layers in one transfer."""
    ends = np.cumsum([len(layer) for layer in received])
    return np.split(torch.cat(list(received)).cpu().numpy(), ends[:-1])
