"""What goes into the published model: a clip at once, the next frames of a running sequence, or whole videos."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from longtake.attention.recall import ClipRecall
from longtake.compat.lingbot_results import (
    chunks,
    frame_types,
    gather,
    in_unit,
    joined,
    of_geometry,
    of_prediction,
    unit_of,
    with_unit_quaternions,
)
from longtake.errors import InputError, SettingError
from longtake.geometry.config import CAMERA, TRUNK
from longtake.geometry.heads.camera import camera_mask
from longtake.geometry.model import GeometryModel, Prediction
from longtake.runtime.alignment import Alignment
from longtake.runtime.keyframes import ByFlow, EveryNth, KeyframeRule
from longtake.runtime.session import SequenceSession
from longtake.runtime.windowed import WindowedSession, WindowSpan
from longtake.runtime.windows import Windows
from longtake.types import Geometry

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


def published_keyframes(interval: int, flow_threshold: float, max_gap: int, *, has_depth: bool) -> KeyframeRule:
    """Flow, if a threshold is given, goes before the interval; without depth it keeps every frame."""
    if flow_threshold > 0:
        return ByFlow(flow_threshold, max_gap=max(max_gap, 1) if has_depth else 1)
    return EveryNth(max(interval, 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Scale frames, keyframes and windows for videos of one length."""

    num_scale_frames: int
    keyframes: KeyframeRule
    num_kept: int
    """The most frames that one sequence keeps."""
    windows: Windows | None = None
    """None where the whole video is one sequence."""

    @classmethod
    def streaming(cls, num_frames: int, *, num_scale_frames: int, keyframes: KeyframeRule) -> "Schedule":
        streamed = num_frames - num_scale_frames
        num_kept = num_scale_frames + -(-streamed // (keyframes.interval or 1))
        return cls(num_scale_frames=num_scale_frames, keyframes=keyframes, num_kept=num_kept)

    @classmethod
    def windowed(
        cls, num_frames: int, *, num_scale_frames: int, keyframes: KeyframeRule, window_size: int, overlap: int
    ) -> "Schedule":
        """Windows of so many kept frames, unless one that ends with the video holds it all."""
        streamed = 0 if keyframes.interval is None else max(window_size - num_scale_frames, 0) * keyframes.interval
        if num_frames <= num_scale_frames + streamed:
            return cls.streaming(num_frames, num_scale_frames=num_scale_frames, keyframes=keyframes)
        return cls(
            num_scale_frames=num_scale_frames,
            keyframes=keyframes,
            num_kept=window_size,
            windows=Windows(size=window_size, overlap_frames=overlap),
        )


@dataclass(frozen=True, slots=True)
class Run:
    """The results of one video."""

    geometry: Geometry
    windows: tuple[WindowSpan, ...] = ()

    @classmethod
    def of(
        cls,
        session: SequenceSession,
        schedule: Schedule,
        alignment: Alignment,
        video: Shaped[Tensor, "frames channels height width"],
        device: torch.device | str,
    ) -> "Run":
        """The session starts afresh; results are moved as they come."""
        session.clear()
        if schedule.windows is None:
            return cls(gather(session.run(video), device))
        windowed = WindowedSession(session, schedule.windows, alignment)
        geometry = gather(windowed.run(video), device)
        if len(windowed.windows) > 1:
            geometry = with_unit_quaternions(geometry)
        return cls(geometry, windowed.windows)


def results_of(runs: list[Run], device: torch.device | str, *, with_depth: bool) -> dict[str, Tensor]:
    """All videos of a batch, and how their windows lie where there are several."""
    results = joined([of_geometry(run.geometry, with_depth=with_depth) for run in runs], dim=0)
    if max(len(run.windows) for run in runs) > 1:
        results |= chunks([run.windows for run in runs], device)
    return results


def windowed_extras(runs: list[Run]) -> dict[str, Any]:
    """What the windowed driver returns for each frame, besides the results."""
    frame_type = torch.cat([frame_types(run.geometry.kind) for run in runs])
    return {"frame_type": frame_type, "is_keyframe": frame_type != 2, "alignment_mode": "scaled"}
