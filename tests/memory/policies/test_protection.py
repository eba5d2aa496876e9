"""The mask of protected tokens drawn, and its size."""

import numpy as np
import pytest

from longtake.errors import SettingError
from longtake.memory.policies.protection import Protection
from longtake.memory.tokens import Tokens


def drawn(protection: Protection, num_kept: int) -> list[str]:
    tokens = Tokens.of_frames(range(num_kept), 4, np.arange(4 * num_kept))
    covered = protection.covers(tokens, num_kept=num_kept).reshape(num_kept, 4)
    return ["".join(".#"[int(flag)] for flag in row) for row in covered]


def test_anchors_and_newest_are_whole_and_special_tokens_lose_their_protection_with_age() -> None:
    protection = Protection(anchors=1, recent=1, special_tokens=2, special_frames=3)
    assert drawn(protection, 6) == ["####", "....", "....", "##..", "##..", "####"]
    assert drawn(protection, 2) == ["####", "####"]


@pytest.mark.parametrize("special_frames", [0, 1, 2, 5])
@pytest.mark.parametrize("special_tokens", [0, 2, 9])
def test_most_is_what_a_long_video_protects(special_frames: int, special_tokens: int) -> None:
    protection = Protection(anchors=1, recent=2, special_tokens=special_tokens, special_frames=special_frames)
    assert sum(row.count("#") for row in drawn(protection, 20)) == protection.most_tokens(4)


def test_counts_below_zero_are_refused() -> None:
    with pytest.raises(SettingError, match="at least 0, but got 1, 1, -2 and 4"):
        Protection(anchors=1, recent=1, special_tokens=-2, special_frames=4).check()
