"""Nothing is forgotten."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from longtake.errors import SettingError
from longtake.memory.layout import StreamLayout
from longtake.memory.policy import LockstepPolicy, Segment, SegmentPolicy
from longtake.memory.tokens import Flags, Tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepAll(LockstepPolicy, SegmentPolicy):
    """Every token of every kept frame, until the memory is full; then no more frames are taken."""

    def stays(self, tokens: Tokens, *, num_kept: int) -> Flags:  # noqa: ARG002
        return np.ones(len(tokens), dtype=np.bool_)

    def most_tokens(self, tokens_per_frame: int, *, num_kept: int) -> int:
        return num_kept * tokens_per_frame

    @property
    def full_after(self) -> int | None:
        return None

    def of_frames(self, num_frames: int, layout: StreamLayout) -> "KeepAll":  # noqa: ARG002
        raise SettingError("A memory that keeps all takes its budget in bytes, such as 4GB, not in frames.")

    def leaving(self, segments: Sequence[Segment], num_missing: int) -> list[Segment]:  # noqa: ARG002
        return []
