import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from longtake.errors import CheckpointError
from longtake.weights.checkpoint import Checkpoint, open_checkpoint
from longtake.weights.family import LINGBOT_MAP
from longtake.weights.fit import fit_geometry
from longtake.weights.presets import TINY

Shapes = dict[str, tuple[int, ...]]
MASK_TOKEN = 1024


@pytest.mark.parametrize(
    ("parts", "parameters"),
    [(("checkpoint",), 1_157_943_540), (("checkpoint", "point_head"), 1_190_598_168)],
)
def test_published_names_and_shapes_fit_with_exactly_the_heads_in_the_file(
    parts: tuple[str, ...],
    parameters: int,
    published_shapes: dict[str, Shapes],
    without_values: Callable[..., Checkpoint],
) -> None:
    shapes = {key: shape for part in parts for key, shape in published_shapes[part].items()}
    fitted = fit_geometry(without_values(shapes))
    assert fitted.family == LINGBOT_MAP
    assert fitted.skeleton.config.dense.points == ("point_head" in parts)
    assert not fitted.skeleton.config.dense.camera_points
    assert fitted.tensors.keys() == fitted.skeleton.state_dict().keys()
    assert sum(stored.num_parameters for stored in fitted.tensors.values()) == parameters - MASK_TOKEN


def test_camera_points_are_switched_on_by_the_file_too(
    published_shapes: dict[str, Shapes], without_values: Callable[..., Checkpoint]
) -> None:
    local = {f"local_{key}": shape for key, shape in published_shapes["point_head"].items()}
    dense = fit_geometry(without_values(published_shapes["checkpoint"] | local)).skeleton.config.dense
    assert (dense.points, dense.camera_points) == (False, True)


def rename(shapes: Shapes) -> Shapes:
    moved = dict(shapes)
    moved["camera_head.pose_branch.fc9.bias"] = moved.pop("camera_head.pose_branch.fc2.bias")
    return moved


def drop_a_block(shapes: Shapes) -> Shapes:
    return {key: shape for key, shape in shapes.items() if not key.startswith("aggregator.global_blocks.23.")}


def widen(shapes: Shapes) -> Shapes:
    return shapes | {"aggregator.global_blocks.7.attn.qkv.bias": (3073,)}


def halve(shapes: Shapes) -> Shapes:
    return {key: tuple(side // 2 or 1 for side in shape) for key, shape in shapes.items()}


def track(shapes: Shapes) -> Shapes:
    return {key: shape for key, shape in shapes.items() if "scale_token" not in key} | {"track_head.norm.bias": (1,)}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            rename,
            "looks like LingBot-Map, but 1 tensors are missing (camera_head.pose_branch.fc2.bias) "
            "and 1 have no place in the model (camera_head.pose_branch.fc9.bias);",
        ),
        (
            drop_a_block,
            "18 tensors are missing (aggregator.global_blocks.23.attn.k_norm.bias, "
            "aggregator.global_blocks.23.attn.k_norm.weight, aggregator.global_blocks.23.attn.proj.bias and others);",
        ),
        (
            lambda shapes: shapes | {"track_head.norm.bias": (1,)},
            "1 have no place in the model (track_head.norm.bias);",
        ),
        (lambda shapes: shapes | {"point_head.norm.bias": (2048,)}, "61 tensors are missing (point_head.norm.weight, "),
        (widen, "aggregator.global_blocks.7.attn.qkv.bias has the wrong shape: expected 3072, came 3073;"),
        (halve, "has the wrong shape, as have 13"),
        (track, "Expected the weights of LingBot-Map, but weights.pt looks like VGGT or StreamVGGT;"),
        (lambda _: {"fc.bias": (3,)}, "looks like no model known to longtake (fc.bias);"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_sentence(
    change: Callable[[Shapes], Shapes],
    sentence: str,
    published_shapes: dict[str, Shapes],
    without_values: Callable[..., Checkpoint],
) -> None:
    with pytest.raises(CheckpointError, match=re.escape(sentence)) as caught:
        fit_geometry(without_values(change(published_shapes["checkpoint"])))
    assert ". " not in str(caught.value)


def test_quantised_numbers_are_refused(
    published_shapes: dict[str, Shapes], without_values: Callable[..., Checkpoint]
) -> None:
    with pytest.raises(CheckpointError, match=r"Expected floats in .* holds int8"):
        fit_geometry(without_values(published_shapes["checkpoint"], dtype=torch.int8))


def test_saved_session_is_recognised(without_values: Callable[..., Checkpoint]) -> None:
    shapes: Shapes = {"num_kept": (), "trunk.num_settled": (), "trunk.0.keys": (4, 2, 8)}
    with pytest.raises(CheckpointError, match="looks like a session saved by longtake"):
        fit_geometry(without_values(shapes))


def test_our_names_without_a_configuration_need_one(tiny_model, without_values: Callable[..., Checkpoint]) -> None:
    shapes = {name: tuple(tensor.shape) for name, tensor in tiny_model.state_dict().items()}
    with pytest.raises(CheckpointError, match="pass the configuration, or save the model again"):
        fit_geometry(without_values(shapes))
    assert fit_geometry(without_values(shapes), tiny_model.config).tensors.keys() == shapes.keys()
    with pytest.raises(CheckpointError, match=r"looks like longtake's own model, but \d+ tensors are missing \(camera"):
        fit_geometry(without_values({key: shape for key, shape in shapes.items() if "head" not in key}), TINY)


def test_wrong_configuration_for_a_real_file_names_both_shapes(tiny_config) -> None:
    golden = Path(__file__).parent.parent / "golden" / "gct" / "weights.safetensors"
    assert fit_geometry(open_checkpoint(golden), tiny_config).family == LINGBOT_MAP
    with pytest.raises(CheckpointError, match="fetch the file again, or pass the configuration it was made with"):
        fit_geometry(open_checkpoint(golden))
