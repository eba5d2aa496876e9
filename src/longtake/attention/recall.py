"""The one door between a model and what is remembered: `recall.attend(stream, layer, q, k, v)`.

A model asks the same way whether it streams (`StreamRecall`: keys and values live in a memory) or sees a whole clip at
once (`ClipRecall`: a mask says which frames each frame may see).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Int64
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from longtake.attention.attention_mass import attention_mass
from longtake.attention.backend import Backend, Keys, NormBounds, Queries, SlotBackend, as_slot_backend, merge
from longtake.attention.masks import Mask
from longtake.errors import InputError
from longtake.memory.transaction import Transaction


@runtime_checkable
class Recall(Protocol):
    """What a model may ask while it looks at one clip."""

    @property
    def ordinals(self) -> tuple[int, ...]:
        """For each frame of the clip, how many frames of its sequence were kept before it."""

    def when(self, device: torch.device) -> Int64[Tensor, " frames"]:
        """The same as numbers on a device."""

    @property
    def num_scale_frames(self) -> int:
        """How many frames of the sequence form its scale block."""

    def attend(self, stream: str, layer: int, q: Queries, k: Keys, v: Keys) -> Queries:
        """Remember this layer's keys and values, and attend to all that the clip may see."""


class HostOrdinals:
    """For recalls whose ordinals are known on the host."""

    __slots__ = ()
    ordinals: tuple[int, ...]

    def when(self, device: torch.device) -> Int64[Tensor, " frames"]:
        return torch.tensor(self.ordinals, device=device)


@dataclass(frozen=True, slots=True)
class StreamRecall(HostOrdinals):
    """Recall while streaming: keys and values go into a transaction, attention reads what it may see."""

    transaction: Transaction
    backend: Backend
    num_scale_frames: int
    bounds: Mapping[str, Sequence[NormBounds | None]] = field(default_factory=dict)
    """By stream and layer, where norms bound queries and keys."""
    _slots: SlotBackend | None = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_slots", as_slot_backend(self.backend))

    @property
    def ordinals(self) -> tuple[int, ...]:  # type: ignore[override]
        return self.transaction.ordinals

    def attend(self, stream: str, layer: int, q: Queries, k: Keys, v: Keys) -> Queries:
        if len(q) != 1:
            raise InputError(f"A stream is one video, but a batch of {len(q)} came; open a session for each.")
        self.transaction.write(stream, layer, k.squeeze(0), v.squeeze(0))
        if self._slots is not None:
            return self._attend_slots(self._slots, stream, layer, q)
        seen = [(k.unsqueeze(0), v.unsqueeze(0)) for k, v in self.transaction.read(stream, layer)]
        asked = q.to(seen[0][0].dtype)
        attended = merge([self.backend.attend(asked, keys, values) for keys, values in seen])
        if self.transaction.wants_attention_mass(stream, layer):
            parts = [attention_mass(asked, keys, attended.log_sum_exp) for keys, _ in seen]
            self.transaction.record_attention_mass(stream, layer, torch.cat(parts))
        return attended.values.to(q.dtype)

    def _attend_slots(self, backend: SlotBackend, stream: str, layer: int, q: Queries) -> Queries:
        seen, bounds = self.transaction.seen(stream, layer), self.bounds.get(stream)
        asked = q.to(seen.keys.dtype)
        attended = backend.attend_slots(asked, seen, None if bounds is None else bounds[layer])
        if self.transaction.wants_attention_mass(stream, layer):
            received = backend.received(asked, seen, attended.log_sum_exp)
            self.transaction.record_attention_mass(stream, layer, received)
        return attended.values.to(q.dtype)


@dataclass(frozen=True, slots=True)
class ClipRecall(HostOrdinals):
    """Recall of a whole clip at once: a mask for each stream says which tokens each token may see, None means all."""

    masks: Mapping[str, Mask | None]
    ordinals: tuple[int, ...]
    num_scale_frames: int

    def attend(self, stream: str, layer: int, q: Queries, k: Keys, v: Keys) -> Queries:  # noqa: ARG002
        q, k, v = (tensor.transpose(1, 2) for tensor in (q, k, v))
        return scaled_dot_product_attention(q, k, v, attn_mask=self.masks[stream]).transpose(1, 2)
