"""A checkpoint's configuration, read from its folder; nothing that matters is left to a library's defaults."""

import math
import reprlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from longtake.errors import CheckpointError, SettingError
from longtake.language.frames import PictureFormat
from longtake.language.tokenizer import Tokenizer
from longtake.records import parse_json, record_from

KIND = "qwen2_5_vl"
_CLASS_LIMITS = (128 * 28 * 28, 768 * 28 * 28)
"""Pixels of a frame where a folder states none: those of the library's class for video."""

_NOT_OURS = {"quantization_config", "attn_implementation", "_attn_implementation", "_attn_implementation_internal"}
_MOST_LAYERS = 1000
_WIDEST_WINDOW = 4096
"""Pixels along a side of what a vision block may look at; published models have 112."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextConfig:
    """Sizes and rotary numbers of the language model."""

    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocabulary_size: int
    max_positions: int
    rope_theta: float
    mrope_section: tuple[int, ...]
    """How many frequencies turn with time, row and column."""
    tokens_per_second: float
    """Positions that a second of video takes."""

    def __post_init__(self) -> None:
        rates = (self.rope_theta, self.tokens_per_second)
        if not all(0 < rate < math.inf for rate in rates):
            raise SettingError(f"Expected rope_theta and tokens_per_second greater than 0 and finite, but got {rates}.")
        if len(self.mrope_section) != 3 or 2 * sum(self.mrope_section) != self.head_dim or min(self.mrope_section) < 0:
            raise SettingError(
                f"Expected mrope_section to be three numbers that sum to {self.head_dim // 2}, half a head's width, "
                f"but it is {list(self.mrope_section)}."
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecialIds:
    """Ids of what frames the text, as a checkpoint's vocabulary has them."""

    im_start: int
    im_end: int
    vision_start: int
    vision_end: int
    image_pad: int
    video_pad: int
    newline: int
    system: tuple[int, ...]
    user: tuple[int, ...]
    assistant: tuple[int, ...]

    def video(self, num_tokens: int) -> list[int]:
        """Places for this many tokens of a clip."""
        return [self.video_pad] * num_tokens


def read_json(path: Path) -> dict[str, Any]:
    """A file of settings."""
    try:
        if not path.is_file():
            raise OSError("it is no file")
        found = parse_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(
            f"Expected settings as JSON in {path}, but they cannot be read ({error}); fetch it again."
        ) from error
    return _by_name(path, found)


def _by_name(path: Path, found: object) -> dict[str, Any]:
    if not isinstance(found, dict):
        raise CheckpointError(
            f"Expected settings by name in {path}, but a {type(found).__name__} is there; fetch it again."
        )
    return found


def check_kind(name: Path | str, stated: dict[str, Any]) -> None:
    """A model of another kind is refused before its weights are read, or even fetched."""
    kind = stated.get("model_type")
    if kind == KIND and isinstance(stated.get("vision_config"), dict):
        _check_computed_plainly(name, stated)
        return
    if "vision_config" not in stated and kind is not None:
        reason = f"it is a text-only model ({kind}), which sees no frames"
    else:
        reason = f"its config.json says {kind or 'nothing of its kind'}"
    raise CheckpointError(
        f"Expected a Qwen2.5-VL model in {name}, but {reason}; give one such as Qwen/Qwen2.5-VL-3B-Instruct."
    )


def _check_computed_plainly(name: Path | str, stated: dict[str, Any]) -> None:
    """Settings that make the library import or compute something else are refused, as are sizes beyond all models."""
    parts = [stated, *(part for part in (stated.get("vision_config"), stated.get("text_config")) if part)]
    for part in parts:
        if not isinstance(part, dict):
            raise CheckpointError(
                f"Expected settings by name in config.json of {name}, but got {part!r}; fetch it again."
            )
        for setting in _NOT_OURS & part.keys():
            raise CheckpointError(
                f"Expected a model that is computed as published, but config.json of {name} sets {setting}; remove it, "
                "or give the weights before they were quantised."
            )
        for setting in ("num_hidden_layers", "depth"):
            depth = part.get(setting, 1)
            if not isinstance(depth, int) or not 0 < depth <= _MOST_LAYERS:
                raise CheckpointError(
                    f"Expected 1 to {_MOST_LAYERS} layers as {setting} in config.json of {name}, but got "
                    f"{reprlib.repr(depth)}; fetch the file again."
                )


def text_config(folder: Path, config: Any) -> TextConfig:
    """Of a model's configuration, if its file states what a default would silently get wrong."""
    stated, text = read_json(folder / "config.json"), config.text_config
    _require(folder, "tokens_per_second", [stated["vision_config"]])
    text_stated = [stated, stated.get("text_config") or {}]
    ropes = [part.get(key) or {} for part in text_stated for key in ("rope_parameters", "rope_scaling")]
    _require(folder, "rope_theta", text_stated + ropes)
    _require(folder, "mrope_section", ropes)
    with _reading(folder / "config.json"):
        return record_from(
            TextConfig,
            {
                "num_layers": text.num_hidden_layers,
                "num_heads": text.num_attention_heads,
                "num_kv_heads": text.num_key_value_heads,
                "head_dim": text.hidden_size // text.num_attention_heads,
                "vocabulary_size": text.vocab_size,
                "max_positions": text.max_position_embeddings,
                "rope_theta": text.rope_parameters["rope_theta"],
                "mrope_section": text.rope_parameters["mrope_section"],
                "tokens_per_second": config.vision_config.tokens_per_second,
            },
        )


@contextmanager
def _reading(file: Path) -> Iterator[None]:
    """Values of another type, or without a meaning, are one sentence about their file."""
    try:
        yield
    except (ValueError, SettingError) as error:
        raise CheckpointError(f"{file} cannot be used ({str(error).rstrip('.')}); fetch it again.") from error


def _require(folder: Path, key: str, parts: list[dict[str, Any]]) -> None:
    if not any(part.get(key) is not None for part in parts):
        raise CheckpointError(
            f"Expected {key} in {folder / 'config.json'}, but it is not stated there, and a default may be wrong; "
            "add the value that the model was trained with."
        )


def picture_format(folder: Path, vision: Any) -> PictureFormat:
    """How the folder's files want frames: patches from the model, sizes and colours from what prepares them."""
    file, stated = _preparation(folder)
    size = _by_name(file, stated.get("size") or {})
    values = {
        "patch": vision.patch_size,
        "merge": vision.spatial_merge_size,
        "temporal_patch": vision.temporal_patch_size,
        "min_pixels": stated.get("min_pixels") or size.get("shortest_edge") or _CLASS_LIMITS[0],
        "max_pixels": stated.get("max_pixels") or size.get("longest_edge") or _CLASS_LIMITS[1],
    }
    colours = {short: stated[f"image_{short}"] for short in ("mean", "std") if f"image_{short}" in stated}
    with _reading(file):
        pictures = record_from(PictureFormat, values | colours)
    _check_window(folder, vision.window_size, pictures.factor)
    return pictures


def _check_window(folder: Path, side: object, factor: int) -> None:
    """Refuse windows of the vision tower that have no token, or more places than there is room for."""
    if not isinstance(side, int) or not factor <= side <= _WIDEST_WINDOW:
        raise CheckpointError(
            f"Expected a window_size from {factor} to {_WIDEST_WINDOW} in {folder / 'config.json'}, but got "
            f"{reprlib.repr(side)}; fetch the file again."
        )


def _preparation(folder: Path) -> tuple[Path, dict[str, Any]]:
    """The file that states how frames are prepared, and its contents; the more special one wins."""
    whole = folder / "processor_config.json"
    if (file := folder / "video_preprocessor_config.json").is_file():
        return file, read_json(file)
    if whole.is_file() and (stated := read_json(whole).get("video_processor")):
        return whole, _by_name(whole, stated)
    file = folder / "preprocessor_config.json"
    return file, read_json(file) if file.is_file() else {}


def special_ids(folder: Path, tokenizer: Tokenizer, config: Any) -> SpecialIds:
    """From the tokenizer; where the configuration names the same ones, the two must agree."""
    stated = _stated_ids(config)
    found: dict[str, int] = {}
    for name in ("<|im_start|>", "<|im_end|>", *stated):
        token_id = tokenizer.special_id(name)
        if token_id is None or stated.get(name, token_id) != token_id:
            problem = (
                f"has no {name}" if token_id is None else f"has {name} at {token_id}, config.json at {stated[name]}"
            )
            raise CheckpointError(
                f"The tokenizer in {folder} {problem}; take both from the repository of one Qwen2.5-VL model."
            )
        found[name.strip("<|>")] = token_id
    return SpecialIds(
        im_start=found["im_start"],
        im_end=found["im_end"],
        vision_start=found["vision_start"],
        vision_end=found["vision_end"],
        image_pad=found["image_pad"],
        video_pad=found["video_pad"],
        newline=_newline(folder, tokenizer),
        system=tokenizer.encode("system"),
        user=tokenizer.encode("user"),
        assistant=tokenizer.encode("assistant"),
    )


def framing_ids(special: SpecialIds | None, config: Any, eos_ids: tuple[int, ...]) -> tuple[int, ...]:
    """Ids that begin turns and frame clips; those that end an answer are none of them."""
    starts = () if special is None else (special.im_start,)
    return tuple(token_id for token_id in (*starts, *_stated_ids(config).values()) if token_id not in eos_ids)


def _stated_ids(config: Any) -> dict[str, int]:
    return {
        "<|vision_start|>": config.vision_start_token_id,
        "<|vision_end|>": config.vision_end_token_id,
        "<|image_pad|>": config.image_token_id,
        "<|video_pad|>": config.video_token_id,
    }


def _newline(folder: Path, tokenizer: Tokenizer) -> int:
    ids = tokenizer.encode("\n")
    if len(ids) != 1:
        raise CheckpointError(
            f"Expected the tokenizer in {folder} to have one id for a new line, got {len(ids)}; "
            "take it from the repository of a Qwen2.5-VL model."
        )
    return ids[0]


def end_ids(folder: Path, generation: Any, tokenizer: Tokenizer | None) -> tuple[int, ...]:
    """Ids that end an answer, by the generation settings; else the one that ends a turn."""
    stated = generation.eos_token_id
    if stated is None:
        stated = tokenizer.special_id("<|im_end|>") if tokenizer is not None else None
    if stated is None:
        raise CheckpointError(
            f"Expected eos_token_id in {folder / 'generation_config.json'} or config.json, but neither states it; "
            "fetch generation_config.json from the model's repository."
        )
    ids = tuple(stated) if isinstance(stated, list | tuple) else (stated,)
    if not ids or not all(isinstance(number, int) and number >= 0 for number in ids):
        raise CheckpointError(
            f"Expected ids of tokens as eos_token_id in {folder / 'generation_config.json'} or config.json, but got "
            f"{reprlib.repr(stated)}; fetch generation_config.json from the model's repository."
        )
    return ids
