"""Questions about a stream under the names of the published streaming Qwen2.5-VL code, a dialogue underneath.

from longtake.compat.qwen import KVCacheManager, StreamQwenModel, VideoStreamingInference
# was: from temporal_encoding.model import KVCacheManager, StreamQwenModel, VideoStreamingInference
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Shaped
from torch import Tensor

from longtake.compat.qwen_cache import StreamCache, require_cache
from longtake.compat.qwen_frames import Frame, as_frames
from longtake.compat.qwen_model import StreamQwenModel, StreamQwenModelOutput
from longtake.errors import InputError, SettingError
from longtake.language.load import LanguageModel
from longtake.language.model_config import framing_ids, picture_format, special_ids
from longtake.language.sampling import TextSampling
from longtake.language.tokenizer import Tokenizer
from longtake.runtime.answers import Answer
from longtake.runtime.dialogue import SYSTEM

__all__ = ["KVCacheManager", "StreamCache", "StreamQwenModel", "StreamQwenModelOutput", "VideoStreamingInference"]

_BYTES_IN_GB = 1024**3


class KVCacheManager:
    """Holds a cache; snapshots are forks and cost nothing."""

    def __init__(self) -> None:
        self.cache: StreamCache | None = None
        self._snapshots: list[StreamCache | None] = []

    def get_seq_length(self) -> int:
        """Tokens in the cache."""
        return 0 if self.cache is None else self.cache.get_seq_length()

    @staticmethod
    def detach(past_key_values: StreamCache | None) -> StreamCache | None:
        """The same: nothing here has gradients."""
        return past_key_values

    @staticmethod
    def clone(cache: object) -> StreamCache | None:
        """A cache to go on with apart."""
        return None if cache is None else require_cache(cache).clone()

    def snapshot(self, model: StreamQwenModel | None = None) -> None:  # noqa: ARG002 (positions are in the cache)
        """Remember how things stand, over any earlier snapshot."""
        self._snapshots.append(self.cache)
        if self.cache is not None:
            self.cache.snapshot()

    def restore(self, model: StreamQwenModel | None = None) -> None:
        """Go back to the last snapshot, and let `stream_state` be that of it; without one nothing happens."""
        if not self._snapshots:
            return
        self.cache = self._snapshots.pop()
        if self.cache is not None:
            self.cache.restore()
        if model is not None and self.cache is not None:
            model.follow(self.cache)
        elif model is not None:
            model.reset_stream_state()

    def discard_snapshot(self) -> None:
        """Keep all since the last snapshot."""
        if not self._snapshots:
            return
        earlier = self._snapshots[-1]
        if earlier is not None:
            earlier.discard_snapshot()
        self._snapshots.pop()

    def build_full_attention_mask(
        self, new_mask: Shaped[Tensor, "batch new"], cache_override: StreamCache | None = None
    ) -> Shaped[Tensor, "batch seen"]:
        """Ones for all that is in the cache, and the new tokens' own."""
        cache = self.cache if cache_override is None else cache_override
        past = new_mask.new_ones(len(new_mask), 0 if cache is None else cache.get_seq_length())
        return torch.cat([past, new_mask], dim=1)

    def clear(self) -> None:
        """Forget the cache and every snapshot, and give its memory back."""
        for cache in {id(cache): cache for cache in [self.cache, *self._snapshots] if cache is not None}.values():
            cache.close()
        self.cache, self._snapshots = None, []


class VideoStreamingInference:
    """Frames in, answers out. An answer leaves no trace unless `update_state` is set."""

    def __init__(
        self,
        model: StreamQwenModel,
        processor: Any = None,
        device: str | None = None,
        eviction_config: object = None,
        *,
        system_prompt: str = SYSTEM,
    ) -> None:
        """A processor may be one of transformers, a tokenizer, a folder with either, or none: the model's own."""
        if eviction_config is not None:
            raise SettingError(
                "What leaves a full memory is not chosen by eviction_config here: whole chunks do, the oldest first; "
                "leave it out, and give the model a memory such as 4GB."
            )
        self.model = model if device is None else model.to(device)
        self.processor = processor
        self.device = str(model.device)
        self.system_prompt = system_prompt
        self.cache_manager = KVCacheManager()
        self._language = _with_processor(model.language, processor)

    def reset(self) -> None:
        """Forget the video and the conversation."""
        self.cache_manager.clear()
        self.model.reset_stream_state()

    @property
    def frame_count(self) -> int:
        """Chunks so far, under the published name."""
        return 0 if self.cache_manager.cache is None else self.cache_manager.cache.num_chunks

    @property
    def total_frames(self) -> int:
        """Frames so far."""
        return 0 if self.cache_manager.cache is None else self.cache_manager.cache.info.num_frames

    def append_frame(
        self,
        image: Frame | list[Frame] | tuple[Frame, ...],
        text_content: str = "",
        as_video: bool = False,
        fps: float | None = None,
        *,
        timestamp: float | None = None,
    ) -> str:
        """A frame as a picture, or with `as_video` a clip; the text goes with the first chunk alone."""
        if as_video:
            frames = [*image] if isinstance(image, list | tuple) else [image]
            return self._append(frames, text_content, fps or 2.0, None if timestamp is None else [timestamp])
        if isinstance(image, list | tuple):
            raise InputError(f"Expected one frame, but got {len(image)}; for a clip set as_video=True.")
        return self._append([image], text_content, 1.0, None if timestamp is None else [timestamp], still=True)

    def append_video_chunk(
        self,
        frames: Sequence[Frame],
        fps: float = 2.0,
        text_content: str = "",
        *,
        timestamps: Sequence[float] | None = None,
    ) -> str:
        """Frames as a clip of their own; where they have times, these decide and not `fps`."""
        return self._append(frames, text_content, fps, timestamps)

    def ask(
        self,
        question: str,
        max_new_tokens: int = 256,
        min_new_tokens: int = 1,
        update_state: bool = False,
        do_sample: bool = False,
        temperature: float = 0.7,
        top_p: float = 0.9,
    ) -> tuple[str, dict[str, Any]]:
        """The answer, and what it took in seconds."""
        sampling = _sampling(max_new_tokens, min_new_tokens, (temperature, top_p) if do_sample else None)
        answer = self._cache().session.ask(question, sampling, remember=update_state)
        return answer.text, _metrics(answer)

    def ask_stream(
        self,
        question: str,
        max_new_tokens: int = 256,
        min_new_tokens: int = 1,
        update_state: bool = False,
        do_sample: bool = False,
        temperature: float = 0.7,
        top_p: float = 0.9,
    ) -> Iterator[dict[str, Any]]:
        """Text as it comes (`type` is `token`), then all of it with what it took (`final`)."""
        sampling = _sampling(max_new_tokens, min_new_tokens, (temperature, top_p) if do_sample else None)
        started, text = time.perf_counter(), ""
        for piece in self._cache().session.ask_stream(question, sampling, remember=update_state):
            if isinstance(piece, Answer):
                yield {"type": "final", "text": piece.text, "metrics": _metrics(piece)}
            else:
                first_s = None if text else time.perf_counter() - started
                text += piece
                yield {"type": "token", "delta": piece, "text": text, "ttft": first_s}

    def ask_choice(self, question: str, choices: Sequence[str]) -> str:
        """The likeliest choice, by the mean over its tokens; all scores: `cache_manager.cache.session.ask_choice`."""
        scored = self._cache().session.ask_choice(question, choices)
        return max(scored, key=lambda choice: choice.mean_log_likelihood).text

    def get_cache_info(self) -> dict[str, Any]:
        """How the stream stands; memory in GiB, as published."""
        cache = self._cache()
        info, state = cache.info, cache.stream_state
        deltas = state["rope_deltas"]
        return {
            "chunks_encoded": self.frame_count,
            "total_frames": self.total_frames,
            "cache_seq_length": cache.get_seq_length(),
            "cache_memory_gb": info.live_bytes / _BYTES_IN_GB,
            "stream_state": state | {"rope_deltas": deltas.tolist() if isinstance(deltas, Tensor) else None},
            "live_chunks": cache.num_live_chunks,
            "evicted_chunks": cache.num_chunks - cache.num_live_chunks,
            "time_span": (cache.start_s, info.seen_until_s),
        }

    def _cache(self) -> StreamCache:
        if self.cache_manager.cache is None:
            self.cache_manager.cache = self.model.new_cache(self._language, self.system_prompt)
            self.model.follow(self.cache_manager.cache)
        return self.cache_manager.cache

    def _append(
        self, images: Sequence[Frame], text: str, fps: float, times_s: Sequence[float] | None, *, still: bool = False
    ) -> str:
        frames, cache = as_frames(images), self._cache()
        if not fps > 0:
            raise InputError(f"Expected more than 0 frames a second, but got {fps}.")
        if times_s is None:
            last_s = cache.info.seen_until_s
            start_s = 0.0 if last_s is None else last_s + 1 / fps
            times_s = [start_s + number / fps for number in range(len(frames))]
        cache.show(frames, times_s, text if cache.next_position == 0 else "", still=still)
        self.model.follow(cache)
        length = cache.get_seq_length()
        return f"Chunk {cache.num_chunks - 1} encoded ({len(frames)} frame(s), cache_len={length})"


def _sampling(max_new_tokens: int, min_new_tokens: int, drawn: tuple[float, float] | None) -> TextSampling:
    if min_new_tokens > 1:
        raise SettingError(f"An answer ends where the model ends it; leave out min_new_tokens, got {min_new_tokens}.")
    temperature, top_p = drawn or (0.0, 1.0)
    return TextSampling(temperature=temperature, top_p=top_p, max_new_tokens=max_new_tokens)


def _metrics(answer: Answer) -> dict[str, Any]:
    timing = answer.timing
    return {
        "ttft": timing.first_token_s,
        "total_latency": timing.total_s,
        "fork": timing.fork_s,
        "prefill": timing.prefill_s,
        "decode": timing.total_s - timing.first_token_s,
        "tokens": len(answer.ids),
        "tokens_per_s": timing.tokens_per_s,
        "seen_until": answer.seen_until_s,
    }


def _with_processor(language: LanguageModel, processor: Any) -> LanguageModel:
    """The model with the tokenizer of this processor, and its sizes of frames where it is a folder."""
    if processor is None:
        return language
    folder = Path(processor).expanduser() if isinstance(processor, str | Path) else None
    tokenizer = _tokenizer(processor) if folder is None else Tokenizer.from_folder(folder)
    if tokenizer is None:
        raise InputError(
            f"Expected a processor, a tokenizer or a folder with tokenizer.json, but there is none in {folder}; give "
            "the folder of the model."
        )
    place, config = folder or Path(language.model.name_or_path), language.model.config
    special = special_ids(place, tokenizer, config)
    own = language.picture_format if folder is None else picture_format(folder, config.vision_config)
    suppressed = {*language.suppressed_ids, *framing_ids(special, config, language.eos_ids)}
    return replace(
        language, tokenizer=tokenizer, special=special, picture_format=own, suppressed_ids=tuple(sorted(suppressed))
    )


def _tokenizer(processor: Any) -> Tokenizer:
    try:
        tokenizer = processor.tokenizer
    except AttributeError:
        tokenizer = processor
    return Tokenizer(tokenizer)
