"""`longtake bench speed`: milliseconds a frame, and all that they depend on."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

import torch

from longtake.attention.choose import backend_named
from longtake.bench.speed import measure_speed
from longtake.cli.options import parse_size
from longtake.cli.tables import counting, show, table
from longtake.errors import SettingError
from longtake.geometry.config import GeometryConfig
from longtake.geometry.model import GeometryModel
from longtake.memory.policies.lockstep import ContextRetention
from longtake.runtime.execution import choose_device
from longtake.runtime.keyframes import EveryNth
from longtake.runtime.memory_plan import MemoryPlan
from longtake.runtime.session import SequenceSession
from longtake.weights.load import load_geometry
from longtake.weights.presets import LINGBOT_MAP, TINY

Value = TypeVar("Value")
CONFIGS = {"tiny": TINY, "lingbot-map": LINGBOT_MAP}
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedSettings:
    """What the command line asked for."""

    model: str
    weights: Path | None
    size: str
    frames: int
    window: int
    scale_frames: int
    interval: int
    dtype: str
    device: str
    backend: str
    capture: bool


def run_speed(settings: SpeedSettings, *, as_json: bool) -> None:
    device = choose_device(settings.device)
    dtype = choose(settings.dtype, _DTYPES, "number type")
    config = choose(settings.model, CONFIGS, "model")
    model = _model(config, settings.weights, device, dtype)
    retention = ContextRetention(anchors=settings.scale_frames, window=settings.window)
    plan = MemoryPlan(
        config=model.config,
        size=parse_size(settings.size),
        retention=retention,
        num_scale_frames=settings.scale_frames,
        trunk_dtype=dtype,
    )
    session = SequenceSession(
        model,
        plan,
        keyframes=EveryNth(settings.interval),
        backend=backend_named(settings.backend),
        compute_dtype=dtype,
        capture=settings.capture,
    )
    labels = {
        "model": settings.model,
        "weights": "RANDOM" if settings.weights is None else str(settings.weights),
        "compute_dtype": settings.dtype,
        "backend": settings.backend,
        "captured": "yes" if settings.capture else "no",
    }
    with counting("streaming", None) as advance:
        figures = measure_speed(session, labels, settings.frames, advance)
    record = asdict(figures)
    show(record, [table(("", ""), [(name, _cell(name, value)) for name, value in record.items()])], as_json=as_json)


def _model(config: GeometryConfig, weights: Path | None, device: torch.device, dtype: torch.dtype) -> GeometryModel:
    if weights is not None:
        return load_geometry(weights, config, device=device, trunk_dtype=dtype)
    torch.manual_seed(0)
    with device:
        model = GeometryModel(config).eval().requires_grad_(requires_grad=False)
    return model if dtype == torch.float32 else model.cast_products(dtype)


def choose(name: str, known: Mapping[str, Value], kind: str) -> Value:
    """What goes by this name."""
    if name not in known:
        raise SettingError(f"There is no {kind} '{name}'; choose one of {', '.join(known)}.")
    return known[name]


def _cell(name: str, value: object) -> str:
    if name.endswith("_bytes") and isinstance(value, int):
        return f"{value / 1e9:.3f} GB"
    return f"{value:.2f}" if isinstance(value, float) else str(value)
