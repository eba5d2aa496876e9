"""One stream of a memory, in two ways: all layers remember the same tokens, or each layer its own.

What a branch remembers of a stream is a `LiveSet` for each set of layers that forget together: one for the whole stream
in lockstep, one for every layer where each forgets on its own. Streams keep storage and plans; what is remembered is
given to them and returned, never changed.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float32
from torch import Tensor

from longtake.memory.books import Bookkeeping, decide_on
from longtake.memory.budget import StreamPlan
from longtake.memory.live_set import LiveSet
from longtake.memory.policy import (
    Clip,
    EvictionDecision,
    Keep,
    LayerState,
    LockstepPolicy,
    PerLayerPolicy,
    StackedPolicy,
)
from longtake.memory.slots import Block, Rows, Slab, SlotTable, View, as_block, view_of
from longtake.memory.tokens import Flags, Integers, Tokens

Live = tuple[LiveSet, ...]
"""What a branch remembers of a stream."""


@dataclass(frozen=True, slots=True)
class Staged:
    """A clip's place in one set of layers: the slots it writes, and for each pass those of it and the view it reads."""

    slot: Integers
    blocks: tuple[Block, ...]
    views: tuple[View, ...]

    @property
    def view(self) -> View:
        """What the last pass reads: all, the clip's own slots included."""
        return self.views[-1]

    def first(self, num_frames: int, of: int) -> "Staged":
        """The place of so many frames of a clip, its first ones, for whom its blocks and views mean nothing."""
        return Staged(self.slot[: len(self.slot) // of * num_frames], (), ())


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenClip:
    """A clip that is written in every layer of a stream and will be kept."""

    ordinals: tuple[int, ...]
    staged: tuple[Staged, ...]
    attention_mass: tuple[Float32[Tensor, "_"], ...]
    """By layer, where the policy wants it; else empty."""

    @property
    def num_kept(self) -> int:
        """Frames kept, those of the clip included."""
        return self.ordinals[-1] + 1


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a branch remembers of a stream after a change, and its own slots that it gives up."""

    live: Live
    left: Integers


@dataclass(frozen=True, slots=True)
class Moves:
    """Tokens to be carried to other slots, which are free; and what is remembered then."""

    source: Integers
    target: Integers
    live: Live


class Stream(ABC):
    """Storage and plan of one stream, and the arithmetic of what is remembered in it."""

    keeps_stats: ClassVar[bool]
    """Whether there are statistics of tokens and layers."""

    def __init__(self, name: str, plan: StreamPlan, slab: Slab) -> None:
        self.name = name
        self.plan = plan
        self.slab = slab

    @property
    @abstractmethod
    def set_names(self) -> tuple[str, ...]:
        """A name for each set of layers that forget together."""

    @property
    def num_token_stats(self) -> int:
        """How many statistics there are of each token."""
        return 0

    @property
    @abstractmethod
    def wants_attention_mass(self) -> bool:
        """Whether a clip can be kept only with what each key got of its attention."""

    @property
    def bookkeeping(self) -> Bookkeeping | None:
        """How its books are kept on the device, where its policy decides there."""
        return None

    @abstractmethod
    def find(self, layer: int) -> tuple[int, int, int]:
        """The set of a layer, the pass, and the layer in the slab; layers of all passes are counted through."""

    @abstractmethod
    def nothing(self) -> Live:
        """What is remembered at first."""

    @abstractmethod
    def stage(self, live: Live, slot: Integers, *, num_kept: int, num_frames: int, keep: Keep) -> tuple[Staged, ...]:
        """The places of a clip of so many frames that writes these slots."""

    @abstractmethod
    def after_commit(self, live: Live, clip: WrittenClip) -> Outcome:
        """What is remembered once the clip is kept."""

    @abstractmethod
    def after_merge(self, fork: Live, parent: Live, *, num_kept: int) -> Outcome:
        """What the parent remembers once its fork is committed into it."""

    @abstractmethod
    def moves(self, live: Live, table: SlotTable) -> Moves | None:
        """The next step towards one run of slots; None where all are in their places."""

    @abstractmethod
    def slots_for(self, live: Live) -> list[Integers]:
        """Where the tokens of each set lie in a memory that holds nothing else."""

    @property
    def num_writes(self) -> int:
        """How often a clip must be written: once in every layer and pass."""
        return self.plan.layout.num_layers * self.plan.layout.passes

    def after_forget(self, live: Live, frames: Integers) -> Outcome:
        """What is remembered without these frames."""
        outcomes = [part.without(frames) for part in live]
        return Outcome(tuple(part for part, _ in outcomes), np.concatenate([left for _, left in outcomes]))


class LockstepStream(Stream):
    """All layers remember the same tokens in the same slots."""

    keeps_stats = False

    def __init__(self, name: str, plan: StreamPlan, policy: LockstepPolicy, device: torch.device) -> None:
        super().__init__(name, plan, Slab(plan.layout, plan.num_slots, device))
        self._policy = policy

    @property
    def set_names(self) -> tuple[str, ...]:
        return (self.name,)

    @property
    def wants_attention_mass(self) -> bool:
        return False

    def find(self, layer: int) -> tuple[int, int, int]:
        return 0, *divmod(layer, self.plan.layout.num_layers)

    def nothing(self) -> Live:
        return (LiveSet.empty(),)

    def stage(self, live: Live, slot: Integers, *, num_kept: int, num_frames: int, keep: Keep) -> tuple[Staged, ...]:
        layout, device = self.plan.layout, self.slab.device
        by_pass = slot.reshape(-1, layout.passes)
        own = by_pass[:, :0] if layout.causal else by_pass
        seen = [
            live[0].seen_slots(
                self._policy,
                own[:, : number + 1].reshape(-1),
                num_kept=num_kept,
                num_coming=num_frames,
                keep=keep,
            )
            for number in range(layout.passes)
        ]
        blocks = tuple(as_block(slots, device) for slots in by_pass.T)
        return (Staged(slot, blocks, tuple(view_of(slots, device) for slots in seen)),)

    def after_commit(self, live: Live, clip: WrittenClip) -> Outcome:
        new = Tokens.of_frames(clip.ordinals, self.plan.layout.tokens_per_frame, clip.staged[0].slot)
        after, left = live[0].after_commit(new, self._policy, num_kept=clip.num_kept)
        return Outcome((after,), left)

    def after_merge(self, fork: Live, parent: Live, *, num_kept: int) -> Outcome:
        merged = fork[0].as_merged_into(parent[0])
        after, left = merged.after_commit(Tokens.empty(), self._policy, num_kept=num_kept)
        return Outcome((after,), np.concatenate((np.setdiff1d(parent[0].own.slot, merged.own.slot), left)))

    def moves(self, live: Live, table: SlotTable) -> Moves | None:
        """Tokens whose places are free go there; of those that wait for each other, some step aside."""
        source = live[0].own.slot
        target = live[0].packed_slots(self.plan.layout.tokens_per_frame, len(table))
        moving = np.flatnonzero(source != target)
        is_free = table.is_free()
        direct = is_free[target[moving]]
        blocked = moving[~direct & ~_flags(len(table), source[moving[direct]])[target[moving]]]
        aside = np.flatnonzero(is_free & ~_flags(len(table), target))[: len(blocked)] if len(blocked) else blocked
        which = np.concatenate((moving[direct], blocked[: len(aside)]))
        if not len(which):
            return None  # all are in their places, or no slot is free
        to = np.concatenate((target[moving[direct]], aside))
        slot = source.copy()
        slot[which] = to
        return Moves(source[which], to, (live[0].at(slot),))

    def slots_for(self, live: Live) -> list[Integers]:
        return [live[0].packed_slots(self.plan.layout.tokens_per_frame, self.plan.num_slots)]


class PerLayerStream(Stream):
    """Each layer remembers its own tokens; all share one slab, where a slot holds one token of one layer."""

    keeps_stats = True

    def __init__(self, name: str, plan: StreamPlan, policy: PerLayerPolicy, device: torch.device) -> None:
        super().__init__(name, plan, Slab(replace(plan.layout, num_layers=1), plan.num_slots, device))
        self._policy = policy
        self._bookkeeping = None
        if isinstance(policy, StackedPolicy) and decides_there(device):
            self._bookkeeping = Bookkeeping(plan.layout, policy, plan.num_slots)

    @property
    def bookkeeping(self) -> Bookkeeping | None:
        return self._bookkeeping

    @property
    def set_names(self) -> tuple[str, ...]:
        return tuple(f"{self.name}.{layer}" for layer in range(self.plan.layout.num_layers))

    @property
    def num_token_stats(self) -> int:
        return self._policy.num_token_stats

    @property
    def wants_attention_mass(self) -> bool:
        return self._policy.wants_attention_mass

    def find(self, layer: int) -> tuple[int, int, int]:
        return layer, 0, 0

    def nothing(self) -> Live:
        return (LiveSet.empty(self._policy.num_layer_stats),) * self.plan.layout.num_layers

    def stage(self, live: Live, slot: Integers, *, num_kept: int, num_frames: int, keep: Keep) -> tuple[Staged, ...]:  # noqa: ARG002
        device = self.slab.device
        return tuple(
            Staged(own, (as_block(own, device),), (view_of(part.all_slots(own), device),))
            for part, own in zip(live, np.split(slot, len(live)), strict=True)
        )

    def after_commit(self, live: Live, clip: WrittenClip) -> Outcome:
        new = [self._new_tokens(clip.ordinals, staged.slot) for staged in clip.staged]
        tokens = [part.with_clip(own) for part, own in zip(live, new, strict=True)]
        outcomes = [
            part.after_decision(of_layer, decision)
            for part, of_layer, decision in zip(live, tokens, self._decide(live, tokens, clip), strict=True)
        ]
        return Outcome(tuple(part for part, _ in outcomes), np.concatenate([left for _, left in outcomes]))

    def _decide(self, live: Live, tokens: list[Tokens], clip: WrittenClip) -> list[EvictionDecision]:
        if self._bookkeeping is not None:
            layer_stats = [part.layer_stats for part in live]
            return decide_on(
                self.slab.device,
                self._bookkeeping.policy,
                tokens,
                clip.attention_mass,
                layer_stats,
                self._described(clip),
            )
        attention_mass = _on_host(clip.attention_mass) if self._policy.wants_attention_mass else [None] * len(live)
        layers = [
            LayerState(
                tokens=of_layer,
                attention_mass=mass,
                keys=self._keys(staged.view) if self._policy.wants_keys else None,
                layer_stats=part.layer_stats,
            )
            for part, of_layer, mass, staged in zip(live, tokens, attention_mass, clip.staged, strict=True)
        ]
        return self._policy.decide(layers, self._described(clip))

    def after_merge(self, fork: Live, parent: Live, *, num_kept: int) -> Outcome:  # noqa: ARG002
        merged = tuple(part.as_merged_into(of_parent) for part, of_parent in zip(fork, parent, strict=True))
        left = [np.setdiff1d(of_parent.own.slot, part.own.slot) for of_parent, part in zip(parent, merged, strict=True)]
        return Outcome(merged, np.concatenate(left))

    def moves(self, live: Live, table: SlotTable) -> Moves | None:  # noqa: ARG002
        """None: layers share the slab, and survivors stay where they are."""
        return None

    def slots_for(self, live: Live) -> list[Integers]:
        """One layer after another."""
        ends = np.cumsum([len(part) for part in live])
        return np.split(np.arange(ends[-1]), ends[:-1])

    def _new_tokens(self, ordinals: tuple[int, ...], slot: Integers) -> Tokens:
        return Tokens.of_frames(ordinals, self.plan.layout.tokens_per_frame, slot, self._policy.num_token_stats)

    def _described(self, clip: WrittenClip) -> Clip:
        return Clip(
            num_kept=clip.num_kept,
            num_frames=len(clip.ordinals),
            tokens_per_frame=self.plan.layout.tokens_per_frame,
            num_heads=self.plan.layout.num_heads,
        )

    def _keys(self, view: View) -> Rows:
        return torch.cat(list(view.read(self.slab.keys[0])))


def open_stream(name: str, plan: StreamPlan, device: torch.device) -> Stream:
    """Storage for a stream, as its policy needs it."""
    if isinstance(plan.policy, PerLayerPolicy):
        return PerLayerStream(name, plan, plan.policy, device)
    assert isinstance(plan.policy, LockstepPolicy), f"{plan.policy} is a policy of no stream"
    return LockstepStream(name, plan, plan.policy, device)


def decides_there(device: torch.device) -> bool:
    """Whether policies that can decide on this device."""
    return device.type == "cuda"


def _flags(num_slots: int, slot: Integers) -> Flags:
    """One flag for each slot, set for these."""
    flags = np.zeros(num_slots, dtype=np.bool_)
    flags[slot] = True
    return flags


def _on_host(attention_mass: Sequence[Float32[Tensor, "_"]]) -> list[Float32[np.ndarray, "_"]]:
    """All layers in one transfer."""
    ends = np.cumsum([len(layer) for layer in attention_mass])
    return np.split(torch.cat(list(attention_mass)).cpu().numpy(), ends[:-1])
