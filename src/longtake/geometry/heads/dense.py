"""Dense heads: features of four trunk layers to a value and a confidence for every pixel.

A dense prediction transformer makes one map of them, fused from coarse to fine:

level   0            1            2        3
size    4 h × 4 w    2 h × 2 w    h × w    h/2 × w/2        then 8 h × 8 w, then image pixels
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from longtake.geometry.config import DenseConfig
from longtake.geometry.heads.activations import CONFIDENCE_ACTIVATIONS, VALUE_ACTIVATIONS

HIDDEN = 32
POSITION_WEIGHT = 0.1
POSITION_THETA = 100.0
FRAMES_AT_ONCE = 8
"""Frames are independent; working through them in chunks bounds the memory of the full-resolution maps."""

Map = Float[Tensor, "images channels rows columns"]
Resized = Float[Tensor, "images channels {size[0]} {size[1]}"]


@dataclass(frozen=True, slots=True)
class PositionImage:
    """Sines and cosines of where a pixel lies, half of the channels for its column and half for its row."""

    columns: Float[Tensor, "half columns"]
    rows: Float[Tensor, "half rows"]

    @property
    def size(self) -> tuple[int, int]:
        """Rows and columns of the map."""
        return self.rows.shape[1], self.columns.shape[1]

    def add_to(self, image: Map) -> Map:
        by_column, by_row = image.chunk(2, dim=1)
        return torch.cat([by_column + self.columns[:, None, :], by_row + self.rows[:, :, None]], dim=1)


def position_image(
    channels: int, size: tuple[int, int], aspect: float, *, device: torch.device, dtype: torch.dtype
) -> PositionImage:
    """The weighted position image for a map of (rows, columns); `aspect` is the image's width over its height."""
    rows, columns = size
    diagonal = math.hypot(aspect, 1)

    def embed(extent: float, count: int) -> Float[Tensor, "half count"]:
        edge = extent / diagonal * (count - 1) / count
        centers = torch.linspace(-edge, edge, count, dtype=torch.float64)
        frequencies = POSITION_THETA ** -(torch.arange(channels // 4, dtype=torch.float64) / (channels // 4))
        angles = frequencies[:, None] * centers
        return (POSITION_WEIGHT * torch.cat([angles.sin(), angles.cos()])).to(dtype).to(device)

    return PositionImage(columns=embed(aspect, columns), rows=embed(1.0, rows))


@dataclass(frozen=True, slots=True)
class DensePositions:
    """Position images of the four levels at patch resolution, and of the last map at image resolution."""

    levels: tuple[PositionImage, PositionImage, PositionImage, PositionImage]
    pixels: PositionImage


class ResidualUnit(nn.Module):
    """Two convolutions added to the *rectified* input: the published ReLU works in place, and the weights know it."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(features, features, 3, padding=1)
        self.conv2 = nn.Conv2d(features, features, 3, padding=1)

    def forward(self, x: Map) -> Map:
        x = functional.relu(x)
        out: Tensor = self.conv2(functional.relu(self.conv1(x))) + x
        return out


class Fusion(nn.Module):
    """Adds a finer level to the coarse map and resizes the sum."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.fine = ResidualUnit(features)
        self.sum = ResidualUnit(features)
        self.out = nn.Conv2d(features, features, 1)

    def forward(self, coarse: Map, fine: Map, size: tuple[int, int]) -> Resized:
        out: Tensor = self.out(upsample(self.sum(coarse + self.fine(fine)), size))
        return out


class CoarsestFusion(nn.Module):
    """The first step, with nothing coarser to add to."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.sum = ResidualUnit(features)
        self.out = nn.Conv2d(features, features, 1)

    def forward(self, fine: Map, size: tuple[int, int]) -> Resized:
        out: Tensor = self.out(upsample(self.sum(fine), size))
        return out


class Dpt(nn.Module):
    """Four token maps to one raw map at image resolution."""

    def __init__(self, config: DenseConfig, width: int, outputs: int) -> None:
        super().__init__()
        features, (finest, fine, _, coarse) = config.features, config.channels
        self.norm = nn.LayerNorm(width)
        self.project = nn.ModuleList(nn.Conv2d(width, size, 1) for size in config.channels)
        self.resize = nn.ModuleList(
            [
                nn.ConvTranspose2d(finest, finest, 4, stride=4),
                nn.ConvTranspose2d(fine, fine, 2, stride=2),
                nn.Identity(),
                nn.Conv2d(coarse, coarse, 3, stride=2, padding=1),
            ]
        )
        self.reduce = nn.ModuleList(nn.Conv2d(size, features, 3, padding=1, bias=False) for size in config.channels)
        self.fuse = nn.ModuleList(Fusion(features) for _ in range(3))
        self.fuse_coarsest = CoarsestFusion(features)
        self.narrow = nn.Conv2d(features, features // 2, 3, padding=1)
        self.hidden = nn.Conv2d(features // 2, HIDDEN, 3, padding=1)
        self.output = nn.Conv2d(HIDDEN, outputs, 1)

    def forward(
        self, levels: Sequence[Float[Tensor, "images patches channels"]], positions: DensePositions
    ) -> Float[Tensor, "images outputs height width"]:
        maps = [
            self._level(index, tokens, at)
            for index, (tokens, at) in enumerate(zip(levels, positions.levels, strict=True))
        ]
        fused = self.narrow(self._fuse(maps))
        fused = upsample(fused, positions.pixels.size)
        raw: Tensor = self.output(functional.relu(self.hidden(positions.pixels.add_to(fused))))
        return raw

    def _level(
        self, index: int, tokens: Float[Tensor, "images patches width"], positions: PositionImage
    ) -> Float[Tensor, "images features rows columns"]:
        image = self.norm(tokens).transpose(1, 2).unflatten(-1, positions.size)
        level: Tensor = self.reduce[index](self.resize[index](positions.add_to(self.project[index](image))))
        return level

    def _fuse(
        self, maps: Sequence[Float[Tensor, "images features _ _"]]
    ) -> Float[Tensor, "images features rows columns"]:
        finest, fine, middle, coarse = maps
        fused = self.fuse_coarsest(coarse, size_of(middle))
        fused = self.fuse[2](fused, middle, size_of(fine))
        fused = self.fuse[1](fused, fine, size_of(finest))
        rows, columns = size_of(finest)
        fused = self.fuse[0](fused, finest, (2 * rows, 2 * columns))
        assert isinstance(fused, Tensor)
        return fused


def upsample(image: Map, size: tuple[int, int]) -> Resized:
    return functional.interpolate(image, size=size, mode="bilinear", align_corners=True)


def size_of(image: Map) -> tuple[int, int]:
    return image.shape[-2], image.shape[-1]


@dataclass(frozen=True, slots=True)
class DenseMap:
    """What one head says of every pixel."""

    values: Float[Tensor, "batch frames height width channels"]
    confidence: Float[Tensor, "batch frames height width"]


class DenseHead(nn.Module):
    """One dense quantity: depth, points in the world, or points before the camera."""

    def __init__(self, config: DenseConfig, width: int, *, outputs: int, activation: str) -> None:
        super().__init__()
        self.dpt = Dpt(config, width, outputs + 1)
        self.activate = VALUE_ACTIVATIONS[activation]
        self.activate_confidence = CONFIDENCE_ACTIVATIONS[config.confidence_activation]

    def forward(
        self,
        levels: Sequence[Float[Tensor, "batch frames patches channels"]],
        positions: DensePositions,
        *,
        frames_at_once: int = FRAMES_AT_ONCE,
    ) -> DenseMap:
        batch_and_frames = levels[0].shape[:2]
        chunks = zip(*(level.flatten(0, 1).split(frames_at_once) for level in levels), strict=True)
        raw = torch.cat([self.dpt(chunk, positions) for chunk in chunks]).unflatten(0, batch_and_frames)
        return DenseMap(
            values=self.activate(raw[:, :, :-1].movedim(2, -1)),
            confidence=self.activate_confidence(raw[:, :, -1]),
        )


def dense_positions(
    config: DenseConfig, patches: tuple[int, int], pixels: tuple[int, int], like: Tensor
) -> DensePositions:
    """Position images for (rows, columns) of patches and (height, width) in pixels, on the device of `like`."""
    aspect = pixels[1] / pixels[0]
    finest, fine, middle, coarse = (
        position_image(channels, patches, aspect, device=like.device, dtype=like.dtype) for channels in config.channels
    )
    return DensePositions(
        levels=(finest, fine, middle, coarse),
        pixels=position_image(config.features // 2, pixels, aspect, device=like.device, dtype=like.dtype),
    )
