"""What goes into the published model: a whole clip at once, or the next frames of a running sequence."""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from longtake.attention.recall import ClipRecall
from longtake.compat.lingbot_results import in_unit, joined, of_prediction, unit_of
from longtake.errors import InputError, SettingError
from longtake.geometry.config import CAMERA, TRUNK
from longtake.geometry.heads.camera import camera_mask
from longtake.geometry.model import GeometryModel, Prediction
from longtake.runtime.session import SequenceSession

Videos = Shaped[Tensor, "batch frames channels height width"]


def as_batch(images: Shaped[Tensor, "..."]) -> Videos:
    """One video or several, as several."""
    images = images.unsqueeze(0) if images.dim() == 4 else images
    if images.dim() != 5 or 0 in images.shape:
        raise InputError(
            "Expected images as [frames, 3, height, width] or [batch, frames, 3, height, width], but got "
            f"{tuple(images.shape)}; stack the frames of a video."
        )
    return images


def predict_clip(
    network: GeometryModel, images: Videos, *, num_scale_frames: int, camera_scale_frames: int, block: int
) -> Prediction:
    """Every frame sees every frame; in the camera head only what comes no later than its block, and scale frames."""
    device = network.camera_head.first_pose.device
    num_frames, _, height, width = images.shape[1:]
    mask = camera_mask(num_frames, block=block, num_scale_frames=camera_scale_frames)
    recall = ClipRecall({TRUNK: None, CAMERA: mask.to(device)}, tuple(range(num_frames)), num_scale_frames)
    pixels = images / 255 if images.dtype == torch.uint8 else images
    prediction: Prediction = network(pixels.to(device), recall, network.grid(height, width))
    return prediction


class RunningSequence:
    """Videos that go on from call to call, each in a session of its own. The first call brings the scale block."""

    def __init__(self, network: GeometryModel, sessions: Sequence[SequenceSession], *, with_depth: bool) -> None:
        self._network = network
        self.sessions = tuple(sessions)
        self._with_depth = with_depth
        self._unit: Float[Tensor, " batch"] | None = None

    @property
    def num_scale_frames(self) -> int:
        return self.sessions[0].plan.num_scale_frames

    def check(self, images: Videos, num_scale_frames: int | None) -> None:
        """Refuse a call that cannot go on here, before any video of the batch has moved."""
        if len(images) != len(self.sessions):
            raise InputError(
                f"Expected the {len(self.sessions)} videos this sequence began with, but got {len(images)}; call "
                "clean_kv_cache() to begin another."
            )
        if num_scale_frames not in (None, self.num_scale_frames):
            raise SettingError(
                f"This sequence began with {self.num_scale_frames} scale frames, but now num_frame_for_scale is "
                f"{num_scale_frames}; keep it, or call clean_kv_cache() to begin another."
            )
        for session, video in zip(self.sessions, images, strict=True):
            for frame in video:
                session.check(frame)

    def step(self, images: Videos, *, in_units: bool) -> dict[str, Tensor]:
        """Take the next frames of every video."""
        videos = [self._predict(session, video) for session, video in zip(self.sessions, images, strict=True)]
        results = joined(videos, dim=0)
        if not in_units:
            return results
        if self._unit is None:
            self._unit = unit_of(results, self.num_scale_frames)
        return in_unit(results, self._unit)

    def _predict(
        self, session: SequenceSession, video: Shaped[Tensor, "frames channels height width"]
    ) -> dict[str, Tensor]:
        """The network's own output while the session steps, which has all refinements of the pose."""
        predictions: list[Prediction] = []
        with self._network.register_forward_hook(lambda _network, _inputs, output: predictions.append(output)):
            for frame in video:
                session.step(frame)
        return joined([of_prediction(output, with_depth=self._with_depth) for output in predictions], dim=1)


def cache_info(sessions: Sequence[SequenceSession]) -> dict[str, int | float]:
    """The published entries first; bytes are those of keys and values now cached, the camera head's included."""
    uses = [session.use() for session in sessions]
    streams = [use for use_of_session in uses for use in use_of_session.values()]
    live_bytes = sum(use.live_bytes for use in streams)
    configs = [session.plan.config for session in sessions if session.num_kept]
    return {
        "num_cached_blocks": configs[0].trunk.depth if configs else 0,
        "cache_memory_mb": round(live_bytes / 2**20, 2),
        "num_cached_camera_blocks": configs[0].camera_layers if configs else 0,
        "num_cached_frames": sum(session.num_kept for session in sessions),
        "num_cached_tokens": sum(use[TRUNK].live for use in uses),
        "num_cached_camera_tokens": sum(use[CAMERA].live for use in uses),
        "cache_bytes": live_bytes,
        "allocated_bytes": sum(use.num_bytes for use in streams),
    }
