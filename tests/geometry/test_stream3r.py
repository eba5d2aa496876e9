"""STream3R, StreamVGGT and VGGT as whole clips, against golden runs of the published code."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from longtake.attention.recall import ClipRecall
from longtake.geometry.config import CAMERA, TRUNK, Attention
from longtake.geometry.model import GeometryModel, Prediction
from longtake.geometry.tokens import normalize

NUM_FRAMES, TOKENS = 8, 25
RUNS = {
    "batch_causal": "stream3r",
    "batch_window": "stream3r",
    "batch_full": "stream3r",
    "streamvggt_batch": "streamvggt",
    "vggt_full": "vggt",
}


def sees(attention: str, frame: int, other: int) -> bool:
    """The published rules, word by word."""
    if attention == "full":
        return True
    if attention == "causal":
        return other <= frame
    return other == 0 or max(1, frame - 4) <= other <= frame


def slow_recall(attention: str, num_frames: int = NUM_FRAMES) -> ClipRecall:
    pairs = [[sees(attention, frame, other) for other in range(num_frames)] for frame in range(num_frames)]
    frames = torch.tensor(pairs)
    tokens = frames.repeat_interleave(TOKENS, dim=0).repeat_interleave(TOKENS, dim=1)
    return ClipRecall({TRUNK: tokens, CAMERA: frames}, tuple(range(num_frames)), num_scale_frames=1)


def look(model: GeometryModel, images: Tensor, recall: ClipRecall) -> tuple[Prediction, list[Tensor]]:
    grid = model.grid(*images.shape[-2:])
    with torch.no_grad():
        return model(images, recall, grid), model.features(images, recall, grid, model.clip_rotation(recall, grid))


@pytest.mark.parametrize("name", RUNS)
def test_clip_matches_golden(
    name: str, vggt_golden: Callable[[str], Any], vggt_frames: Tensor, load_vggt: Callable[[str], GeometryModel]
) -> None:
    want = vggt_golden(name)
    prediction, features = look(load_vggt(RUNS[name]), vggt_frames, slow_recall(want.settings["attention"]))
    assert prediction.points is not None
    assert prediction.points_confidence is not None
    got = {
        "pose_enc": prediction.pose_encoding[0],
        "pose_enc_iters": prediction.pose_iterations[:, 0],
        "depth": prediction.depth[0],
        "depth_conf": prediction.depth_confidence[0],
        "world_points": prediction.points[0],
        "world_points_conf": prediction.points_confidence[0],
        **{f"agg_tokens/{index}": feature[0] for index, feature in enumerate(features)},
    }
    checked = [key for key in want.tensors if key in got]
    assert len(checked) >= 5
    for key in checked:
        want.check(key, got[key])


def test_encoder_resamples_its_positions_as_golden(
    vggt_golden: Callable[[str], Any], vggt_frames: Tensor, load_vggt: Callable[[str], GeometryModel]
) -> None:
    model = load_vggt("vggt")
    patches = model.encoder(normalize(vggt_frames[0]), model.grid(56, 70).positions)
    vggt_golden("vggt_full").check("patch_tokens", patches)


def test_square_images_take_the_positions_as_they_are(
    vggt_golden: Callable[[str], Any], vggt_frames: Tensor, load_vggt: Callable[[str], GeometryModel]
) -> None:
    want, images = vggt_golden("vggt_full"), vggt_frames[:, :2, :, :, :56]
    recall = ClipRecall({TRUNK: None, CAMERA: None}, (0, 1), num_scale_frames=1)
    prediction, _ = look(load_vggt("vggt"), images, recall)
    want.check("square/pose_enc", prediction.pose_encoding[0])
    want.check("square/depth", prediction.depth[0])


@pytest.mark.parametrize(
    ("name", "model", "prefix", "attention"),
    [("vggt_full", "vggt", "b2/", "full"), ("stream_b2", "stream3r", "", "causal")],
)
def test_two_sequences_side_by_side_match_golden(
    name: str,
    model: str,
    prefix: str,
    attention: str,
    vggt_golden: Callable[[str], Any],
    load_vggt: Callable[[str], GeometryModel],
) -> None:
    want, frames = vggt_golden(name), vggt_golden("frames")
    images = torch.stack([frames["frames_u8"][:3], frames["frames_u8_b"]]).float() / 255
    prediction, _ = look(load_vggt(model), images, slow_recall(attention, 3))
    want.check(f"{prefix}pose_enc", prediction.pose_encoding.flatten(0, 1))
    want.check(f"{prefix}depth", prediction.depth.flatten(0, 1))


def test_later_frames_change_earlier_ones_only_where_attention_is_full(
    vggt_frames: Tensor, load_vggt: Callable[[str], GeometryModel]
) -> None:
    model = load_vggt("stream3r")
    for attention in (Attention.CAUSAL, Attention.WINDOW, Attention.FULL):
        whole, _ = look(model, vggt_frames, slow_recall(attention))
        part, _ = look(model, vggt_frames[:, :5], slow_recall(attention, 5))
        same = torch.allclose(whole.depth[:, :5], part.depth, atol=1e-5)
        assert same == (attention is not Attention.FULL)


def stream(model: GeometryModel, images: Tensor, recall: Any, chunks: list[int]) -> list[Prediction]:
    """Calls of several frames each, which see each other and all that came before."""
    grid = model.grid(*images.shape[-2:])
    said, start = [], 0
    for size in chunks:
        recall.ordinals = tuple(range(start, start + size))
        said.append(model(images[:, start : start + size], recall, grid))
        start += size
    return said


def test_calls_of_several_frames_see_both_ways_within_a_call_as_golden(
    vggt_golden: Callable[[str], Any],
    vggt_frames: Tensor,
    load_vggt: Callable[[str], GeometryModel],
    everything: Callable[[int], Any],
) -> None:
    want = vggt_golden("stream_chunked")
    said = stream(load_vggt("stream3r"), vggt_frames, everything(1), want.settings["chunks"])
    want.check("pose_enc", torch.cat([part.pose_encoding[0] for part in said]))
    want.check("depth", torch.cat([part.depth[0] for part in said]))
    want.check("depth_conf", torch.cat([part.depth_confidence[0] for part in said]))


def test_remembered_keys_and_values_are_those_of_golden(
    vggt_golden: Callable[[str], Any],
    vggt_frames: Tensor,
    load_vggt: Callable[[str], GeometryModel],
    everything: Callable[[int], Any],
) -> None:
    want, recall, model = vggt_golden("stream_causal"), everything(1), load_vggt("stream3r")
    stream(model, vggt_frames, recall, [1] * NUM_FRAMES)
    places = {(TRUNK, layer): f"kv/{layer}" for layer in range(4)}
    places |= {(CAMERA, 2 * turn + block): f"camkv/{turn}/{block}" for turn in range(4) for block in range(2)}
    assert recall.history.keys() == places.keys()
    for place, name in places.items():
        for half, tensor in zip("kv", recall.history[place], strict=True):
            want.check(f"{name}/{half}", tensor[0].transpose(0, 1))
