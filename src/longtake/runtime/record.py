"""What a saved session says of itself, beside its tensors."""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from longtake import __version__
from longtake.attention.backend import Backend
from longtake.attention.choose import recorded_backend
from longtake.errors import SavedSessionError, SettingError
from longtake.geometry.config import GeometryConfig
from longtake.memory.registry import policy_record, stream_policy_of
from longtake.memory.saved import Pieces, SavedTensors
from longtake.records import record_from
from longtake.runtime.alignment import Alignment
from longtake.runtime.memory_plan import STORED_DTYPES, MemoryPlan
from longtake.runtime.windows import Windows
from longtake.types import FrameKind, Geometry
from longtake.weights.familiarity import UNJUDGED, Judged

FORMAT = 4
_READABLE = (1, 2, 3, FORMAT)
DTYPES = {str(dtype): dtype for dtype in STORED_DTYPES}
_SAMPLES = 64
_TENSORS: Mapping[str, tuple[bool, *tuple[int | None, ...]]] = {
    "pose_encoding": (False, 9),
    "world_from_camera": (False, 4, 4),
    "intrinsics": (False, 3, 3),
    "depth": (True,),
    "depth_confidence": (True,),
    "points": (True, 3),
    "points_confidence": (True,),
    "camera_points": (True, 3),
    "camera_points_confidence": (True,),
    "descriptor": (False, None),
}
"""Tensors of `Geometry`: whether a frame has a value a pixel, and the shape of one value; None for any length."""
_NEEDED = {"pose_encoding", "world_from_camera", "intrinsics", "depth", "depth_confidence"}


@dataclass(frozen=True, slots=True, kw_only=True)
class FramesRecord:
    """What is known of some frames; the numbers of each lie in tensors named after the fields of `Geometry`."""

    frame_index: tuple[int, ...]
    timestamp_s: tuple[float, ...]
    kind: tuple[FrameKind, ...]
    window: tuple[int, ...]
    tensors: tuple[str, ...]

    @classmethod
    def of(cls, parts: Sequence[Geometry]) -> "FramesRecord":
        """All frames of all parts."""
        return cls(
            frame_index=tuple(chain.from_iterable(part.frame_index for part in parts)),
            timestamp_s=tuple(chain.from_iterable(part.timestamp_s for part in parts)),
            kind=tuple(chain.from_iterable(part.kind for part in parts)),
            window=tuple(chain.from_iterable(part.window for part in parts)),
            tensors=tuple(_tensors(parts[0])) if parts else (),
        )

    def __post_init__(self) -> None:
        if len({len(column) for column in (self.frame_index, self.timestamp_s, self.kind, self.window)}) > 1:
            raise SettingError("Expected an index, a time, a kind and a window for each frame, but some are missing.")
        if self.frame_index and (not _NEEDED <= {*self.tensors} <= _TENSORS.keys()):
            raise SettingError(f"Expected tensors among {', '.join(_TENSORS)}, but got {', '.join(self.tensors)}.")

    def parts(self, saved: SavedTensors, prefix: str, size: tuple[int, int], device: torch.device) -> list[Geometry]:
        """One part with all frames of this size, or none; `frame_pieces` wrote the tensors under this prefix."""
        if not self.frame_index:
            return []
        shapes = {name: (*(size if is_dense else ()), *shape) for name, (is_dense, *shape) in _TENSORS.items()}
        tensors: dict[str, Any] = {
            name: saved.read(f"{prefix}.{name}", None, (len(self.frame_index), *shapes[name])).to(device, copy=True)
            for name in self.tensors
        }
        index, time_s, kind, window = self.frame_index, self.timestamp_s, self.kind, self.window
        unsure = (True,) * len(index)
        return [
            Geometry(frame_index=index, timestamp_s=time_s, kind=kind, window=window, provisional=unsure, **tensors)
        ]


def frame_pieces(prefix: str, parts: Sequence[Geometry]) -> dict[str, Pieces]:
    """The tensors of all parts as if they were joined, with no copy made."""
    columns = [_tensors(part) for part in parts]
    num_frames = sum(map(len, parts))
    return {
        f"{prefix}.{name}": Pieces(first.dtype, (num_frames, *first.shape[1:]), [column[name] for column in columns])
        for name, first in (columns[0].items() if columns else ())
    }


def _tensors(geometry: Geometry) -> dict[str, Tensor]:
    values = {field.name: getattr(geometry, field.name) for field in fields(geometry)}
    return {name: value for name, value in values.items() if isinstance(value, Tensor)}


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowedRecord:
    """Settings of a session of windows, and clocks of the current one."""

    windows: Windows
    alignment: Alignment
    num_kept: int
    num_released: int
    num_given: int
    num_corrections: int
    recent_timestamps_s: tuple[float, ...]
    shared: FramesRecord
    unplaced: FramesRecord
    held: FramesRecord

    def __post_init__(self) -> None:
        counts = (self.num_kept, self.num_released, self.num_given, self.num_corrections)
        if min(counts) < 0:
            raise SettingError(f"Expected counts of a window from 0, but got {counts}.")


def _current(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """As this version writes it: until format 2, windows gave results when they were final."""
    windowed = record.get("windowed")
    if not isinstance(windowed, Mapping) or "num_emitted" not in windowed:
        return record
    given = dict.fromkeys(("num_released", "num_given"), windowed["num_emitted"]) | {"num_corrections": 0}
    rest = {name: value for name, value in windowed.items() if name != "num_emitted"}
    return {**record, "windowed": {**rest, **given}}


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRecord:
    """Versions, settings and clocks of a saved session."""

    format: int
    longtake: str
    torch: str
    weights: str
    config: str
    size: tuple[int, int]
    retention: Mapping[str, Any]
    num_scale_frames: int
    reserve_frames: int
    trunk_dtype: str
    keyframes: Mapping[str, int | float]
    backend: str
    budget_bytes: int | None
    compute_dtype: str
    num_answered: int
    scale_block: int
    last_kept_index: int
    waiting_timestamps_s: tuple[float, ...]
    first_frame: int = 0
    """Frames of sequences that ended before this one; the counts above begin with it."""
    windowed: WindowedRecord | None = None
    """None in a session without windows, as all of format 1 were."""
    fit: str | None = None
    """How pictures became frames; None where nobody said, as in files of earlier versions."""
    source_size: tuple[int, int] | None = None
    """Height and width of the pictures; None where nobody said."""
    last_s: float | None = None
    """Time of the newest frame; None in files of earlier versions."""
    loops: Mapping[str, Any] | None = None
    """By what places are known again, as `longtake.places` has it; None where they are not."""
    judged: Judged = UNJUDGED
    """By which frames the video was found like or unlike what the model knows; none in files of earlier versions."""

    def __post_init__(self) -> None:
        if min(self.source_size or (1, 1)) < 1 or not math.isfinite(self.last_s or 0.0):
            raise SettingError(
                f"Expected pictures with pixels and a finite time, but got {self.source_size} at {self.last_s} s."
            )
        counts = (self.scale_block, self.last_kept_index, self.num_answered)
        is_rising = 0 <= self.scale_block <= self.num_answered and 0 <= self.last_kept_index <= self.num_answered
        if not is_rising or self.first_frame < 0:
            raise SettingError(f"Expected clocks that agree with each other, but got {counts}.")
        for name in (self.trunk_dtype, self.compute_dtype):
            if name not in DTYPES:
                raise SettingError(f"Expected a number type among {', '.join(DTYPES)}, but got {name}.")

    @classmethod
    def of(cls, plan: MemoryPlan, **session: Any) -> "SessionRecord":
        return cls(
            format=FORMAT,
            longtake=__version__,
            torch=torch.__version__,
            config=plan.config.to_json(),
            size=plan.size,
            retention=policy_record(plan.retention),
            num_scale_frames=plan.num_scale_frames,
            reserve_frames=plan.reserve_frames,
            trunk_dtype=str(plan.trunk_dtype),
            **session,
        )

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> "SessionRecord":
        if record.get("format") not in _READABLE:
            raise SavedSessionError(
                f"Expected a saved session of format {' or '.join(map(str, _READABLE))}, but got "
                f"{record.get('format')}; resume it with the longtake that wrote it ({record.get('longtake')})."
            )
        try:
            return record_from(cls, _current(record))
        except (ValueError, SettingError) as error:
            raise SavedSessionError(
                f"The saved session's record does not fit this longtake ({error}); resume it with "
                f"{record.get('longtake')}, which wrote it."
            ) from error

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def plan(self, config: GeometryConfig) -> MemoryPlan:
        """The memory plan of the saved session, for a model of this configuration."""
        if config != GeometryConfig.from_json(self.config):
            raise SavedSessionError("The saved session belongs to a model of another configuration; load that model.")
        return MemoryPlan(
            config=config,
            size=self.size,
            retention=stream_policy_of(self.retention),
            num_scale_frames=self.num_scale_frames,
            reserve_frames=self.reserve_frames,
            trunk_dtype=DTYPES[self.trunk_dtype],
        )

    def make_backend(self) -> Backend:
        return recorded_backend(self.backend)

    def require_weights(self, weights: str) -> None:
        if weights != self.weights:
            raise SavedSessionError(
                f"The saved session was made with weights {self.weights}, but the model has {weights}; "
                "load the weights it was made with."
            )


def weights_fingerprint(model: nn.Module) -> str:
    """A short hash that is the same for the same weights in float32 and in bfloat16, for what outlasts a machine."""
    return _hashed(model, torch.bfloat16)


def fingerprint(model: nn.Module) -> str:
    """A short hash of a model's names, shapes and a sample of each tensor's values."""
    return _hashed(model, torch.float32)


def _hashed(model: nn.Module, dtype: torch.dtype) -> str:
    digest = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        flat = tensor.detach().reshape(-1)
        sample = flat[:: max(1, len(flat) // _SAMPLES)][:_SAMPLES].to(dtype).float().cpu()
        digest.update(f"{name} {tuple(tensor.shape)} {sample.tolist()}".encode())
    return digest.hexdigest()[:16]
