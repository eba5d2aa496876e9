"""How fast questions about a long video are answered, with the contract under which that was measured."""

import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from longtake import __version__
from longtake.attention.backend import Backend
from longtake.bench.machine import device_name, synchronize
from longtake.extras import import_from_extra
from longtake.language.frames import PictureFormat
from longtake.language.load import LanguageModel
from longtake.language.model_config import SpecialIds, TextConfig
from longtake.language.sampling import TextSampling
from longtake.language.tokenizer import Tokenizer
from longtake.runtime.dialogue import DialogueSession

_PURPOSE = "Timing questions"
_QUESTION = " ".join(f"w{number}" for number in range(500, 508))
_TOGETHER = 8
_WARM_UPS, _TIMES = 3, 9
_GRIDS_TIMED = 20
_TALK = 400
"""Tokens of the system's turn, and room to spare."""

TEXT = TextConfig(
    num_layers=36,
    num_heads=16,
    num_kv_heads=2,
    head_dim=128,
    vocabulary_size=151_936,
    max_positions=128_000,
    rope_theta=1e6,
    mrope_section=(16, 24, 24),
    tokens_per_second=2.0,
)
"""As Qwen2.5-VL-3B is."""
SMALL = TextConfig(
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=16,
    vocabulary_size=2_048,
    max_positions=32_768,
    rope_theta=1e6,
    mrope_section=(2, 3, 3),
    tokens_per_second=2.0,
)
"""For computers without a GPU."""
_WIDTHS = {36: (2048, 11008, 32, 1280, 3420, 16), 2: (64, 128, 2, 32, 64, 2)}
"""By the number of layers: width and inner width of text, layers, width, inner width and heads of vision."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionFigures:
    """What was measured, and all that it depends on; times are medians."""

    model: str
    parameters: int
    device: str
    dtype: str
    backend: str
    why_portable: str | None
    """Why passes are not recorded; None where they are."""
    height: int
    width: int
    remembered_tokens: int
    answer_tokens: int
    first_see_s: float
    """Of the first two frames of a cold start: kernels are compiled."""
    see_ms: float
    """Of two frames."""
    first_text_ms: float
    """From a question of eight words to the first token of its answer."""
    token_ms: float
    """Of every further token."""
    tokens_per_s: float
    """Of one answer, its first token included."""
    together: int
    together_tokens_per_s: float
    """Of so many answers that are written together."""
    together_ratio: float
    memory_bytes: int
    peak_allocated_bytes: int
    longtake: str
    torch: str
    python: str


def measure_questions(
    *,
    text: TextConfig,
    size: tuple[int, int],
    num_tokens: int,
    answer_tokens: int,
    device: torch.device,
    dtype: torch.dtype,
    backend: Backend,
    progress: Callable[[int], None],
) -> QuestionFigures:
    """Show a network of random weights a video until it remembers so many tokens, then ask."""
    language = random_language(text, device, dtype)
    fit = language.picture_format.fit(*size)
    num_grids = max(_GRIDS_TIMED, num_tokens // (fit.rows * fit.columns))
    room = num_grids * fit.rows * fit.columns + _TALK
    reserve = _TOGETHER * (answer_tokens + _TALK)
    slot_bytes = 2 * text.num_layers * text.num_kv_heads * text.head_dim * dtype.itemsize
    session = DialogueSession(
        language, budget_bytes=slot_bytes * (room + reserve), answer_tokens=reserve, system="w1", backend=backend
    )
    frames = torch.randint(0, 256, (2, 3, *size), generator=torch.Generator().manual_seed(0)).byte()
    see_s = []
    for grid in range(num_grids):
        see_s.append(_seconds(device, lambda at: session.see(frames, [at, at + 0.5]), float(grid)))
        progress(1)
    sampling = TextSampling(max_new_tokens=answer_tokens)
    answers = [session.ask(_QUESTION, sampling) for _ in range(_WARM_UPS + _TIMES)][_WARM_UPS:]
    questions = [f"w{600 + number} {_QUESTION}" for number in range(_TOGETHER)]
    for _ in range(_WARM_UPS):
        session.ask_together(questions, sampling)
    together_s = statistics.median(
        _seconds(device, lambda asked: session.ask_together(asked, sampling), questions) for _ in range(3)
    )
    one_s = statistics.median(answer.timing.total_s for answer in answers)
    speeds = [answer.timing.tokens_per_s for answer in answers if answer.timing.tokens_per_s is not None]
    return QuestionFigures(
        model="Qwen2.5-VL-3B, as published" if text is TEXT else "a small network",
        parameters=sum(weight.numel() for weight in language.model.parameters()),
        device=device_name(device),
        dtype=str(dtype).removeprefix("torch."),
        backend=backend.name,
        why_portable=session.why_portable,
        height=size[0],
        width=size[1],
        remembered_tokens=session.context_length,
        answer_tokens=answer_tokens,
        first_see_s=see_s[0],
        see_ms=statistics.median(see_s[-_GRIDS_TIMED:]) * 1e3,
        first_text_ms=statistics.median(answer.timing.first_token_s for answer in answers) * 1e3,
        token_ms=1e3 / statistics.median(speeds),
        tokens_per_s=answer_tokens / one_s,
        together=_TOGETHER,
        together_tokens_per_s=_TOGETHER * answer_tokens / together_s,
        together_ratio=_TOGETHER * one_s / together_s,
        memory_bytes=session.info.num_bytes,
        peak_allocated_bytes=torch.cuda.max_memory_allocated(device) if device.type == "cuda" else 0,
        longtake=__version__,
        torch=torch.__version__,
        python=platform.python_version(),
    )


def random_language(text: TextConfig, device: torch.device, dtype: torch.dtype) -> LanguageModel:
    """A network of random weights that never ends an answer, with a word `w500` for each token."""
    transformers = import_from_extra("transformers", "qwen", _PURPOSE)
    width, inner, depth, vision_width, vision_inner, vision_heads = _WIDTHS[text.num_layers]
    special = _special(text.vocabulary_size)
    config = transformers.Qwen2_5_VLConfig(
        text_config={
            "vocab_size": text.vocabulary_size,
            "hidden_size": width,
            "intermediate_size": inner,
            "num_hidden_layers": text.num_layers,
            "num_attention_heads": text.num_heads,
            "num_key_value_heads": text.num_kv_heads,
            "max_position_embeddings": text.max_positions,
            "tie_word_embeddings": True,
            "bos_token_id": special.im_start,
            "eos_token_id": special.im_end,
            "rope_parameters": {
                "rope_type": "default",
                "mrope_section": list(text.mrope_section),
                "rope_theta": text.rope_theta,
            },
        },
        vision_config={
            "depth": depth,
            "hidden_size": vision_width,
            "intermediate_size": vision_inner,
            "num_heads": vision_heads,
            "out_hidden_size": width,
            "fullatt_block_indexes": list(range(7, depth, 8)),
        },
        image_token_id=special.image_pad,
        video_token_id=special.video_pad,
        vision_start_token_id=special.vision_start,
        vision_end_token_id=special.vision_end,
        tie_word_embeddings=True,
    )
    torch.manual_seed(0)
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)  # a cast afterwards would hold it twice, and round its rotary numbers
    try:
        with device:
            model = transformers.Qwen2_5_VLForConditionalGeneration(config)
    finally:
        torch.set_default_dtype(before)
    return LanguageModel(
        model=model.eval().requires_grad_(requires_grad=False),
        tokenizer=_words(text.vocabulary_size),
        text=text,
        picture_format=PictureFormat(),
        special=special,
        eos_ids=(),
        suppressed_ids=(),
    )


def _special(vocabulary_size: int) -> SpecialIds:
    names = ("im_start", "im_end", "vision_start", "vision_end", "image_pad", "video_pad", "newline")
    ids = {name: vocabulary_size - 1 - place for place, name in enumerate(names)}
    return SpecialIds(**ids, system=(10,), user=(11,), assistant=(12,))


def _words(vocabulary_size: int) -> Tokenizer:
    tokenizers: Any = import_from_extra("tokenizers", "qwen", _PURPOSE)
    vocabulary = {f"w{number}": number for number in range(vocabulary_size)}
    unknown = next(iter(vocabulary))
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token=unknown))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    return Tokenizer(tokenizer)


def _seconds(device: torch.device, work: Callable[[Any], object], what: Any) -> float:
    synchronize(device)
    started = time.perf_counter()
    work(what)
    synchronize(device)
    return time.perf_counter() - started
