"""Predictions under STream3R's names, gathered on the host frame by frame."""

from collections.abc import Mapping

import torch
from jaxtyping import Shaped
from torch import Tensor

from longtake.compat.lingbot_results import of_prediction
from longtake.geometry.model import Prediction

NAMES = ("pose_enc", "world_points", "world_points_conf", "depth", "depth_conf", "images")

Named = Mapping[str, Shaped[Tensor, "batch frames ..."]]


def named(prediction: Prediction, images: Shaped[Tensor, "batch frames 3 height width"]) -> dict[str, Tensor]:
    """A clip as the network said it: poses are world-to-camera here."""
    said = of_prediction(prediction, with_depth=True) | {"images": images}
    return {name: said[name] for name in NAMES if name in said}


class HostPredictions:
    """All frames so far. Room doubles when it is full, so a stream copies each frame a few times at most."""

    def __init__(self) -> None:
        self._rooms: dict[str, Tensor] = {}
        self.num_frames = 0

    def add(self, new: Named) -> None:
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
