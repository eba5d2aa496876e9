"""Networks of the VGGT family, whole clips against golden runs and against streams."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from longtake.errors import InputError, SettingError
from longtake.geometry.config import CAMERA, TRUNK, Attention
from longtake.geometry.model import GeometryModel
from longtake.memory.policies.lockstep import ContextRetention, KeepAll, Trail
from longtake.runtime.clip import WINDOW, clip_recall, clip_retention, watch_clip
from longtake.runtime.keyframes import ByFlow
from longtake.runtime.memory_plan import MemoryPlan
from longtake.runtime.session import SequenceSession
from longtake.spatial.flow import mean_flow_px
from longtake.spatial.pose import invert_encoding
from longtake.types import FrameKind, Geometry

SIZE = (56, 70)
EVERYTHING = ContextRetention(anchors=1, window=16, trail=Trail.NONE, history=17)
"""Eight frames never fill it."""
LAST_FIVE = ContextRetention(anchors=1, window=5, trail=Trail.NONE, history=6)
RUNS = {
    "batch_causal": "stream3r",
    "batch_window": "stream3r",
    "batch_full": "stream3r",
    "streamvggt_batch": "streamvggt",
    "vggt_full": "vggt",
}


def stream(model: GeometryModel, frames: Tensor, retention: ContextRetention, **settings: Any) -> Geometry:
    plan = MemoryPlan(config=model.config, size=SIZE, retention=retention, num_scale_frames=1)
    return Geometry.join(list(SequenceSession(model, plan, **settings).run(frames)))


def check(want: Any, got: Geometry) -> None:
    want.check("pose_enc", invert_encoding(got.pose_encoding))
    want.check("depth", got.depth)
    want.check("depth_conf", got.depth_confidence)
    want.check("world_points", got.points)
    want.check("world_points_conf", got.points_confidence)


@pytest.mark.parametrize("name", RUNS)
def test_clip_reproduces_the_golden_run(
    name: str, vggt_golden: Callable[[str], Any], vggt_frames: Tensor, load_vggt: Callable[[str], GeometryModel]
) -> None:
    want, model = vggt_golden(name), load_vggt(RUNS[name])
    attention = Attention(want.settings["attention"])
    got = watch_clip(model, vggt_frames[0], attention=None if attention is model.config.attention else attention)
    check(want, got)
    assert got.frame_index == tuple(range(8))
    assert got.timestamp_s == tuple(map(float, range(8)))
    assert got.kind == (FrameKind.SCALE, *(FrameKind.KEYFRAME,) * 7)


def test_bytes_and_a_list_of_frames_say_the_same(
    vggt_golden: Callable[[str], Any], vggt_frames: Tensor, load_vggt: Callable[[str], GeometryModel]
) -> None:
    model = load_vggt("vggt")
    want = watch_clip(model, vggt_frames[0, :3], (0.5, 1.0, 1.5))
    got = watch_clip(model, list(vggt_golden("frames")["frames_u8"][:3]), [0.5, 1.0, 1.5])
    assert torch.equal(got.depth, want.depth)
    assert got.timestamp_s == want.timestamp_s == (0.5, 1.0, 1.5)


def test_causal_stream_reproduces_the_golden_run_and_the_clip(
    vggt_golden: Callable[[str], Any], vggt_frames: Tensor, load_vggt: Callable[[str], GeometryModel]
) -> None:
    model = load_vggt("stream3r")
    got = stream(model, vggt_frames[0], EVERYTHING)
    check(vggt_golden("stream_causal"), got)
    whole = watch_clip(model, vggt_frames[0])
    torch.testing.assert_close(got.world_from_camera, whole.world_from_camera, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(got.points, whole.points, rtol=1e-5, atol=1e-5)


def test_window_stream_equals_the_golden_clip(
    vggt_golden: Callable[[str], Any], vggt_frames: Tensor, load_vggt: Callable[[str], GeometryModel]
) -> None:
    check(vggt_golden("batch_window"), stream(load_vggt("stream3r"), vggt_frames[0], LAST_FIVE))


def test_published_window_stream_sees_one_frame_more(
    vggt_golden: Callable[[str], Any], vggt_frames: Tensor, load_vggt: Callable[[str], GeometryModel]
) -> None:
    one_more = replace(LAST_FIVE, window=6, history=7)
    want = vggt_golden("stream_window")
    check(want, stream(load_vggt("stream3r"), vggt_frames[0], one_more))
    repaired = stream(load_vggt("stream3r"), vggt_frames[0], LAST_FIVE)
    differs = (invert_encoding(repaired.pose_encoding) - want["pose_enc"]).abs().amax(dim=1) > 1e-3
    assert differs.tolist() == [False] * 6 + [True] * 2


def test_streamvggt_with_a_camera_memory_for_each_iteration_streams_as_its_clip(
    vggt_golden: Callable[[str], Any], vggt_frames: Tensor, load_vggt: Callable[[str], GeometryModel]
) -> None:
    shared = load_vggt("streamvggt")
    config = replace(shared.config, camera=replace(shared.config.camera, shared_memory=False))
    model = GeometryModel(config)
    model.load_state_dict(shared.state_dict())
    got = stream(model.eval(), vggt_frames[0], EVERYTHING)
    check(vggt_golden("streamvggt_batch"), got)
    want = vggt_golden("streamvggt_stream")
    want.check("depth", got.depth)
    want.check("world_points", got.points)


def test_flow_keyframes_judge_cameras_in_the_world(
    vggt_frames: Tensor, load_vggt: Callable[[str], GeometryModel]
) -> None:
    rule = ByFlow(25.0)
    got = stream(load_vggt("stream3r"), vggt_frames[0], EVERYTHING, keyframes=rule)
    last, kinds = 1, [FrameKind.SCALE, FrameKind.KEYFRAME]
    for frame in range(2, 8):
        cameras = [(got.world_from_camera[index], got.intrinsics[index]) for index in (frame, last)]
        moved = float(mean_flow_px(got.depth[frame], *cameras))
        kinds.append(FrameKind.KEYFRAME if moved > rule.threshold_px else FrameKind.PASSING)
        last = frame if moved > rule.threshold_px else last
    assert got.kind == tuple(kinds)
    assert set(kinds) == set(FrameKind)


def test_rules_of_streams_and_clips_are_named_alike() -> None:
    assert clip_retention(Attention.CAUSAL) == KeepAll()
    assert clip_retention(Attention.WINDOW) == WINDOW
    with pytest.raises(SettingError, match="Expected attention that is causal or window, but got full"):
        clip_retention(Attention.FULL)


def test_masks_are_for_both_streams(load_vggt: Callable[[str], GeometryModel]) -> None:
    config = load_vggt("stream3r").config
    recall = clip_recall(config, 3, SIZE)
    trunk, camera = recall.masks[TRUNK], recall.masks[CAMERA]
    assert trunk is not None
    assert camera is not None
    assert torch.equal(camera, torch.ones(3, 3, dtype=torch.bool).tril())
    assert torch.equal(trunk[::25, ::25], camera)
    assert recall.ordinals == (0, 1, 2)
    assert clip_recall(config, 3, SIZE, attention=Attention.FULL).masks == {TRUNK: None, CAMERA: None}


def test_network_trained_on_streams_alone_is_refused(tiny_model: GeometryModel, golden_frames: Tensor) -> None:
    with pytest.raises(SettingError, match="open a session, or choose attention among causal, window, full"):
        watch_clip(tiny_model, golden_frames[0, :2])
    assert len(watch_clip(tiny_model, golden_frames[0, :2], attention=Attention.FULL)) == 2


@pytest.mark.parametrize(
    ("frames", "times", "sentence"),
    [
        ([], None, "at least one frame"),
        ([torch.zeros(3, 56, 70), torch.zeros(3, 70, 56)], None, "of one size, but got 3 x 56 x 70, 3 x 70 x 56"),
        ([torch.zeros(56, 70)], None, "as 3 x height x width of one size, but got 56 x 70"),
        ([torch.zeros(4, 56, 70)], None, "Expected a frame of 3 x 56 x 70"),
        ([torch.full((3, 56, 70), torch.nan)], None, "finite pixels"),
        ([torch.full((3, 56, 70), 255.0)], None, "from 0 to 1"),
        ([torch.zeros(3, 50, 70)], None, "multiples of 14 pixels, got 50 x 70"),
        ([torch.zeros(3, 56, 70)], (0.0, 1.0), "a timestamp for each of 1 frames, but got 2"),
    ],
)
def test_clips_that_cannot_be_seen_are_refused(
    frames: list[Tensor], times: tuple[float, ...] | None, sentence: str, load_vggt: Callable[[str], GeometryModel]
) -> None:
    with pytest.raises(InputError, match=sentence):
        watch_clip(load_vggt("vggt"), frames, times)
