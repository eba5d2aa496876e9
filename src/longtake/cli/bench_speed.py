"""`longtake bench speed`: milliseconds a frame, and all that they depend on."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import torch
import typer

from longtake.attention.choose import backend_named
from longtake.bench.speed import measure_speed
from longtake.cli.options import AsJson, Device, Size, choose, parse_size
from longtake.cli.progress import counting
from longtake.cli.tables import show, table
from longtake.geometry.config import GeometryConfig
from longtake.geometry.model import GeometryModel
from longtake.memory.policies.lockstep import ContextRetention
from longtake.runtime.execution import choose_device
from longtake.runtime.keyframes import EveryNth
from longtake.runtime.memory_plan import MemoryPlan
from longtake.runtime.session import SequenceSession
from longtake.weights.load import load_geometry
from longtake.weights.presets import LINGBOT_MAP, TINY

CONFIGS = {"tiny": TINY, "lingbot-map": LINGBOT_MAP}
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def bench_speed(
    model: Annotated[str, typer.Option(help="tiny, or lingbot-map for the published size.")] = "tiny",
    weights: Annotated[Path | None, typer.Option(help="A checkpoint; without one the weights are random.")] = None,
    size: Size = "126x98",
    frames: Annotated[int, typer.Option(min=1, help="Frames to time once the window is full.")] = 100,
    window: Annotated[int, typer.Option(min=1, help="Window in kept frames.")] = 64,
    scale_frames: Annotated[int, typer.Option(min=1, help="Frames of the scale block, and anchors.")] = 8,
    interval: Annotated[int, typer.Option(min=1, help="Keep every n-th frame.")] = 1,
    dtype: Annotated[str, typer.Option(help="float32, bfloat16 or float16.")] = "float32",
    device: Device = "auto",
    backend: Annotated[str, typer.Option(help="Attention backend.")] = "sdpa",
    capture: Annotated[bool, typer.Option(help="Record what never changes as CUDA graphs.")] = False,
    as_json: AsJson = False,
) -> None:
    """Time single steps with a full window, and print the contract under which they were timed."""
    place, number_type = choose_device(device), choose(dtype, _DTYPES, "number type")
    network = _network(choose(model, CONFIGS, "model"), weights, place, number_type)
    plan = MemoryPlan(
        config=network.config,
        size=parse_size(size),
        retention=ContextRetention(anchors=scale_frames, window=window),
        num_scale_frames=scale_frames,
        trunk_dtype=number_type,
    )
    session = SequenceSession(
        network,
        plan,
        keyframes=EveryNth(interval),
        backend=backend_named(backend),
        compute_dtype=number_type,
        capture=capture,
    )
    labels = {
        "model": model,
        "weights": "RANDOM" if weights is None else str(weights),
        "compute_dtype": dtype,
        "backend": backend,
        "captured": "yes" if capture else "no",
    }
    with counting("streaming", None) as advance:
        figures = measure_speed(session, labels, frames, advance)
    record = asdict(figures)
    show(record, [table(("", ""), [(name, _cell(name, value)) for name, value in record.items()])], as_json=as_json)


def _network(config: GeometryConfig, weights: Path | None, device: torch.device, dtype: torch.dtype) -> GeometryModel:
    if weights is not None:
        return load_geometry(weights, config, device=device, trunk_dtype=dtype)
    torch.manual_seed(0)
    with device:  # the published size is drawn on a GPU much faster than moved there
        model = GeometryModel(config).eval().requires_grad_(requires_grad=False)
    return model if dtype == torch.float32 else model.cast_products(dtype)


def _cell(name: str, value: object) -> str:
    if name.endswith("_bytes") and isinstance(value, int):
        return f"{value / 1e9:.3f} GB"
    return f"{value:.2f}" if isinstance(value, float) else str(value)
