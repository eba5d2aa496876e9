"""micro-vqa: Qwen2.5-VL's network in small, and the folder that it is published as."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from longtake.errors import InputError
from longtake.extras import import_from_extra
from longtake.language.frames import PictureFormat
from longtake.language.load import quiet
from longtake.language.question_grammar import KNOWN_NAME
from training.vocabulary import UNKNOWN, Vocabulary, known

FRAME_SIZE = (112, 168)
"""Height and width of the frames that it learns from."""
PICTURE_FORMAT = PictureFormat(min_pixels=16_000, max_pixels=20_000)
"""Frames of about three to two become 168x112, whatever their size; a little room lets odd sizes round to it."""
_START, _END, _PADDING = "<|im_start|>", "<|im_end|>", "<|endoftext|>"
_PURPOSE = "Training micro-vqa"
# As the published models have it, for text and one kind of picture or film in each turn.
_CHAT_TEMPLATE = """\
{%- if messages[0]['role'] != 'system' %}
{{- '<|im_start|>system\\nYou are a helpful assistant.<|im_end|>\\n' }}{% endif -%}
{%- for message in messages %}
{{- '<|im_start|>' + message['role'] + '\\n' }}
{%- if message['content'] is string %}{{ message['content'] }}
{%- else %}{%- for part in message['content'] %}
{%- if part['type'] == 'video' %}{{ '<|vision_start|><|video_pad|><|vision_end|>' }}
{%- elif part['type'] == 'image' %}{{ '<|vision_start|><|image_pad|><|vision_end|>' }}
{%- elif part['type'] == 'text' %}{{ part['text'] }}
{%- endif %}{%- endfor %}{%- endif %}
{{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif -%}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class VqaConfig:
    """Sizes of the network; heads are 32 wide in both of its parts."""

    width: int = 192
    depth: int = 6
    key_value_heads: int = 2
    mlp: int = 512
    vision_width: int = 128
    vision_depth: int = 5
    vision_mlp: int = 384


MICRO_VQA = VqaConfig()
TINY_VQA = VqaConfig(width=64, depth=2, key_value_heads=1, mlp=128, vision_width=64, vision_depth=2, vision_mlp=128)
_HEAD_DIM = 32
_LARGEST_SIDE = 336
"""Pixels: windows of this size hold every picture, so that each of its patches sees each other one."""


def build_vqa(config: VqaConfig = MICRO_VQA) -> Any:
    """The network with random weights: a `Qwen2_5_VLForConditionalGeneration`."""
    transformers = import_from_extra("transformers", "qwen", _PURPOSE)
    model = transformers.Qwen2_5_VLForConditionalGeneration(_library_config(transformers, config, Vocabulary()))
    model.generation_config = _generation(transformers, Vocabulary())
    return model


def _library_config(transformers: Any, config: VqaConfig, words: Vocabulary) -> Any:
    rope = {"rope_type": "default", "rope_theta": 10_000.0, "mrope_section": [4, 6, 6]}
    text = {
        "hidden_size": config.width,
        "intermediate_size": config.mlp,
        "num_hidden_layers": config.depth,
        "num_attention_heads": config.width // _HEAD_DIM,
        "num_key_value_heads": config.key_value_heads,
        "vocab_size": len(words),
        "max_position_embeddings": 32_768,
        "rms_norm_eps": 1e-6,
        "rope_parameters": rope,
        "tie_word_embeddings": True,
        "bos_token_id": words.id_of(_START),
        "eos_token_id": words.id_of(_END),
        "pad_token_id": None,
    }
    vision = {
        "hidden_size": config.vision_width,
        "intermediate_size": config.vision_mlp,
        "depth": config.vision_depth,
        "num_heads": config.vision_width // _HEAD_DIM,
        "out_hidden_size": config.width,
        "patch_size": PICTURE_FORMAT.patch,
        "spatial_merge_size": PICTURE_FORMAT.merge,
        "temporal_patch_size": PICTURE_FORMAT.temporal_patch,
        "tokens_per_second": 2,
        "window_size": _LARGEST_SIDE,
        "fullatt_block_indexes": list(range(config.vision_depth)),
    }
    return transformers.Qwen2_5_VLConfig(
        text_config=text,
        vision_config=vision,
        tie_word_embeddings=True,
        image_token_id=words.id_of("<|image_pad|>"),
        video_token_id=words.id_of("<|video_pad|>"),
        vision_start_token_id=words.id_of("<|vision_start|>"),
        vision_end_token_id=words.id_of("<|vision_end|>"),
    )


def _generation(transformers: Any, words: Vocabulary) -> Any:
    end = words.id_of(_END)
    return transformers.GenerationConfig(do_sample=False, eos_token_id=end, pad_token_id=words.id_of(_PADDING))


def begin_with(model: Any, folder: Path) -> None:
    """Give a model the weights of one that `save_vqa` wrote."""
    transformers = import_from_extra("transformers", "qwen", _PURPOSE)
    kind = transformers.Qwen2_5_VLForConditionalGeneration
    try:
        with quiet():
            known = kind.from_pretrained(folder, dtype=torch.float32, local_files_only=True)
        model.load_state_dict(known.state_dict())
    except (OSError, RuntimeError, ValueError) as error:
        why = str(error).partition("\n")[0]
        raise InputError(f"Expected a micro-vqa to begin with, but {folder} is none ({why}).") from error


def save_vqa(model: Any, folder: Path) -> None:
    """Write the model in half precision with all that a folder of the hub has; the one given stays as it is."""
    transformers = import_from_extra("transformers", "qwen", _PURPOSE)
    published = transformers.Qwen2_5_VLForConditionalGeneration(model.config)
    published.load_state_dict(model.state_dict())
    published.generation_config = model.generation_config
    try:
        with quiet():
            published.to(torch.float16).save_pretrained(folder)
        _words(transformers).save_pretrained(folder)
        (folder / "preprocessor_config.json").write_text(json.dumps(_preparation(), indent=2) + "\n")
        (folder / KNOWN_NAME).write_text(json.dumps(known().to_json(), indent=2) + "\n")
    except OSError as error:
        raise InputError(f"The model cannot be written to {folder} ({error}); make room and go on.") from error


def _words(transformers: Any) -> Any:
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=Vocabulary().tokenizer(),
        bos_token=_START,
        eos_token=_END,
        pad_token=_PADDING,
        unk_token=UNKNOWN,
        chat_template=_CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
        model_max_length=32_768,
    )


def _preparation() -> dict[str, Any]:
    shape = PICTURE_FORMAT
    return {
        "image_processor_type": "Qwen2VLImageProcessor",
        "processor_class": "Qwen2_5_VLProcessor",
        "min_pixels": shape.min_pixels,
        "max_pixels": shape.max_pixels,
        "patch_size": shape.patch,
        "merge_size": shape.merge,
        "temporal_patch_size": shape.temporal_patch,
        "image_mean": list(shape.mean),
        "image_std": list(shape.std),
    }
