"""`longtake bench speed` and `longtake bench precision`: run, print a table or JSON."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from longtake.attention.choose import backend_named
from longtake.attention.flashinfer import FlashInferPages
from longtake.attention.paged import PageKernel
from longtake.bench.precision import PrecisionFigures, measure_precision
from longtake.bench.speed import SpeedFigures, measure_speed
from longtake.cli.options import choose_device, parse_size
from longtake.errors import SettingError
from longtake.geometry.config import GeometryConfig
from longtake.geometry.model import GeometryModel
from longtake.memory.policies.context import ContextRetention
from longtake.runtime.keyframes import EveryNth
from longtake.runtime.memory_plan import MemoryPlan
from longtake.runtime.session import SequenceSession
from longtake.weights.load import load_geometry
from longtake.weights.presets import LINGBOT_MAP, TINY

Value = TypeVar("Value")
_CONFIGS = {"tiny": TINY, "lingbot-map": LINGBOT_MAP}
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
    config = choose(settings.model, _CONFIGS, "model")
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
    with Progress(console=Console(stderr=True)) as progress:
        task = progress.add_task("streaming", total=None)
        figures = measure_speed(session, labels, settings.frames, lambda count: progress.advance(task, count))
    if as_json:
        print(json.dumps(asdict(figures), indent=1))
    else:
        _print_speed(figures)


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


def _print_speed(figures: SpeedFigures) -> None:
    console = Console()
    table = Table(box=None, show_header=False, pad_edge=False)
    for name, value in asdict(figures).items():
        if name.endswith("_ms") or name == "frames_per_s":
            table.add_row(name, f"[bold]{value:.2f}[/]")
        elif name.endswith("_bytes"):
            table.add_row(name, f"{value / 1e9:.3f} GB")
        else:
            table.add_row(name, str(value))
    console.print(table)


def run_precision(model: str, size: str, at: str, *, device: str, backends: str, as_json: bool) -> None:
    if not all(part.strip().isdecimal() for part in at.split(",")):
        raise SettingError(f"Expected frame numbers such as 10,72,100, but got '{at}'.")
    at_frames = [int(part) for part in at.split(",")]
    place = choose_device(device)
    names = [name.strip() for name in backends.split(",")]
    kernels: dict[str, PageKernel | None] = {"gather": None}
    if "flashinfer" in names:
        kernels["flashinfer"] = FlashInferPages(place)
    torch.backends.cudnn.allow_tf32 = False  # by default even float32 convolutions are rounded on a GPU
    with Progress(console=Console(stderr=True)) as progress:
        task = progress.add_task("streaming", total=max(at_frames) + 1)
        figures = list(
            measure_precision(
                choose(model, _CONFIGS, "model"),
                parse_size(size),
                at_frames=at_frames,
                backends=[backend_named(name) for name in names],
                page_kernels=kernels,
                device=place,
                progress=lambda count: progress.advance(task, count),
            )
        )
    if as_json:
        print(json.dumps([asdict(row) | {"worst_ratio": row.worst_ratio} for row in figures], indent=1))
    else:
        _print_precision(figures)


def _print_precision(figures: list[PrecisionFigures]) -> None:
    table = Table(title="bfloat16 against float32, random weights", box=None, title_justify="left")
    for heading in ("frame", "backend", "pose", "plain pose", "depth", "plain depth", "worst ratio"):
        table.add_column(heading, justify="left" if heading == "backend" else "right")
    for row in figures:
        errors = (row.pose_error, row.plain_pose_error, row.depth_error, row.plain_depth_error)
        table.add_row(str(row.frame), row.backend, *(f"{error:.2e}" for error in errors), f"{row.worst_ratio:.2f}")
    console = Console()
    console.print(table)
    console.print("\nplain: encoder and trunk cast whole, autocast, dense attention.", highlight=False)
