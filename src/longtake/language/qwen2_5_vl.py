"""Qwen2.5-VL: ChatML turns, vision in place of pads, three rows of rotary positions in true time."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Int64

from longtake.language import formats, positions
from longtake.language.family import Family
from longtake.language.formats import SpecialIds
from longtake.language.model_config import TextConfig
from longtake.language.network import Network
from longtake.language.positions import Picture, Piece, Positions, VideoSpan
from longtake.language.rope_shift import KeyRotation, Keys, moved_back


@dataclass(frozen=True, slots=True)
class Qwen2_5VL(Family):  # noqa: N801 (as the model is called)
    """By a checkpoint's special tokens and rotary numbers."""

    special: SpecialIds
    text: TextConfig

    def system_turn(self, system: Sequence[int]) -> list[int]:
        return formats.system_turn(self.special, system)

    def clip_start(self) -> list[int]:
        return formats.reopen_clip(self.special)

    def clip_question(self, question: Sequence[int]) -> list[int]:
        return formats.clip_question(self.special, question)

    def vision_turn(
        self, piece: Picture | VideoSpan, *, time: Sequence[int] = (), text: Sequence[int] = ()
    ) -> list[int]:
        pad = self._pad(type(piece))
        return formats.next_chunk(self.special, piece.num_tokens, pad=pad, time=time, text=text)

    def question_turn(self, question: Sequence[int]) -> list[int]:
        return formats.turn_question(self.special, question)

    def turn_end(self) -> list[int]:
        return formats.turn_end(self.special)

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
        return formats.pieces_of(ids, self.special, pictures=pictures, video_spans=spans)

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

    def keys_moved_in_time(self, keys: Keys, positions: int) -> Keys:
        return moved_back(keys, positions, self.text)

    def key_rotation(self, back: Int64[np.ndarray, " past"], device: torch.device) -> KeyRotation | None:
        return KeyRotation.back(back, self.text, device)

    def _pad(self, kind: type[Picture | VideoSpan]) -> int:
        return self.special.image_pad if kind is Picture else self.special.video_pad
