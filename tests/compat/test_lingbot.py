"""The published drivers through longtake, against golden runs and against each other."""

import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from selected import rest_in_extra
from torch import Tensor

from longtake.compat.lingbot import GCTStream
from longtake.compat.lingbot_results import gather
from longtake.compat.lingbot_sequence import Schedule
from longtake.errors import InputError, SettingError
from longtake.geometry.config import GeometryConfig
from longtake.runtime.keyframes import EveryNth
from longtake.runtime.session import SequenceSession
from longtake.spatial.pinhole import unproject
from longtake.spatial.pose import decode_pose

SIZE = (42, 70)
Build = Callable[..., GCTStream]


@pytest.fixture(scope="module")
def build(golden: Callable[[str], Any], tiny_config: GeometryConfig) -> Build:
    """The golden network behind the published constructor, with the settings of the golden runs."""

    def make(**options: Any) -> GCTStream:
        settings = {
            "img_size": 56,
            "embed_dim": 128,
            "enable_point": True,
            "enable_3d_rope": True,
            "num_frame_for_scale": 2,
            "kv_cache_scale_frames": 2,
            "kv_cache_sliding_window": 3,
        }
        model = GCTStream(**settings | options, sizes=tiny_config)
        model.load_state_dict(golden("weights").tensors)
        return model.eval()

    return make


def check(golden: Any, results: dict[str, Any]) -> None:
    """Every result that the golden file holds."""
    found = {name: value for name, value in results.items() if name in golden.tensors}
    assert {"pose_enc"} <= set(found)
    for name, value in found.items():
        if name in ("frame_type", "is_keyframe"):
            if len(golden[name]) == value.shape[1]:
                assert value[0].tolist() == golden[name].tolist()
        else:
            golden.check(name, value[0, ..., 0] if name == "depth" else value[0])


STREAMS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "stream": ({}, {}),
    "stream_no_eviction": ({"kv_cache_sliding_window": 64}, {}),
    "stream_kf3": ({}, {"keyframe_interval": 3}),
    "stream_kf2_scale4": ({}, {"keyframe_interval": 2, "num_scale_frames": 4}),
    "stream_scale1": ({"kv_cache_scale_frames": 1}, {"num_scale_frames": 1}),
    "stream_scale2_cache4": ({"kv_cache_scale_frames": 4}, {"num_scale_frames": 2}),
    "stream_scale4_cache2": ({}, {"num_scale_frames": 4}),
    "stream_flow": ({}, {"flow_threshold": 15.0, "max_non_keyframe_gap": 4}),
    "retain_camera_only": ({"kv_cache_camera_only": True}, {}),
    "retain_no_special": ({"kv_cache_cross_frame_special": False}, {}),
}
WINDOWS: dict[str, dict[str, Any]] = {
    "windowed_w6_o3": {"window_size": 6, "overlap_size": 3},
    "windowed_w5_default": {"window_size": 5},
    "windowed_kf2_okf2": {"window_size": 5, "overlap_keyframes": 2, "keyframe_interval": 2},
    "windowed_kf3_okf1": {"window_size": 4, "overlap_keyframes": 1, "keyframe_interval": 3},
    "windowed_single": {"window_size": 64},
    "windowed_flow": {"window_size": 5, "overlap_size": 2, "flow_threshold": 22.0, "max_non_keyframe_gap": 3},
    "windowed_w6_o3_legacy_align": {"window_size": 6, "overlap_size": 3, "alignment": "first-frame"},
}


@pytest.mark.parametrize("name", rest_in_extra(STREAMS, keep=4))
def test_streaming_driver_reproduces_the_golden_run(
    name: str, build: Build, golden: Callable[[str], Any], golden_frames: Tensor
) -> None:
    options, arguments = STREAMS[name]
    check(golden(name), build(**options).inference_streaming(golden_frames, **arguments))


@pytest.mark.parametrize("name", rest_in_extra(WINDOWS, keep=3))
def test_windowed_driver_reproduces_the_golden_run(
    name: str, build: Build, golden: Callable[[str], Any], golden_frames: Tensor
) -> None:
    results = build().inference_windowed(golden_frames[0], **WINDOWS[name])
    check(golden(name), results)
    assert results["alignment_mode"] == "scaled"
    lengths = results["pose_enc"][..., 3:7].norm(dim=-1)
    if name == "windowed_single":
        assert "chunk_scales" not in results
        assert (lengths - 1).abs().max() > 1e-3
    else:
        torch.testing.assert_close(lengths, torch.ones_like(lengths))
        assert (results["pose_enc"][..., 6] >= 0).all()
        assert {"chunk_scales", "chunk_transforms"} <= set(results)


def test_causal_calls_reproduce_the_golden_run(
    build: Build, golden: Callable[[str], Any], golden_frames: Tensor
) -> None:
    model = build()
    first = model(golden_frames[:, :2], num_frame_for_scale=2, num_frame_per_block=2, causal_inference=True)
    parts = [first]
    for index in range(2, 10):
        model(golden_frames[:, :3])  # a plain call in between leaves no trace
        frame = golden_frames[:, index : index + 1]
        parts.append(model(frame, num_frame_for_scale=2, num_frame_per_block=1, causal_inference=True))
    parts.append(model(golden_frames[:, 10:], num_frame_for_scale=2, causal_inference=True))
    names = ("pose_enc", "depth", "depth_conf", "world_points", "world_points_conf")
    check(golden("stream"), {name: torch.cat([part[name] for part in parts], dim=1) for name in names})
    assert [pose.shape for pose in first["pose_enc_list"]] == [(1, 2, 9)] * 4
    assert torch.equal(first["pose_enc_list"][-1], first["pose_enc"])
    assert torch.equal(first["images"], golden_frames[:, :2])


def test_one_call_over_a_scale_block_reproduces_the_golden_run(
    build: Build, golden: Callable[[str], Any], golden_frames: Tensor
) -> None:
    clip = golden_frames[0, :4]
    plain = build()(clip, num_frame_for_scale=4, num_frame_per_block=4)
    check(golden("forward_scale"), plain)
    check(golden("forward_scale"), build()(clip, num_frame_for_scale=4, causal_inference=True))
    for index, pose in enumerate(plain["pose_enc_list"]):
        golden("forward_scale").check(f"pose_enc_iter{index}", pose[0])
    rotated_by_image = build(enable_3d_rope=False)(clip, num_frame_for_scale=4, num_frame_per_block=4)
    check(golden("forward_scale_rope2d"), rotated_by_image)


def test_plain_call_reproduces_the_golden_run_and_repeats_itself(
    build: Build, golden: Callable[[str], Any], golden_frames: Tensor
) -> None:
    model = build()
    results = model(golden_frames[:, :6], num_frame_for_scale=2)
    check(golden("forward_noncausal"), results)
    again = model((255 * golden_frames[:, :6]).round().to(torch.uint8), num_frame_for_scale=2)
    assert torch.equal(again["pose_enc"], results["pose_enc"])
    assert torch.equal(again["depth"], results["depth"])
    assert model.get_kv_cache_info()["cache_bytes"] == 0
    shapes = {name: tuple(value.shape) for name, value in results.items() if isinstance(value, Tensor)}
    assert shapes == {
        "pose_enc": (1, 6, 9),
        "depth": (1, 6, *SIZE, 1),
        "depth_conf": (1, 6, *SIZE),
        "world_points": (1, 6, *SIZE, 3),
        "world_points_conf": (1, 6, *SIZE),
        "images": (1, 6, 3, *SIZE),
    }
    assert "images" not in model.train()(golden_frames[:, :1])


def test_gradients_flow_through_a_plain_call(build: Build, golden_frames: Tensor) -> None:
    model = build()
    model(golden_frames[:, :1])["pose_enc"].sum().backward()
    assert model.camera_head.first_pose.grad is not None


@pytest.mark.extra
@pytest.mark.parametrize(
    ("driver", "arguments"),
    [
        ("inference_streaming", {"keyframe_interval": 2}),
        ("inference_windowed", {"window_size": 6, "overlap_size": 3}),
        ("inference_windowed", WINDOWS["windowed_flow"]),
    ],
)
def test_videos_of_a_batch_do_not_see_each_other(
    driver: str, arguments: dict[str, Any], build: Build, golden_frames: Tensor
) -> None:
    videos = torch.cat([golden_frames[:, :8], golden_frames[:, 6:]])
    together = getattr(build(), driver)(videos, **arguments)
    for row, video in enumerate(videos):
        alone = getattr(build(), driver)(video, **arguments)
        for name in ("pose_enc", "depth", "world_points", *(["frame_type"] if "frame_type" in alone else [])):
            assert torch.equal(together[name][row], alone[name][0])
        if "chunk_scales" in alone:
            windows = alone["chunk_scales"].shape[1]
            assert torch.equal(together["chunk_scales"][row, :windows], alone["chunk_scales"][0])
            assert together["chunk_transforms"][row, windows:].isnan().all()


def test_causal_batch_equals_two_runs(build: Build, golden_frames: Tensor) -> None:
    videos = torch.cat([golden_frames, golden_frames.flip(1)])
    model, alone = build(), [build(), build()]
    for start, stop in ((0, 2), (2, 3), (3, 6)):
        together = model(videos[:, start:stop], num_frame_for_scale=2, causal_inference=True)
        for row, single in enumerate(alone):
            clip = videos[row, start:stop]
            results = single(clip, num_frame_for_scale=2, causal_inference=True)
            assert torch.equal(together["pose_enc"][row], results["pose_enc"][0])
            assert torch.equal(together["depth"][row], results["depth"][0])
    assert model.get_kv_cache_info()["cache_bytes"] == 2 * alone[0].get_kv_cache_info()["cache_bytes"]


def test_cache_info_counts_every_byte(build: Build, golden_frames: Tensor, tiny_config: GeometryConfig) -> None:
    model = build()
    assert model.get_kv_cache_info()["num_cached_blocks"] == model.get_kv_cache_info()["cache_memory_mb"] == 0
    model.inference_streaming(golden_frames)
    info = model.get_kv_cache_info()
    assert info["num_cached_frames"] == info["num_cached_camera_tokens"] == 14
    assert info["num_cached_tokens"] == 5 * 21 + 9 * 6  # anchors and window whole, six tokens of each frame between
    trunk = 2 * info["num_cached_tokens"] * tiny_config.trunk.depth * tiny_config.width
    camera = 2 * 14 * tiny_config.camera_layers * 2 * tiny_config.width
    assert info["cache_bytes"] == 4 * (trunk + camera) <= info["allocated_bytes"]
    assert info["cache_memory_mb"] == round(info["cache_bytes"] / 2**20, 2)
    assert (info["num_cached_blocks"], info["num_cached_camera_blocks"]) == (5, 8)
    model.inference_streaming(golden_frames, output_device="cpu")
    assert model.get_kv_cache_info()["allocated_bytes"] == 0


def test_sequence_that_ended_or_was_cleaned_begins_anew(build: Build, golden_frames: Tensor) -> None:
    model = build()
    scale = {"num_frame_for_scale": 2, "causal_inference": True}
    first = model(golden_frames[:, :2], **scale)
    model(golden_frames[:, 2:5], **scale)
    model.clean_kv_cache()
    assert torch.equal(model(golden_frames[:, :2], **scale)["depth"], first["depth"])
    model.inference_streaming(golden_frames)
    assert torch.equal(model(golden_frames[:, :2], **scale)["depth"], first["depth"])
    assert model.get_kv_cache_info()["num_cached_frames"] == 2
    model.load_state_dict(model.state_dict())
    assert model.get_kv_cache_info()["num_cached_frames"] == 0


def test_memory_is_no_larger_than_a_short_video_needs(build: Build, golden_frames: Tensor) -> None:
    wide = build(kv_cache_scale_frames=8, kv_cache_sliding_window=64)
    short = wide.inference_streaming(golden_frames[:, :9])
    allocated = wide.get_kv_cache_info()["allocated_bytes"]
    wide.clean_kv_cache()
    first = wide(golden_frames[:, :2], num_frame_for_scale=2, causal_inference=True)
    assert allocated * 6 < wide.get_kv_cache_info()["allocated_bytes"]
    rest = wide(golden_frames[:, 2:9], num_frame_for_scale=2, causal_inference=True)
    whole = torch.cat([first["depth"], rest["depth"]], dim=1)
    torch.testing.assert_close(whole, short["depth"], rtol=1e-5, atol=1e-5)


def test_memory_of_the_published_size_is_planned_for_the_sequence_alone() -> None:
    kept = {interval: streaming(300, interval).num_kept for interval in (1, 2, 7)}
    assert kept == {1: 300, 2: 154, 7: 50}


def streaming(num_frames: int, interval: int) -> Schedule:
    return Schedule.streaming(num_frames, num_scale_frames=8, keyframes=EveryNth(interval))


@pytest.mark.parametrize("driver", ["inference_streaming", "inference_windowed"])
def test_results_and_images_go_to_the_output_device(driver: str, build: Build, golden_frames: Tensor) -> None:
    results = getattr(build(), driver)(golden_frames[:, :5], output_device=torch.device("meta"))
    per_frame = {name: value for name, value in results.items() if name.split("_")[0] in ("pose", "depth", "world")}
    assert len(per_frame) == 5
    assert {value.device.type for value in (*per_frame.values(), results["images"])} == {"meta"}
    assert per_frame["world_points"].shape == (1, 5, *SIZE, 3)


def test_each_result_is_moved_before_the_next_is_computed(build: Build, golden_frames: Tensor) -> None:
    model = build()
    seen: list[weakref.ref[Tensor]] = []

    def steps(session: SequenceSession) -> Iterator[Any]:
        for frame in golden_frames[0, :5]:
            assert sum(reference() is not None for reference in seen) <= 1
            answer = session.step(frame)
            if len(answer):
                answer = replace(answer, depth=answer.depth.clone())
                seen.append(weakref.ref(answer.depth))
                yield answer
                del answer

    session = model._open(SIZE, 2, model._retention)
    assert len(gather(steps(session), "meta")) == 5
    assert len(seen) == 4


def test_predictions_in_the_unit_of_the_scale_block(build: Build, golden_frames: Tensor) -> None:
    golden_frames = golden_frames[:, :7]
    raw, scaled = build().inference_streaming(golden_frames), build(pred_normalization=True)
    results = scaled.inference_streaming(golden_frames)
    depth, pose = results["depth"][0, :2, ..., 0], results["pose_enc"][0, :2]
    world_from_camera, intrinsics = decode_pose(pose, *SIZE)
    distances = unproject(depth, intrinsics, world_from_camera).norm(dim=-1)
    torch.testing.assert_close(distances.mean(), torch.tensor(1.0))
    unit = (raw["depth"] / results["depth"]).mean()
    for name in ("depth", "world_points"):
        torch.testing.assert_close(results[name] * unit, raw[name], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(results["pose_enc"][..., :3] * unit, raw["pose_enc"][..., :3], rtol=1e-4, atol=1e-4)
    assert torch.equal(results["pose_enc"][..., 3:], raw["pose_enc"][..., 3:])
    first = scaled(golden_frames[:, :2], num_frame_for_scale=2, causal_inference=True)
    rest = scaled(golden_frames[:, 2:], num_frame_for_scale=2, causal_inference=True)
    torch.testing.assert_close(torch.cat([first["depth"], rest["depth"]], dim=1), results["depth"])
    assert torch.equal(rest["pose_enc_list"][-1], rest["pose_enc"])
    plain = scaled(golden_frames[:, :2], num_frame_for_scale=2)
    torch.testing.assert_close(plain["depth"], first["depth"])
    windowed = scaled.inference_windowed(golden_frames, window_size=6, overlap_size=3)
    unscaled = build().inference_windowed(golden_frames, window_size=6, overlap_size=3)
    shrunk = unscaled["chunk_transforms"][..., :3, 3] / unit
    torch.testing.assert_close(windowed["chunk_transforms"][..., :3, 3], shrunk, rtol=1e-4, atol=1e-5)


def test_trimmed_mean_scale_differs_from_the_median(build: Build, golden_frames: Tensor) -> None:
    median, trimmed = (
        build().inference_windowed(golden_frames[:, :9], window_size=6, scale_mode=mode)["chunk_scales"]
        for mode in ("median", "trimmed_mean")
    )
    assert not torch.equal(median, trimmed)
    torch.testing.assert_close(median, trimmed, rtol=0.1, atol=0.1)


@pytest.mark.extra
def test_half_precision_stays_near_the_golden_run(
    build: Build, golden: Callable[[str], Any], golden_frames: Tensor
) -> None:
    published = build()
    published.aggregator = published.aggregator.to(dtype=torch.bfloat16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        results = published.inference_streaming(golden_frames)
    golden("stream").check("pose_enc", results["pose_enc"][0], tolerance=0.1)
    assert results["depth"].dtype == torch.float32
    whole = build().bfloat16()
    results = whole.inference_streaming(golden_frames)
    golden("stream").check("pose_enc", results["pose_enc"][0].float(), tolerance=0.2)
    exact = build()
    exact.inference_streaming(golden_frames)
    assert published.get_kv_cache_info()["cache_bytes"] < exact.get_kv_cache_info()["cache_bytes"]


@pytest.mark.parametrize(
    ("call", "error", "sentence"),
    [
        (lambda model, frames: model(frames[0, 0]), InputError, "stack the frames of a video"),
        (lambda model, frames: model.inference_streaming(frames[:, :0]), InputError, "stack the frames"),
        (lambda model, frames: model.inference_streaming(2 * frames), InputError, "from 0 to 1"),
        (lambda model, frames: model.inference_streaming(frames[..., :40]), InputError, "multiples of 14 pixels"),
        (lambda model, frames: model(frames[:, :3], causal_inference=True), SettingError, "num_frame_for_scale=3"),
        (lambda model, frames: model(frames, num_frame_per_block=0), SettingError, "at least 1 frame"),
        (
            lambda model, frames: model(frames[:, :4], num_frame_per_block=2, causal_inference=True),
            SettingError,
            "1 or all 4",
        ),
        (
            lambda model, frames: model.inference_windowed(frames, window_size=8, overlap_size=16),
            SettingError,
            "frames would be lost",
        ),
        (
            lambda model, frames: model.inference_windowed(frames, window_size=2, flow_threshold=5.0),
            SettingError,
            "no room beside its 2 scale frames",
        ),
        (
            lambda model, frames: model.inference_windowed(frames, scale_mode="median_all"),
            SettingError,
            "choose one of median, trimmed_mean",
        ),
    ],
)
def test_calls_that_mean_nothing_or_lose_frames_are_refused(
    call: Callable[..., Any], error: type[Exception], sentence: str, build: Build, golden_frames: Tensor
) -> None:
    with pytest.raises(error, match=sentence):
        call(build(), golden_frames)


def test_call_that_does_not_fit_leaves_the_running_sequence_as_it_was(build: Build, golden_frames: Tensor) -> None:
    model, undisturbed = build(), build()
    scale = {"num_frame_for_scale": 2, "causal_inference": True}
    for each in (model, undisturbed):
        each(golden_frames[:, :2], **scale)
    frame = golden_frames[:, 2:3]
    with pytest.raises(InputError, match="the 1 videos this sequence began with"):
        model(torch.cat([frame, frame]), **scale)
    with pytest.raises(SettingError, match="began with 2 scale frames"):
        model(frame, num_frame_for_scale=3, causal_inference=True)
    with pytest.raises(InputError, match="Expected a frame of 3 x 42 x 70"):
        model(frame[..., :42], **scale)
    assert torch.equal(model(frame, **scale)["depth"], undisturbed(frame, causal_inference=True)["depth"])


@pytest.mark.parametrize(
    "arguments",
    [{"window_size": 16, "overlap_size": 16}, {"window_size": 1}, {"window_size": 1, "flow_threshold": 5.0}],
)
def test_video_that_one_window_holds_needs_no_overlap(
    arguments: dict[str, Any], build: Build, golden_frames: Tensor
) -> None:
    clip = golden_frames[:, :6]
    results = build().inference_windowed(clip, num_scale_frames=8 if arguments["window_size"] == 1 else 2, **arguments)
    assert results["pose_enc"].shape == (1, 6, 9)
    assert results["is_keyframe"].all()
    assert "chunk_scales" not in results
