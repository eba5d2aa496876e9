"""Windows against golden runs, their true spans, and what is emitted when."""

import gzip
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from longtake.errors import InputError, SettingError
from longtake.geometry.model import GeometryModel
from longtake.runtime.alignment import Alignment, Anchoring
from longtake.runtime.keyframes import ByFlow, EveryNth, KeyframeRule
from longtake.runtime.retention import ContextRetention, MemoryPlan
from longtake.runtime.session import GeometrySession
from longtake.runtime.windowed import WindowedSession
from longtake.runtime.windows import WindowRule, Windows
from longtake.types import FrameKind, Geometry

SIZE = (42, 70)
TRACES = json.loads(gzip.decompress((Path(__file__).parent.parent / "golden/gct/traces.json.gz").read_bytes()))


def open_session(model: GeometryModel, keyframes: KeyframeRule | None = None) -> GeometrySession:
    retention = ContextRetention(anchors=2, window=3)
    plan = MemoryPlan(config=model.config, size=SIZE, retention=retention, num_scale_frames=2)
    return GeometrySession(model, plan, keyframes=keyframes)


GOLDEN_RUNS: dict[str, tuple[KeyframeRule, Windows]] = {
    "windowed_w6_o3": (EveryNth(1), Windows(size=6, overlap_frames=3)),
    "windowed_w5_default": (EveryNth(1), Windows(size=5)),
    "windowed_kf2_okf2": (EveryNth(2), Windows(size=5, overlap_keyframes=2)),
    "windowed_kf3_okf1": (EveryNth(3), Windows(size=4, overlap_keyframes=1)),
    "windowed_single": (EveryNth(1), Windows(size=64)),
    "windowed_flow": (ByFlow(22.0, max_gap=3), Windows(size=5, overlap_frames=2)),
}
KIND_CODES = {FrameKind.SCALE: 0, FrameKind.KEYFRAME: 1, FrameKind.PASSING: 2}


def unit_quaternions(pose_encoding: Tensor) -> Tensor:
    """A first or only window keeps the network's quaternions as they came; golden runs may have normed them."""
    quaternion = torch.nn.functional.normalize(pose_encoding[:, 3:7], dim=1)
    quaternion = torch.where(quaternion[:, 3:] < 0, -quaternion, quaternion)
    return torch.cat([pose_encoding[:, :3], quaternion, pose_encoding[:, 7:]], dim=1)


@pytest.mark.parametrize("name", GOLDEN_RUNS)
def test_windows_reproduce_the_golden_run(
    name: str, golden: Callable[[str], Any], golden_frames: Tensor, tiny_model: GeometryModel
) -> None:
    want = golden(name)
    keyframes, windows = GOLDEN_RUNS[name]
    session = WindowedSession(open_session(tiny_model, keyframes), windows)
    got = Geometry.join(list(session.run(golden_frames[0])))
    assert got.frame_index == tuple(range(14))
    if name == "windowed_single":
        want.check("pose_enc", got.pose_encoding)
    else:
        want.check("pose_enc", unit_quaternions(got.pose_encoding))
        want.check("chunk_scales", torch.stack([span.world_from_window.scale for span in session.windows]))
        rigid = torch.stack([span.world_from_window.matrix for span in session.windows])
        rigid[:, :3, :3] /= torch.stack([span.world_from_window.scale for span in session.windows])[:, None, None]
        want.check("chunk_transforms", rigid)
    want.check("depth", got.depth)
    assert [KIND_CODES[kind] for kind in got.kind] == want["frame_type"].tolist()
    assert list(got.is_keyframe) == want["is_keyframe"].tolist()
    if name == "windowed_w6_o3":
        want.check("depth_conf", got.depth_confidence)
        want.check("world_points", got.points)
        want.check("world_points_conf", got.points_confidence)


def test_older_alignment_rule_reproduces_the_golden_run(
    golden: Callable[[str], Any], golden_frames: Tensor, tiny_model: GeometryModel
) -> None:
    want = golden("windowed_w6_o3_legacy_align")
    rule = Alignment(Anchoring.FIRST_FRAME)
    session = WindowedSession(open_session(tiny_model), Windows(size=6, overlap_frames=3), rule)
    got = Geometry.join(list(session.run(golden_frames[0])))
    want.check("pose_enc", unit_quaternions(got.pose_encoding))
    want.check("chunk_scales", torch.stack([span.world_from_window.scale for span in session.windows]))


@pytest.mark.parametrize("case", TRACES["windows"], ids=lambda case: "-".join(str(case[key]) for key in list(case)[:6]))
def test_spans_are_those_of_the_published_tool_or_refused_where_it_loses_frames(case: dict[str, Any]) -> None:
    windows = Windows(
        size=case["window_size"], overlap_frames=case["overlap_size"], overlap_keyframes=case["overlap_keyframes"]
    )
    keyframes = EveryNth(max(case["keyframe_interval"], 1))
    if case["merged_frames"] < case["S"]:
        with pytest.raises(SettingError, match=r"no room beside its|frames would be lost"):
            WindowRule.of(windows, case["num_scale_frames"], keyframes)
        return
    rule = WindowRule.of(windows, case["num_scale_frames"], keyframes)
    assert [list(span) for span in rule.spans(case["S"])] == case["windows"]
    if len(case["windows"]) > 1:
        assert rule.overlap == case["overlap"]


@pytest.mark.parametrize("name", GOLDEN_RUNS)
def test_every_frame_is_emitted_once_in_order_and_as_soon_as_final(
    name: str, golden_frames: Tensor, tiny_model: GeometryModel
) -> None:
    keyframes, windows = GOLDEN_RUNS[name]
    session = WindowedSession(open_session(tiny_model, keyframes), windows)
    rule = WindowRule.of(windows, 2, keyframes)
    emitted: list[int] = []
    for index, frame in enumerate(golden_frames[0]):
        emitted += session.step(frame).frame_index
        behind = index + 1 - len(emitted)
        assert behind <= max(rule.overlap, 2)
    if rule.length is not None:
        spans = list(rule.spans(14))
        assert [(span.first_frame, span.first_frame + span.num_frames) for span in session.windows] == spans
    emitted += session.finish().frame_index
    assert emitted == list(range(14))
    spans_seen = session.windows
    for before, after in itertools.pairwise(spans_seen):
        assert after.first_frame == before.first_frame + before.num_frames - after.num_shared
        assert after.num_shared >= 1


@pytest.mark.parametrize("num_frames", range(1, 12))
def test_video_of_any_length_is_answered_whole(
    num_frames: int, golden_frames: Tensor, tiny_model: GeometryModel
) -> None:
    for keyframes, windows in ((EveryNth(1), Windows(size=5, overlap_frames=1)), (ByFlow(22.0), Windows(size=3))):
        session = WindowedSession(open_session(tiny_model, keyframes), windows)
        frames = golden_frames[0, :num_frames]
        assert [i for part in session.run(frames) for i in part.frame_index] == list(range(num_frames))


def test_bad_frame_leaves_a_windowed_session_unchanged(golden_frames: Tensor, tiny_model: GeometryModel) -> None:
    plain = WindowedSession(open_session(tiny_model), Windows(size=5))
    disturbed = WindowedSession(open_session(tiny_model), Windows(size=5))
    for frame in golden_frames[0]:
        with pytest.raises(InputError, match="resize it"):
            disturbed.step(frame[:, :28])
        got, want = disturbed.step(frame), plain.step(frame)
        assert got.frame_index == want.frame_index
        assert torch.equal(got.pose_encoding, want.pose_encoding)
    assert disturbed.finish().frame_index == plain.finish().frame_index


def fail_at_second_call(step: Callable[..., Geometry]) -> Callable[..., Geometry]:
    working = iter([step])

    def call(*arguments: Any) -> Geometry:
        for first in working:
            return first(*arguments)
        raise RuntimeError("the power went out")

    return call


def test_window_that_fails_to_begin_begins_at_the_next_step(
    golden_frames: Tensor, tiny_model: GeometryModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = WindowedSession(open_session(tiny_model), Windows(size=5, overlap_frames=3))
    inner = open_session(tiny_model)
    disturbed = WindowedSession(inner, Windows(size=5, overlap_frames=3))
    for index, frame in enumerate(golden_frames[0, :9]):
        if index == 5:
            with monkeypatch.context() as patch:
                patch.setattr(inner, "step", fail_at_second_call(inner.step))
                with pytest.raises(RuntimeError, match="power"):
                    disturbed.step(frame)
        got, want = disturbed.step(frame), plain.step(frame)
        assert got.frame_index == want.frame_index
        assert torch.equal(got.depth, want.depth)
        assert torch.equal(got.pose_encoding, want.pose_encoding)


def test_timestamps_and_windows_follow_the_frames(golden_frames: Tensor, tiny_model: GeometryModel) -> None:
    session = WindowedSession(open_session(tiny_model), Windows(size=5))
    parts = [session.step(frame, 0.1 * index) for index, frame in enumerate(golden_frames[0])]
    whole = Geometry.join([*parts, session.finish()])
    assert whole.timestamp_s == tuple(0.1 * index for index in range(14))
    assert whole.window == (0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 3, 3)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: WindowRule.of(Windows(size=2), 2, EveryNth(1)), "no room beside its 2 scale frames; give at least 3"),
        (lambda: WindowRule.of(Windows(size=6, overlap_frames=6), 2, EveryNth(1)), "give an overlap of at most 5"),
        (lambda: WindowRule.of(Windows(size=4, overlap_keyframes=4), 2, EveryNth(2)), "frames would be lost"),
        (lambda: Windows(size=0), "positive window size"),
        (lambda: Windows(size=6, overlap_frames=0), "positive window size"),
        (lambda: Windows(size=6, overlap_frames=3, overlap_keyframes=2), "got both"),
        (lambda: ByFlow(-1.0), "above 0 pixels"),
        (lambda: ByFlow(float("nan")), "above 0 pixels"),
        (lambda: ByFlow(5.0, max_gap=0), "gap of at least 1"),
        (lambda: EveryNth(0), "interval of at least 1"),
    ],
)
def test_settings_that_would_lose_frames_or_mean_nothing_are_refused(make: Callable[[], object], sentence: str) -> None:
    with pytest.raises(SettingError, match=sentence):
        make()
