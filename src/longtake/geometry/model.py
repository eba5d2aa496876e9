"""The geometry model: tokens, trunk and heads in order, for any clip and any memory."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor, nn

from longtake.attention.recall import Recall
from longtake.errors import InputError
from longtake.geometry.config import TRUNK, GeometryConfig
from longtake.geometry.heads.camera import CameraHead
from longtake.geometry.heads.dense import DenseHead, DenseMap, DensePositions, dense_positions
from longtake.geometry.tokens import Encoder, SpecialTokens, diagonal_positions, grid_positions, normalize
from longtake.layers.block import Block, attend_within
from longtake.layers.rotary import (
    Phases,
    Rotate,
    adjacent_rotation,
    axial_split,
    axis_phases,
    grid_phases,
    join_axes,
    leave_unrotated,
    repeat_over_frames,
    rotate_halves,
    spread_over_frames,
)


class Trunk(nn.Module):
    """Pairs of blocks, the first within each frame, the second over all that the clip may recall."""

    def __init__(self, config: GeometryConfig) -> None:
        super().__init__()
        trunk = config.trunk
        self.selected = trunk.selected
        self.frame_blocks = nn.ModuleList(Block(config.width, trunk.heads, qk_norm=True) for _ in range(trunk.depth))
        self.global_blocks = nn.ModuleList(Block(config.width, trunk.heads, qk_norm=True) for _ in range(trunk.depth))

    def forward(
        self,
        x: Float[Tensor, "batch frames tokens channels"],
        recall: Recall,
        rotate_frame: Rotate,
        rotate_clip: Rotate,
    ) -> list[Float[Tensor, "batch frames tokens both"]]:
        """From tokens of a clip: both blocks' outputs side by side, not normalised, for each selected pair."""
        batch, frames, tokens, _ = x.shape
        features = []
        for pair, (frame_block, global_block) in enumerate(zip(self.frame_blocks, self.global_blocks, strict=True)):
            within = frame_block(x.flatten(0, 1), rotate_frame, attend_within).unflatten(0, (batch, frames))
            across = global_block(within.flatten(1, 2), rotate_clip, partial(recall.attend, TRUNK, pair))
            x = across.unflatten(1, (frames, tokens))
            if pair in self.selected:
                features.append(torch.cat([within, x], dim=-1))
        return features


@dataclass(frozen=True, slots=True)
class Grid:
    """All that depends on the resolution alone; make it once per session, or once per step while positions learn."""

    height: int
    width: int
    positions: Float[Tensor, "1 positions channels"]
    frame_phases: Phases
    image_phases: Phases
    dense: DensePositions


@dataclass(frozen=True, slots=True)
class Prediction:
    """What the model says of a clip; points only where the checkpoint has such a head."""

    pose_iterations: Float[Tensor, "iterations batch frames 9"]
    depth: Float[Tensor, "batch frames height width"]
    depth_confidence: Float[Tensor, "batch frames height width"]
    points: Float[Tensor, "batch frames height width 3"] | None
    points_confidence: Float[Tensor, "batch frames height width"] | None
    camera_points: Float[Tensor, "batch frames height width 3"] | None
    camera_points_confidence: Float[Tensor, "batch frames height width"] | None

    @property
    def pose_encoding(self) -> Float[Tensor, "batch frames 9"]:
        """The last refinement."""
        return self.pose_iterations[-1]


class GeometryModel(nn.Module):
    """Weights and nothing else: the past comes through `recall`, what depends on the resolution through `grid`."""

    def __init__(self, config: GeometryConfig) -> None:
        super().__init__()
        self.config = config
        width, dense = 2 * config.width, config.dense
        points = partial(DenseHead, dense, width, outputs=3, activation=dense.points_activation)
        self.encoder = Encoder(config)
        self.tokens = SpecialTokens(config)
        self.trunk = Trunk(config)
        self.camera_head = CameraHead(config.camera, width)
        self.depth_head = DenseHead(dense, width, outputs=1, activation=dense.depth_activation)
        self.points_head = points() if dense.points else None
        self.camera_points_head = points() if dense.camera_points else None

    def product_weights(self) -> frozenset[str]:
        """Names of the weights that encoder and trunk multiply by; the others are norms, scales, tokens and heads."""
        return frozenset(
            f"{path}.{name}"
            for path, module in self.named_modules()
            if path.startswith(("encoder.", "trunk.")) and isinstance(module, nn.Linear | nn.Conv2d)
            for name, _ in module.named_parameters()
        )

    def cast_products(self, dtype: torch.dtype) -> "GeometryModel":
        """Hold the weights of products in a half type, for use under autocast.

        The others stay float32: they are small, and casting them costs time and precision.
        """
        products = self.product_weights()
        for name, weight in self.named_parameters():
            if name in products:
                weight.data = weight.data.to(dtype)
        return self

    def grid(self, height: int, width: int) -> Grid:
        """What the model needs to know of images of this size."""
        config = self.config
        patches = config.patches(height, width)
        head = self.camera_head.first_pose
        dtype = torch.promote_types(head.dtype, torch.float32)
        cells = grid_positions(config.special_tokens, *patches).to(head.device)
        rows, columns = diagonal_positions(config.special_tokens, *patches).to(head.device).unbind(dim=-1)
        theta, (_, row_channels, column_channels) = config.trunk.temporal_theta, axial_split(config.head_dim)
        return Grid(
            height=height,
            width=width,
            positions=self.encoder.positions_on(*patches),
            frame_phases=grid_phases(cells, config.head_dim, theta=config.trunk.grid_theta, dtype=dtype),
            image_phases=join_axes(
                axis_phases(rows, row_channels, theta=theta, dtype=dtype),
                axis_phases(columns, column_channels, theta=theta, dtype=dtype),
            ),
            dense=dense_positions(config.dense, patches, (height, width), like=head),
        )

    def forward(self, images: Float[Tensor, "batch frames 3 height width"], recall: Recall, grid: Grid) -> Prediction:
        """Poses, depth and points; the heads run in the precision of their own weights, whatever autocast says."""
        features = self.features(images, recall, grid, self.clip_rotation(recall, grid))
        with torch.autocast(images.device.type, enabled=False):
            return self._predict([feature.to(self.camera_head.first_pose.dtype) for feature in features], recall, grid)

    def features(
        self,
        images: Float[Tensor, "batch frames 3 height width"],
        recall: Recall,
        grid: Grid,
        rotate_clip: Rotate,
    ) -> list[Float[Tensor, "batch frames tokens both"]]:
        """Outputs of the selected trunk pairs, not normalised."""
        batch, frames, _, height, width = images.shape
        if (height, width) != (grid.height, grid.width):
            raise InputError(
                f"Expected images of {grid.height} x {grid.width} pixels, got {height} x {width}; "
                "resize them, or ask the model for a grid of their size."
            )
        assert len(recall.ordinals) == frames
        pixels = normalize(images).flatten(0, 1).to(grid.positions.dtype)
        patches = self.encoder(pixels, grid.positions).unflatten(0, (batch, frames))
        special = self.tokens(recall.ordinals, recall.num_scale_frames).expand(batch, -1, -1, -1)
        tokens = torch.cat([special, patches], dim=2)
        rotate_frame = partial(rotate_halves, grid.frame_phases)
        selected: list[Tensor] = self.trunk(tokens, recall, rotate_frame, rotate_clip)
        return selected

    def clip_rotation(self, recall: Recall, grid: Grid) -> Rotate:
        """How global blocks turn the tokens of a clip, by when and where they are."""
        if not self.config.trunk.global_rotary:
            return leave_unrotated
        if not self.config.trunk.temporal_rotary:
            return partial(rotate_halves, repeat_over_frames(grid.frame_phases, len(recall.ordinals)))
        image = grid.image_phases
        time = axis_phases(
            torch.tensor(recall.ordinals, device=image.cos.device),
            axial_split(self.config.head_dim)[0],
            theta=self.config.trunk.temporal_theta,
            dtype=image.cos.dtype,
        )
        return adjacent_rotation(spread_over_frames(time, image))

    def _predict(
        self, features: Sequence[Float[Tensor, "batch frames tokens both"]], recall: Recall, grid: Grid
    ) -> Prediction:
        pose_iterations = self.camera_head(features[-1][:, :, 0], recall)
        levels = [feature[:, :, self.config.special_tokens :] for feature in features]
        depth: DenseMap = self.depth_head(levels, grid.dense)
        points: DenseMap | None = self.points_head(levels, grid.dense) if self.points_head else None
        before_camera: DenseMap | None = (
            self.camera_points_head(levels, grid.dense) if self.camera_points_head else None
        )
        return Prediction(
            pose_iterations=pose_iterations,
            depth=depth.values.squeeze(-1),
            depth_confidence=depth.confidence,
            points=points.values if points else None,
            points_confidence=points.confidence if points else None,
            camera_points=before_camera.values if before_camera else None,
            camera_points_confidence=before_camera.confidence if before_camera else None,
        )
