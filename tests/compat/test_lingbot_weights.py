"""Published names in and out, and no part left random in silence."""

import copy
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from longtake.compat.lingbot import GCTStream
from longtake.errors import CheckpointError
from longtake.geometry.config import GeometryConfig

KEYS = Path(__file__).parent.parent / "golden" / "gct" / "published_keys.json.gz"


@pytest.fixture
def model(tiny_config: GeometryConfig) -> GCTStream:
    return GCTStream(img_size=56, embed_dim=128, enable_point=True, enable_3d_rope=True, sizes=tiny_config).eval()


@pytest.fixture(scope="module")
def state(golden: Callable[[str], Any]) -> dict[str, Tensor]:
    return dict(golden("weights").tensors)


@pytest.mark.parametrize(
    ("options", "parts", "num_parameters"),
    [({}, ["checkpoint"], 1_157_943_540), ({"enable_point": True}, ["checkpoint", "point_head"], 1_190_598_168)],
)
def test_published_size_has_the_published_names_and_shapes(
    options: dict[str, Any], parts: list[str], num_parameters: int
) -> None:
    shapes = json.loads(gzip.decompress(KEYS.read_bytes()))
    expected = {key: tuple(shape) for part in parts for key, shape in shapes[part].items()}
    with torch.device("meta"):
        model = GCTStream(**options)
    assert {key: tuple(value.shape) for key, value in model.state_dict().items()} == expected
    assert sum(value.numel() for value in model.parameters()) == num_parameters
    weights = {key: torch.empty(shape, device="meta") for key, shape in expected.items()}
    assert model.load_state_dict(weights, assign=True) == ([], [])


def test_state_comes_out_as_it_went_in(model: GCTStream, state: dict[str, Tensor]) -> None:
    assert model.load_state_dict(state) == ([], [])
    again = model.state_dict()
    assert again.keys() == state.keys()
    assert all(torch.equal(again[key], state[key]) for key in state)
    parent = nn.ModuleDict({"model": model})
    assert {f"model.{key}" for key in state} == set(parent.state_dict())
    assert model.state_dict(keep_vars=True)["camera_head.empty_pose_tokens"] is model.camera_head.first_pose


def test_module_moves_and_casts_as_one(model: GCTStream, state: dict[str, Tensor]) -> None:
    model.load_state_dict(state)
    assert len(list(model.parameters())) == len(state)
    assert {value.dtype for value in model.half().state_dict().values()} == {torch.float16}
    assert {value.dtype for value in model.network.parameters()} == {torch.float16}
    model.aggregator = model.aggregator.to(dtype=torch.bfloat16)
    assert model.network.trunk.frame_blocks[0].attn.qkv.weight.dtype == torch.bfloat16
    assert model.network.camera_head.first_pose.dtype == torch.float16
    assert not model.eval().training
    assert model.train().training
    assert model.bfloat16().network.camera_head.first_pose.dtype == torch.bfloat16
    assert next(model.to("meta").network.parameters()).device.type == "meta"


def test_copy_has_weights_of_its_own(model: GCTStream, state: dict[str, Tensor]) -> None:
    model.load_state_dict(state)
    twin = copy.deepcopy(model)
    nn.init.zeros_(twin.camera_head.first_pose.requires_grad_(False))
    assert twin.network.camera_head is twin.camera_head
    assert not twin.network.camera_head.first_pose.any()
    assert torch.equal(model.state_dict()["camera_head.empty_pose_tokens"], state["camera_head.empty_pose_tokens"])


def test_strict_loading_names_every_gap(model: GCTStream, state: dict[str, Tensor]) -> None:
    before = {key: value.clone() for key, value in model.state_dict().items()}
    gap = {key: value for key, value in state.items() if not key.startswith("point_head.")}
    with pytest.raises(CheckpointError, match=r"62 tensors are missing \(point_head\.norm\.bias"):
        model.load_state_dict(gap)
    with pytest.raises(CheckpointError, match=r"1 have no place \(track_head\.weight\)"):
        model.load_state_dict(state | {"track_head.weight": torch.zeros(1)})
    with pytest.raises(CheckpointError, match=r"Expected aggregator.scale_token of shape \(1, 2, 1, 128\)"):
        model.load_state_dict(state | {"aggregator.scale_token": torch.zeros(1)}, strict=False)
    with pytest.raises(CheckpointError, match=r"checkpoint\['model'\]"):
        model.load_state_dict({"model": torch.zeros(1)}, strict=False)
    after = model.state_dict()
    assert all(torch.equal(before[key], after[key]) for key in before)


def test_lax_loading_reports_and_warns_of_a_random_head(model: GCTStream, state: dict[str, Tensor]) -> None:
    gap = {key: value for key, value in state.items() if not key.startswith("point_head.")}
    with pytest.warns(UserWarning, match=r"no weights for point_head \(62 tensors\)") as caught:
        missing, unexpected = model.load_state_dict(gap | {"extra.weight": torch.zeros(1)}, strict=False)
    assert len(caught) == 1
    assert set(missing) == state.keys() - gap.keys()
    assert unexpected == ["extra.weight"]
    assert torch.equal(model.state_dict()["aggregator.scale_token"], state["aggregator.scale_token"])


def test_surplus_head_is_reported_without_a_warning(tiny_config: GeometryConfig, state: dict[str, Tensor]) -> None:
    model = GCTStream(img_size=56, embed_dim=128, sizes=tiny_config)
    report = model.load_state_dict(state, strict=False)
    assert report.missing_keys == []
    assert {key.partition(".")[0] for key in report.unexpected_keys} == {"point_head"}


def test_checkpoint_without_the_unused_token_is_whole(model: GCTStream, state: dict[str, Tensor]) -> None:
    without = {key: value for key, value in state.items() if not key.endswith("mask_token")}
    assert model.load_state_dict(without) == ([], [])
