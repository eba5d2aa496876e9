"""`LayerWiseKVCompression` of the STream3R fork with layer-wise eviction: its names over longtake's arithmetic.

from longtake.compat.stream3r import LayerWiseKVCompression
# was: from stream3r.models.components.utils.kv_cache_compression_v2 import LayerWiseKVCompression
"""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float32, Shaped
from torch import Tensor

from longtake.errors import InputError, SettingError, TransactionError
from longtake.memory.policies.allocation import softmax_shares
from longtake.memory.policies.layerwise import Layerwise, dropped_by_now, spread, stays_of_layer

AttentionMass = Shaped[Tensor, "..."]
"""Of one layer: the head-mean map `[batch, queries, keys]`, or its sums over the queries alone, `[batch, keys]`."""
LayerCache = Sequence[AttentionMass | None]
"""Keys and values `[batch, heads, tokens, head_dim]`, and the attention that the keys received, or None."""
Compacted = tuple[Tensor, Tensor, None]


class LayerWiseKVCompression:
    """Decides after each frame which keys and values every layer drops, and drops them.

    As published, one choice serves the whole batch, and protection is an infinite score that only sorts last: where a
    budget is smaller than what is protected, that goes too. `StreamSession` does the same without maps.
    """

    def __init__(
        self,
        num_layers: int,
        tokens_per_frame: int,
        patch_start_idx: int,
        total_frames: int,
        budget_ratio: float = 0.5,
        temp: float = 0.5,
        device: torch.device | str | None = None,
    ) -> None:
        """`patch_start_idx` counts the special tokens of a frame; without a `device` the maps' own is taken."""
        if num_layers < 1 or not 0 <= patch_start_idx <= tokens_per_frame or tokens_per_frame < 1:
            raise SettingError(
                "Expected at least one layer, one token in a frame and no more special tokens than that, but got "
                f"{num_layers}, {tokens_per_frame} and {patch_start_idx}."
            )
        Layerwise(  # refuses what has no meaning
            budget_ratio=budget_ratio, temperature=temp, num_frames=total_frames, special_tokens=patch_start_idx
        )
        self.num_layers = num_layers
        self.tokens_per_frame = tokens_per_frame
        self.patch_start_idx = patch_start_idx
        self.total_frames = total_frames
        self.budget_ratio = budget_ratio
        self.temp = temp
        self.device = device
        self.reset()

    def reset(self) -> None:
        """Forget the sequence."""
        self.cum_attn_maps: list[Tensor | None] = [None] * self.num_layers
        """For each layer what its tokens accumulated."""
        self.exposure_counts: list[Tensor | None] = [None] * self.num_layers
        """For each layer how many frames its tokens were exposed to."""
        self.current_frame = 0

    def process_frame(self, kv_cache_list: Sequence[LayerCache], frame_idx: int) -> list[Compacted]:
        """Count what a frame attended to and compact the cache; frames count from 0, one in each call."""
        attention_mass = [_required(layer[2], "what its keys received") for layer in kv_cache_list]
        untouched: list[Tensor | None] = [None] * self.num_layers
        if frame_idx == 0:
            self.initialize_first_frame(attention_mass)
            return self.compact_kv_cache(kv_cache_list, untouched)
        self.update_cumulative_maps(attention_mass, frame_idx)
        if frame_idx >= self.total_frames - 1:
            return self.compact_kv_cache(kv_cache_list, untouched)
        targets = self.compute_per_layer_budgets(attention_mass, frame_idx)
        return self.compact_kv_cache(kv_cache_list, self.get_removal_indices_per_layer(targets, frame_idx))

    def initialize_first_frame(self, attn_maps_layers: Sequence[AttentionMass]) -> None:
        """All tokens of the first frame are protected."""
        for layer, sums in enumerate(self._sums(attn_maps_layers)):
            self.cum_attn_maps[layer] = torch.full_like(sums[0], torch.inf)
            self.exposure_counts[layer] = torch.ones_like(sums[0], dtype=torch.int64)
        self.current_frame = 1

    def update_cumulative_maps(self, attn_maps_layers: Sequence[AttentionMass], frame_idx: int) -> None:
        """Add what a later frame's queries gave to each key; the frame's own tokens are the last ones."""
        for layer, sums in enumerate(self._sums(attn_maps_layers)):
            before, exposure = self._statistics(layer)
            num_new = sums.shape[1] - len(before)
            if num_new < self.tokens_per_frame:
                raise InputError(
                    f"Expected the {len(before)} tokens that layer {layer} holds and {self.tokens_per_frame} of a new "
                    f"frame, but the map has {sums.shape[1]} keys; give the map of the compacted cache."
                )
            attention = sums.mean(dim=0) * sums.shape[1]
            attention[: len(before)] += before
            first = sums.shape[1] - self.tokens_per_frame
            attention[first : first + self.patch_start_idx] = torch.inf
            self.cum_attn_maps[layer] = attention
            self.exposure_counts[layer] = torch.cat((exposure + 1, exposure.new_ones(num_new)))
        self.current_frame = frame_idx

    def compute_layer_importance(self, attn_maps_layers: Sequence[AttentionMass]) -> tuple[Tensor, Tensor]:
        """Each layer's share of the budget, and the variance of what its keys received, over the whole batch."""
        sums = self._sums(attn_maps_layers)
        variances = [spread(of_layer.cpu().numpy()) for of_layer in sums]
        shares = softmax_shares(variances, self.temp)
        return sums[0].new_tensor(shares.tolist()), sums[0].new_tensor(variances)

    def compute_per_layer_budgets(self, attn_maps_layers: Sequence[AttentionMass], current_frame_idx: int) -> list[int]:
        """How many tokens each layer should have dropped since the beginning."""
        variances = [spread(of_layer.cpu().numpy()) for of_layer in self._sums(attn_maps_layers)]
        kept_per_layer = self.budget_ratio * self.total_frames * self.tokens_per_frame
        return dropped_by_now(softmax_shares(variances, self.temp), self._seen(current_frame_idx), kept_per_layer)

    def get_removal_indices_per_layer(self, tk_rm_num_per_layer: Sequence[int], frame_idx: int) -> list[Tensor | None]:
        """Which tokens leave so that each layer has dropped as many as it should; None where none does."""
        return [self._leaving(layer, target, frame_idx) for layer, target in enumerate(tk_rm_num_per_layer)]

    def compact_kv_cache(
        self, kv_cache_list: Sequence[LayerCache], removal_indices_per_layer: Sequence[Tensor | None]
    ) -> list[Compacted]:
        """The cache, and the statistics of its tokens, without these tokens; survivors keep their order."""
        self._require_layers(len(kv_cache_list))
        layers = enumerate(zip(kv_cache_list, removal_indices_per_layer, strict=True))
        return [self._without(layer, cache, leaving) for layer, (cache, leaving) in layers]

    def _without(self, layer: int, cache: LayerCache, leaving: Tensor | None) -> Compacted:
        keys, values = (_required(half, "its keys and values") for half in cache[:2])
        attention, exposure = self._statistics(layer)
        if keys.shape[2] != len(attention) or values.shape[2] != len(attention):
            raise InputError(
                f"Expected the {len(attention)} tokens counted in layer {layer}, but its keys and values have "
                f"{keys.shape[2]} and {values.shape[2]}; give the cache that the maps are of."
            )
        if leaving is None or not len(leaving):
            return keys, values, None
        stays = torch.ones(len(attention), dtype=torch.bool, device=leaving.device)
        stays[leaving] = False
        kept = stays.nonzero().squeeze(1)
        self.cum_attn_maps[layer] = attention[kept.to(attention.device)]
        self.exposure_counts[layer] = exposure[kept.to(exposure.device)]
        return keys.index_select(2, kept.to(keys.device)), values.index_select(2, kept.to(values.device)), None

    def _leaving(self, layer: int, target: int, frame_idx: int) -> Tensor | None:
        attention, exposure = self._statistics(layer)
        num_leaving = target - (self._seen(frame_idx) - len(attention))
        if target <= 0 or num_leaving <= 0:
            return None
        stays = stays_of_layer(
            attention.cpu().numpy(), exposure.cpu().numpy().astype(np.float32), num_leaving, strict=False
        )
        return torch.from_numpy(np.flatnonzero(~stays)).to(attention.device)

    def _seen(self, frame_idx: int) -> int:
        """Tokens since the beginning, the frame's own included."""
        return self.tokens_per_frame * (frame_idx + 1)

    def _statistics(self, layer: int) -> tuple[Tensor, Tensor]:
        attention, exposure = self.cum_attn_maps[layer], self.exposure_counts[layer]
        if attention is None or exposure is None:
            raise TransactionError("No frame was counted yet; begin the sequence with frame 0.")
        return attention, exposure

    def _sums(self, attention_mass: Sequence[AttentionMass]) -> list[Float32[Tensor, "batch keys"]]:
        """What each key received, for each layer."""
        self._require_layers(len(attention_mass))
        return [self._sums_of(of_layer) for of_layer in attention_mass]

    def _sums_of(self, attention_mass: AttentionMass) -> Float32[Tensor, "batch keys"]:
        if attention_mass.dim() not in (2, 3) or 0 in attention_mass.shape:
            raise InputError(
                "Expected maps as [batch, queries, keys], or sums over the queries as [batch, keys], but got "
                f"{tuple(attention_mass.shape)}; average a map over its heads first."
            )
        sums = attention_mass.float().sum(dim=1) if attention_mass.dim() == 3 else attention_mass.float()
        return sums if self.device is None else sums.to(self.device)

    def _require_layers(self, came: int) -> None:
        if came != self.num_layers:
            raise InputError(f"Expected {self.num_layers} layers as declared, but got {came}.")


def _required(tensor: AttentionMass | None, what: str) -> Tensor:
    if tensor is None:
        raise InputError(f"Expected each layer of the cache with {what}, but got None; run a frame first.")
    return tensor
