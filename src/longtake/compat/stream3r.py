"""STream3R's model and stream under their published names, longtake's network and memory underneath.

from longtake.compat.stream3r import STream3R, StreamSession
# was: from stream3r.models.stream3r import STream3R
#      from stream3r.stream_session import StreamSession
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float32, Shaped
from torch import Tensor, nn

from longtake.compat.layerwise_compression import LayerWiseKVCompression
from longtake.compat.lingbot_results import joined, listed, of_prediction
from longtake.compat.lingbot_sequence import Videos, as_batch
from longtake.compat.lingbot_weights import PublishedModule
from longtake.compat.stream3r_memory import StreamMemories, published_rule
from longtake.errors import CheckpointError, InputError, SettingError
from longtake.geometry.config import Attention, GeometryConfig
from longtake.geometry.model import Prediction
from longtake.hub.load import load_model
from longtake.runtime.clip import clip_recall
from longtake.runtime.steps import check_frame
from longtake.video.resize import Fit, match_sizes, open_image, resize_image
from longtake.weights.presets import STREAM3R

__all__ = ["LayerWiseKVCompression", "STream3R", "StreamSession", "load_and_preprocess_images"]

Images = Shaped[Tensor, "..."]
"""`[frames, 3, height, width]` or `[batch, frames, 3, height, width]` from 0 to 1, on any device."""
_MODES = (Attention.CAUSAL, Attention.WINDOW, Attention.FULL)
_FREEZES = ("none", "encoder")
_FITS = (Fit.CROP, Fit.PAD)
_RESULTS = ("pose_enc", "world_points", "world_points_conf", "depth", "depth_conf", "images")


def load_and_preprocess_images(
    image_path_list: Sequence[Path | str], mode: str = "crop"
) -> Float32[Tensor, "images 3 height width"]:
    """Pictures as model pixels from 0 to 1: 518 wide and cut (`crop`), or padded to a square (`pad`)."""
    if mode not in _FITS:
        raise SettingError(f"Expected the mode {' or '.join(_FITS)}, but got '{mode}'.")
    if not image_path_list:
        raise InputError("Expected at least one picture, but the list of paths is empty.")
    pictures = match_sizes([resize_image(open_image(Path(path)), Fit(mode)) for path in image_path_list])
    return torch.stack([picture.pixels for picture in pictures]).float() / 255


class STream3R(PublishedModule):
    """The published model: weights and nothing else.

    `sizes` gives what the published arguments leave open: depths, heads, registers, channels.
    """

    def __init__(
        self,
        img_size: int = 518,
        patch_size: int = 14,
        embed_dim: int = 1024,
        freeze: str = "none",
        *,
        sizes: GeometryConfig = STREAM3R,
    ) -> None:
        encoder = replace(sizes.encoder, side=img_size // patch_size)
        super().__init__(replace(sizes, width=embed_dim, patch=patch_size, encoder=encoder), enable_depth=True)
        self.set_freeze(freeze)

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: Path | str) -> "STream3R":
        """A path, `yslan/STream3R`, or any other place of its weights on the hub; ready to answer."""
        network = load_model(pretrained_model_name_or_path)
        config = network.config
        if config.trunk.scale_token or not config.dense.points:
            raise CheckpointError(
                f"Expected weights of STream3R, but {pretrained_model_name_or_path} is of another network; see "
                "`longtake models` for what runs it."
            )
        # where the file is StreamVGGT's or VGGT's: the same network, run as STream3R
        camera = replace(config.camera, shared_memory=False)
        sizes = replace(config, attention=Attention.CAUSAL, camera=camera)
        with torch.device("meta"):
            model = cls(config.encoder.side * config.patch, config.patch, config.width, sizes=sizes)
        model.network.load_state_dict(network.state_dict(), assign=True)
        model.aggregator.mask_token = nn.Parameter(torch.zeros(1, config.width))
        return model.eval()

    def set_freeze(self, freeze: str) -> None:
        """Whether the image encoder can be trained (`none`) or not (`encoder`)."""
        if freeze not in _FREEZES:
            raise SettingError(f"Expected freeze to be {' or '.join(_FREEZES)}, but got '{freeze}'.")
        self.freeze = freeze
        if freeze == "encoder":
            self.network.encoder.requires_grad_(requires_grad=False)

    def forward(
        self,
        images: Images,
        mode: str = "causal",
        aggregator_kv_cache_list: list[Any] | None = None,
        camera_head_kv_cache_list: list[Any] | None = None,
    ) -> dict[str, Any]:
        """A whole clip at once, without a trace: `causal`, `window` (the first frame and five with itself), `full`."""
        if aggregator_kv_cache_list is not None or camera_head_kv_cache_list is not None:
            raise SettingError("A model keeps and takes no cache here; stream with StreamSession(model, mode).")
        if mode not in _MODES:
            raise SettingError(f"Expected a mode among {', '.join(_MODES)}, but got '{mode}'.")
        images = as_batch(images)
        num_frames, _, height, width = images.shape[1:]
        for frame in images.flatten(0, 1):
            check_frame(frame, (height, width))
        pixels = _pixels(images, self)
        recall = clip_recall(
            self.network.config, num_frames, (height, width), attention=Attention(mode), device=pixels.device
        )
        prediction = self.network(pixels, recall, self.network.grid(height, width))
        if self.training:
            return listed(of_prediction(prediction, with_depth=True))
        return _published(prediction, pixels)


class StreamSession:
    """Videos that go on from call to call; predictions of all frames so far are gathered on the host.

    Where the whole video is to be remembered, `num_frames` is how many frames to set room aside for; more may come.
    Layer-wise eviction requires it.
    """

    def __init__(
        self,
        model: STream3R,
        mode: str = "causal",
        num_frames: int | None = None,
        use_kv_compression: bool = False,
        eviction_ratio: float = 0.3,
        importance_aggregation: str = "sum",
        use_layerwise_eviction: bool = False,
        budget_ratio: float = 0.5,
        temp: float = 0.5,
    ) -> None:
        self.model = model
        self.mode = mode
        self.num_frames = num_frames
        self._rule = published_rule(
            mode,
            num_frames=num_frames,
            use_kv_compression=use_kv_compression,
            eviction_ratio=eviction_ratio,
            importance_aggregation=importance_aggregation,
            use_layerwise_eviction=use_layerwise_eviction,
            budget_ratio=budget_ratio,
            temp=temp,
        )
        self.clear()

    def clear(self) -> None:
        """Forget everything, the image size included."""
        self._memories: StreamMemories | None = None
        self._predictions = HostPredictions()

    @torch.no_grad()
    def forward_stream(self, images: Images) -> dict[str, Tensor]:
        """Take the next frames, which see each other and what is remembered; all predictions so far."""
        images = as_batch(images)
        memories = self._memories or StreamMemories(self.model.network, self._rule, images, self.num_frames)
        memories.check(images)
        pixels = _pixels(images, self.model)
        videos = zip(memories.step(pixels), pixels.split(1), strict=True)
        self._memories = memories
        self._predictions.add(joined([_published(*video) for video in videos], dim=0))
        return self.get_all_predictions()

    def get_all_predictions(self) -> dict[str, Tensor]:
        """Of all frames so far, on the host."""
        return self._predictions.all()

    def get_last_prediction(self) -> dict[str, Tensor]:
        """Of the newest frame alone, its axis kept."""
        return self._predictions.last()

    def last(self) -> dict[str, Tensor]:
        """Short for `get_last_prediction`."""
        return self.get_last_prediction()

    @property
    def num_frames_processed(self) -> int:
        """Frames so far."""
        return self._predictions.num_frames

    @property
    def aggregator_kv_cache_list(self) -> list[list[Tensor | None]]:
        """For each layer copies of its keys and values, `[batch, heads, tokens, head_dim]`, and never a map."""
        if self._memories is None:
            return [[None, None, None] for _ in range(self.model.network.config.trunk.depth)]
        return self._memories.keys_and_values()

    def get_cache_tokens_per_layer(self) -> list[int]:
        """How many tokens each layer remembers; in a batch those of the video that has most."""
        if self._memories is None:
            return [0] * self.model.network.config.trunk.depth
        return self._memories.tokens_per_layer()


class HostPredictions:
    """Predictions of all frames so far. Room doubles when full, so a stream copies each frame a few times at most."""

    def __init__(self) -> None:
        self._rooms: dict[str, Tensor] = {}
        self.num_frames = 0

    def add(self, new: Mapping[str, Shaped[Tensor, "batch frames ..."]]) -> None:
        """The next frames; what `all` and `last` gave before stays as it was."""
        num_frames = self.num_frames + next(iter(new.values())).shape[1]
        for name, value in new.items():
            room = self._rooms.get(name)
            if room is None or room.shape[1] < num_frames:
                self._rooms[name] = self._larger(room, value, num_frames)
            self._rooms[name][:, self.num_frames : num_frames] = value
        self.num_frames = num_frames

    def all(self) -> dict[str, Tensor]:
        return {name: room[:, : self.num_frames] for name, room in self._rooms.items()}

    def last(self) -> dict[str, Tensor]:
        """The newest frame alone, its axis kept."""
        return {name: value[:, -1:] for name, value in self.all().items()}

    def _larger(self, room: Tensor | None, value: Tensor, num_frames: int) -> Tensor:
        shape = (value.shape[0], max(2 * self.num_frames, num_frames), *value.shape[2:])
        larger = torch.empty(shape, dtype=value.dtype)
        if room is not None:
            larger[:, : self.num_frames] = room[:, : self.num_frames]
        return larger


def _published(prediction: Prediction, images: Shaped[Tensor, "batch frames 3 height width"]) -> dict[str, Tensor]:
    """A clip's results under the published names: poses are world-to-camera here."""
    results = of_prediction(prediction, with_depth=True) | {"images": images}
    return {name: results[name] for name in _RESULTS if name in results}


def _pixels(images: Videos, model: STream3R) -> Float32[Tensor, "batch frames channels height width"]:
    """From 0 to 1 on the model's device."""
    pixels = images.to(model.network.camera_head.first_pose.device, torch.float32)
    return pixels / 255 if images.dtype == torch.uint8 else pixels
