"""LingBot-Map's `GCTStream` over longtake: its arguments, its names of weights and results, sessions underneath.

from longtake.compat.lingbot import GCTStream      # was: from lingbot_map.models.gct_stream import GCTStream
"""

from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Shaped
from torch import Tensor

from longtake.compat.lingbot_options import (
    IDLE_ARGUMENTS,
    IDLE_OPTIONS,
    PATCH_EMBED,
    Precision,
    published_backend,
    published_config,
    published_retention,
    refuse_unsupported,
    shortened,
    warn_of_idle,
)
from longtake.compat.lingbot_results import in_unit, listed, of_prediction, unit_of
from longtake.compat.lingbot_sequence import (
    Run,
    RunningSequence,
    Schedule,
    Videos,
    as_batch,
    cache_info,
    predict_clip,
    published_keyframes,
    results_of,
    windowed_extras,
)
from longtake.compat.lingbot_weights import IncompatibleKeys, PublishedModule
from longtake.errors import SettingError
from longtake.geometry.config import GeometryConfig
from longtake.memory.policies.lockstep import ContextRetention
from longtake.runtime.alignment import Alignment, Anchoring
from longtake.runtime.keyframes import KeyframeRule
from longtake.runtime.memory_plan import MemoryPlan
from longtake.runtime.session import SequenceSession
from longtake.weights.presets import LINGBOT_MAP

Images = Shaped[Tensor, "..."]
"""`[frames, 3, height, width]` or `[batch, frames, 3, height, width]` from 0 to 1, on any device."""


class GCTStream(PublishedModule):
    """The published streaming model. Weights live here; a running sequence lives in sessions, one for each video.

    `sizes` gives what the published arguments leave open: depths, heads, registers, channels.
    """

    def __init__(
        self,
        img_size: int = 518,
        patch_size: int = 14,
        embed_dim: int = 1024,
        patch_embed: str = PATCH_EMBED,
        pretrained_path: str = "",
        disable_global_rope: bool = False,
        enable_camera: bool = True,
        enable_point: bool = False,
        enable_local_point: bool = False,
        enable_depth: bool = True,
        enable_track: bool = False,
        enable_normalize: bool = False,
        pred_normalization: bool = False,
        sliding_window_size: int = -1,
        num_frame_for_scale: int = 1,
        num_random_frames: int = 0,
        attend_to_special_tokens: bool = False,
        attend_to_scale_frames: bool = False,
        enable_stream_inference: bool = True,
        enable_3d_rope: bool = False,
        max_frame_num: int = 1024,
        enable_camera_3d_rope: bool = False,
        camera_rope_theta: float = 10000.0,
        use_scale_token: bool = True,
        kv_cache_sliding_window: int = 64,
        kv_cache_scale_frames: int = 8,
        kv_cache_cross_frame_special: bool = True,
        kv_cache_include_scale_frames: bool = True,
        kv_cache_camera_only: bool = False,
        use_sdpa: bool = False,
        use_gradient_checkpoint: bool = True,
        camera_num_iterations: int = 4,
        *,
        sizes: GeometryConfig = LINGBOT_MAP,
    ) -> None:
        warn_of_idle(
            IDLE_OPTIONS,
            pretrained_path=pretrained_path,
            enable_track=enable_track,
            enable_normalize=enable_normalize,
            sliding_window_size=sliding_window_size,
            num_random_frames=num_random_frames,
            attend_to_special_tokens=attend_to_special_tokens,
            attend_to_scale_frames=attend_to_scale_frames,
            enable_stream_inference=enable_stream_inference,
            use_scale_token=use_scale_token,
            use_gradient_checkpoint=use_gradient_checkpoint,
        )
        refuse_unsupported(patch_embed=patch_embed, enable_camera=enable_camera)
        if pred_normalization and not (enable_depth or enable_point):
            raise SettingError("Expected depth or points to take the unit from; leave pred_normalization out.")
        config = published_config(
            sizes,
            img_size=img_size,
            patch_size=patch_size,
            embed_dim=embed_dim,
            disable_global_rope=disable_global_rope,
            enable_3d_rope=enable_3d_rope,
            enable_point=enable_point,
            enable_local_point=enable_local_point,
            enable_camera_3d_rope=enable_camera_3d_rope,
            camera_rope_theta=camera_rope_theta,
            camera_num_iterations=camera_num_iterations,
        )
        super().__init__(config, enable_depth=enable_depth)
        self.enable_depth = enable_depth
        self.pred_normalization = pred_normalization
        self.num_frame_for_scale = num_frame_for_scale
        self._retention = published_retention(
            sliding_window=kv_cache_sliding_window,
            scale_frames=kv_cache_scale_frames,
            cross_frame_special=kv_cache_cross_frame_special,
            include_scale_frames=kv_cache_include_scale_frames,
            camera_only=kv_cache_camera_only,
            max_frame_num=max_frame_num,
        )
        self._backend = published_backend(use_sdpa=use_sdpa)
        self._sequence: RunningSequence | None = None
        self._cached: tuple[SequenceSession, ...] = ()

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> IncompatibleKeys:
        """As every published script calls it; a running sequence ends."""
        self.clean_kv_cache()
        return super().load_state_dict(state_dict, strict, assign)

    def clean_kv_cache(self) -> None:
        """Forget the running sequence; the next causal call begins another."""
        self._sequence = None
        self._cached = ()

    def get_kv_cache_info(self) -> dict[str, int | float]:
        """Blocks, frames, tokens and bytes now cached, the camera head included."""
        return cache_info(self._cached)

    def forward(
        self,
        images: Images,
        query_points: Images | None = None,
        num_frame_for_scale: int | None = None,
        sliding_window_size: int | None = None,
        num_frame_per_block: int = 1,
        mask: Images | None = None,
        causal_inference: bool = False,
        ordered_video: Images | None = None,
        gather_outputs: bool = True,
        point_masks: Images | None = None,
    ) -> dict[str, Any]:
        """All frames at once, leaving no trace; or, if causal, the next frames of the running sequence."""
        warn_of_idle(
            IDLE_ARGUMENTS,
            query_points=query_points,
            sliding_window_size=sliding_window_size,
            mask=mask,
            ordered_video=ordered_video,
            gather_outputs=gather_outputs,
            point_masks=point_masks,
        )
        images = as_batch(images)
        whole_calls = (1, images.shape[1])
        if num_frame_per_block < 1 or (causal_inference and num_frame_per_block not in whole_calls):
            raise SettingError(
                f"Expected blocks of at least 1 frame, and in a causal call 1 or all {images.shape[1]}, but got "
                f"{num_frame_per_block}."
            )
        if causal_inference:
            results = self._predict_next(images, num_frame_for_scale)
        else:
            results = self._predict_clip(images, num_frame_for_scale, num_frame_per_block)
        return listed(results) if self.training else {**listed(results), "images": images}

    @torch.no_grad()
    def inference_streaming(
        self,
        images: Images,
        num_scale_frames: int | None = None,
        keyframe_interval: int = 1,
        output_device: torch.device | str | None = None,
        flow_threshold: float = 0.0,
        max_non_keyframe_gap: int = 30,
    ) -> dict[str, Any]:
        """A scale block, then frame by frame; results move to `output_device` as they come."""
        images = as_batch(images)
        schedule = Schedule.streaming(
            images.shape[1],
            num_scale_frames=self._scale_frames(num_scale_frames, images),
            keyframes=self._keyframes(keyframe_interval, flow_threshold, max_non_keyframe_gap),
        )
        runs = self._run(images, schedule, Alignment(), output_device)
        return self._results(runs, images, schedule, output_device)

    @torch.no_grad()
    def inference_windowed(
        self,
        images: Images,
        window_size: int = 16,
        overlap_size: int | None = None,
        overlap_keyframes: int | None = None,
        num_scale_frames: int | None = None,
        scale_mode: str = "median",
        output_device: torch.device | str | None = None,
        keyframe_interval: int = 1,
        flow_threshold: float = 0.0,
        max_non_keyframe_gap: int = 30,
        *,
        alignment: str = Anchoring.KEYFRAME_PAIRS,
    ) -> dict[str, Any]:
        """Overlapping windows, each a fresh sequence, put into the first one's world; see `Anchoring` for how."""
        images = as_batch(images)
        scale_frames = self._scale_frames(num_scale_frames, images)
        overlap = scale_frames if overlap_size is None else overlap_size
        if overlap_keyframes is not None:
            overlap = max(scale_frames, overlap_keyframes * max(keyframe_interval, 1))
        schedule = Schedule.windowed(
            images.shape[1],
            num_scale_frames=scale_frames,
            keyframes=self._keyframes(keyframe_interval, flow_threshold, max_non_keyframe_gap),
            window_size=window_size,
            overlap=overlap,
        )
        runs = self._run(images, schedule, Alignment.named(alignment, scale_mode), output_device)
        return self._results(runs, images, schedule, output_device) | windowed_extras(runs)

    def _scale_frames(self, num_scale_frames: int | None, images: Videos) -> int:
        return min(self.num_frame_for_scale if num_scale_frames is None else num_scale_frames, images.shape[1])

    def _keyframes(self, interval: int, flow_threshold: float, max_gap: int) -> KeyframeRule:
        return published_keyframes(interval, flow_threshold, max_gap, has_depth=self.enable_depth)

    def _run(
        self, images: Videos, schedule: Schedule, alignment: Alignment, output_device: torch.device | str | None
    ) -> list[Run]:
        """One video after another through one session."""
        self.clean_kv_cache()
        height, width = images.shape[-2:]
        retention = shortened(self._retention, schedule.num_kept)
        session = self._open((height, width), schedule.num_scale_frames, retention, schedule.keyframes)
        device = session.device if output_device is None else output_device
        runs = [Run.of(session, schedule, alignment, video, device) for video in images]
        self._cached = (session,) if output_device is None else ()
        return runs

    def _results(
        self, runs: list[Run], images: Videos, schedule: Schedule, output_device: torch.device | str | None
    ) -> dict[str, Any]:
        device = runs[0].geometry.depth.device
        results = results_of(runs, device, with_depth=self.enable_depth)
        if self.pred_normalization:
            results = in_unit(results, unit_of(results, schedule.num_scale_frames))
        return {**results, "images": images if output_device is None else images.to(output_device)}

    def _predict_clip(
        self, images: Videos, num_frame_for_scale: int | None, num_frame_per_block: int
    ) -> dict[str, Tensor]:
        scale_frames = self.num_frame_for_scale if num_frame_for_scale is None else num_frame_for_scale
        prediction = predict_clip(
            self.network,
            images,
            num_scale_frames=scale_frames,
            # published: where the call does not say, the camera head knows of no scale frames
            camera_scale_frames=num_frame_for_scale or 0,
            block=num_frame_per_block,
        )
        results = of_prediction(prediction, with_depth=self.enable_depth)
        return in_unit(results, unit_of(results, scale_frames)) if self.pred_normalization else results

    def _predict_next(self, images: Videos, num_frame_for_scale: int | None) -> dict[str, Tensor]:
        sequence = self._sequence or self._begin(images, num_frame_for_scale)
        sequence.check(images, num_frame_for_scale)
        results = sequence.step(images, in_units=self.pred_normalization)
        self._sequence, self._cached = sequence, sequence.sessions
        return results

    def _begin(self, images: Videos, num_frame_for_scale: int | None) -> RunningSequence:
        scale_frames = self.num_frame_for_scale if num_frame_for_scale is None else num_frame_for_scale
        num_frames, _, height, width = images.shape[1:]
        if scale_frames != num_frames:
            raise SettingError(
                f"Expected the first causal call of a sequence to bring its {scale_frames} scale frames together, but "
                f"got {num_frames}; pass num_frame_for_scale={num_frames}, or other frames."
            )
        sessions = [self._open((height, width), scale_frames, self._retention) for _ in images]
        return RunningSequence(self.network, sessions, with_depth=self.enable_depth)

    def _open(
        self,
        size: tuple[int, int],
        num_scale_frames: int,
        retention: ContextRetention,
        keyframes: KeyframeRule | None = None,
    ) -> SequenceSession:
        precision = Precision.of(self.network)
        plan = MemoryPlan(
            config=self.network.config,
            size=size,
            retention=retention,
            num_scale_frames=num_scale_frames,
            trunk_dtype=precision.stored,
        )
        return SequenceSession(
            self.network, plan, keyframes=keyframes, backend=self._backend, compute_dtype=precision.compute
        )
