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
    AdjacentRotation,
    HalvesRotation,
    Phases,
    Rotate,
    axial_split,
    axis_phases,
    grid_phases,
    join_axes,
    leave_unrotated,
    repeat_over_frames,
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
    descriptor: Float[Tensor, "batch frames channels"] | None = None
    """What a frame looks like as a whole: the mean of its patches as the encoder has them."""

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
            if weight.is_cuda and weight.dim() == 4:
                weight.data = weight.data.contiguous(memory_format=torch.channels_last)
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
        patches = self.encode(images, grid)
        features = self.features_of(patches, recall, grid, self.clip_rotation(recall, grid))
        with torch.autocast(images.device.type, enabled=False):
            poses, maps = self.poses(features, recall), self.dense_maps(features, grid)
            return self.prediction(poses, *maps, descriptor=self.descriptor(patches))

    def features(
        self,
        images: Float[Tensor, "batch frames 3 height width"],
        recall: Recall,
        grid: Grid,
        rotate_clip: Rotate,
    ) -> list[Float[Tensor, "batch frames tokens both"]]:
        """Outputs of the selected trunk pairs, not normalised."""
        return self.features_of(self.encode(images, grid), recall, grid, rotate_clip)

    def encode(
        self, images: Float[Tensor, "batch frames 3 height width"], grid: Grid
    ) -> Float[Tensor, "batch frames patches channels"]:
        """Tokens of all patches, which nothing remembered can change."""
        height, width = images.shape[-2:]
        if (height, width) != (grid.height, grid.width):
            raise InputError(
                f"Expected images of {grid.height} x {grid.width} pixels, got {height} x {width}; "
                "resize them, or ask the model for a grid of their size."
            )
        pixels = normalize(images).flatten(0, 1).to(grid.positions.dtype)
        patches: Tensor = self.encoder(pixels, grid.positions).unflatten(0, images.shape[:2])
        return patches

    def features_of(
        self,
        patches: Float[Tensor, "batch frames patches channels"],
        recall: Recall,
        grid: Grid,
        rotate_clip: Rotate,
    ) -> list[Float[Tensor, "batch frames tokens both"]]:
        """The same from tokens of patches."""
        assert len(recall.ordinals) == patches.shape[1]
        special = self.tokens(recall.ordinals, recall.num_scale_frames).expand(len(patches), -1, -1, -1)
        tokens = torch.cat([special, patches], dim=2)
        selected: list[Tensor] = self.trunk(tokens, recall, HalvesRotation(grid.frame_phases), rotate_clip)
        return selected

    def clip_rotation(self, recall: Recall, grid: Grid) -> Rotate:
        """How global blocks turn the tokens of a clip, by when and where they are."""
        if not self.config.trunk.global_rotary:
            return leave_unrotated
        if not self.config.trunk.temporal_rotary:
            return HalvesRotation(repeat_over_frames(grid.frame_phases, len(recall.ordinals)))
        image = grid.image_phases
        time = axis_phases(
            recall.when(image.cos.device),
            axial_split(self.config.head_dim)[0],
            theta=self.config.trunk.temporal_theta,
            dtype=image.cos.dtype,
        )
        return AdjacentRotation(spread_over_frames(time, image))

    def poses(
        self, features: Sequence[Float[Tensor, "batch frames tokens both"]], recall: Recall
    ) -> Float[Tensor, "iterations batch frames 9"]:
        """What the camera head says."""
        poses: Tensor = self.camera_head(features[-1][:, :, 0].to(self.camera_head.first_pose.dtype), recall)
        return poses

    def dense_maps(
        self, features: Sequence[Float[Tensor, "batch frames tokens both"]], grid: Grid
    ) -> tuple[DenseMap | None, ...]:
        """What the dense heads say: of depth, of points in the world and of points before the camera."""
        dtype = self.camera_head.first_pose.dtype
        levels = [feature[:, :, self.config.special_tokens :].to(dtype) for feature in features]
        heads = (self.depth_head, self.points_head, self.camera_points_head)
        return tuple(None if head is None else head(levels, grid.dense) for head in heads)

    def prediction(
        self,
        pose_iterations: Float[Tensor, "iterations batch frames 9"],
        depth: DenseMap | None,
        points: DenseMap | None,
        camera_points: DenseMap | None,
        *,
        descriptor: Float[Tensor, "batch frames channels"] | None = None,
    ) -> Prediction:
        """All that the heads say."""
        assert depth is not None
        return Prediction(
            pose_iterations=pose_iterations,
            depth=depth.values.squeeze(-1),
            depth_confidence=depth.confidence,
            points=points.values if points else None,
            points_confidence=points.confidence if points else None,
            camera_points=camera_points.values if camera_points else None,
            camera_points_confidence=camera_points.confidence if camera_points else None,
            descriptor=descriptor,
        )

    def descriptor(
        self, patches: Float[Tensor, "batch frames patches channels"]
    ) -> Float[Tensor, "batch frames channels"]:
        """Of each frame, in float32: nothing remembered can change it, and it costs one mean."""
        return patches.to(torch.promote_types(patches.dtype, torch.float32)).mean(dim=2)
