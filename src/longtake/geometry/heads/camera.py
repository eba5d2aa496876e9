"""Camera head: one token per frame, refined in several passes into nine numbers of a camera."""

from functools import partial

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional

from longtake.attention.recall import Recall
from longtake.geometry.config import CAMERA, CameraConfig
from longtake.layers.block import Block, Mlp
from longtake.layers.rotary import AdjacentRotation, Rotate, axial_split, axis_phases, join_axes, leave_unrotated

POSE = 9
MODULATION_EPS = 1e-6


class CameraHead(nn.Module):
    """Starts from a learned pose and adds a correction per iteration; the pose so far modulates the camera token."""

    def __init__(self, config: CameraConfig, width: int) -> None:
        super().__init__()
        self.config = config
        self.head_dim = width // config.heads
        self.first_pose = nn.Parameter(torch.zeros(1, 1, POSE))
        self.token_norm = nn.LayerNorm(width)
        self.embed = nn.Linear(POSE, width)
        self.modulation = nn.Linear(width, 3 * width)
        self.blocks = nn.ModuleList(Block(width, config.heads) for _ in range(config.depth))
        self.norm = nn.LayerNorm(width)
        self.correction = Mlp(width, width // 2, POSE)

    def forward(
        self, tokens: Float[Tensor, "batch frames channels"], recall: Recall
    ) -> Float[Tensor, "iterations batch frames 9"]:
        """The activated pose after each iteration; what is fed back is the pose before activation."""
        tokens = self.token_norm(tokens)
        rotate = self._rotation(tokens, recall)
        pose = self.first_pose.expand(*tokens.shape[:2], -1)
        raw = torch.zeros_like(pose)
        passes = []
        for iteration in range(self.config.iterations):
            raw = raw + self._correct(self._modulate(tokens, pose), rotate, recall, iteration=iteration)
            passes.append(raw)
            pose = raw
        return activate_pose(torch.stack(passes))

    def _modulate(
        self, tokens: Float[Tensor, "batch frames channels"], pose: Float[Tensor, "batch frames 9"]
    ) -> Float[Tensor, "batch frames channels"]:
        shift, scale, gate = self.modulation(functional.silu(self.embed(pose))).chunk(3, dim=-1)
        normed = functional.layer_norm(tokens, tokens.shape[-1:], eps=MODULATION_EPS)
        modulated: Tensor = gate * (normed * (1 + scale) + shift) + tokens
        return modulated

    def _correct(
        self, x: Float[Tensor, "batch frames channels"], rotate: Rotate, recall: Recall, *, iteration: int
    ) -> Float[Tensor, "batch frames 9"]:
        for index, block in enumerate(self.blocks):
            x = block(x, rotate, partial(recall.attend, CAMERA, iteration * self.config.depth + index))
        correction: Tensor = self.correction(self.norm(x))
        return correction

    def _rotation(self, tokens: Float[Tensor, "batch frames channels"], recall: Recall) -> Rotate:
        if not self.config.rotary:
            return leave_unrotated
        ordinals = recall.when(tokens.device)
        positions = (ordinals, torch.zeros_like(ordinals), torch.zeros_like(ordinals))
        axes = zip(positions, axial_split(self.head_dim), strict=True)
        phases = (axis_phases(at, size, theta=self.config.rotary_theta, dtype=tokens.dtype) for at, size in axes)
        return AdjacentRotation(join_axes(*phases))


def activate_pose(raw: Float[Tensor, "*batch 9"]) -> Float[Tensor, "*batch 9"]:
    """Fields of view are positive; centre and quaternion stay as they are."""
    return torch.cat([raw[..., :7], functional.relu(raw[..., 7:])], dim=-1)


def camera_mask(
    num_frames: int, *, block: int = 1, num_scale_frames: int = 0, window: int | None = None
) -> Bool[Tensor, "frames frames"]:
    """Which frames (columns) each frame (rows) sees when a whole clip goes through the camera head at once.

    Time runs in blocks of `block` frames, and a frame sees all blocks up to its own; scale frames also see each other.
    With a window of so many blocks a frame sees itself, what the window holds of its past, and the scale frames.
    """
    query, key = torch.arange(num_frames)[:, None], torch.arange(num_frames)
    so_far = key < (query // block + 1) * block
    scale_key = key < num_scale_frames
    if window is None:
        return so_far | (scale_key & (query < num_scale_frames))
    return (so_far & (key <= query) & (query - key < window * block)) | scale_key
