"""The forward pass of a language model over packed clips with their questions, and its losses."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 (as everyone calls it)
from jaxtyping import Bool, Float, Int32, Int64
from torch import Tensor

from longtake.language.frames import PictureFormat
from longtake.language.qwen2_5_vl import open_clip
from longtake.layers.rotary import grid_phases
from training.attention_loss import attention_mass, evidence_loss, supervised_layers
from training.blocks import read, see, text_phases
from training.fusing import fused
from training.packing import NOTHING, Packed, Shape
from training.recording import TrainStep
from training.vocabulary import Vocabulary

FIGURES = ("loss", "right", "pointing")
"""Figures of a step: of answers' words, their ends included, the loss and the share that were right; and how far what
they looked at is from what shows why."""
_POINTING = 0.1
"""How much that counts beside the words."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class WordPrediction:
    """Of the words behind some clips."""

    logits: Float[Tensor, "clips words vocabulary"]
    """What comes after each."""
    attention_mass: Float[Tensor, "clips words grids"]
    """How much each word attends to each grid, in the supervised layers."""


class Reading:
    """One network that reads packed clips of one shape."""

    def __init__(self, model: Any, shape: Shape, picture_format: PictureFormat) -> None:
        """Of a `Qwen2_5_VLForConditionalGeneration` whose blocks see the whole of each picture."""
        self.shape = shape
        self._model, self._format = model, picture_format
        vision, words, device = model.config.vision_config, Vocabulary(), model.device
        assert set(vision.fullatt_block_indexes) >= set(range(vision.depth))
        text = model.config.text_config
        self._head_dim, rope = text.hidden_size // text.num_attention_heads, text.rope_parameters
        self._theta, self._sections = float(rope["rope_theta"]), list(rope["mrope_section"])
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
        self._step = TrainStep(self._compute)

    def learn(
        self, pairs: Float[Tensor, "clips grids 2 3 height width"], packed: Packed, weights: Sequence[Tensor], pool: Any
    ) -> Float[Tensor, " figures"]:
        """Leave gradients in the weights; recorded where there is a pool for it, else plainly."""
        labels = _sent(packed.labels, pairs.device).long()
        evident = _sent(packed.evident, pairs.device)
        inputs = [pairs, labels, evident, *Places.of(packed, pairs.device).tensors()]
        return self._step.learn(inputs, weights, pool)

    def _compute(
        self,
        pairs: Float[Tensor, "clips grids 2 3 height width"],
        labels: Int64[Tensor, "clips words"],
        evident: Bool[Tensor, "clips questions grids"],
        rows: Int64[Tensor, "clips 3 tokens"],
        until: Int32[Tensor, "clips branch"],
        moment: Int32[Tensor, "clips branch"],
        question: Int32[Tensor, "clips branch"],
        words: Int64[Tensor, "clips words"],
    ) -> tuple[Float[Tensor, ""], Float[Tensor, " figures"]]:
        places = Places(rows=rows, until=until, moment=moment, question=question, words=words)
        with torch.autocast(pairs.device.type, torch.bfloat16, cache_enabled=False):
            predicted = self.predict(pairs, places)
        is_answer = labels != NOTHING
        loss = F.cross_entropy(predicted.logits.flatten(0, 1), labels.flatten(), ignore_index=NOTHING)
        right = ((predicted.logits.argmax(dim=-1) == labels) & is_answer).sum() / is_answer.sum()
        asked = question[:, -self.shape.num_words :, None].clamp_min(0).long().expand(-1, -1, self.shape.num_grids)
        pointing = evidence_loss(predicted.attention_mass, evident.gather(1, asked) & is_answer[..., None])
        return loss + _POINTING * pointing, torch.stack([loss, right, pointing])

    def predict(self, pairs: Float[Tensor, "clips grids 2 3 height width"], places: Places) -> WordPrediction:
        """Logits of every word behind the clips, and what each looked at; pixels are 0 to 1."""
        embed, text, device = self._model.get_input_embeddings(), self._model.model.language_model, pairs.device
        seen = self.look(pairs.flatten(0, 1)).unflatten(0, pairs.shape[:2]).flatten(1, 2)
        opening = embed(self._opening).expand(len(pairs), -1, -1)
        hidden = torch.cat([opening, seen.to(opening.dtype), embed(places.words)], dim=1)
        mask = visible(places, self.shape.num_clip)[:, None]
        turned = text_phases(places.rows, self._head_dim, self._theta, self._sections)
        looked, words = [], slice(self.shape.num_tokens - self.shape.num_words, None)
        for at, layer in enumerate(text.layers):
            hidden, q, k = fused(read, device)(layer, hidden, turned.cos, turned.sin, mask)
            if at in supervised_layers(len(text.layers)):
                own = q[:, :, words], k, mask[:, :, words]
                looked.append(fused(attention_mass, device)(*own, self.shape.num_opening, self.shape.num_grids))
        logits = self._model.lm_head(text.norm(hidden[:, words]))
        return WordPrediction(logits=logits.float(), attention_mass=torch.stack(looked).sum(dim=0))

    def look(self, pairs: Float[Tensor, "grids 2 3 height width"]) -> Float[Tensor, "grids tokens channels"]:
        """What the language model gets to see of grids of one size, all at once."""
        tower = self._model.model.visual
        patches = patch_rows((pairs - self._mean) / self._std, self._format)
        hidden = F.linear(patches, tower.patch_embed.proj.weight.flatten(1))
        for block in tower.blocks:
            hidden = fused(see, pairs.device)(block, hidden, self._phases.cos, self._phases.sin)
        merged: Tensor = tower.merger(hidden.flatten(0, 1))
        looked: Tensor = merged.unflatten(0, (len(pairs), -1))
        return looked


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
