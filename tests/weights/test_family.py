from pathlib import Path

import pytest

from longtake.weights.published import LINGBOT_MAP, LONGTAKE, STREAM3R, UNKNOWN, VGGT_OR_STREAMVGGT, recognise

VGGT = ("aggregator.camera_token", "camera_head.norm.bias", "depth_head.norm.bias", "point_head.norm.bias")


def test_lingbot_map_is_known_by_its_scale_token() -> None:
    assert recognise(("aggregator.scale_token", *VGGT), "x.pt") == LINGBOT_MAP


def test_our_own_files_are_known_by_our_names(tiny_model, tmp_path: Path) -> None:
    assert recognise(tiny_model.state_dict().keys(), "x.safetensors") == LONGTAKE


@pytest.mark.parametrize(
    ("names", "file", "title"),
    [
        ((*VGGT, "track_head.norm.bias"), "model.pt", "VGGT or StreamVGGT"),
        (VGGT, "model.safetensors", "STream3R"),
        (VGGT[:3], "model.pt", "first training stage"),
        ((*VGGT, "track_head.norm.bias"), "lingbot-map-stage1.pt", "first training stage"),
        (("model.layers.0.mlp.up_proj.weight", "lm_head.weight"), "model.safetensors", "Qwen"),
        (("visual.blocks.0.norm1.weight", "model.norm.weight"), "model.safetensors", "Qwen"),
        (("model.language_model.layers.0.mlp.up_proj.weight",), "model.safetensors", "Qwen"),
        (
            ("num_kept", "trunk.frame", "trunk.num_settled", "trunk.0.keys"),
            "x.safetensors",
            "session saved by longtake",
        ),
    ],
)
def test_other_families_are_told_apart(names: tuple[str, ...], file: str, title: str) -> None:
    assert title in recognise(names, file).title


def test_only_the_track_head_by_its_name_is_skipped() -> None:
    assert VGGT_OR_STREAMVGGT.skips("track_head.norm.bias")
    for name in ("track_headx.norm.bias", "track_head", "x.track_head.norm.bias", "point_head.norm.bias"):
        assert not VGGT_OR_STREAMVGGT.skips(name)
    for family in (LINGBOT_MAP, LONGTAKE, STREAM3R, UNKNOWN):
        assert not family.skips("track_head.norm.bias")


def test_what_fits_nothing_is_unknown() -> None:
    assert recognise(("conv1.weight", "fc.bias"), "resnet.pt") == UNKNOWN
    assert recognise((), "empty.pt") == UNKNOWN
