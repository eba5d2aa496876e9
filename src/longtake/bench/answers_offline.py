"""Answers of a network without memory, given a whole clip and a question at once, to compare with a session's."""

import copy
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import UInt8
from torch import Tensor

from longtake.extras import import_from_extra
from longtake.language.frames import pixel_rows
from longtake.language.load import LanguageModel
from longtake.language.positions import VideoSpan, grid_times, positions
from longtake.language.qwen2_5_vl import clip_question, open_clip, pieces_of
from longtake.runtime.dialogue import SYSTEM


class OfflineModel:
    """The library's own network with the very same weights; it remembers nothing."""

    def __init__(self, language: LanguageModel) -> None:
        self._language = language
        self._twin: Any = plain_twin(language.model)

    @torch.no_grad()
    def answer(
        self,
        frames: UInt8[Tensor, "frames 3 height width"],
        times_s: Sequence[float],
        question: str,
        expected: Sequence[int],
    ) -> list[int]:
        """The likeliest token in the place of each expected one, after those before it, in one forward pass.

        These are the expected ones exactly where the network, asked word by word, would have given them.
        """
        language, format_ = self._language, self._language.picture_format
        fit = format_.fit(*frames.shape[-2:])
        pixels = pixel_rows(frames, fit, pad=True)
        since = [time_s - times_s[0] for time_s in times_s[:: format_.temporal_patch]]
        film = VideoSpan(grid_times(since, language.text.tokens_per_second), fit.rows, fit.columns)
        special, words = language.special_ids, language.required_tokenizer
        ids = [
            *open_clip(special, words.encode(SYSTEM)),
            *special.video(film.num_tokens),
            *clip_question(special, words.encode(question)),
            *expected[:-1],
        ]
        rows, device = positions(pieces_of(ids, special, video_spans=[film])).rows, self._twin.device
        output = self._twin(
            input_ids=torch.tensor([ids], device=device),
            position_ids=torch.from_numpy(rows)[:, None].to(device),
            pixel_values_videos=pixels.values.to(device),
            video_grid_thw=torch.tensor([pixels.grid], device=device),
            use_cache=False,
            logits_to_keep=len(expected),
        )
        logits: Tensor = output.logits[0]
        logits[:, list(language.suppressed_ids)] = -torch.inf
        return [int(token) for token in logits.argmax(dim=-1)]


def plain_twin(model: Any) -> Any:
    """Another instance with the very same weights, which attends as the library does."""
    transformers = import_from_extra("transformers", "qwen", "Comparing answers")
    with torch.random.fork_rng(devices=[]):
        twin = transformers.Qwen2_5_VLForConditionalGeneration(copy.deepcopy(model.config))
    twin.load_state_dict(model.state_dict(), assign=True)
    twin.set_attn_implementation("sdpa")
    return twin.requires_grad_(requires_grad=False).eval()
