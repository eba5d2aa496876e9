"""What a language model says behind packed clips: one forward pass, and what is learned from being told the answers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 (as everyone calls it)
from jaxtyping import Bool, Float, Int32, Int64
from torch import Tensor

from longtake.language.formats import open_clip
from longtake.language.frames import PictureFormat
from longtake.layers.rotary import Phases, grid_phases
from longtake.training.packing import NOTHING, Packed, Shape
from longtake.training.recording import Lesson
from longtake.training.vocabulary import Vocabulary

FIGURES = ("loss", "right")
"""Told of a step: the loss, and the share of answers' words that were said right, their ends included."""
_VISION_THETA = 10_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where the tokens of packed clips stand and what they see, on the device."""

    rows: Int64[Tensor, "clips 3 tokens"]
    until: Int32[Tensor, "clips branch"]
    moment: Int32[Tensor, "clips branch"]
    question: Int32[Tensor, "clips branch"]
    words: Int64[Tensor, "clips words"]

    @classmethod
    def of(cls, packed: Packed, device: torch.device) -> "Places":
        return cls(
            rows=_sent(packed.rows, device).long(),
            until=_sent(packed.until, device),
            moment=_sent(packed.moment, device),
            question=_sent(packed.question, device),
            words=_sent(packed.words, device).long(),
        )

    def tensors(self) -> list[Tensor]:
        return [self.rows, self.until, self.moment, self.question, self.words]


def _sent(values: np.ndarray, device: torch.device) -> Tensor:
    return torch.from_numpy(values).to(device, non_blocking=True)


class Reading:
    """One network that reads packed clips of one shape."""

    def __init__(self, model: Any, shape: Shape, picture_format: PictureFormat) -> None:
        """Of a `Qwen2_5_VLForConditionalGeneration` whose blocks see the whole of each picture."""
        self.shape = shape
        self._model, self._format = model, picture_format
        vision, words, device = model.config.vision_config, Vocabulary(), model.device
        assert set(vision.fullatt_block_indexes) >= set(range(vision.depth))
        self._heads = vision.num_heads
        self._phases = grid_phases(
            _patch_places(shape, picture_format.merge).to(device),
            vision.hidden_size // vision.num_heads,
            theta=_VISION_THETA,
        )
        # made here, as a recording can send nothing to the device
        self._mean, self._std = (
            torch.tensor(values, device=device)[:, None, None] for values in (picture_format.mean, picture_format.std)
        )
        self._opening = torch.tensor(open_clip(words.special_ids, words.system), device=device)
        self._lesson = Lesson(self._compute)

    def learn(
        self, pairs: Float[Tensor, "clips grids 2 3 height width"], packed: Packed, weights: Sequence[Tensor], pool: Any
    ) -> Float[Tensor, " figures"]:
        """Leave gradients in the weights; recorded where there is a pool for it, else plainly."""
        labels = _sent(packed.labels, pairs.device).long()
        inputs = [pairs, labels, *Places.of(packed, pairs.device).tensors()]
        return self._lesson.learn(inputs, weights, pool)

    def _compute(
        self,
        pairs: Float[Tensor, "clips grids 2 3 height width"],
        labels: Int64[Tensor, "clips words"],
        rows: Int64[Tensor, "clips 3 tokens"],
        until: Int32[Tensor, "clips branch"],
        moment: Int32[Tensor, "clips branch"],
        question: Int32[Tensor, "clips branch"],
        words: Int64[Tensor, "clips words"],
    ) -> tuple[Float[Tensor, ""], Float[Tensor, " figures"]]:
        places = Places(rows=rows, until=until, moment=moment, question=question, words=words)
        with torch.autocast(pairs.device.type, torch.bfloat16, cache_enabled=False):
            logits = self.logits(pairs, places).float()
        loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=NOTHING)
        right = (logits.argmax(dim=-1) == labels).sum() / (labels != NOTHING).sum()
        return loss, torch.stack([loss, right])

    def logits(
        self, pairs: Float[Tensor, "clips grids 2 3 height width"], places: Places
    ) -> Float[Tensor, "clips words vocabulary"]:
        """What comes after each word behind the clips; pixels are 0 to 1."""
        embed = self._model.get_input_embeddings()
        seen = self.look(pairs.flatten(0, 1)).unflatten(0, pairs.shape[:2]).flatten(1, 2)
        opening = embed(self._opening).expand(len(pairs), -1, -1)
        embedded = torch.cat([opening, seen.to(opening.dtype), embed(places.words)], dim=1)
        hidden = self._model.model.language_model(
            inputs_embeds=embedded,
            position_ids=places.rows.transpose(0, 1),
            attention_mask={"full_attention": visible(places, self.shape.num_clip)[:, None]},
            use_cache=False,
        ).last_hidden_state
        said: Tensor = self._model.lm_head(hidden[:, -self.shape.num_words :])
        return said

    def look(self, pairs: Float[Tensor, "grids 2 3 height width"]) -> Float[Tensor, "grids tokens channels"]:
        """The vision tower, module by module: its own forward pass goes grid by grid, and asks the device how many.

        All grids are of one size here, and are seen at once.
        """
        tower = self._model.model.visual
        patches = patch_rows((pairs - self._mean) / self._std, self._format)
        hidden = F.linear(patches, tower.patch_embed.proj.weight.flatten(1))
        for block in tower.blocks:
            hidden = hidden + self._attend(block.attn, block.norm1(hidden))
            hidden = hidden + block.mlp(block.norm2(hidden))
        merged: Tensor = tower.merger(hidden.flatten(0, 1))
        looked: Tensor = merged.unflatten(0, (len(pairs), -1))
        return looked

    def _attend(
        self, attention: Any, hidden: Float[Tensor, "grids patches channels"]
    ) -> Float[Tensor, "grids patches channels"]:
        q, k, v = attention.qkv(hidden).unflatten(-1, (3, self._heads, -1)).permute(2, 0, 3, 1, 4)
        q, k = _turned(q, self._phases).to(v.dtype), _turned(k, self._phases).to(v.dtype)
        attended = F.scaled_dot_product_attention(q, k, v)
        projected: Tensor = attention.proj(attended.transpose(1, 2).flatten(2))
        return projected


def _turned(
    heads: Float[Tensor, "grids heads patches head_dim"], phases: Phases
) -> Float[Tensor, "grids heads patches head_dim"]:
    """Each channel of the first half with its partner in the second."""
    a, b = heads.float().chunk(2, dim=-1)
    return torch.cat([a * phases.cos - b * phases.sin, b * phases.cos + a * phases.sin], dim=-1)


def _patch_places(shape: Shape, merge: int) -> Int64[Tensor, "patches 2"]:
    """Row and column of each patch, those of one token together."""
    grid = torch.cartesian_prod(torch.arange(shape.rows * merge), torch.arange(shape.columns * merge))
    split = grid.view(shape.rows, merge, shape.columns, merge, 2)
    return split.transpose(1, 2).reshape(-1, 2)


def patch_rows(
    pairs: Float[Tensor, "grids 2 3 height width"], shape: PictureFormat
) -> Float[Tensor, "grids patches values"]:
    """As the rows of `pixel_rows`, of frames that have the right size, on their device."""
    split = pairs.unflatten(4, (-1, shape.merge, shape.patch))
    split = split.unflatten(3, (-1, shape.merge, shape.patch))
    grid, two, channel, row, row_in_token, y, column, column_in_token, x = range(9)
    patches = split.permute(grid, row, column, row_in_token, column_in_token, channel, two, y, x)
    rows: Tensor = patches.flatten(1, 4).flatten(2)
    return rows


def visible(places: Places, num_clip: int) -> Bool[Tensor, "clips tokens tokens"]:
    """What each token sees of the others."""
    num_branch, device = places.until.shape[1], places.until.device
    clip = torch.arange(num_clip, device=device)
    branch = torch.arange(num_branch, device=device)
    of_clip = clip < places.until[:, :, None]
    is_shared = (places.question == -1)[:, None, :]
    same_question = places.question[:, :, None] == places.question[:, None, :]
    same_moment = places.moment[:, :, None] == places.moment[:, None, :]
    of_branch = (branch <= branch[:, None]) & same_moment & (is_shared | same_question)
    earlier = (clip <= clip[:, None]).expand(len(of_clip), -1, -1)
    later = torch.zeros(len(of_clip), num_clip, num_branch, dtype=torch.bool, device=device)
    return torch.cat([torch.cat([earlier, later], dim=2), torch.cat([of_clip, of_branch], dim=2)], dim=1)
