"""What a saved session says of itself, beside its tensors."""

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch

from longtake import __version__
from longtake.attention.backend import Backend
from longtake.attention.choose import backend_named
from longtake.errors import SavedSessionError
from longtake.geometry.config import GeometryConfig
from longtake.geometry.model import GeometryModel
from longtake.runtime.retention import STORED_DTYPES, ContextRetention, MemoryPlan, Trail

FORMAT = 1
DTYPES = {str(dtype): dtype for dtype in STORED_DTYPES}
_SAMPLES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRecord:
    """Versions, settings and clocks of a saved session."""

    format: int
    longtake: str
    torch: str
    weights: str
    config: str
    size: tuple[int, int]
    retention: Mapping[str, int | str | None]
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

    @classmethod
    def of(cls, plan: MemoryPlan, **session: Any) -> "SessionRecord":
        return cls(
            format=FORMAT,
            longtake=__version__,
            torch=torch.__version__,
            config=plan.config.to_json(),
            size=plan.size,
            retention=asdict(plan.retention),
            num_scale_frames=plan.num_scale_frames,
            reserve_frames=plan.reserve_frames,
            trunk_dtype=str(plan.trunk_dtype),
            **session,
        )

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> "SessionRecord":
        if fields.get("format") != FORMAT:
            raise SavedSessionError(
                f"Expected a saved session of format {FORMAT}, but got {fields.get('format')}; "
                f"resume it with the longtake that wrote it ({fields.get('longtake')})."
            )
        try:
            lists = {"size": tuple(fields["size"]), "waiting_timestamps_s": tuple(fields["waiting_timestamps_s"])}
            return cls(**{**fields, **lists})
        except (KeyError, TypeError) as error:
            raise SavedSessionError(
                f"The saved session's record does not fit this longtake ({error}); resume it with "
                f"{fields.get('longtake')}, which wrote it."
            ) from error

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def plan(self, config: GeometryConfig) -> MemoryPlan:
        """The memory plan of the saved session, for a model of this configuration."""
        if config != GeometryConfig.from_json(self.config):
            raise SavedSessionError("The saved session belongs to a model of another configuration; load that model.")
        retention = {**self.retention, "trail": Trail(str(self.retention["trail"]))}
        return MemoryPlan(
            config=config,
            size=self.size,
            retention=ContextRetention(**retention),  # type: ignore[arg-type]
            num_scale_frames=self.num_scale_frames,
            reserve_frames=self.reserve_frames,
            trunk_dtype=DTYPES[self.trunk_dtype],
        )

    def make_backend(self) -> Backend:
        return backend_named(self.backend)

    def require_weights(self, weights: str) -> None:
        if weights != self.weights:
            raise SavedSessionError(
                f"The saved session was made with weights {self.weights}, but the model has {weights}; "
                "load the weights it was made with."
            )


def fingerprint(model: GeometryModel) -> str:
    """A short hash of a model's names, shapes and a sample of each tensor's values."""
    digest = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        flat = tensor.detach().reshape(-1)
        sample = flat[:: max(1, len(flat) // _SAMPLES)][:_SAMPLES].float().cpu()
        digest.update(f"{name} {tuple(tensor.shape)} {sample.tolist()}".encode())
    return digest.hexdigest()[:16]
