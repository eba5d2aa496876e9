"""The published model that streams: positions by our rule, keys and values in our memory, state with the cache."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from longtake.compat.qwen_cache import StreamCache, Vision, require_cache
from longtake.errors import InputError, SettingError
from longtake.hub.load import load_language_model
from longtake.language.load import LanguageModel
from longtake.language.positions import Picture, VideoSpan, uniform_times
from longtake.memory.budget import Budget
from longtake.runtime.dialogue import SYSTEM

Seconds = Sequence[float] | Float[Tensor, " clips"]
Grids = Int[Tensor, "clips 3"]
Rows = Float[Tensor, "patches values"]
MEMORY = "4GB"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StreamQwenModelOutput:
    """The result of a forward; there is never a loss, a hidden state or a map of attention."""

    logits: Float[Tensor, "1 tokens vocabulary"]
    past_key_values: StreamCache
    rope_deltas: Int[Tensor, "1 1"]


class StreamQwenModel:
    """Weights, and which cache they read into last; the state of a stream is the cache's."""

    def __init__(self, language: LanguageModel, memory: str = MEMORY) -> None:
        """`memory` is for each cache; see `Budget.parse`."""
        self.language = language
        budget = Budget.parse(memory).num_bytes
        if budget is None:
            raise SettingError(f"Expected the memory of a conversation in bytes, such as {MEMORY}, but got '{memory}'.")
        self._budget_bytes = budget
        self._followed: StreamCache | None = None

    @classmethod
    def from_pretrained(
        cls,
        pretrained_model_name_or_path: Path | str,
        torch_dtype: torch.dtype | None = None,
        device_map: str | None = None,
        dtype: torch.dtype | None = None,
        attn_implementation: str | None = None,  # noqa: ARG003 (scripts name one; attention is over our memory)
        memory: str = MEMORY,
    ) -> "StreamQwenModel":
        """A folder or a place on the hub; `auto` is the GPU where there is one."""
        device = device_map or "cpu"
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        language = load_language_model(pretrained_model_name_or_path, device=device, dtype=dtype or torch_dtype)
        return cls(language, memory)

    @property
    def config(self) -> Any:
        return self.language.model.config

    @property
    def device(self) -> torch.device:
        device: torch.device = self.language.model.device
        return device

    def to(self, device: torch.device | str) -> "StreamQwenModel":
        """Move the weights; caches that are there already stay where they are."""
        self.language.model.to(device)
        return self

    def eval(self) -> "StreamQwenModel":
        """Nothing: it never trains."""
        return self

    def new_cache(self, language: LanguageModel | None = None, system: str = SYSTEM) -> StreamCache:
        """An empty one; a language other than the model's own may bring another tokenizer."""
        return StreamCache.allocate(language or self.language, budget_bytes=self._budget_bytes, system=system)

    def follow(self, cache: StreamCache) -> None:
        """Let `stream_state` be that of this cache."""
        self._followed = cache

    @property
    def stream_state(self) -> dict[str, Any]:
        """`last_cache_position` and `rope_deltas` of the cache that was read into last."""
        if self._followed is None:
            return {"last_cache_position": -1, "rope_deltas": None}
        return dict(self._followed.stream_state)

    @stream_state.setter
    def stream_state(self, state: dict[str, Any]) -> None:
        last = state.get("last_cache_position")
        if not isinstance(last, int) or last < -1:
            raise InputError(
                f"Expected a state with last_cache_position of -1 or more, but got {last}; set what stream_state was."
            )
        if last == -1:
            self.reset_stream_state()
        elif self._followed is None:
            raise InputError(
                f"Expected a cache before its last position is set to {last}, but nothing was read yet; call the model "
                "first."
            )
        else:
            self._followed.next_position = last + 1

    def reset_stream_state(self) -> None:
        """Follow no cache."""
        self._followed = None

    def forward(
        self,
        input_ids: Int[Tensor, "batch tokens"],
        attention_mask: Shaped[Tensor, "batch seen"] | None = None,
        position_ids: Tensor | None = None,
        past_key_values: object = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
        pixel_values: Rows | None = None,
        pixel_values_videos: Rows | None = None,
        image_grid_thw: Grids | None = None,
        video_grid_thw: Grids | None = None,
        second_per_grid_ts: Seconds | None = None,
        rope_deltas: Tensor | None = None,
        cache_position: Tensor | None = None,
        mm_token_type_ids: Tensor | None = None,  # noqa: ARG002 (processors give it; the ids hold the same)
        logits_to_keep: int = 0,
    ) -> StreamQwenModelOutput:
        """Read tokens into a cache, a new one if none is given: they stand right after all that it has read.

        A first prompt, a further chunk and a single word are one rule (`language.positions`).
        """
        given = {
            "position_ids": position_ids,
            "inputs_embeds": inputs_embeds,
            "labels": labels,
            "rope_deltas": rope_deltas,
            "cache_position": cache_position,
        }
        switches = {
            "use_cache": use_cache is False,
            "return_dict": return_dict is False,
            "output_attentions": bool(output_attentions),
            "output_hidden_states": bool(output_hidden_states),
        }
        refused = [name for name, value in given.items() if value is not None]
        refused += [name for name, other in switches.items() if other]
        if refused:
            raise SettingError(f"{refused[0]} cannot be chosen here; leave it out, see docs/compat-qwen.md.")
        _check_batch(input_ids, attention_mask, logits_to_keep)
        merge = self.language.picture_format.merge
        pictures = [
            Vision(pixels=rows, grid=grid, piece=Picture(grid[1] // merge, grid[2] // merge))
            for rows, grid in _apart(pixel_values, image_grid_thw, merge)
        ]
        clips = _apart(pixel_values_videos, video_grid_thw, merge)
        seconds = _seconds(second_per_grid_ts, len(clips))
        videos = [self._video(rows, grid, every) for (rows, grid), every in zip(clips, seconds, strict=True)]
        cache = self.new_cache() if past_key_values is None else require_cache(past_key_values)
        duration_s = sum(clip.grid[0] * every for clip, every in zip(videos, seconds, strict=True))
        ids = [int(token) for token in input_ids[0].tolist()]
        logits = cache.take(ids, [*pictures, *videos], seconds=float(duration_s), num_logits=logits_to_keep)
        self.follow(cache)
        return StreamQwenModelOutput(
            logits=logits,
            past_key_values=cache,
            rope_deltas=torch.tensor([[cache.next_position - cache.get_seq_length()]]),
        )

    __call__ = forward

    def _video(self, rows: Rows, grid: tuple[int, int, int], second_per_grid: float) -> Vision:
        merge = self.language.picture_format.merge
        times = uniform_times(grid[0], second_per_grid, self.language.tokens_per_second)
        return Vision(pixels=rows, grid=grid, piece=VideoSpan(times, grid[1] // merge, grid[2] // merge))


def _check_batch(
    input_ids: Int[Tensor, "batch tokens"], attention_mask: Shaped[Tensor, "batch seen"] | None, logits_to_keep: int
) -> None:
    if len(input_ids) != 1 or not input_ids.shape[1]:
        raise InputError(
            f"Expected the tokens of one conversation, [1, tokens], but got {list(input_ids.shape)}; give each a cache."
        )
    if attention_mask is not None and not bool(attention_mask.bool().all()):
        raise InputError("Expected every token to be seen, but attention_mask hides some; give tokens without padding.")
    if logits_to_keep < 0:
        raise SettingError(f"Expected logits_to_keep of 0 (all) or more, but got {logits_to_keep}.")


def _apart(pixels: Rows | None, grids: Grids | None, merge: int) -> list[tuple[Rows, tuple[int, int, int]]]:
    """Rows of each picture or clip, with its grid."""
    if pixels is None and grids is None:
        return []
    if pixels is None or grids is None:
        raise InputError("Expected pixels and their grids together, but one of them is missing; give both.")
    shapes = [(int(time), int(height), int(width)) for time, height, width in grids.tolist()]
    counts = [time * height * width for time, height, width in shapes]
    if sum(counts) != len(pixels) or any(height % merge or width % merge for _, height, width in shapes):
        raise InputError(
            f"Expected grids of whole tokens that hold {len(pixels)} patches, but got {shapes}; give the grids "
            "that the pixels were made with."
        )
    return list(zip(pixels.split(counts), shapes, strict=True))


def _seconds(stated: Seconds | None, num_clips: int) -> list[float]:
    """Of a temporal grid of each clip; one second where none is stated, as in the library."""
    if stated is None:
        return [1.0] * num_clips
    seconds = [float(value) for value in stated]
    if len(seconds) != num_clips or any(value < 0 for value in seconds):
        raise InputError(f"Expected second_per_grid_ts for each of {num_clips} clips, but got {seconds}.")
    return seconds
