"""A reader of clips as recordings are, in plain torch: what stages places ahead and reads together runs anywhere."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from longtake.attention.attention_mass import attention_mass
from longtake.attention.backend import Attended, SdpaBackend, grouped, merge, ungrouped
from longtake.attention.causal import Asking, CausalRecall, Own, attend_to_earlier
from longtake.language.network import TEXT, Network
from longtake.runtime.dialogue import DialogueSession
from longtake.runtime.recorded_reading import RecordedReader, TokenClip


@dataclass(frozen=True, slots=True)
class _Numbered(CausalRecall):
    """Recall by the slots that a clip names, and by nothing else."""

    seen: Int[np.ndarray, " seen"] | None = None
    own: Int[np.ndarray, " own"] | None = None

    def attend(self, stream: str, layer: int, q: Asking, k: Own, v: Own) -> Asking:
        slab, key_heads = self.transaction.slab(stream), k.shape[2]
        written, seen = torch.from_numpy(self.own), torch.from_numpy(self.seen)
        slab.keys[layer][written], slab.values[layer][written] = k[0], v[0]
        own = attend_to_earlier(q, k, v)
        weights = grouped(own.log_sum_exp.unsqueeze(-1), key_heads).squeeze(-1)
        parts, keys = [Attended(grouped(own.values, key_heads), weights)], [k]
        if len(seen):
            past = slab.keys[layer][seen].unsqueeze(0), slab.values[layer][seen].unsqueeze(0)
            parts.insert(0, self.backend.attend(grouped(q, key_heads), *past))
            keys.insert(0, past[0])
        together = merge(parts)
        if self.recorder is not None:
            last, log_sum_exp = grouped(q[:, -1:], key_heads), together.log_sum_exp[:, -(q.shape[2] // key_heads) :]
            self.recorder.add(torch.cat([attention_mass(last, each, log_sum_exp) for each in keys]))
        return ungrouped(together.values, q)


class PlainReader(RecordedReader):
    """Reads one clip after another, each from the past of the first, as they are given."""

    def __init__(self, network: Network) -> None:
        self._plain = network

    def read(self, clips: Sequence[TokenClip]) -> list[Float[Tensor, "1 tokens width"]]:
        past = clips[0].places.past.sections
        for clip in clips:
            clip.transaction.note_overwritten(TEXT)
        hidden = [self._read_one(clip, past) for clip in clips]
        for clip in clips:
            clip.transaction.mark_written(TEXT)
        return hidden

    def _read_one(self, clip: TokenClip, past: Sequence[Int[np.ndarray, " _"]]) -> Float[Tensor, "1 tokens width"]:
        before, own = np.split(clip.tail, [len(clip.tail) - clip.num_tokens])
        seen = np.concatenate((*past, before))
        recall = _Numbered(clip.transaction, SdpaBackend(), clip.recorder, seen=seen, own=own)
        return self._plain.read(clip.embedded, clip.rows, recall)


def read_by_clips(session: DialogueSession) -> DialogueSession:
    """Let a session, which has no forks yet, read as one does whose passes are recorded."""
    memory = session._memory
    memory._setup = replace(memory._setup, reader=PlainReader(session._network))
    return session
