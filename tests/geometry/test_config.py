import json
from dataclasses import replace

import pytest

from longtake.errors import InputError, SettingError
from longtake.geometry.config import Attention, GeometryConfig
from longtake.weights.presets import LINGBOT_MAP, STREAM3R, STREAMVGGT, VGGT


def test_json_round_trip_keeps_every_field(tiny_config):
    for config in (tiny_config, LINGBOT_MAP, STREAM3R, STREAMVGGT, VGGT):
        assert GeometryConfig.from_json(config.to_json()) == config
        assert hash(GeometryConfig.from_json(config.to_json())) == hash(config)


@pytest.mark.parametrize("text", ["", "{}", json.dumps({"width": 4}), "[]"])
def test_foreign_json_is_refused(text):
    with pytest.raises(InputError, match="Expected a model configuration"):
        GeometryConfig.from_json(text)


def test_json_with_unknown_fields_is_refused(tiny_config):
    data = json.loads(tiny_config.to_json()) | {"depth_of_field": 3}
    with pytest.raises(InputError, match="depth_of_field"):
        GeometryConfig.from_json(json.dumps(data))


def test_json_of_older_versions_is_read(tiny_config):
    data = json.loads(tiny_config.to_json())
    del data["attention"], data["camera"]["camera_from_world"], data["camera"]["shared_memory"]
    config = GeometryConfig.from_json(json.dumps(data))
    assert config == tiny_config
    assert config.attention is Attention.CONTEXT


def test_json_with_attention_of_no_meaning_is_refused(tiny_config):
    data = json.loads(tiny_config.to_json()) | {"attention": "sideways"}
    with pytest.raises(InputError, match="sideways"):
        GeometryConfig.from_json(json.dumps(data))


def test_vggt_family_has_one_network():
    assert {config.special_tokens for config in (VGGT, STREAM3R, STREAMVGGT)} == {5}
    assert VGGT.tokens_per_frame(392, 518) == 1041
    assert [config.camera_layers for config in (VGGT, STREAM3R, STREAMVGGT)] == [16, 16, 4]
    assert [config.attention for config in (VGGT, STREAM3R, STREAMVGGT)] == ["full", "causal", "causal"]
    assert all(config.camera.camera_from_world for config in (VGGT, STREAM3R, STREAMVGGT))


def test_trained_sizes_are_said_in_the_file_and_no_part_of_the_network(tiny_config):
    known = replace(tiny_config, sizes=((28, 42), (42, 28)))
    assert GeometryConfig.from_json(known.to_json()).sizes == ((28, 42), (42, 28))
    assert known == tiny_config
    with pytest.raises(SettingError, match="pictures of whole patches of 14 pixels, got"):
        replace(tiny_config, sizes=((28, 40),))
    with pytest.raises(InputError, match="a model configuration as JSON"):
        GeometryConfig.from_json(json.dumps(json.loads(tiny_config.to_json()) | {"sizes": [7]}))


def test_tokens_per_frame_counts_special_tokens_and_patches(tiny_config):
    assert tiny_config.special_tokens == 6
    assert tiny_config.tokens_per_frame(42, 70) == 21
    assert LINGBOT_MAP.tokens_per_frame(378, 518) == 1005
    without_scale = replace(tiny_config, trunk=replace(tiny_config.trunk, scale_token=False))
    assert without_scale.tokens_per_frame(42, 70) == 20


def test_head_sizes_follow_from_widths(tiny_config):
    assert (LINGBOT_MAP.head_dim, LINGBOT_MAP.camera_head_dim, LINGBOT_MAP.camera_layers) == (64, 128, 16)
    assert (tiny_config.head_dim, tiny_config.camera_head_dim, tiny_config.camera_layers) == (64, 128, 8)


@pytest.mark.parametrize(
    ("part", "change", "message"),
    [
        ("encoder", {"depth": 0}, r"a positive encoder depth, heads and side, got \(0, 2, 4\)"),
        ("encoder", {"heads": 3}, "3 encoder heads share, got 128"),
        ("trunk", {"heads": 3}, "3 trunk heads"),
        ("trunk", {"heads": 16}, "wide enough for three axes, got 8"),
        ("trunk", {"selected": (1, 2, 3)}, "four selected pairs"),
        ("trunk", {"selected": (3, 2, 1, 0)}, "rising order"),
        ("trunk", {"selected": (1, 2, 3, 5)}, "within 0 to 4"),
        ("trunk", {"registers": -1}, "trunk registers, got -1"),
        ("camera", {"iterations": 0}, "a positive camera depth"),
        ("camera", {"heads": 64, "rotary": True}, "camera heads wide enough"),
        ("dense", {"features": 36}, "multiples of 8 features"),
        ("dense", {"points_activation": "softplus"}, "an activation among exp, inv_log"),
        ("dense", {"confidence_activation": "exp"}, "an activation among expp1"),
    ],
)
def test_settings_without_meaning_are_refused(tiny_config, part, change, message):
    parts = {
        "encoder": tiny_config.encoder,
        "trunk": tiny_config.trunk,
        "camera": tiny_config.camera,
        "dense": tiny_config.dense,
    }
    with pytest.raises(SettingError, match=message):
        replace(tiny_config, **{part: replace(parts[part], **change)})
