"""What is to be known before a map is trusted goes with the take that is downloaded, as with one of `longtake map`."""

import io
import json
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from served import BOTH, MAP, Start, open_session, push

from longtake.server.downloads import Downloads
from longtake.server.engine import Engine
from longtake.server.recorder import Recorder
from longtake.server.session import ServedSession
from longtake.video.frame import VideoFrame

pytestmark = pytest.mark.extra


@pytest.fixture
def engine(start: Start) -> Engine:
    return start()


def summary_of(session: ServedSession, folder: Path) -> dict[str, Any]:
    """As who downloads the take reads it."""
    downloads = Downloads(folder)
    made = downloads.make(session, "take")
    content = made.path.read_bytes()
    downloads.remove(made)
    downloads.close()
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        read = json.loads(archive.read("take/summary.json"))
    assert isinstance(read, dict)
    return read


def test_what_is_said_of_the_model_and_the_video_is_in_the_take(engine: Engine, tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    session = open_session(engine, BOTH)
    for number in range(12):
        picture = rng.integers(0, 256, (98, 300, 3), dtype=np.uint8)  # wider than any size of micro-map
        push(session, [VideoFrame(number, number / 2, picture)], first=number)
    session.finish().result(timeout=60)
    summary = summary_of(session, tmp_path)
    trained, unlike, cut = summary["notes"]
    assert [trained, unlike] == [note for note in session.description["notes"] if note.startswith("micro-map")]
    assert "was trained on procedural scenes" in trained
    assert "this video is unlike them" in unlike
    assert cut.startswith("The model sees the middle of each picture")
    assert cut.endswith("those left and right are cut off.")
    assert summary["unlikeness"] == session.description["unlikeness"]["model"] > 1
    assert (summary["model"], summary["num_frames"], summary["is_complete"]) == ("micro-map", 12, True)


def test_a_take_of_a_recording_that_stopped_says_so_and_why(
    engine: Engine, frames: Sequence[VideoFrame], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = open_session(engine, MAP)
    push(session, frames[:10])
    session.settle()

    def fail(_: Recorder) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(Recorder, "_require_room", fail)
    push(session, frames[10:14], first=10)
    session.finish().result(timeout=60)
    summary, num_frames = summary_of(session, tmp_path), session.description["num_recorded"]
    assert 0 < num_frames < 14
    assert summary["num_frames"] == num_frames
    assert "is_complete" not in summary
    assert summary["notes"][-1] == (
        f"Recording stopped after {num_frames} frames, and what came later is not in this take: The server failed to "
        "record it."
    )


def test_a_take_of_a_session_that_goes_on_is_not_said_to_be_all_of_it(
    engine: Engine, frames: Sequence[VideoFrame], tmp_path: Path
) -> None:
    session = open_session(engine, MAP)
    push(session, frames[:9])
    summary = summary_of(session, tmp_path)
    assert "is_complete" not in summary
    assert summary["source"] == "push"
    assert summary["num_frames"] == session.description["num_recorded"]
