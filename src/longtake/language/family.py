"""What differs between families of vision-language models; a dialogue needs nothing else of one but its weights.

There is one, `language.qwen2_5_vl`; a second is a subclass in a file of its own, chosen by `load.LanguageModel`.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Int64

from longtake.language.network import Network
from longtake.language.positions import Picture, Piece, Positions, VideoSpan
from longtake.language.rope_shift import KeyRotation, Keys


class Family(ABC):
    """One checkpoint's prompt format (in token ids), where vision enters it, its positions, and how its keys move."""

    @abstractmethod
    def system_turn(self, system: Sequence[int]) -> list[int]:
        """The turn that every conversation begins with."""

    @abstractmethod
    def clip_start(self) -> list[int]:
        """What comes before the first frame of a clip that stays open."""

    @abstractmethod
    def clip_question(self, question: Sequence[int]) -> list[int]:
        """Closes an open clip with a question, up to where its answer begins."""

    @abstractmethod
    def vision_turn(
        self, piece: Picture | VideoSpan, *, time: Sequence[int] = (), text: Sequence[int] = ()
    ) -> list[int]:
        """A user's turn with a picture or a clip, its time before it and text after it."""

    @abstractmethod
    def question_turn(self, question: Sequence[int]) -> list[int]:
        """A question in a turn of its own, up to where its answer begins."""

    @abstractmethod
    def turn_end(self) -> list[int]:
        """Ends a turn, an answer's too."""

    @abstractmethod
    def first_vision_turn(self, ids: Sequence[int]) -> int:
        """Where in a prompt the turn begins that holds its first picture or clip."""

    @abstractmethod
    def vision_mask(self, ids: Sequence[int], kind: type[Picture | VideoSpan]) -> list[bool]:
        """Which tokens of a prompt are replaced by what the vision tower made of pictures, or of clips."""

    @abstractmethod
    def pieces(self, ids: Sequence[int], visions: Sequence[Picture | VideoSpan]) -> list[Piece]:
        """A prompt cut into text, pictures and clips, for `positions`; refused if they do not fit its tokens."""

    @staticmethod
    @abstractmethod
    def network(model: Any) -> Network:
        """The modules of a loaded model, over our memory; from now on it attends through that alone."""

    @property
    @abstractmethod
    def positions_per_second(self) -> float:
        """Positions that a second of video takes."""

    @property
    @abstractmethod
    def max_positions(self) -> int:
        """How many positions the network knows."""

    @abstractmethod
    def positions(self, pieces: Sequence[Piece], next_position: int) -> Positions:
        """Where the tokens of these pieces stand, the first of which begins at `next_position`."""

    @abstractmethod
    def grid_times(self, first_frame_s: Sequence[float]) -> tuple[int, ...]:
        """Temporal grids in positions since their clip's first frame, from seconds since then."""

    @abstractmethod
    def keys_moved_in_time(self, keys: Keys, positions: Int64[np.ndarray, " tokens"]) -> Keys:
        """Stored keys as they would be had their tokens stood so many positions each earlier in time alone."""

    @abstractmethod
    def key_rotation(self, back: Int64[np.ndarray, " past"], device: torch.device) -> KeyRotation | None:
        """Turns keys on the way from memory, whose tokens have moved back as a whole; None where none has."""
