from dataclasses import replace

import pytest
import torch

from longtake.geometry.config import CAMERA
from longtake.geometry.heads.camera import CameraHead, camera_mask

FRAMES = 9
SCALE_FRAMES = 3


def stream(head, tokens, recall, dropped=frozenset()):
    """Three frames as a block, then one by one; [iterations, frames, 9]."""
    poses = []
    kept = 0
    for start, stop in [(0, SCALE_FRAMES), *((frame, frame + 1) for frame in range(SCALE_FRAMES, FRAMES))]:
        recall.ordinals, recall.keep = tuple(range(kept, kept + stop - start)), start not in dropped
        poses.append(head(tokens[:, start:stop], recall))
        kept += (stop - start) * recall.keep
    return torch.cat(poses, dim=2)[:, 0]


def head_with(model, **changes):
    """The same weights under another configuration."""
    head = CameraHead(replace(model.config.camera, **changes), 2 * model.config.width)
    head.load_state_dict(model.camera_head.state_dict())
    return head.requires_grad_(False)


@pytest.fixture
def want(golden):
    return golden("camera_head")


@pytest.fixture
def tokens(want):
    return want["cam_tokens"][None]


def test_streamed_poses_match_golden(tiny_model, want, tokens, everything):
    want.check("stream_iters", stream(tiny_model.camera_head, tokens, everything(SCALE_FRAMES)))


def test_frames_not_kept_leave_no_trace(tiny_model, want, tokens, everything):
    poses = stream(tiny_model.camera_head, tokens, everything(SCALE_FRAMES), dropped={4, 5, 7})
    want.check("stream_skip_iters", poses)


def test_phases_follow_the_frame_ordinal(tiny_model, want, tokens, everything):
    want.check("stream_rope_iters", stream(head_with(tiny_model, rotary=True), tokens, everything(SCALE_FRAMES)))


def test_refinement_feeds_back_the_pose_before_activation(load_tiny, want, tokens, everything):
    head = load_tiny(factors=[(r"^camera_head\.pose_branch\.fc2\.bias$", -1.0)]).camera_head.requires_grad_(False)
    poses = stream(head, tokens, everything(SCALE_FRAMES))
    assert (poses[..., 7:] == 0).any()
    want.check("stream_negbias_iters", poses)


def test_one_iteration_matches_golden(tiny_model, want, tokens, whole_clip):
    head = head_with(tiny_model, iterations=1)
    want.check("one_iteration", head(tokens, whole_clip(tuple(range(FRAMES)), FRAMES))[-1, 0])


@pytest.mark.parametrize(
    ("name", "mask"),
    [
        ("mask_blockcausal_scale3", camera_mask(FRAMES, num_scale_frames=3)),
        ("mask_blockcausal_noscale_block2", camera_mask(FRAMES, block=2)),
        ("mask_sliding2_scale3", camera_mask(FRAMES, num_scale_frames=3, window=2)),
    ],
)
def test_masked_clips_match_golden(tiny_model, want, tokens, whole_clip, name, mask):
    recall = whole_clip(tuple(range(FRAMES)), 3, {CAMERA: mask})
    want.check(name, tiny_model.camera_head(tokens, recall)[-1, 0])


def test_mask_shows_earlier_blocks_and_the_whole_scale_block():
    assert camera_mask(4, num_scale_frames=2).int().tolist() == [[1, 1, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]]
    assert camera_mask(4, block=2).int().tolist() == [[1, 1, 0, 0], [1, 1, 0, 0], [1, 1, 1, 1], [1, 1, 1, 1]]
    sliding = camera_mask(5, num_scale_frames=1, window=2).int().tolist()
    assert sliding == [[1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [1, 1, 1, 0, 0], [1, 0, 1, 1, 0], [1, 0, 0, 1, 1]]
