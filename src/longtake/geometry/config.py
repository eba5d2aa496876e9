"""Sizes and choices that tell one geometry checkpoint from another."""

import json
from dataclasses import asdict, dataclass, field
from enum import StrEnum

from longtake.errors import InputError, SettingError
from longtake.geometry.heads.activations import CONFIDENCE_ACTIVATIONS, VALUE_ACTIVATIONS
from longtake.layers.rotary import axial_split
from longtake.records import parse_json

TRUNK = "trunk"
"""Stream of the trunk's global blocks; its layer is the pair of blocks."""
CAMERA = "camera"
"""Stream of the camera head; its layer is `iteration · depth + block`."""


class Attention(StrEnum):
    """Which frames a frame sees in the global blocks and in the camera head, as the network was trained."""

    CONTEXT = "context"
    """Scale frames, a window, and small tokens of all between: a retention rule for streams decides."""
    CAUSAL = "causal"
    """Itself and every frame before it."""
    WINDOW = "window"
    """The first frame, and the last few with itself."""
    FULL = "full"
    """Every frame of its clip: such a network cannot stream."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderConfig:
    """The image encoder, a ViT with registers and a square table of learned positions."""

    depth: int
    heads: int
    registers: int
    side: int
    """Learned positions along each side of the image; any other grid is resampled from them."""
    stem: int = 0
    """Channels of a convolution at half the resolution before patches are cut; 0 to cut them from the pixels."""
    eps: float = 1e-6

    def __post_init__(self) -> None:
        sizes = (self.depth, self.heads, self.side)
        _require(min(sizes) > 0, "a positive encoder depth, heads and side", sizes)
        _require(self.registers >= 0, "no or some encoder registers", self.registers)
        _require(self.stem >= 0, "a stem of no or some channels", self.stem)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrunkConfig:
    """Pairs of frame and global blocks over special tokens and patches."""

    depth: int
    heads: int
    registers: int
    selected: tuple[int, ...]
    """Pairs whose outputs the heads read, in order; the camera head reads the last."""
    scale_token: bool = True
    global_rotary: bool = True
    """If false, global blocks turn nothing and see no positions."""
    temporal_rotary: bool = True
    """Global blocks turn by (time, row, column); if false by (row, column) alone."""
    grid_theta: float = 100.0
    temporal_theta: float = 10000.0

    def __post_init__(self) -> None:
        sizes = (self.depth, self.heads)
        _require(min(sizes) > 0, "a positive trunk depth and heads", sizes)
        _require(self.registers >= 0, "no or some trunk registers", self.registers)
        rising = list(self.selected) == sorted(set(self.selected))
        _require(len(self.selected) == 4 and rising, "four selected pairs in rising order", self.selected)
        inside = self.selected[0] >= 0 and self.selected[-1] < self.depth
        _require(inside, f"selected pairs within 0 to {self.depth - 1}", self.selected)


@dataclass(frozen=True, slots=True, kw_only=True)
class CameraConfig:
    """The camera head: blocks over one token per frame, run several times to refine the pose."""

    depth: int
    heads: int
    iterations: int
    rotary: bool = False
    """Turn by the frame's ordinal."""
    rotary_theta: float = 10000.0
    camera_from_world: bool = False
    """The nine numbers say where the world lies before the camera; if false where the camera stands in the world."""
    shared_memory: bool = False
    """While streaming, all iterations of a block remember together; if false each for itself."""

    def __post_init__(self) -> None:
        sizes = (self.depth, self.heads, self.iterations)
        _require(min(sizes) > 0, "a positive camera depth, heads and iterations", sizes)


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseConfig:
    """The dense heads: depth always, points in the world or in the camera frame if asked for."""

    features: int
    channels: tuple[int, int, int, int]
    """Channels of the four levels, fine to coarse."""
    points: bool = False
    camera_points: bool = False
    depth_activation: str = "exp"
    points_activation: str = "inv_log"
    confidence_activation: str = "expp1"

    def __post_init__(self) -> None:
        divisible = self.features % 8 == 0 and all(channels % 4 == 0 for channels in self.channels)
        _require(divisible, "multiples of 8 features and of 4 channels", (self.features, *self.channels))
        for name in (self.depth_activation, self.points_activation):
            _require(name in VALUE_ACTIVATIONS, f"an activation among {', '.join(VALUE_ACTIVATIONS)}", name)
        known = self.confidence_activation in CONFIDENCE_ACTIVATIONS
        _require(known, f"an activation among {', '.join(CONFIDENCE_ACTIVATIONS)}", self.confidence_activation)


@dataclass(frozen=True, slots=True, kw_only=True)
class GeometryConfig:
    """One geometry network."""

    width: int
    """Channels of a token in encoder and trunk; the heads read two trunk outputs side by side."""
    patch: int
    """Pixels along each side of a patch."""
    encoder: EncoderConfig
    trunk: TrunkConfig
    camera: CameraConfig
    dense: DenseConfig
    attention: Attention = Attention.CONTEXT
    sizes: tuple[tuple[int, int], ...] = field(default=(), compare=False)
    """Heights and widths of the pictures that it was trained on, where these were several; no part of the weights."""

    def __post_init__(self) -> None:
        sizes = (self.width, self.patch)
        _require(min(sizes) > 0, "a positive width and patch", sizes)
        encoder_heads, trunk_heads, camera_heads = self.encoder.heads, self.trunk.heads, self.camera.heads
        _require(self.encoder.stem == 0 or self.patch % 2 == 0, "a patch of an even size behind a stem", self.patch)
        _require(self.width % encoder_heads == 0, f"a width that {encoder_heads} encoder heads share", self.width)
        _require(self.width % (4 * trunk_heads) == 0, f"{trunk_heads} trunk heads of 4n channels each", self.width)
        _require(self.width % camera_heads == 0, f"a width that {camera_heads} camera heads share", self.width)
        whole = all(side > 0 and side % self.patch == 0 for size in self.sizes for side in size)
        _require(whole, f"pictures of whole patches of {self.patch} pixels", self.sizes)
        if self.trunk.temporal_rotary:
            _require(axial_split(self.head_dim)[0] > 0, "trunk heads wide enough for three axes", self.head_dim)
        if self.camera.rotary:
            wide = axial_split(self.camera_head_dim)[0] > 0
            _require(wide, "camera heads wide enough for three axes", self.camera_head_dim)

    @property
    def special_tokens(self) -> int:
        """Tokens in front of a frame's patches: camera, registers, and scale if there is one."""
        return 1 + self.trunk.registers + int(self.trunk.scale_token)

    @property
    def head_dim(self) -> int:
        """Channels of a head in the trunk."""
        return self.width // self.trunk.heads

    @property
    def camera_head_dim(self) -> int:
        """Channels of a head in the camera head."""
        return 2 * self.width // self.camera.heads

    @property
    def camera_layers(self) -> int:
        """Layers of the camera stream: every block remembers for itself, in every iteration unless they share."""
        return self.camera.depth if self.camera.shared_memory else self.camera.iterations * self.camera.depth

    def patches(self, height: int, width: int) -> tuple[int, int]:
        """Rows and columns of patches of an image, which must divide evenly."""
        if min(height, width) < self.patch or height % self.patch or width % self.patch:
            raise InputError(
                f"Expected an image whose sides are multiples of {self.patch} pixels, got {height} x {width}; "
                f"resize it first, for instance to {_nearest(height, self.patch)} x {_nearest(width, self.patch)}."
            )
        return height // self.patch, width // self.patch

    def tokens_per_frame(self, height: int, width: int) -> int:
        """Special tokens and patches of one image."""
        rows, columns = self.patches(height, width)
        return self.special_tokens + rows * columns

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "GeometryConfig":
        """The configuration that `to_json` wrote, here or in a version with fewer fields."""
        try:
            data = parse_json(text)
            selected, channels = tuple(data["trunk"]["selected"]), tuple(data["dense"]["channels"])
            parts = {
                "encoder": EncoderConfig(**data["encoder"]),
                "trunk": TrunkConfig(**data["trunk"] | {"selected": selected}),
                "camera": CameraConfig(**data["camera"]),
                "dense": DenseConfig(**data["dense"] | {"channels": channels}),
                "attention": Attention(data.get("attention", Attention.CONTEXT)),
                "sizes": tuple((int(height), int(width)) for height, width in data.get("sizes", ())),
            }
            return cls(**data | parts)
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(
                f"Expected a model configuration as JSON, got one that does not fit ({error}); "
                "it may come from another version of longtake."
            ) from error


def _require(holds: bool, expected: str, came: object) -> None:
    if not holds:
        raise SettingError(f"Expected {expected}, got {came}; change the model's configuration.")


def _nearest(pixels: int, patch: int) -> int:
    return max(1, round(pixels / patch)) * patch
