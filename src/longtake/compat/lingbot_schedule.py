"""How the published drivers run whole videos, by sessions."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Shaped
from torch import Tensor

from longtake.compat.lingbot_results import chunks, frame_types, gather, joined, of_geometry, with_unit_quaternions
from longtake.runtime.alignment import Alignment
from longtake.runtime.keyframes import ByFlow, EveryNth, KeyframeRule
from longtake.runtime.session import SequenceSession
from longtake.runtime.windowed import WindowedSession, WindowSpan
from longtake.runtime.windows import Windows
from longtake.types import Geometry


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
