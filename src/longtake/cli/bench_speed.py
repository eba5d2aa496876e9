"""`longtake bench speed`: milliseconds a frame, and all that they depend on."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import torch
import typer

from longtake.attention.choose import backend_named
from longtake.attention.triton import TritonBackend
from longtake.bench.attention import KernelTime, measure_attention
from longtake.bench.question_speed import SMALL, TEXT, measure_questions
from longtake.bench.speed import measure_speed
from longtake.cli.options import AsJson, BackendName, Device, PrecisionName, Size, choose, parse_size
from longtake.cli.progress import counting
from longtake.cli.tables import show, table
from longtake.errors import SettingError
from longtake.geometry.config import TRUNK, Attention, GeometryConfig
from longtake.geometry.model import GeometryModel
from longtake.language.model_config import TextConfig
from longtake.memory.policies.budgeted import Managed
from longtake.memory.policies.lockstep import ContextRetention, Window
from longtake.memory.policy import StreamPolicy
from longtake.runtime.execution import Execution, choose_execution
from longtake.runtime.keyframes import EveryNth
from longtake.runtime.memory_plan import MemoryPlan
from longtake.runtime.session import SequenceSession
from longtake.weights.load import load_geometry
from longtake.weights.presets import LINGBOT_MAP, STREAM3R, STREAMVGGT, TINY

CONFIGS = {"tiny": TINY, "lingbot-map": LINGBOT_MAP, "stream3r": STREAM3R, "streamvggt": STREAMVGGT}
_ALL_CONFIGS: dict[str, GeometryConfig | TextConfig] = {**CONFIGS, "qwen2.5-vl": TEXT, "qwen-small": SMALL}
_ANSWER_TOKENS, _FEW_ANSWER_TOKENS = 64, 8
_HISTORY_WINDOWS = 5
"""Of the trail that the context policy keeps, in windows: what fills within a benchmark."""


def bench_speed(
    model: Annotated[
        str, typer.Option(help="tiny, qwen-small; lingbot-map, stream3r, streamvggt, qwen2.5-vl (3B), as published.")
    ] = "tiny",
    weights: Annotated[Path | None, typer.Option(help="A checkpoint; without one the weights are random.")] = None,
    size: Size = "126x98",
    frames: Annotated[int, typer.Option(min=1, help="Frames to time once the memory is full.")] = 100,
    policy: Annotated[str, typer.Option(help="Memory policy; by default context, or window for causal networks.")] = "",
    window: Annotated[int, typer.Option(min=1, help="Window in kept frames; what other policies keep in all.")] = 64,
    scale_frames: Annotated[int, typer.Option(min=1, help="Frames of the scale block, and anchors.")] = 8,
    interval: Annotated[int, typer.Option(min=1, help="Keep every n-th frame.")] = 1,
    device: Device = "auto",
    precision: PrecisionName = "auto",
    backend: BackendName = "auto",
    capture: Annotated[bool | None, typer.Option(help="Record CUDA graphs; by default on a GPU.")] = None,
    tokens: Annotated[
        int, typer.Option(min=1, help="Of qwen2.5-vl: tokens that it remembers when it is asked.")
    ] = 63_000,
    as_json: AsJson = False,
) -> None:
    """Time single steps with a full memory, and print the contract under which they were timed.

    On a GPU with our own kernels, their times for one layer are printed too, beside torch's flash attention. Of
    qwen2.5-vl and qwen-small it is frames and questions that are timed.
    """
    execution = choose_execution(device, precision, backend)
    place, dtype = torch.device(execution.device), execution.precision.dtype
    config = choose(model, _ALL_CONFIGS, "model")
    if isinstance(config, TextConfig):
        _time_questions(config, parse_size(size), tokens, execution, as_json=as_json)
        return
    network = _network(config, weights, place, dtype)
    is_context = network.config.attention is Attention.CONTEXT
    plan = MemoryPlan(
        config=network.config,
        size=parse_size(size),
        retention=_retention(policy or ("context" if is_context else "window"), scale_frames, window),
        num_scale_frames=scale_frames if is_context else 1,
        trunk_dtype=dtype,
    )
    session = SequenceSession(
        network,
        plan,
        keyframes=EveryNth(interval),
        backend=backend_named(execution.backend),
        compute_dtype=dtype,
        capture=capture,
    )
    labels = {
        "model": model,
        "weights": "RANDOM" if weights is None else str(weights),
        "compute_dtype": str(dtype).removeprefix("torch."),
        "backend": execution.backend,
        "captured": "yes" if session.is_captured else "no",
    }
    warm_up = plan.num_scale_frames + (scale_frames + window) * interval
    with counting("streaming", None) as advance:
        figures = measure_speed(session, labels, frames, warm_up, advance)
    kernels = _kernels(session) if execution.backend == TritonBackend.name and figures.why_portable is None else []
    record = {**asdict(figures), "attention": [asdict(kernel) for kernel in kernels]}
    tables = [table(("", ""), [(name, _cell(name, value)) for name, value in asdict(figures).items()])]
    if kernels:
        rows = [(kernel.kernel, f"{kernel.ms:.3f}", f"{kernel.of_flash:.2f}") for kernel in kernels]
        tables.append(table(("attention of one layer", "ms", "of flash"), rows))
    show(record, tables, as_json=as_json)


def _time_questions(
    text: TextConfig, size: tuple[int, int], tokens: int, execution: Execution, *, as_json: bool
) -> None:
    with counting("streaming", None) as advance:
        figures = measure_questions(
            text=text,
            size=size,
            num_tokens=tokens,
            answer_tokens=_ANSWER_TOKENS if text is TEXT else _FEW_ANSWER_TOKENS,
            device=torch.device(execution.device),
            dtype=execution.precision.dtype,
            backend=backend_named(execution.backend),
            progress=advance,
        )
    cells = [(name, _cell(name, value)) for name, value in asdict(figures).items()]
    show(asdict(figures), [table(("", ""), cells)], as_json=as_json)


def _retention(policy: str, anchors: int, window: int) -> StreamPolicy:
    """This policy, with so many frames."""
    match policy:
        case "context":
            return ContextRetention(anchors=anchors, window=window, history=anchors + _HISTORY_WINDOWS * window)
        case "window":
            return Window(anchors=anchors, window=window)
        case "managed":
            return Managed(num_frames=anchors + window)
    raise SettingError(f"Expected a policy to time, context, window or managed, but got '{policy}'.")


def _kernels(session: SequenceSession) -> list[KernelTime]:
    plan = session.plan
    layout = plan.requirements.streams[TRUNK][0]
    return measure_attention(
        queries=layout.tokens_per_frame,
        keys=len(session.remembered(0)) + layout.tokens_per_frame,
        heads=layout.num_heads,
        head_dim=layout.head_dim,
        dtype=layout.dtype,
    )


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
