"""Qwen2.5-VL: ChatML turns, vision in place of pads, three rows of rotary positions in true time.

Token ids of a conversation about a stream are built from ids; only free text is tokenised, and that elsewhere.

open clip   prefix    <|im_start|>system\\n{system}<|im_end|>\\n<|im_start|>user\\n<|vision_start|>
            append    {pads}
            question  <|vision_end|>{question}<|im_end|>\\n<|im_start|>assistant\\n
turns       chunk 0   <|im_start|>system\\n{system}<|im_end|>\\n, then as chunk k
            chunk k   <|im_start|>user\\n{time}<|vision_start|>{pads}<|vision_end|>{text}<|im_end|>\\n
            question  <|im_start|>user\\n{question}<|im_end|>\\n<|im_start|>assistant\\n
after an answer that is remembered    <|im_end|>\\n
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
import torch
from jaxtyping import Int64

from longtake.errors import InputError
from longtake.language import positions
from longtake.language.family import Family
from longtake.language.model_config import SpecialIds, TextConfig
from longtake.language.network import Network
from longtake.language.positions import Picture, Piece, Positions, Text, VideoSpan
from longtake.language.rope_shift import KeyRotation, Keys, moved_back


def system_turn(special: SpecialIds, system: Sequence[int]) -> list[int]:
    """The turn every conversation begins with."""
    return [special.im_start, *special.system, special.newline, *system, *turn_end(special)]


def user_start(special: SpecialIds) -> list[int]:
    """Begins a user's turn."""
    return [special.im_start, *special.user, special.newline]


def assistant_start(special: SpecialIds) -> list[int]:
    """Begins an answer."""
    return [special.im_start, *special.assistant, special.newline]


def turn_end(special: SpecialIds) -> list[int]:
    """Ends a turn of anyone."""
    return [special.im_end, special.newline]


def open_clip(special: SpecialIds, system: Sequence[int]) -> list[int]:
    """All that comes before the first frame of an open clip."""
    return [*system_turn(special, system), *reopen_clip(special)]


def reopen_clip(special: SpecialIds) -> list[int]:
    """All that comes before the first frame of a further open clip, after an answer that is remembered."""
    return [*user_start(special), special.vision_start]


def clip_question(special: SpecialIds, question: Sequence[int]) -> list[int]:
    """Closes an open clip with a question."""
    return [special.vision_end, *question, *turn_end(special), *assistant_start(special)]


def first_chunk(
    special: SpecialIds, num_tokens: int, *, system: Sequence[int], time: Sequence[int] = (), text: Sequence[int] = ()
) -> list[int]:
    """The system's turn and a turn with a clip of this many tokens."""
    return [*system_turn(special, system), *next_chunk(special, num_tokens, time=time, text=text)]


def next_chunk(
    special: SpecialIds,
    num_tokens: int,
    *,
    pad: int | None = None,
    time: Sequence[int] = (),
    text: Sequence[int] = (),
) -> list[int]:
    """A turn with a clip (or by its pad a picture) of this many tokens, tokenised time before it and text after it."""
    clip = [special.vision_start, *[special.video_pad if pad is None else pad] * num_tokens, special.vision_end]
    return [*user_start(special), *time, *clip, *text, *turn_end(special)]


def turn_question(special: SpecialIds, question: Sequence[int]) -> list[int]:
    """A question in a turn of its own."""
    return [*user_start(special), *question, *turn_end(special), *assistant_start(special)]


def pieces_of(
    ids: Sequence[int], special: SpecialIds, *, pictures: Sequence[Picture] = (), video_spans: Sequence[VideoSpan] = ()
) -> list[Piece]:
    """A prompt's pieces for `positions`; pictures and clips take the pads in order and must fill them."""
    waiting: dict[int, list[Piece]] = {special.image_pad: list(pictures), special.video_pad: list(video_spans)}
    pieces: list[Piece] = []
    for pad, run in groupby(ids, key=lambda token: token if token in waiting else None):
        num_tokens = len(list(run))
        piece = Text(num_tokens) if pad is None else _take(waiting[pad], num_tokens)
        pieces.append(piece)
    if any(waiting.values()):
        raise InputError(
            f"A prompt must have a place for every picture and clip, but {sum(map(len, waiting.values()))} found none; "
            "leave them out or add their tokens."
        )
    return pieces


def _take(waiting: list[Piece], num_tokens: int) -> Piece:
    if not waiting or waiting[0].num_tokens != num_tokens:
        due = f"one of {waiting[0].num_tokens} tokens" if waiting else "none"
        raise InputError(
            f"Each run of picture or video tokens in a prompt must fit its picture or clip, but a run of {num_tokens} "
            f"meets {due}; give the grids the prompt was made with."
        )
    return waiting.pop(0)


@dataclass(frozen=True, slots=True)
class Qwen2_5VL(Family):  # noqa: N801 (as the model is called)
    """By a checkpoint's special tokens and rotary numbers."""

    special: SpecialIds
    text: TextConfig

    def system_turn(self, system: Sequence[int]) -> list[int]:
        return system_turn(self.special, system)

    def clip_start(self) -> list[int]:
        return reopen_clip(self.special)

    def clip_question(self, question: Sequence[int]) -> list[int]:
        return clip_question(self.special, question)

    def vision_turn(
        self, piece: Picture | VideoSpan, *, time: Sequence[int] = (), text: Sequence[int] = ()
    ) -> list[int]:
        pad = self._pad(type(piece))
        return next_chunk(self.special, piece.num_tokens, pad=pad, time=time, text=text)

    def question_turn(self, question: Sequence[int]) -> list[int]:
        return turn_question(self.special, question)

    def turn_end(self) -> list[int]:
        return turn_end(self.special)

    def first_vision_turn(self, ids: Sequence[int]) -> int:
        pads = (self.special.image_pad, self.special.video_pad)
        first_pad = next(place for place, token in enumerate(ids) if token in pads)
        starts = [place for place, token in enumerate(ids[:first_pad]) if token == self.special.im_start]
        return starts[-1] if starts else 0

    def vision_mask(self, ids: Sequence[int], kind: type[Picture | VideoSpan]) -> list[bool]:
        pad = self._pad(kind)
        return [token == pad for token in ids]

    def pieces(self, ids: Sequence[int], visions: Sequence[Picture | VideoSpan]) -> list[Piece]:
        pictures = [piece for piece in visions if isinstance(piece, Picture)]
        spans = [piece for piece in visions if isinstance(piece, VideoSpan)]
        return pieces_of(ids, self.special, pictures=pictures, video_spans=spans)

    @staticmethod
    def network(model: Any) -> Network:
        return Network(model)

    @property
    def positions_per_second(self) -> float:
        return self.text.tokens_per_second

    @property
    def max_positions(self) -> int:
        return self.text.max_positions

    def positions(self, pieces: Sequence[Piece], next_position: int) -> Positions:
        return positions.positions(pieces, next_position)

    def grid_times(self, first_frame_s: Sequence[float]) -> tuple[int, ...]:
        return positions.grid_times(first_frame_s, self.text.tokens_per_second)

    def keys_moved_in_time(self, keys: Keys, positions: Int64[np.ndarray, " tokens"]) -> Keys:
        return moved_back(keys, positions, self.text)

    def key_rotation(self, back: Int64[np.ndarray, " past"], device: torch.device) -> KeyRotation | None:
        return KeyRotation.back(back, self.text, device)

    def _pad(self, kind: type[Picture | VideoSpan]) -> int:
        return self.special.image_pad if kind is Picture else self.special.video_pad
