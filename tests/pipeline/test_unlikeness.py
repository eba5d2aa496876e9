"""A video that is unlike what its model knows is told once, in the folder too, and again by a run that goes on."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import longtake
from longtake.hub.load import knowledge_of
from longtake.pipeline.unlikeness import Knowledge, UnlikenessJudge
from longtake.weights.familiarity import CLIP_FRAMES, Familiarity

UNLIKE = "micro-map knows procedural houses; this video is unlike them"


def knowledge(limit: float = 1.0) -> Knowledge:
    rng = torch.Generator().manual_seed(0)
    descriptors = torch.randn(300, 12, generator=rng)
    return Knowledge(familiarity=Familiarity.of([descriptors], limit=limit), note="far: {}")


def frames(size: float, number: int = CLIP_FRAMES) -> Iterator[np.ndarray]:
    rng = np.random.default_rng(1)
    for _ in range(number):
        yield (size * rng.normal(size=12)).astype(np.float32)


def judged(judge: UnlikenessJudge, size: float, number: int) -> list[str]:
    told = []
    for frame in frames(size, number):
        judge.add(frame)
        told.append(judge.note(has_ended=False))
    told.append(judge.note(has_ended=True))
    return [text for text in told if text is not None]


def test_it_is_told_once_when_the_first_frames_were_seen_and_nothing_changes_after() -> None:
    judge = UnlikenessJudge(knowledge())
    assert judged(judge, 5.0, CLIP_FRAMES) == [f"far: {judge.unlikeness:.1f}"]
    before = judge.unlikeness
    assert judged(judge, 0.1, 20) == []
    assert judge.unlikeness == before


def test_a_short_video_is_judged_when_it_ends_and_a_few_frames_not_at_all() -> None:
    assert len(judged(UnlikenessJudge(knowledge()), 5.0, 9)) == 1
    few = UnlikenessJudge(knowledge())
    assert judged(few, 5.0, 7) == []
    assert few.unlikeness is None


def test_a_familiar_video_and_an_unknown_model_are_told_nothing_of() -> None:
    judge = UnlikenessJudge(knowledge(limit=1.5))
    assert judged(judge, 1.0, CLIP_FRAMES) == []
    assert judge.unlikeness is not None
    assert judge.unlikeness < 1
    assert judged(UnlikenessJudge(None), 5.0, CLIP_FRAMES) == []


def test_a_judge_that_goes_on_says_the_same() -> None:
    whole, first, second = (UnlikenessJudge(knowledge()) for _ in range(3))
    shown = list(frames(3.0))
    for frame in shown:
        whole.add(frame)
    for frame in shown[:20]:
        first.add(frame)
    second.restore(first.state())
    for frame in shown[20:]:
        second.add(frame)
    assert second.unlikeness == whole.unlikeness
    assert second.note(has_ended=False) == whole.note(has_ended=False)


def test_a_house_is_familiar_and_noise_is_not_in_summary_report_log_and_session(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    house = longtake.map("world:9?frames=12&size=126x98", tmp_path / "house", model="micro-map")
    assert house.summary is not None
    assert house.summary["unlikeness"] < 1
    assert house.summary["notes"] == []
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    rng = np.random.default_rng(2)
    for number in range(12):
        Image.fromarray(rng.integers(0, 256, (98, 126, 3), dtype=np.uint8)).save(pictures / f"{number:02d}.png")
    caplog.clear()
    noise = longtake.map(pictures, tmp_path / "noise", model="micro-map")
    assert noise.summary is not None
    assert noise.summary["unlikeness"] > 1.5
    (note,) = (note for note in noise.summary["notes"] if note.startswith(UNLIKE))
    assert note.endswith('name a published model: longtake.map(VIDEO, OUT, model="lingbot-map-long")')
    assert UNLIKE in caplog.text
    report = next(noise.folder.rglob("report.html")).read_text()
    assert UNLIKE in report
    with longtake.GeometrySession.from_pretrained("micro-map") as session:
        assert session.unlikeness is None
        for frame in longtake.open_video(pictures):
            session.step(frame)
        assert session.unlikeness == pytest.approx(noise.summary["unlikeness"], rel=1e-3)
        with session.fork() as branch:
            assert branch.unlikeness == session.unlikeness


def test_only_models_with_statistics_beside_them_are_known(tmp_path: Path) -> None:
    assert knowledge_of("tiny", "{}") is None
    assert knowledge_of(tmp_path, "{}") is None
    known = knowledge_of("micro-map", "longtake map VIDEO --model {}")
    assert known is not None
    assert "longtake map VIDEO --model lingbot-map-long" in known.note
