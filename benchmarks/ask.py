"""What a question about a watched video costs, beside encoding the video anew for it, in one run.

Both sides have the same random weights and get the same prompt at the same positions: the session has it in memory up
to the question, the plain network gets frames, prompt and question at once.
"""

import statistics
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import psutil
import torch
from jaxtyping import UInt8
from torch import Tensor

from longtake.bench.answers_offline import plain_twin
from longtake.errors import SettingError
from longtake.extras import import_from_extra
from longtake.language.frames import PictureFormat, pixel_rows
from longtake.language.load import LanguageModel
from longtake.language.model_config import SpecialIds, TextConfig
from longtake.language.positions import VideoSpan, grid_times, positions
from longtake.language.qwen2_5_vl import clip_question, open_clip, pieces_of
from longtake.language.sampling import TextSampling
from longtake.language.tokenizer import Tokenizer
from longtake.runtime.dialogue import DialogueSession

QUESTION = "w80 w81 w82 w83 w84 w85 w86 w87"
_SYSTEM = "w20 w21 w22 w23 w24 w25"
_PURPOSE = "Measuring questions"
_FPS = 2.0
_NAMES = ("im_start", "im_end", "vision_start", "vision_end", "image_pad", "video_pad", "newline")


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkSize:
    """Of a network shaped like Qwen2.5-VL, and of what it watches."""

    width: int
    layers: int
    heads: int
    mlp: int
    words: int
    vision_width: int
    vision_layers: int
    frame: tuple[int, int]
    """Height and width in pixels."""

    def config(self, transformers: Any) -> Any:
        """Two heads of keys; a third of the frequencies or so for each of time, row and column."""
        half = self.width // self.heads // 2
        section = [half - 2 * (3 * half // 8), 3 * half // 8, 3 * half // 8]
        ids = {f"{name}_token_id": _NAMES.index(key) for name, key in (("image", "image_pad"), ("video", "video_pad"))}
        ids |= {f"{name}_token_id": _NAMES.index(name) for name in ("vision_start", "vision_end")}
        return transformers.Qwen2_5_VLConfig(
            text_config={
                "hidden_size": self.width,
                "num_hidden_layers": self.layers,
                "num_attention_heads": self.heads,
                "num_key_value_heads": 2,
                "intermediate_size": self.mlp,
                "vocab_size": self.words,
                "max_position_embeddings": 32768,
                "bos_token_id": None,
                "eos_token_id": _NAMES.index("im_end"),
                "rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "mrope_section": section},
            },
            vision_config={
                "depth": self.vision_layers,
                "hidden_size": self.vision_width,
                "intermediate_size": 2 * self.vision_width,
                "num_heads": self.vision_width // 64,
                "out_hidden_size": self.width,
                "fullatt_block_indexes": [self.vision_layers - 1],
                "tokens_per_second": 2,
            },
            tie_word_embeddings=False,
            **ids,
        )


HUNDRED_MILLION = NetworkSize(
    width=768, layers=12, heads=12, mlp=2048, words=8192, vision_width=512, vision_layers=4, frame=(112, 168)
)
TINY = NetworkSize(width=64, layers=2, heads=4, mlp=128, words=256, vision_width=64, vision_layers=2, frame=(56, 84))


@dataclass(frozen=True, slots=True, kw_only=True)
class AskFigures:
    """Medians in seconds; memory is the largest growth of what the process holds."""

    num_parameters: int
    num_chunks: int
    num_tokens: int
    """Remembered when the question comes."""
    threads: int
    watch_s: float
    """All chunks, once."""
    session_s: float
    """From the question to its first token on the host, in a session."""
    fork_s: float
    """Of these, until the words are ids and the fork is there."""
    plain_s: float
    """The same from frames, prompt and question."""
    prepare_s: float
    """Of these, until frames are the network's numbers."""
    watch_bytes: int
    """Growth while the session watches; its keys and values are in it, for they take memory when written first."""
    cache_bytes: int
    """Keys and values of all tokens remembered."""
    session_bytes: int
    """Growth during the session's first question."""
    plain_bytes: int
    """Growth during the plain network's first question."""
    agrees: bool
    """Whether both begin with the same token."""

    @property
    def ratio(self) -> float:
        return self.plain_s / self.session_s


def measure_ask(size: NetworkSize, num_chunks: int, *, repeats: int) -> AskFigures:
    """Watch, ask and encode anew: memory first, as a cold process gives the most of it, then times in turn."""
    if num_chunks < 1 or repeats < 1:
        raise SettingError(f"Expected one chunk and one question at least, but got {num_chunks} and {repeats}.")
    language = random_language(size)
    plain = _Plain(language, plain_twin(language.model), _random_frames(size, 2 * num_chunks))
    session = _open_session(language, plain.num_tokens)
    started = time.perf_counter()
    watch_bytes = _peak_growth(lambda: _watch(session, plain.frames))
    watch_s = time.perf_counter() - started
    once = TextSampling(max_new_tokens=1)
    session_bytes = _peak_growth(lambda: session.ask(QUESTION, once))
    plain_bytes = _peak_growth(plain.ask)
    answers, timed = [], []
    for _ in range(repeats):
        answers += [session.ask(QUESTION, once) for _ in range(3)]
        timed.append(plain.ask())
    info = session.info
    session.close()
    return AskFigures(
        num_parameters=sum(weight.numel() for weight in language.model.parameters()),
        num_chunks=num_chunks,
        num_tokens=info.num_tokens,
        threads=torch.get_num_threads(),
        watch_s=watch_s,
        session_s=statistics.median(answer.timing.first_token_s for answer in answers),
        fork_s=statistics.median(answer.timing.fork_s for answer in answers),
        plain_s=statistics.median(one.total_s for one in timed),
        prepare_s=statistics.median(one.prepare_s for one in timed),
        watch_bytes=watch_bytes,
        cache_bytes=info.live_bytes,
        session_bytes=session_bytes,
        plain_bytes=plain_bytes,
        agrees={answer.ids[0] for answer in answers} == {one.token for one in timed},
    )


def random_language(size: NetworkSize) -> LanguageModel:
    """A seeded network in float32 with a word `w80` for every id; nothing is suppressed and nothing ends an answer."""
    transformers = import_from_extra("transformers", "qwen", _PURPOSE)
    config = size.config(transformers)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = transformers.Qwen2_5_VLForConditionalGeneration(config)
    special_ids = {name: at for at, name in enumerate(_NAMES)}
    system, user, assistant = ((len(_NAMES) + at,) for at in range(3))
    special = SpecialIds(**special_ids, system=system, user=user, assistant=assistant)
    section = tuple(config.text_config.rope_parameters["mrope_section"])
    return LanguageModel(
        model=model.float().requires_grad_(requires_grad=False).eval(),
        tokenizer=_words(size.words),
        text=TextConfig(
            num_layers=size.layers,
            num_heads=size.heads,
            num_kv_heads=2,
            head_dim=size.width // size.heads,
            vocabulary_size=size.words,
            max_positions=config.text_config.max_position_embeddings,
            rope_theta=1e6,
            mrope_section=section,
            tokens_per_second=2.0,
        ),
        picture_format=PictureFormat(),
        special=special,
        eos_ids=(),
        suppressed_ids=(),
    )


def _words(count: int) -> Tokenizer:
    tokenizers = import_from_extra("tokenizers", "qwen", _PURPOSE)
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel({f"w{id_}": id_ for id_ in range(count)}, "w0"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    return Tokenizer(tokenizer)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Encoded:
    """One question the plain way."""

    token: int
    prepare_s: float
    total_s: float


@dataclass(frozen=True, slots=True)
class _Plain:
    """All frames, and a network that remembers none of them."""

    language: LanguageModel
    twin: Any
    frames: UInt8[Tensor, "frames 3 height width"]

    @property
    def num_tokens(self) -> int:
        """Of the prompt up to the question."""
        fit = self.language.picture_format.fit(*self.frames.shape[-2:])
        prompt = open_clip(self.language.special_ids, self.language.required_tokenizer.encode(_SYSTEM))
        return len(prompt) + len(self.frames) // 2 * fit.rows * fit.columns

    @torch.no_grad()
    def ask(self) -> _Encoded:
        """Logits of the last position only, and a cache to go on from, as the library's own generation has it."""
        started = time.perf_counter()
        pixels = pixel_rows(self.frames, self.language.picture_format.fit(*self.frames.shape[-2:]))
        prepared = time.perf_counter()
        ids, rows = self._prompt()
        output = self.twin(
            input_ids=torch.tensor([ids]),
            position_ids=torch.from_numpy(rows)[:, None],
            pixel_values_videos=pixels.values,
            video_grid_thw=torch.tensor([pixels.grid]),
            use_cache=True,
            logits_to_keep=1,
        )
        token = int(output.logits[0, -1].argmax())
        return _Encoded(token=token, prepare_s=prepared - started, total_s=time.perf_counter() - started)

    def _prompt(self) -> tuple[list[int], np.ndarray]:
        special, words = self.language.special_ids, self.language.required_tokenizer
        fit = self.language.picture_format.fit(*self.frames.shape[-2:])
        times = grid_times([grid * 2 / _FPS for grid in range(len(self.frames) // 2)], self.language.tokens_per_second)
        film = VideoSpan(times, fit.rows, fit.columns)
        opening = [*open_clip(special, words.encode(_SYSTEM)), *special.video(film.num_tokens)]
        ids = [*opening, *clip_question(special, words.encode(QUESTION))]
        return ids, positions(pieces_of(ids, special, video_spans=[film])).rows


def _random_frames(size: NetworkSize, count: int) -> UInt8[Tensor, "frames 3 height width"]:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(0, 256, (count, 3, *size.frame), dtype=torch.uint8, generator=generator)


def _open_session(language: LanguageModel, num_tokens: int) -> DialogueSession:
    reserve = 64
    # a quarter on top is for statistics of each token, and for one more chunk
    budget = (num_tokens + reserve) * language.network.layout().bytes_per_slot * 5 // 4
    return DialogueSession(language, budget_bytes=budget, system=_SYSTEM, answer_tokens=reserve)


def _watch(session: DialogueSession, frames: UInt8[Tensor, "frames 3 height width"]) -> None:
    for start in range(0, len(frames), 2):
        session.see(frames[start : start + 2], [start / _FPS, (start + 1) / _FPS])


def _peak_growth(work: Callable[[], object]) -> int:
    """The process's largest resident memory during `work` over that before, read every 2 ms by a thread beside it."""
    process, ended = psutil.Process(), threading.Event()
    held = [process.memory_info().rss]

    def watch() -> None:
        while not ended.wait(0.002):
            held.append(process.memory_info().rss)

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        work()
        held.append(process.memory_info().rss)
    finally:
        ended.set()
        watching.join()
    return max(held) - held[0]
