"""A language model says, by its own vision tower, that a video is unlike what it was trained on; and says it once."""

from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("transformers")

import longtake
from longtake.hub.load import familiarity_of, load_language_model
from longtake.language.load import LanguageModel
from longtake.memory.change import change_together
from longtake.pipeline.events import Noted
from longtake.pipeline.live import LiveSession, LiveSettings
from longtake.runtime.dialogue import DialogueSession
from longtake.video.frame import VideoFrame
from longtake.weights.familiarity import CLIP_GRIDS


@pytest.fixture(scope="module")
def language() -> LanguageModel:
    return load_language_model("micro-vqa")


@pytest.fixture(scope="module")
def house() -> list[VideoFrame]:
    return list(longtake.open_video("world:9?frames=90&size=168x112", fps=2.0))


@pytest.fixture(scope="module")
def noise(house: list[VideoFrame]) -> list[VideoFrame]:
    rng = np.random.default_rng(0)
    return [
        VideoFrame(
            index=frame.index,
            timestamp_s=frame.timestamp_s,
            image=rng.integers(0, 256, (112, 168, 3), dtype=np.uint8),
        )
        for frame in house
    ]


def opened(language: LanguageModel) -> DialogueSession:
    return DialogueSession(language, budget_bytes=20_000_000, familiarity=familiarity_of("micro-vqa"))


def watched(language: LanguageModel, frames: list[VideoFrame]) -> tuple[list[str], float | None]:
    dialogue = opened(language)
    live = LiveSession(None, dialogue, LiveSettings(ask_fps=None, unlike_note="far: {}"))
    told = [item for frame in frames for item in live.step(live.prepare(frame))]
    told += list(live.finish())
    unlikeness = dialogue.unlikeness
    dialogue.close()
    return [item.text for item in told if isinstance(item, Noted)], unlikeness


def test_noise_is_told_once_and_a_house_is_not(
    language: LanguageModel, house: list[VideoFrame], noise: list[VideoFrame]
) -> None:
    notes, unlikeness = watched(language, noise)
    assert unlikeness is not None
    assert unlikeness > 1
    assert notes == [f"far: {unlikeness:.1f}"]
    notes, unlikeness = watched(language, house)
    assert notes == []
    assert unlikeness is not None
    assert unlikeness < 1


def test_a_short_video_is_judged_at_its_end_and_one_pair_not_at_all(
    language: LanguageModel, noise: list[VideoFrame]
) -> None:
    assert len(watched(language, noise[:5])[0]) == 1
    assert watched(language, noise[:3]) == ([], None)


def test_any_chunks_are_judged_alike_a_look_that_is_left_leaves_no_trace_and_nothing_is_known_after_a_reset(
    language: LanguageModel, noise: list[VideoFrame]
) -> None:
    pictures = torch.from_numpy(np.stack([frame.image for frame in noise])).permute(0, 3, 1, 2).contiguous()
    times_s = [frame.timestamp_s for frame in noise]
    together, one_by_one = opened(language), opened(language)
    together.see(pictures, times_s)
    for picture, time_s in zip(pictures, times_s, strict=True):
        with one_by_one.look(picture, time_s):
            pass
        with one_by_one.look(picture, time_s) as parts:
            change_together(*parts)
    assert together.num_judged == one_by_one.num_judged == min(CLIP_GRIDS, len(noise) // 2)
    assert together.unlikeness == pytest.approx(one_by_one.unlikeness, rel=1e-4)
    together.reset()
    assert (together.num_judged, together.unlikeness) == (0, None)


def test_the_public_session_says_it_and_a_model_without_statistics_nothing(
    language: LanguageModel, noise: list[VideoFrame], tmp_path: Path
) -> None:
    with longtake.DialogueSession.from_pretrained("micro-vqa", memory="20MB") as chat:
        chat.see(noise)
        assert chat.unlikeness is not None
        assert chat.unlikeness > 1
    with longtake.DialogueSession.from_pretrained(language, memory="20MB") as chat:
        chat.see(noise)
        assert chat.unlikeness is None
    assert familiarity_of(tmp_path) is None
