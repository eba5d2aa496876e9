import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from longtake.errors import CheckpointError
from longtake.geometry.config import GeometryConfig
from longtake.weights import presets
from longtake.weights.checkpoint import Checkpoint, open_checkpoint
from longtake.weights.fit import fit_geometry
from longtake.weights.presets import TINY
from longtake.weights.published import LINGBOT_MAP, STREAM3R, STREAMVGGT, VGGT, Family

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
        (
            track,
            "weights.pt is of VGGT or of StreamVGGT, whose names and shapes are the same; say which it is, as vggt:",
        ),
        (
            lambda _: {"fc.bias": (3,)},
            "Expected the weights of LingBot-Map, STream3R, StreamVGGT, VGGT or of a model that longtake saved, but "
            "weights.pt looks like no model known to longtake (fc.bias); give another file.",
        ),
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


def test_every_name_that_does_not_fit_is_noted(
    published_shapes: dict[str, Shapes], without_values: Callable[..., Checkpoint]
) -> None:
    with pytest.raises(CheckpointError) as caught:
        fit_geometry(without_values(drop_a_block(published_shapes["checkpoint"]) | {"extra.bias": (1,)}))
    missing, surplus = caught.value.__notes__
    assert missing.startswith("missing: aggregator.global_blocks.23.attn.k_norm.bias, ")
    assert missing.count("aggregator.global_blocks.23.") == 18
    assert surplus == "without a place: extra.bias"


def without_tracks(shapes: Shapes) -> Shapes:
    return {key: shape for key, shape in shapes.items() if not key.startswith("track_head.")}


@pytest.mark.parametrize(
    ("config", "family", "change", "tensors", "parameters"),
    [
        (presets.VGGT, VGGT, dict, 1797, 1_256_537_516),
        (presets.STREAMVGGT, STREAMVGGT, dict, 1797, 1_256_537_516),
        (None, STREAM3R, without_tracks, 1403, 1_190_596_120),
        (presets.STREAM3R, STREAM3R, without_tracks, 1403, 1_190_596_120),
        (presets.VGGT, STREAM3R, without_tracks, 1403, 1_190_596_120),
    ],
)
def test_checkpoints_of_the_vggt_family_fit_and_tracks_are_skipped(
    config: GeometryConfig | None,
    family: Family,
    change: Callable[[Shapes], Shapes],
    tensors: int,
    parameters: int,
    vggt_shapes: Shapes,
    without_values: Callable[..., Checkpoint],
) -> None:
    checkpoint = without_values(change(vggt_shapes), file="checkpoints.pth")
    assert len(checkpoint.tensors) == tensors
    assert sum(stored.num_parameters for stored in checkpoint.tensors.values()) == parameters
    fitted = fit_geometry(checkpoint, config)
    assert fitted.family == family
    assert fitted.skeleton.config == (config or presets.STREAM3R)
    assert fitted.tensors.keys() == fitted.skeleton.state_dict().keys()
    assert len(fitted.tensors) == 1402
    assert sum(stored.num_parameters for stored in fitted.tensors.values()) == 1_190_596_120 - MASK_TOKEN


@pytest.mark.parametrize(
    ("key", "other"),
    [
        ("aggregator.camera_token", "aggregator.camera_tokens"),
        ("camera_head.pose_branch.fc2.bias", "camera_head.pose_branch.fc3.bias"),
        ("point_head.norm.weight", "points_head.norm.weight"),
        ("track_head.feature_extractor.norm.weight", "track_headx.feature_extractor.norm.weight"),
        ("track_head.feature_extractor.norm.weight", "module.track_head.feature_extractor.norm.weight"),
    ],
)
def test_renamed_tensor_of_the_vggt_family_is_refused(
    key: str, other: str, vggt_shapes: Shapes, without_values: Callable[..., Checkpoint]
) -> None:
    renamed = {other if name == key else name: shape for name, shape in vggt_shapes.items()}
    assert renamed.keys() - vggt_shapes.keys() == {other}
    with pytest.raises(CheckpointError, match=re.escape(f"1 have no place in the model ({other})")) as caught:
        fit_geometry(without_values(renamed), presets.VGGT)
    assert (f"1 tensors are missing ({key})" in str(caught.value)) == (not key.startswith("track_head."))


def test_tracks_are_skipped_in_no_other_family(
    published_shapes: dict[str, Shapes], vggt_shapes: Shapes, without_values: Callable[..., Checkpoint]
) -> None:
    tracks = {key: shape for key, shape in vggt_shapes.items() if key.startswith("track_head.")}
    with pytest.raises(CheckpointError, match="looks like LingBot-Map, but 394 have no place in the model"):
        fit_geometry(without_values(published_shapes["checkpoint"] | tracks))


def test_shapes_of_the_vggt_family_are_checked(vggt_shapes: Shapes, without_values: Callable[..., Checkpoint]) -> None:
    with pytest.raises(CheckpointError, match=r"looks like STream3R, but aggregator.camera_token has the wrong shape"):
        fit_geometry(without_values(without_tracks(vggt_shapes) | {"aggregator.camera_token": (1, 2, 1, 1025)}))


def test_vggt_and_streamvggt_are_asked_to_be_told_apart(
    vggt_shapes: Shapes, without_values: Callable[..., Checkpoint]
) -> None:
    with pytest.raises(CheckpointError, match=r"say which it is, as vggt:x.pth or streamvggt:x.pth, or pass") as caught:
        fit_geometry(without_values(vggt_shapes, file="x.pth"))
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
