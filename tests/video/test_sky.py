"""The sky mask by its own statement, beside what the published tool makes of the same scores."""

from collections.abc import Callable
from typing import Any

import torch

from longtake.video.sky import keep_ground


def test_pixels_are_kept_by_confidence_and_not_only_where_the_score_is_zero(golden: Callable[[str], Any]) -> None:
    published = golden("sky")
    score = published["score_u8_resized_42x70"]
    kept, kept_as_published = keep_ground(score), published["keep_mask_asis"] > 0.5
    assert torch.equal(kept_as_published, score == 0)
    assert torch.equal(kept, score < 230)
    assert bool((kept | ~kept_as_published).all())
    assert int(kept.sum()) > int(kept_as_published.sum())


def test_certain_sky_goes_and_the_threshold_is_the_callers() -> None:
    score = torch.tensor([[0, 128, 229, 230, 255]], dtype=torch.uint8)
    assert keep_ground(score).tolist() == [[True, True, True, False, False]]
    assert keep_ground(score, least_ground=0.6).tolist() == [[True, False, False, False, False]]
