"""Every argument of the published constructor: its default, and what it changes."""

import inspect
import sys
import types
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from longtake.compat.lingbot import GCTStream
from longtake.compat.lingbot_options import IDLE_ARGUMENTS, IDLE_OPTIONS, published_backend
from longtake.errors import SettingError
from longtake.geometry.config import GeometryConfig

PUBLISHED: dict[str, Any] = {
    "img_size": 518,
    "patch_size": 14,
    "embed_dim": 1024,
    "patch_embed": "dinov2_vitl14_reg",
    "pretrained_path": "",
    "disable_global_rope": False,
    "enable_camera": True,
    "enable_point": False,
    "enable_local_point": False,
    "enable_depth": True,
    "enable_track": False,
    "enable_normalize": False,
    "pred_normalization": False,
    "sliding_window_size": -1,
    "num_frame_for_scale": 1,
    "num_random_frames": 0,
    "attend_to_special_tokens": False,
    "attend_to_scale_frames": False,
    "enable_stream_inference": True,
    "enable_3d_rope": False,
    "max_frame_num": 1024,
    "enable_camera_3d_rope": False,
    "camera_rope_theta": 10000.0,
    "use_scale_token": True,
    "kv_cache_sliding_window": 64,
    "kv_cache_scale_frames": 8,
    "kv_cache_cross_frame_special": True,
    "kv_cache_include_scale_frames": True,
    "kv_cache_camera_only": False,
    "use_sdpa": False,
    "use_gradient_checkpoint": True,
    "camera_num_iterations": 4,
}
DRIVERS: dict[str, dict[str, Any]] = {
    "inference_streaming": {
        "num_scale_frames": None,
        "keyframe_interval": 1,
        "output_device": None,
        "flow_threshold": 0.0,
        "max_non_keyframe_gap": 30,
    },
    "inference_windowed": {
        "window_size": 16,
        "overlap_size": None,
        "overlap_keyframes": None,
        "num_scale_frames": None,
        "scale_mode": "median",
        "output_device": None,
        "keyframe_interval": 1,
        "flow_threshold": 0.0,
        "max_non_keyframe_gap": 30,
    },
    "forward": {
        "query_points": None,
        "num_frame_for_scale": None,
        "sliding_window_size": None,
        "num_frame_per_block": 1,
        "mask": None,
        "causal_inference": False,
        "ordered_video": None,
        "gather_outputs": True,
        "point_masks": None,
    },
}

SIZES: dict[str, tuple[Any, Callable[[GeometryConfig], object], object]] = {
    "img_size": (280, lambda config: config.encoder.side, 20),
    "patch_size": (7, lambda config: (config.patch, config.encoder.side), (7, 74)),
    "embed_dim": (512, lambda config: config.width, 512),
}
"""Arguments that need weights of another shape: a value, and what it makes of the configuration."""

PREDICTING: dict[str, dict[str, Any]] = {
    "enable_3d_rope": {"enable_3d_rope": False},
    "enable_camera_3d_rope": {"enable_camera_3d_rope": True},
    "camera_rope_theta": {"camera_rope_theta": 50.0, "enable_camera_3d_rope": True},
    "camera_num_iterations": {"camera_num_iterations": 2},
    "disable_global_rope": {"disable_global_rope": True},
    "num_frame_for_scale": {"num_frame_for_scale": 3},
    "pred_normalization": {"pred_normalization": True},
    "max_frame_num": {"max_frame_num": 5},
    "kv_cache_sliding_window": {"kv_cache_sliding_window": 2},
    "kv_cache_scale_frames": {"kv_cache_scale_frames": 1},
    "kv_cache_cross_frame_special": {"kv_cache_cross_frame_special": False},
    "kv_cache_include_scale_frames": {"kv_cache_include_scale_frames": False},
    "kv_cache_camera_only": {"kv_cache_camera_only": True},
}
"""Arguments that change what the golden network predicts."""

HEADS = {"enable_point": True, "enable_local_point": True, "enable_depth": False}
REFUSED = {"patch_embed": "conv", "enable_camera": False}
IDLE = {
    "pretrained_path": "dinov2.pth",
    "enable_track": True,
    "enable_normalize": True,
    "sliding_window_size": 4,
    "num_random_frames": 2,
    "attend_to_special_tokens": True,
    "attend_to_scale_frames": True,
    "enable_stream_inference": False,
    "use_scale_token": False,
    "use_gradient_checkpoint": False,
}


def on_meta(**options: Any) -> GCTStream:
    with torch.device("meta"):
        return GCTStream(**options)


@pytest.fixture(scope="module")
def build(golden: Callable[[str], Any], tiny_config: GeometryConfig) -> Callable[..., GCTStream]:
    """The golden network as far as its weights fit."""

    def make(**options: Any) -> GCTStream:
        settings = {"enable_3d_rope": True, "kv_cache_scale_frames": 2, "kv_cache_sliding_window": 3}
        model = GCTStream(**{"img_size": 56, "embed_dim": 128} | settings | options, sizes=tiny_config)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.load_state_dict(golden("weights").tensors, strict=False)
        return model.eval()

    return make


def defaults(function: Callable[..., Any]) -> dict[str, Any]:
    """Arguments that can be given by place as the published code gives them; ours beyond are by name alone."""
    parameters = list(inspect.signature(function).parameters.values())
    assert not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    return {
        parameter.name: parameter.default
        for parameter in parameters
        if parameter.kind is parameter.POSITIONAL_OR_KEYWORD and parameter.name not in ("self", "images")
    }


def test_signatures_are_the_published_ones_in_their_order() -> None:
    assert list(defaults(GCTStream.__init__).items()) == list(PUBLISHED.items())
    for name, published in DRIVERS.items():
        assert list(defaults(getattr(GCTStream, name)).items()) == list(published.items())


def test_every_argument_is_tested_here() -> None:
    assert set(PUBLISHED) == {*SIZES, *PREDICTING, *HEADS, *REFUSED, *IDLE, "use_sdpa"}
    assert set(IDLE) == set(IDLE_OPTIONS)
    assert all(PUBLISHED[name] == value for name, value in IDLE_OPTIONS.items())
    assert all(DRIVERS["forward"][name] is value for name, value in IDLE_ARGUMENTS.items())


@pytest.mark.parametrize("name", SIZES)
def test_size_reaches_the_network(name: str) -> None:
    value, read, expected = SIZES[name]
    assert read(on_meta().network.config) != expected
    assert read(on_meta(**{name: value}).network.config) == expected


@pytest.fixture(scope="module")
def usual(build: Callable[..., GCTStream], golden_frames: Tensor) -> Tensor:
    pose: Tensor = build().inference_streaming(golden_frames[:, :8])["pose_enc"]
    return pose


@pytest.mark.parametrize("name", PREDICTING)
def test_option_changes_what_is_predicted(
    name: str, build: Callable[..., GCTStream], golden_frames: Tensor, usual: Tensor
) -> None:
    before = usual
    if name == "camera_rope_theta":
        rotated = build(enable_camera_3d_rope=True)
        before = rotated.inference_streaming(golden_frames[:, :8])["pose_enc"]
    after = build(**PREDICTING[name]).inference_streaming(golden_frames[:, :8])["pose_enc"]
    assert (after - before).abs().max() > 1e-4


def test_heads_predict_where_they_are_enabled(build: Callable[..., GCTStream], golden_frames: Tensor) -> None:
    keys = {"pose_enc", "images"}
    depth, points = {"depth", "depth_conf"}, {"world_points", "world_points_conf"}
    local = {"cam_points", "cam_points_conf"}
    for options, expected in (
        ({}, keys | depth),
        ({"enable_point": True}, keys | depth | points),
        ({"enable_local_point": True}, keys | depth | local),
        ({"enable_depth": False, "enable_point": True}, keys | points),
    ):
        model = build(**options)
        assert set(model.inference_streaming(golden_frames[:, :2])) == expected
        assert set(model(golden_frames[:, :1])) == expected | {"pose_enc_list"}
        in_state = {key.partition(".")[0] for key in model.state_dict()}
        assert ("depth_head" in in_state) == options.get("enable_depth", True)
        assert ("point_head" in in_state) == options.get("enable_point", False)
        assert ("local_point_head" in in_state) == options.get("enable_local_point", False)


def test_without_depth_flow_keeps_every_frame_and_windows_keep_their_scale(
    build: Callable[..., GCTStream], golden_frames: Tensor
) -> None:
    model = build(enable_depth=False, pred_normalization=True, enable_point=True)
    results = model.inference_windowed(
        golden_frames[:, :7], window_size=5, num_scale_frames=2, flow_threshold=1e6, max_non_keyframe_gap=30
    )
    assert results["is_keyframe"].all()
    assert results["chunk_scales"].tolist() == [[1.0, 1.0]]
    with_depth = build().inference_windowed(
        golden_frames[:, :7], window_size=5, num_scale_frames=2, flow_threshold=1e6, max_non_keyframe_gap=30
    )
    assert not with_depth["is_keyframe"].all()


@pytest.mark.parametrize(("name", "value"), REFUSED.items())
def test_option_without_a_network_is_refused_in_one_sentence(name: str, value: Any) -> None:
    with pytest.raises(SettingError, match=f"^Expected {name}.*[.]$"):
        on_meta(**{name: value})
    with pytest.raises(SettingError, match="take the unit from"):
        on_meta(pred_normalization=True, enable_depth=False)


def test_options_without_effect_are_named_in_one_warning(
    build: Callable[..., GCTStream], golden_frames: Tensor, usual: Tensor
) -> None:
    with pytest.warns(UserWarning, match=", ".join(IDLE)) as caught:
        model = build(**IDLE)
    assert len(caught) == 1
    assert torch.equal(model.inference_streaming(golden_frames[:, :8])["pose_enc"], usual)
    with pytest.warns(UserWarning, match="accepts num_random_frames, but"):
        on_meta(num_random_frames=1)
    clip = golden_frames[:, :1]
    with pytest.warns(UserWarning, match="accepts query_points, ordered_video, but") as caught:
        results = model(clip, query_points=torch.zeros(1, 2), ordered_video=torch.ones(1))
    assert len(caught) == 1
    assert torch.equal(results["depth"], model(clip)["depth"])


def test_flashinfer_is_used_where_it_is_installed_unless_sdpa_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "flashinfer", None)
    assert published_backend(use_sdpa=False).name == "sdpa"
    installed = types.ModuleType("flashinfer")
    installed.__dict__["single_prefill_with_kv_cache"] = None
    monkeypatch.setitem(sys.modules, "flashinfer", installed)
    assert on_meta()._backend.name == "flashinfer"
    assert on_meta(use_sdpa=True)._backend.name == "sdpa"


def test_unknown_argument_is_refused_by_its_name() -> None:
    with pytest.raises(TypeError, match="kv_cache_scale_frame"):
        GCTStream(kv_cache_scale_frame=2)  # type: ignore[call-arg]
