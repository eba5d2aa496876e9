"""Books of layers that forget on their own, kept on a device: a clip's slots and who stays are found without the host.

    tokens    │ of layer 0 │ of layer 1 │ … │ nothing │     as many places as there are slots
    ends           ends[0] ┘    ends[1] ┘

Slots that no layer has are free. Every clip that is kept makes new books, and no shape depends on what they say, so all
of it can be recorded as a CUDA graph.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float32, Float64, Int32, Int64
from torch import Tensor

from longtake.memory.live_set import LiveSet
from longtake.memory.policy import Clip, EvictionDecision, StackedDecision, StackedPolicy, StackedState
from longtake.memory.tokens import StreamLayout, Tokens

ClipSlots = Int32[Tensor, "layers tokens"]


class Largest:
    """How many tokens the largest layer has: a bound at once, the number when the device has told it."""

    def __init__(self, bound: int, ends: Int64[Tensor, " layers"] | None = None) -> None:
        """The bound is the number itself where there are no ends to be told."""
        self._bound, self._ends, self._arrived = bound, ends, None
        if ends is not None and ends.device.type == "cuda":
            self._ends = torch.empty(ends.shape, dtype=ends.dtype, pin_memory=True).copy_(ends, non_blocking=True)
            self._arrived = torch.cuda.Event()
            self._arrived.record()

    def at_most(self) -> int:
        """What is known without waiting."""
        if self._arrived is not None and not self._arrived.query():
            return self._bound
        return self.exactly()

    def exactly(self) -> int:
        """The number, waited for where need be."""
        if self._ends is None:
            return self._bound
        if self._arrived is not None:
            self._arrived.synchronize()
        return int(np.diff(self._ends.numpy(), prepend=0).max())


class Columns(NamedTuple):
    """What books say, on the device."""

    tokens: Int32[Tensor, "3 slots"]
    """Slot, frame and index of each."""
    token_stats: Float32[Tensor, "stats slots"]
    ends: Int64[Tensor, " layers"]
    layer_stats: Float64[Tensor, "layers layer_stats"]


@dataclass(frozen=True, slots=True)
class Books:
    """What a memory remembers of one stream."""

    columns: Columns
    largest: Largest

    @classmethod
    def kept(cls, columns: Columns, bound: int) -> "Books":
        """Of columns that others may write anew, in which no layer has more tokens than this."""
        own = Columns(*(column.clone() for column in columns))
        return cls(own, Largest(bound, own.ends))


@dataclass(frozen=True, slots=True)
class Bookkeeping:
    """The arithmetic of the books of one stream; clips have one frame."""

    layout: StreamLayout
    policy: StackedPolicy
    num_slots: int

    def has_room(self, num_kept: int) -> bool:
        """Whether one more clip is sure to find room once so many frames are kept, whatever the policy decides."""
        until = self.policy.holds_until
        return until is None or num_kept <= until

    def nothing(self, device: torch.device) -> Columns:
        """Of books that remember nothing."""
        num_layers = self.layout.num_layers
        return Columns(
            torch.zeros(3, self.num_slots, dtype=torch.int32, device=device),
            torch.zeros(self.policy.num_token_stats, self.num_slots, device=device),
            torch.zeros(num_layers, dtype=torch.int64, device=device),
            torch.zeros(num_layers, self.policy.num_layer_stats, dtype=torch.float64, device=device),
        )

    def written(self, live: Sequence[LiveSet], device: torch.device) -> Books:
        """As the host knows it; nothing may be borrowed."""
        tokens, sizes = Tokens.join(part.own for part in live), [len(part) for part in live]
        columns = self.nothing(torch.device("cpu"))
        columns.tokens[:, : len(tokens)] = torch.from_numpy(np.stack((tokens.slot, tokens.frame, tokens.index)))
        if len(tokens):
            columns.token_stats[:, : len(tokens)] = torch.from_numpy(tokens.token_stats.T)
        columns.ends.copy_(torch.tensor(sizes).cumsum(0))
        columns.layer_stats.copy_(torch.tensor([part.layer_stats for part in live], dtype=torch.float64))
        return Books(Columns(*(column.to(device) for column in columns)), Largest(max(sizes)))

    def read(self, books: Books) -> tuple[LiveSet, ...]:
        """As the host says it; waits for the device."""
        books.largest.exactly()  # whatever stream they are written on
        tokens, token_stats, ends, layer_stats = (column.cpu().numpy() for column in books.columns)
        slot, frame, index = tokens[:, : ends[-1]].astype(np.int64)
        together = Tokens(frame, index, slot, np.ascontiguousarray(token_stats[:, : ends[-1]].T))
        return tuple(
            LiveSet((), part, Tokens.empty(), tuple(of_layer))
            for part, of_layer in zip(together.cut(ends[:-1]), layer_stats.tolist(), strict=True)
        )

    def clip_slots(self, columns: Columns) -> ClipSlots:
        """Where a clip is written: the lowest free slots, one layer after another."""
        device, num_layers, num_tokens = columns.ends.device, self.layout.num_layers, self.layout.tokens_per_frame
        slot, count = torch.arange(self.num_slots, device=device), num_layers * num_tokens
        # whatever has no place goes to one behind all others
        taken = torch.where(slot < columns.ends[-1], columns.tokens[0].long(), self.num_slots)
        is_free = torch.ones(self.num_slots + 1, dtype=torch.int64, device=device).scatter_(0, taken, 0)[:-1]
        place = torch.where(is_free > 0, is_free.cumsum(0) - 1, count).clamp(max=count)
        chosen = torch.zeros(count + 1, dtype=torch.int32, device=device).scatter_(0, place, slot.int())
        return chosen[:-1].view(num_layers, num_tokens)

    def slots_read(self, columns: Columns, own: ClipSlots, width: int) -> Int32[Tensor, "layers width"]:
        """What each layer reads, its own clip last; then padding."""
        is_old, at, new = self._places(columns, width)
        return torch.where(is_old, columns.tokens[0][at], own.gather(1, new))

    def sizes(self, columns: Columns) -> Int64[Tensor, "layers 1"]:
        """How many tokens each layer has, its own of the clip included."""
        return columns.ends.diff(prepend=columns.ends.new_zeros(1))[:, None] + self.layout.tokens_per_frame

    def after(
        self,
        columns: Columns,
        own: ClipSlots,
        attention_mass: Float32[Tensor, "layers width"],
        ordinal: Int64[Tensor, ""],
    ) -> Columns:
        """What the books say once the clip is kept, of whose attention each token got this."""
        is_old, at, new = self._places(columns, attention_mass.shape[1])
        slot, frame, index = (column[at] for column in columns.tokens)
        slot = torch.where(is_old, slot, own.gather(1, new))
        frame = torch.where(is_old, frame, ordinal.int())
        index = torch.where(is_old, index, new.int())
        state = StackedState(
            frame=frame,
            index=index,
            size=self.sizes(columns),
            token_stats=torch.where(is_old, columns.token_stats[:, at], 0.0),
            attention_mass=attention_mass,
            layer_stats=columns.layer_stats,
            num_kept=ordinal + 1,
            num_frames=1,
            tokens_per_frame=self.layout.tokens_per_frame,
            num_heads=self.layout.num_heads,
        )
        decision = self.policy.decide_stacked(state)
        stays = decision.stays & state.is_token
        place = torch.where(stays.flatten(), stays.flatten().cumsum(0) - 1, self.num_slots)

        def together(columns: Tensor) -> Tensor:
            kept = columns.new_zeros(len(columns), self.num_slots + 1)
            return kept.scatter_(1, place.expand(len(columns), -1), columns.flatten(1))[:, :-1]

        return Columns(
            together(torch.stack((slot, frame, index))),
            together(decision.token_stats),
            stays.sum(1).cumsum(0),
            decision.layer_stats,
        )

    def _places(self, columns: Columns, width: int) -> tuple[Tensor, Tensor, Tensor]:
        """Of each place of a row: whether it is an older token's, which of the books', and which of the clip's."""
        num_older = self.sizes(columns) - self.layout.tokens_per_frame
        place = torch.arange(width, device=columns.ends.device)
        at = (columns.ends[:, None] - num_older + place).clamp(max=self.num_slots - 1)
        new = (place - num_older).clamp(0, self.layout.tokens_per_frame - 1)
        return place < num_older, at, new


def decide_on(
    device: torch.device,
    policy: StackedPolicy,
    layers: Sequence[Tokens],
    attention_mass: Sequence[Float32[Tensor, "_"]],
    layer_stats: Sequence[tuple[float, ...]],
    clip: Clip,
) -> list[EvictionDecision]:
    """The decision that books come to, of layers that the host knows."""
    decision = policy.decide_stacked(stacked(device, layers, attention_mass, layer_stats, clip))
    return _unstacked(decision, [len(tokens) for tokens in layers])


def stacked(
    device: torch.device,
    layers: Sequence[Tokens],
    attention_mass: Sequence[Float32[Tensor, "_"]],
    layer_stats: Sequence[tuple[float, ...]],
    clip: Clip,
) -> StackedState:
    """Layers that the host knows, side by side on a device."""
    sizes = [len(tokens) for tokens in layers]
    num_stats, width = layers[0].token_stats.shape[1], max(1, *sizes)
    columns = torch.zeros(2, len(layers), width, dtype=torch.int32)
    token_stats = torch.zeros(num_stats, len(layers), width)
    mass = torch.zeros(len(layers), width, device=device)
    for layer, tokens in enumerate(layers):
        columns[:, layer, : len(tokens)] = torch.from_numpy(np.stack((tokens.frame, tokens.index)))
        token_stats[:, layer, : len(tokens)] = torch.from_numpy(tokens.token_stats.T)
        mass[layer, : len(tokens)] = attention_mass[layer]
    frame, index = columns.to(device)
    return StackedState(
        frame=frame,
        index=index,
        size=torch.tensor(sizes)[:, None].to(device),
        token_stats=token_stats.to(device),
        attention_mass=mass,
        layer_stats=torch.tensor(layer_stats, dtype=torch.float64).view(len(layers), -1).to(device),
        num_kept=torch.tensor(clip.num_kept).to(device),
        num_frames=clip.num_frames,
        tokens_per_frame=clip.tokens_per_frame,
        num_heads=clip.num_heads,
    )


def _unstacked(decision: StackedDecision, sizes: Sequence[int]) -> list[EvictionDecision]:
    """One for each layer, on the host."""
    stays, token_stats = decision.stays.cpu().numpy(), decision.token_stats.cpu().numpy()
    return [
        EvictionDecision(
            stays=stays[layer, :size],
            token_stats=np.ascontiguousarray(token_stats[:, layer, :size].T),
            layer_stats=tuple(layer_stats),
        )
        for layer, (size, layer_stats) in enumerate(zip(sizes, decision.layer_stats.tolist(), strict=True))
    ]
