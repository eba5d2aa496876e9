import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from longtake.errors import InputError
from longtake.geometry.model import GeometryModel
from longtake.weights.presets import LINGBOT_MAP
from longtake.weights.published import UNUSED, our_name, published_name, rename_published

MASK_TOKEN = 1024
KEYS = Path(__file__).parent.parent / "golden" / "gct" / "published_keys.json.gz"


def on_meta(points=False, camera_points=False):
    config = replace(LINGBOT_MAP, dense=replace(LINGBOT_MAP.dense, points=points, camera_points=camera_points))
    with torch.device("meta"):
        return GeometryModel(config)


def published(*parts):
    shapes = json.loads(gzip.decompress(KEYS.read_bytes()))
    return {key: torch.empty(shape, device="meta") for part in parts for key, shape in shapes[part].items()}


@pytest.mark.parametrize(
    ("points", "parts", "parameters"),
    [(False, ["checkpoint"], 1_157_943_540), (True, ["checkpoint", "point_head"], 1_190_598_168)],
)
def test_published_layout_maps_onto_ours_exactly(points, parts, parameters):
    state = published(*parts)
    model = on_meta(points=points)
    assert sum(value.numel() for value in state.values()) == parameters
    assert sum(value.numel() for value in model.parameters()) == parameters - MASK_TOKEN
    renamed = rename_published(state)
    assert len(renamed) == len(state) - len(UNUSED)
    assert {key: value.shape for key, value in renamed.items()} == {
        key: value.shape for key, value in model.state_dict().items()
    }


def test_camera_points_head_has_the_names_of_the_point_head():
    head = published("point_head")
    local = {f"local_{key}": value for key, value in head.items()}
    model = on_meta(camera_points=True)
    assert set(rename_published(published("checkpoint") | local)) == set(model.state_dict())


def test_values_pass_unchanged():
    token = torch.randn(1, 2, 1, 8)
    assert rename_published({"aggregator.scale_token": token})["tokens.scale"] is token


@pytest.mark.parametrize(
    "key",
    [
        "aggregator.patch_embed.blocks.0.attn.q_norms.weight",
        "camera_head.trunk.0.attn.rope.freqs",
        "depth_head.resize_layers.2.weight",
        "depth_head.scratch.layer5_rn.weight",
        "depth_head.scratch.refinenet4.resConfUnit1.conv1.weight",
        "xaggregator.camera_token",
        "module.aggregator.camera_token",
        "track_head.fmap_norm.weight",
    ],
)
def test_unknown_names_are_refused_and_named(key):
    with pytest.raises(InputError, match=key.replace(".", r"\.")):
        rename_published({"aggregator.camera_token": torch.zeros(1), key: torch.zeros(1)})


def test_our_names_lead_back_to_the_published_ones():
    head = published("point_head")
    keys = [*published("checkpoint"), *head, *(f"local_{key}" for key in head)]
    for key in set(keys) - UNUSED:
        name = our_name(key)
        assert name is not None
        assert published_name(name) == key
    assert published_name("trunk.unknown") is None
