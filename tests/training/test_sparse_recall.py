"""What is passed over was not to be seen: the same attention as through a mask."""

import numpy as np
import pytest
import torch

from longtake.geometry.config import CAMERA, TRUNK
from longtake.weights.presets import TINY
from training.stream_pattern import StreamPattern, random_pattern

CPU = torch.device("cpu")
SIZE = (28, 42)
PATTERNS = [random_pattern(length, np.random.default_rng(length)) for length in (9, 24, 40)]


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: f"{pattern.num_frames}")
def test_attention_is_that_through_the_mask(pattern: StreamPattern) -> None:
    dense, sparse = pattern.recall(TINY, SIZE, CPU), pattern.sparse_recall(TINY, SIZE, CPU)
    length = pattern.num_frames * TINY.tokens_per_frame(*SIZE)
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 2, length, 2, 8).unbind()
    with torch.no_grad():
        torch.testing.assert_close(sparse.attend(TRUNK, 0, q, k, v), dense.attend(TRUNK, 0, q, k, v))
    q, k, v = torch.randn(3, 2, pattern.num_frames, 2, 8).unbind()
    assert torch.equal(sparse.attend(CAMERA, 0, q, k, v), dense.attend(CAMERA, 0, q, k, v))
    assert sparse.ordinals == dense.ordinals
    assert sparse.num_scale_frames == dense.num_scale_frames


def test_most_of_a_long_clip_is_passed_over() -> None:
    pattern = StreamPattern(num_frames=96, num_scale_frames=4, window=8, interval=1)
    sparse = pattern.sparse_recall(TINY, (98, 126), CPU)
    assert sparse.blocks.sparsity() > 70
