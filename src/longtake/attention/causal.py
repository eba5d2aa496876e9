"""Attention of a language model: a clip of tokens sees all that is remembered, and of itself what came before.

The past is one block or a few, read in place; the clip's own tokens are another; all are merged by log-sum-exp. Several
query heads may share a head of keys: they become more queries of that head, so that no key is copied for them.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from longtake.attention.attention_mass import attention_mass
from longtake.attention.backend import Attended, Backend, SlotBackend, as_slot_backend, grouped, merge, ungrouped
from longtake.errors import InputError
from longtake.memory.policy import Keep
from longtake.memory.transaction import Transaction

Asking = Float[Tensor, "batch tokens heads head_dim"]
Own = Float[Tensor, "batch tokens key_heads head_dim"]
Past = Float[Tensor, "1 tokens key_heads head_dim"]
Keys = Float[Tensor, "tokens key_heads head_dim"]


class AttentionRecorder:
    """Adds up the attention that the first tokens get from the last token of each clip of a question and its answer.

    The first tokens are all that was remembered before the first of the clips and, as far as there is room, that clip.
    The last token of a clip is the one whose output is the next word, so what is added up is the answer's attention.
    """

    def __init__(self, num_tokens: int) -> None:
        self._num_tokens = num_tokens
        self._attention_mass: Float64[Tensor, " tokens"] | None = None

    def add(self, attention_mass: Float[Tensor, " tokens"]) -> None:
        """Where it was computed, so that nobody waits for it."""
        if self._attention_mass is None:
            place = "cpu" if attention_mass.device.type == "mps" else attention_mass.device  # which has no float64
            self._attention_mass = torch.zeros(self._num_tokens, dtype=torch.float64, device=place)
        self._attention_mass += attention_mass[: self._num_tokens].to(self._attention_mass)

    @property
    def attention_mass(self) -> Float64[Tensor, " tokens"]:
        """What was added up so far, on the host."""
        if self._attention_mass is None:
            return torch.zeros(self._num_tokens, dtype=torch.float64)
        return self._attention_mass.cpu()


@dataclass(frozen=True, slots=True)
class CausalRecall:
    """Recall of one stream of tokens.

    A clip that will not be kept may be a batch: each entry goes on from the same past on its own; nothing is written.
    """

    transaction: Transaction
    backend: Backend
    recorder: AttentionRecorder | None = None
    rotation: Callable[[int, Keys], Keys] | None = None
    """What makes of stored keys, from some token of the past on, those to be read; none where they are the same."""
    _slots: SlotBackend | None = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_slots", as_slot_backend(self.backend))

    def attend(self, stream: str, layer: int, q: Asking, k: Own, v: Own) -> Asking:
        """Remember this layer's keys and values if the clip may be kept; attend to the past and to what came before."""
        if self.transaction.keep is not Keep.NO:
            if len(q) != 1:
                raise InputError(f"A stream is one video, but a batch of {len(q)} came; open a session for each.")
            self.transaction.write(stream, layer, k.squeeze(0), v.squeeze(0))
        if self._slots is not None and self.rotation is None:
            return self._attend_slots(self._slots, stream, layer, q, k, v)
        key_heads = k.shape[2]
        seen = self._seen(stream, layer)
        asked = grouped(q, key_heads).to(seen[0][0].dtype) if seen else grouped(q, key_heads)
        past = [self.backend.attend(asked, keys, values) for keys, values in seen]
        own = attend_to_earlier(q, k, v)
        weights = grouped(own.log_sum_exp.unsqueeze(-1), key_heads).squeeze(-1)
        together = merge([*past, Attended(grouped(own.values, key_heads), weights)])
        if self.recorder is not None:
            assert len(q) == 1, "a recorder follows one answer"
            last, log_sum_exp = grouped(q[:, -1:], key_heads), together.log_sum_exp[:, -(q.shape[2] // key_heads) :]
            keys = [*(keys for keys, _ in seen), k]
            self.recorder.add(torch.cat([attention_mass(last.to(each.dtype), each, log_sum_exp) for each in keys]))
        return ungrouped(together.values, q).to(q.dtype)

    def _attend_slots(self, backend: SlotBackend, stream: str, layer: int, q: Asking, k: Own, v: Own) -> Asking:
        """The same where the past is read in place; the entries of a batch are more queries of it."""
        seen, parts = self.transaction.seen(stream, layer), [attend_to_earlier(q, k, v)]
        if seen.view.sections:
            past = backend.attend_slots(q.reshape(1, -1, *q.shape[2:]).to(seen.keys.dtype), seen)
            parts.append(Attended(past.values.reshape(q.shape), past.log_sum_exp.reshape(q.shape[:3])))
        together = merge(parts)
        if self.recorder is not None:
            assert len(q) == 1, "a recorder follows one answer"
            last, log_sum_exp, key_heads = q[:, -1:], together.log_sum_exp[:, -1:], k.shape[2]
            weights = grouped(log_sum_exp.unsqueeze(-1), key_heads).squeeze(-1)
            received = [attention_mass(grouped(last, key_heads), k, weights)]
            if seen.view.sections:
                received.insert(0, backend.received(last.to(seen.keys.dtype), seen, log_sum_exp))
            self.recorder.add(torch.cat(received))
        return together.values.to(q.dtype)

    def _seen(self, stream: str, layer: int) -> list[tuple[Past, Past]]:
        """Keys and values of the past, block by block."""
        seen, start = [], 0
        for keys, values in self.transaction.read(stream, layer):
            turned = keys if self.rotation is None else self.rotation(start, keys)
            seen.append((turned.unsqueeze(0), values.unsqueeze(0)))
            start += len(keys)
        return seen


def attend_to_earlier(q: Asking, k: Own, v: Own) -> Attended:
    """Every token sees itself and those before it in its own entry of the batch."""
    share = q.shape[2] // k.shape[2]
    heads_first = [q.transpose(1, 2), *(part.transpose(1, 2).repeat_interleave(share, dim=1) for part in (k, v))]
    if q.device.type == "cpu":
        values, log_sum_exp = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(*heads_first, is_causal=True)
    elif q.device.type == "cuda" and q.dtype in (torch.bfloat16, torch.float16):
        values, log_sum_exp, *_ = torch.ops.aten._scaled_dot_product_flash_attention(*heads_first, is_causal=True)
    else:
        return attend_to_earlier_by_map(q, k, v)
    return Attended(values.transpose(1, 2), log_sum_exp[..., : q.shape[1]].transpose(1, 2))


def attend_to_earlier_by_map(q: Asking, k: Own, v: Own) -> Attended:
    """The same in plain torch, float32 inside: the definition of right."""
    share = q.shape[2] // k.shape[2]
    k, v = (part.float().repeat_interleave(share, dim=2) for part in (k, v))
    logits = torch.einsum("bqhd,bkhd->bqhk", q.float(), k) / math.sqrt(q.shape[-1])
    later = torch.ones(q.shape[1], q.shape[1], dtype=torch.bool, device=q.device).triu(1)
    logits = logits.masked_fill(later[:, None], -math.inf)
    log_sum_exp = torch.logsumexp(logits, dim=-1)
    values = torch.einsum("bqhk,bkhd->bqhd", torch.exp(logits - log_sum_exp.unsqueeze(-1)), v)
    return Attended(values.to(q.dtype), log_sum_exp)
