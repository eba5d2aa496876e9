"""What a branch remembers once a clip is kept: retention policies look at frames, evictions at what layers learned."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from jaxtyping import Float32
from torch import Tensor

from longtake.memory.eviction import Clip, Eviction, LayerState
from longtake.memory.retention import Retention
from longtake.memory.shared_pool import SharedPool
from longtake.memory.stream import LiveSet
from longtake.memory.tokens import Integers, Tokens
from longtake.memory.transaction import Rows, Staged, Transaction

Outcome = tuple[LiveSet, Integers]
"""What is remembered on a shelf, and the branch's own slots that it gives up."""


def live_after(
    transaction: Transaction, pool: SharedPool, live: Mapping[str, LiveSet], *, num_kept: int
) -> dict[str, Outcome]:
    """The outcome on every shelf, once `num_kept` frames are kept, the last of them the transaction's."""
    new = {name: _new_tokens(name, pool, transaction) for name in transaction.staged}
    outcomes: dict[str, Outcome] = {}
    for stream, plan in pool.plans.items():
        if isinstance(plan.policy, Retention):
            outcomes[stream] = live[stream].after_commit(new[stream], plan.policy, num_kept=num_kept)
        else:
            outcomes |= _judged(plan.policy, pool.layer_slots_of(stream), transaction, live, new, num_kept=num_kept)
    return outcomes


def _judged(
    policy: Eviction,
    layer_slots: Sequence[str],
    transaction: Transaction,
    live: Mapping[str, LiveSet],
    new: Mapping[str, Tokens],
    *,
    num_kept: int,
) -> dict[str, Outcome]:
    """The outcome of a stream whose layers forget on their own, judged together."""
    attention_mass = (
        _on_host([transaction.attention_mass[name] for name in layer_slots]) if policy.wants_attention_mass else None
    )
    layers = [
        LayerState(
            tokens=live[name].with_clip(new[name]),
            attention_mass=None if attention_mass is None else attention_mass[layer],
            keys=_keys(transaction.staged[name]) if policy.wants_keys else None,
            layer_stats=live[name].layer_stats,
        )
        for layer, name in enumerate(layer_slots)
    ]
    layout, num_frames = transaction.staged[layer_slots[0]].slab.layout, len(transaction.ordinals)
    clip = Clip(
        num_kept=num_kept,
        num_frames=num_frames,
        tokens_per_frame=layout.tokens_per_frame,
        num_heads=layout.num_heads,
    )
    decisions = zip(layer_slots, policy.judge(layers, clip), strict=True)
    return {name: live[name].after_decision(new[name], decision) for name, decision in decisions}


def _new_tokens(name: str, pool: SharedPool, transaction: Transaction) -> Tokens:
    layer_slots, slot = pool.layer_slots[name], transaction.staged[name].slot
    return Tokens.of_frames(
        transaction.ordinals, layer_slots.plan.layout.tokens_per_frame, slot, layer_slots.num_token_stats
    )


def _keys(staged: Staged) -> Rows:
    return torch.cat(list(staged.view.read(staged.slab.keys[0])))


def _on_host(attention_mass: Sequence[Float32[Tensor, "_"]]) -> list[Float32[np.ndarray, "_"]]:
    """All layers in one transfer."""
    ends = np.cumsum([len(layer) for layer in attention_mass])
    return np.split(torch.cat(list(attention_mass)).cpu().numpy(), ends[:-1])
