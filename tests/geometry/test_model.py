from dataclasses import replace

import pytest
import torch

from longtake.errors import InputError
from longtake.geometry.config import CAMERA
from longtake.geometry.heads.camera import camera_mask
from longtake.geometry.model import GeometryModel
from longtake.geometry.tokens import normalize

SCALE_BLOCK = ((0, 1, 2, 3), 4)


def check_forward(golden, prediction, features):
    got = {
        "pose_enc": prediction.pose_encoding[0],
        "depth": prediction.depth[0],
        "depth_conf": prediction.depth_confidence[0],
        "world_points": prediction.points[0],
        "world_points_conf": prediction.points_confidence[0],
        **{f"pose_enc_iter{index}": pose[0] for index, pose in enumerate(prediction.pose_iterations)},
        **{f"agg{index}": feature[0] for index, feature in enumerate(features)},
    }
    for name in golden.tensors:
        golden.check(name, got[name])


def run(model, images, recall):
    grid = model.grid(*images.shape[-2:])
    with torch.no_grad():
        return model(images, recall, grid), model.features(images, recall, grid, model.clip_rotation(recall, grid))


def test_scale_block_matches_golden(tiny_model, golden, golden_frames, whole_clip):
    check_forward(golden("forward_scale"), *run(tiny_model, golden_frames[:, :4], whole_clip(*SCALE_BLOCK)))


def test_scale_block_with_image_phases_only_matches_golden(load_tiny, tiny_config, golden, golden_frames, whole_clip):
    model = load_tiny(replace(tiny_config, trunk=replace(tiny_config.trunk, temporal_rotary=False)))
    check_forward(golden("forward_scale_rope2d"), *run(model, golden_frames[:, :4], whole_clip(*SCALE_BLOCK)))


def test_masked_camera_head_over_a_whole_clip_matches_golden(tiny_model, golden, golden_frames, whole_clip):
    recall = whole_clip(tuple(range(6)), 2, {CAMERA: camera_mask(6, num_scale_frames=2)})
    check_forward(golden("forward_noncausal"), *run(tiny_model, golden_frames[:, :6], recall))


def test_every_norm_has_its_own_epsilon(load_tiny, golden, golden_frames, whole_clip):
    want = golden("eps_sensitive")
    model = load_tiny(factors=want.settings["rules"])
    images = golden_frames[:, :3]
    prediction, features = run(model, images, whole_clip((0, 1, 2), 3))
    for name, got in {
        "vit_patch_tokens": model.encoder(normalize(images[0]), model.grid(42, 70).positions),
        "agg0": features[0][0],
        "agg3": features[3][0],
        "pose_enc_iter0": prediction.pose_iterations[0, 0],
        "pose_enc": prediction.pose_encoding[0],
        "depth": prediction.depth[0],
    }.items():
        want.check(name, got, floor=0)


def test_model_holds_no_state(tiny_model, golden_frames, whole_clip):
    before = {name: value.clone() for name, value in tiny_model.state_dict().items()}
    first, _ = run(tiny_model, golden_frames[:, :2], whole_clip((0, 1), 2))
    run(tiny_model, golden_frames[:, 4:7], whole_clip((0, 1, 2), 1))
    second, _ = run(tiny_model, golden_frames[:, :2], whole_clip((0, 1), 2))
    assert torch.equal(first.pose_iterations, second.pose_iterations)
    assert torch.equal(first.depth, second.depth)
    assert torch.equal(first.points, second.points)
    after = tiny_model.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert not list(tiny_model.buffers())


def test_batch_entries_do_not_see_each_other(tiny_model, golden_frames, whole_clip):
    clips = torch.cat([golden_frames[:, :2], golden_frames[:, 5:7], golden_frames[:, 9:11]])
    together, _ = run(tiny_model, clips, whole_clip((0, 1), 1))
    swapped, _ = run(tiny_model, clips[[2, 0, 1]], whole_clip((0, 1), 1))
    alone, _ = run(tiny_model, clips[1:2], whole_clip((0, 1), 1))
    torch.testing.assert_close(together.pose_encoding[[2, 0, 1]], swapped.pose_encoding, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(together.depth[[2, 0, 1]], swapped.depth, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(together.depth[1:2], alone.depth, rtol=1e-5, atol=1e-5)


def test_gradients_reach_every_parameter(load_tiny, golden_frames, whole_clip):
    model = load_tiny()
    prediction = model(golden_frames[:, :2], whole_clip((0, 1), 1), model.grid(42, 70))
    dense = (prediction.depth, prediction.depth_confidence, prediction.points, prediction.points_confidence)
    outputs = [prediction.pose_iterations, *dense]
    sum(output.square().mean() for output in outputs).backward()
    unreached = [name for name, value in model.named_parameters() if value.grad is None or not value.grad.any()]
    assert not unreached


def test_camera_points_have_a_head_of_their_own(tiny_config, golden_frames, whole_clip):
    config = replace(tiny_config, dense=replace(tiny_config.dense, points=False, camera_points=True))
    model = GeometryModel(config)
    prediction, _ = run(model, golden_frames[:, :1], whole_clip((0,), 1))
    assert prediction.points is None
    assert prediction.camera_points.shape == (1, 1, 42, 70, 3)
    assert (prediction.camera_points_confidence > 1).all()


def test_frames_of_another_size_are_refused(tiny_model, golden_frames, whole_clip):
    with pytest.raises(InputError, match="Expected images of 56 x 70 pixels, got 42 x 70"):
        tiny_model(golden_frames[:, :1], whole_clip((0,), 1), tiny_model.grid(56, 70))


def test_sides_must_be_whole_patches(tiny_model):
    with pytest.raises(
        InputError, match="multiples of 14 pixels, got 480 x 640; resize it first, for instance to 476 x 644"
    ):
        tiny_model.grid(480, 640)


def test_autocast_keeps_residual_and_heads_in_float32(tiny_model, golden, golden_frames, whole_clip):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        prediction, features = run(tiny_model, golden_frames[:, :4], whole_clip(*SCALE_BLOCK))
    assert {feature.dtype for feature in features} == {torch.float32}
    assert prediction.depth.dtype == torch.float32
    golden("forward_scale").check("pose_enc", prediction.pose_encoding[0], tolerance=0.1)


def test_half_precision_trunk_feeds_float32_heads(load_tiny, golden, golden_frames, whole_clip):
    model = load_tiny().requires_grad_(False)
    for part in (model.encoder, model.tokens, model.trunk):
        part.bfloat16()
    prediction, features = run(model, golden_frames[:, :4], whole_clip(*SCALE_BLOCK))
    assert {feature.dtype for feature in features} == {torch.bfloat16}
    assert prediction.depth.dtype == torch.float32
    golden("forward_scale").check("pose_enc", prediction.pose_encoding[0], tolerance=0.1)


def test_double_precision_agrees_with_golden(load_tiny, golden, golden_frames, whole_clip):
    model = load_tiny().requires_grad_(False).double()
    prediction, features = run(model, golden_frames[:, :4].double(), whole_clip(*SCALE_BLOCK))
    assert prediction.depth.dtype == features[0].dtype == torch.float64
    check_forward(golden("forward_scale"), prediction, features)
