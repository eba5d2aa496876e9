"""A Qwen2.5-VL network over our memory: its modules and its weights, our positions and our attention.

Its code is unchanged: attention is plugged in through the library's own interface, and it keeps no cache.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from longtake.attention.causal import CausalRecall
from longtake.extras import import_from_extra
from longtake.memory.tokens import StreamLayout

TEXT = "text"
"""Stream of the language model; every token counts as a frame of its own."""
_ATTENTION = "longtake"


class Network:
    """The forward passes that a dialogue needs; it holds weights only."""

    def __init__(self, model: Any) -> None:
        """Of a `Qwen2_5_VLForConditionalGeneration`, whose text model attends through our memory from now on."""
        import_from_extra("transformers", "qwen", "Questions about video").AttentionInterface.register(
            _ATTENTION, _attend
        )
        model.set_attn_implementation({"text_config": _ATTENTION, "vision_config": "sdpa"})
        self._model = model.eval()

    @property
    def device(self) -> torch.device:
        device: torch.device = self._model.device
        return device

    def layout(self, dtype: torch.dtype | None = None) -> StreamLayout:
        """What a token takes in memory, by default in the number type of the weights."""
        text = self._model.config.text_config
        return StreamLayout(
            num_layers=text.num_hidden_layers,
            num_heads=text.num_key_value_heads,
            head_dim=text.hidden_size // text.num_attention_heads,
            tokens_per_frame=1,
            dtype=dtype or self._model.dtype,
            causal=True,
        )

    @torch.no_grad()
    def see(
        self, pixels: Float[Tensor, "patches values"], grid: tuple[int, int, int]
    ) -> Float[Tensor, "1 tokens width"]:
        """Tokens of whole temporal grids from the vision tower; none attends to another."""
        shape = torch.tensor([grid], device=self.device)
        clips = self._model.model.get_video_features(pixels.to(self.device, self._model.dtype), shape).pooler_output
        return torch.cat(list(clips)).unsqueeze(0)

    @torch.no_grad()
    def embed(self, ids: Sequence[int]) -> Float[Tensor, "1 tokens width"]:
        embedded: Tensor = self._model.get_input_embeddings()(torch.tensor([list(ids)], device=self.device))
        return embedded

    @torch.no_grad()
    def read(
        self,
        embedded: Float[Tensor, "batch tokens width"],
        positions: Int[np.ndarray, "3 tokens"],
        recall: CausalRecall,
    ) -> Float[Tensor, "batch tokens width"]:
        """Take in tokens at these positions; each entry of a batch goes on from the same past."""
        rows = torch.from_numpy(positions).to(self.device)[:, None].expand(-1, len(embedded), -1)
        hidden: Tensor = self._model.model.language_model(
            inputs_embeds=embedded, position_ids=rows, use_cache=False, recall=recall
        ).last_hidden_state
        return hidden

    @torch.no_grad()
    def logits(self, hidden: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch vocabulary"]:
        """In float32."""
        logits: Tensor = self._model.lm_head(hidden)
        return logits.float()


def _attend(
    module: Any,
    query: Float[Tensor, "batch heads tokens head_dim"],
    key: Float[Tensor, "batch key_heads tokens head_dim"],
    value: Float[Tensor, "batch key_heads tokens head_dim"],
    attention_mask: Tensor | None,
    *,
    recall: CausalRecall,
    **_: Any,
) -> tuple[Float[Tensor, "batch tokens heads head_dim"], None]:
    """As the library calls attention: rotary positions are applied to keys and queries already."""
    assert attention_mask is None
    return recall.attend(TEXT, module.layer_idx, *(part.transpose(1, 2) for part in (query, key, value))), None
