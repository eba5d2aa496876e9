"""A rival that asks for no attention: keys unlike the others stay."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Float32
from torch import Tensor
from torch.nn.functional import normalize

from longtake.memory.policies.allocation import softmax_shares
from longtake.memory.policies.budgeted import Budgeted
from longtake.memory.policy import Clip, EvictionDecision, LayerState
from longtake.memory.tokens import Flags

_TEMPERATURE = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyDiversity(Budgeted):
    """All layers together keep at most `num_tokens` tokens, after the rule of InfiniteVGGT.

    A token's similarity is the cosine between its key and the mean normalised key of the unprotected tokens, averaged
    over heads; the most similar leave. Layers share what protection leaves by softmax((1 - mean similarity) / 0.5).
    Unlike the published rule, tokens leave whole and not head by head, after the clip and not before it, and what is
    protected is as in the managed policy.
    """

    @property
    def wants_keys(self) -> bool:
        return True

    def decide(self, layers: Sequence[LayerState], clip: Clip) -> list[EvictionDecision]:
        protected = [self.protection.covers(state.tokens, num_kept=clip.num_kept) for state in layers]
        scores, mean_similarities = [], []
        for state, covered in zip(layers, protected, strict=True):
            assert state.keys is not None
            similar = similarity(state.keys, ~covered)
            scores.append(-similar)
            mean_similarities.append(float(similar[~covered].mean()) if not covered.all() else 0.0)
        shares = softmax_shares(mean_similarities, _TEMPERATURE)
        stays = self.stays_within(shares, scores, protected)
        return [
            EvictionDecision(stays=flags, token_stats=state.tokens.token_stats, layer_stats=())
            for flags, state in zip(stays, layers, strict=True)
        ]


@torch.no_grad()
def similarity(keys: Float[Tensor, "tokens heads head_dim"], of: Flags) -> Float32[np.ndarray, " tokens"]:
    """Cosine of each key with the mean direction of some of them, averaged over heads; head by head to save memory."""
    among = torch.from_numpy(of).to(keys.device)
    total = torch.zeros(len(keys), device=keys.device)
    for head in range(keys.shape[1]):
        directions = normalize(keys[:, head].float(), dim=-1)
        total += directions @ normalize(directions[among].sum(0), dim=0)
    return (total / keys.shape[1]).cpu().numpy()
