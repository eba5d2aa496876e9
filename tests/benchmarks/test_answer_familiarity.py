"""What a language model knows, computed in miniature from pairs of frames."""

import pytest

pytest.importorskip("transformers")

from benchmarks.answer_familiarity import answer_clips, learn_answers
from longtake.hub.load import load_language_model


def test_statistics_are_of_pairs_of_frames_and_videos_are_cut_into_them() -> None:
    language = load_language_model("micro-vqa")
    ticks: list[int] = []
    found = learn_answers(language, num_worlds=2, num_houses=2, progress=ticks.append)
    assert sum(ticks) == 6
    assert found.mean.shape == (1, 192)
    assert found.limit > 0
    (clip,) = answer_clips(language, "world:9?frames=60&size=84x56")
    assert clip.shape == (6, 192)
    assert not list(answer_clips(language, "world:9?frames=12&size=84x56"))
