"""A constant budget of tokens for a video without an end, divided between layers by how they attend."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32

from longtake.errors import SettingError
from longtake.memory.eviction import Clip, LayerBook, Verdict
from longtake.memory.evictions.allocation import softmax_shares
from longtake.memory.evictions.budgeted import Budgeted
from longtake.memory.tokens import Flags, Notes


@dataclass(frozen=True, slots=True, kw_only=True)
class Managed(Budgeted):
    """All layers together keep at most `total_tokens` tokens; anchors, the newest frames and the special tokens of the
    newest `special_frames` frames are protected.

    Each clip adds to a token what it received of the attention, relative to the mean of its layer; its score is that
    sum over the frames it was exposed to. `decay` below 1 lets both fade by that factor with each frame.

    A layer's statistic is log(1 + squared coefficient of variation) of what its unprotected tokens received, which has
    no unit; it is smoothed over time, `smoothing` being the weight of the past. Layers share what protection leaves by
    softmax(-statistic / temperature). In each layer the lowest scores leave; of equal ones the earlier in attention
    order.
    """

    decay: float = 1.0
    smoothing: float = 0.9
    temperature: float = 1.0

    def __post_init__(self) -> None:
        Budgeted.__post_init__(self)
        if not (0 < self.decay <= 1 and 0 <= self.smoothing < 1 and 0 < self.temperature < math.inf):
            raise SettingError(
                f"A managed memory needs 0 < decay <= 1, 0 <= smoothing < 1 and a temperature above 0, but got "
                f"{self.decay}, {self.smoothing} and {self.temperature}."
            )

    @property
    def num_notes(self) -> int:
        """Attention received and exposure."""
        return 2

    @property
    def num_memo(self) -> int:
        """The smoothed statistic, and 1 once there is one."""
        return 2

    @property
    def wants_received(self) -> bool:
        return True

    def judge(self, books: Sequence[LayerBook], clip: Clip) -> list[Verdict]:
        protected = [self.protection.covers(book.tokens, num_kept=clip.num_kept) for book in books]
        memos = [self._watch(book, ~covered) for book, covered in zip(books, protected, strict=True)]
        notes = [self._accumulate(book, clip) for book in books]
        scores = [noted[:, 0] / noted[:, 1] for noted in notes]
        shares = softmax_shares([statistic for statistic, _ in memos], self.temperature)
        stays = self.stays_within(shares, scores, protected)
        return [
            Verdict(stays=flags, notes=noted, memo=memo) for flags, noted, memo in zip(stays, notes, memos, strict=True)
        ]

    def _watch(self, book: LayerBook, unprotected: Flags) -> tuple[float, ...]:
        assert book.received is not None
        before, is_known = book.memo
        if not unprotected.any():
            return book.memo
        now = unevenness(book.received[unprotected])
        return (self.smoothing * before + (1 - self.smoothing) * now if is_known else now, 1.0)

    def _accumulate(self, book: LayerBook, clip: Clip) -> Notes:
        """A clip of several frames counts as so many frames that looked alike."""
        assert book.received is not None
        queries = clip.tokens_per_frame * clip.num_heads
        fade = np.float32(self.decay**clip.num_frames)
        mass = fade * book.tokens.notes[:, 0] + book.received * np.float32(len(book.tokens) / queries)
        return np.stack((mass, fade * book.tokens.notes[:, 1] + np.float32(clip.num_frames)), axis=1)


def unevenness(received: Float32[np.ndarray, " tokens"]) -> float:
    """log(1 + squared coefficient of variation): 0 where all tokens received the same, whatever the amount."""
    exact = received.astype(np.float64)
    mean = exact.mean()
    return math.log1p(exact.var() / mean**2) if mean > 0 else 0.0
