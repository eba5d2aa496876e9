"""Commands that measure sessions of the map and what feeds them: `soak`, `precision`, `pipeline`, `world`,
`attention-mass`."""

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.table import Table

from benchmarks.attention_mass import measure_attention_mass
from benchmarks.pipeline import PipelineFigures, measure_pipeline
from benchmarks.precision import LAYER_SCALE, PrecisionFigures, measure_precision
from benchmarks.soak import SoakFigures, small
from benchmarks.soak import soak as measure_soak
from benchmarks.world import WorldFigures, measure_world
from longtake.api.arguments import one_of
from longtake.api.progress import plain_console
from longtake.attention.choose import backend_named
from longtake.cli.bench_speed import CONFIGS
from longtake.cli.options import AsJson, Device, Size, choose, parse_size
from longtake.cli.progress import counting
from longtake.cli.tables import show, table
from longtake.cli.world import WorldSettings, film
from longtake.errors import SettingError
from longtake.hub.load import RANDOM, load_model
from longtake.memory.registry import stream_policy_named
from longtake.pipeline.video_map import MapSettings
from longtake.runtime.build import SMALL
from longtake.runtime.execution import choose_device
from longtake.video.source import SourceOptions, open_source

_SOAK_VERDICTS = {
    "is_flat": ("memory is flat", "memory GREW"),
    "is_bounded": ("the memory never took more than declared", "the memory took MORE than declared"),
    "is_steady": (
        "steps are as fast as a new session's, within 10 %",
        "steps are MORE than 10 % slower than a new one's",
    ),
}


def soak(
    *,
    frames: Annotated[int, typer.Option(min=3, help="Frames to stream.")] = 20_000,
    stretch: Annotated[int, typer.Option(min=1, help="Frames in the first and last stretch compared.")] = 1000,
    policy: Annotated[
        str | None, typer.Option(help="managed, or another memory policy with a bound; by default a window.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Stream for a long time and compare the first and the last stretch: memory, step time, live tensors.

    With a policy by name, its bytes and its step time must hold too; without one only memory must be flat.
    """
    if frames < 2 * stretch:
        raise SettingError(f"Expected at least two stretches of {stretch} frames, but got {frames} frames in all.")
    rule = None if policy is None else small(stream_policy_named(policy))
    torch.set_num_threads(1)  # the network is too small to share
    with counting("streaming", frames) as advance:
        figures = measure_soak(frames, stretch, advance, rule)
    judged = {"is_flat": figures.is_flat}
    if policy is not None:
        judged |= {"is_bounded": figures.is_bounded, "is_steady": figures.is_steady}
    record = asdict(figures) | {"policy": policy, "step_ratio": figures.step_ratio} | judged
    show(record, _soaked(figures, judged), as_json=as_json)
    if not all(judged.values()):
        raise SystemExit(1)


def _soaked(figures: SoakFigures, judged: Mapping[str, bool]) -> Iterator[str | Table]:
    first, last, length = figures.first, figures.last, figures.stretch_frames
    pairs = (
        ("resident memory", first.resident_bytes / 1e6, last.resident_bytes / 1e6, " MB"),
        ("memory taken", first.taken_bytes / 1e6, last.taken_bytes / 1e6, " MB"),
        ("median step", first.step_ms, last.step_ms, " ms"),
        ("live tensors", first.num_tensors, last.num_tensors, ""),
        ("live objects", first.num_objects, last.num_objects, ""),
    )
    rows = [(name, f"{a:.6g}{unit}", f"{b:.6g}{unit}", f"{b / a:.4f}") for name, a, b, unit in pairs]
    title = f"{figures.num_frames} frames, memory of {figures.memory_bytes / 1e6:.3f} MB"
    yield table(("", f"first {length}", f"last {length}", "last / first"), rows, title=title)
    yield ""
    if (ages := figures.ages) is not None:
        medians = f"{ages.old_step_ms:.2f} ms, of a new session beside it {ages.young_step_ms:.2f} ms"
        yield f"{ages.num_frames} more frames: median step {medians}, ratio {ages.ratio:.3f}"
    for name, holds in judged.items():
        yield _SOAK_VERDICTS[name][not holds]


def precision(
    *,
    model: Annotated[str, typer.Option(help="tiny, or lingbot-map for the published size.")] = "tiny",
    size: Size = "42x28",
    at: Annotated[str, typer.Option(help="Frames at which to compare.")] = "10,72,100",
    device: Device = "auto",
    backends: Annotated[str, typer.Option(help="Attention backends, separated by commas.")] = "sdpa",
    layer_scale: Annotated[
        float, typer.Option(min=0, help="How much residual branches weigh; 0 for what a new network has.")
    ] = LAYER_SCALE,
    as_json: AsJson = False,
) -> None:
    """Compare bfloat16 with float32 on a random network, beside the plainest way to run in bfloat16."""
    if not all(part.strip().isdecimal() for part in at.split(",")):
        raise SettingError(f"Expected frame numbers such as 10,72,100, but got '{at}'.")
    at_frames = [int(part) for part in at.split(",")]
    place = choose_device(device)
    names = [name.strip() for name in backends.split(",")]
    torch.backends.cudnn.allow_tf32 = False  # by default even float32 convolutions are rounded on a GPU
    with counting("streaming", max(at_frames) + 1) as advance:
        measured = measure_precision(
            choose(model, CONFIGS, "model"),
            parse_size(size),
            at_frames=at_frames,
            backends=[backend_named(name) for name in names],
            device=place,
            progress=advance,
            layer_scale=layer_scale or None,
        )
        figures = list(measured)
    headings = ("frame, backend", "pose", "plain pose", "depth", "plain depth", "worst ratio", "this frame alone")
    blocks = (
        table(headings, map(_precision_cells, figures), title="bfloat16 against float32, random weights"),
        "\nplain: encoder and trunk cast whole, autocast, dense attention.",
    )
    show([asdict(row) | {"worst_ratio": row.worst_ratio} for row in figures], blocks, as_json=as_json)


def _precision_cells(row: PrecisionFigures) -> tuple[str, ...]:
    errors = (row.pose_error, row.plain_pose_error, row.depth_error, row.plain_depth_error)
    single = f"{row.single_pose_ratio:.2f}, {row.single_depth_ratio:.2f}"
    return f"{row.frame}, {row.backend}", *(f"{error:.2e}" for error in errors), f"{row.worst_ratio:.2f}", single


def world(
    *,
    sizes: Annotated[str, typer.Option(help="Width x height of the images, several separated by commas.")] = (
        "126x98,448x336"
    ),
    device: Device = "auto",
    houses: Annotated[int, typer.Option(min=1, help="Houses rendered at once.")] = 8,
    frames: Annotated[int, typer.Option(min=1, help="Frames of each.")] = 4,
    fuse: Annotated[bool, typer.Option(help="Compile the renderer first, as training does on a GPU.")] = False,
    as_json: AsJson = False,
) -> None:
    """Time the procedural world: frames a second in batches and one by one."""
    torch.set_num_threads(1)  # rays are cast in pieces too small to share
    wanted, place = [parse_size(size) for size in sizes.split(",")], choose_device(device)
    figures = [measure_world(size, place, houses=houses, frames=frames, fuse=fuse) for size in wanted]
    first = figures[0]
    title = f"{first.device}: {first.batch_houses} houses of {first.batch_frames} frames at once"
    blocks = (
        table(
            ("size", "frames/s at once", "frames/s one by one"),
            map(_world_cells, figures),
            title=f"{title}, compiled" if fuse else title,
        ),
        f"\n{first.houses_per_s:.0f} houses/s built, {first.steps_per_s:.0f} steps/s walked",
    )
    show([asdict(row) for row in figures], blocks, as_json=as_json)


def _world_cells(row: WorldFigures) -> tuple[str, ...]:
    return f"{row.width}x{row.height}", f"{row.batch_frames_per_s:.1f}", f"{row.stream_frames_per_s:.1f}"


def pipeline(
    *,
    frames: Annotated[int, typer.Option(min=2, help="Length of the video.")] = 200,
    size: Annotated[str, typer.Option(help="Width x height of the video, in pixels.")] = "448x336",
    network: Annotated[str, typer.Option(help="micro (5.5 million parameters) or tiny; random weights.")] = "micro",
    as_json: AsJson = False,
) -> None:
    """Time the stages of `longtake map` alone and side by side."""
    parse_size(size)
    torch.set_num_threads(1)
    model = load_model(one_of("--network", network, list(RANDOM)))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        film(
            WorldSettings(out=folder / "walk", seed=0, frames=frames, size=size, depth="none"),
            plain_console(stderr=True),
        )
        figures = measure_pipeline(
            lambda: open_source(str(folder / "walk" / "video.mp4"), options=SourceOptions(threads=1)),
            model,
            MapSettings(session=SMALL),
            folder,
        )
    record = asdict(figures) | {"share_of_slowest": figures.share_of_slowest}
    show(record, _staged(figures, f"{size}, {network} network"), as_json=as_json)


def _staged(figures: PipelineFigures, what: str) -> Iterator[str | Table]:
    title = f"{figures.num_frames} frames of {what}, {figures.torch_threads} torch thread"
    stages = {"decode": figures.decode, "prepare": figures.prepare, "map": figures.map, "write": figures.write}
    rows = [(name, f"{rate:.1f}") for name, rate in stages.items()]
    yield table(("stage", "frames/s alone"), rows, title=title)
    yield f"\nside by side {figures.pipeline:.1f} frames/s, {figures.share_of_slowest:.0%} of the slowest stage"


def attention_mass(
    *,
    tokens: Annotated[int, typer.Option(min=1, help="Tokens of a frame.")] = 1041,
    cached: Annotated[int, typer.Option(min=0, help="Frames that it attends to beside itself.")] = 16,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Time the attention mass of each key beside the attention itself, for one layer and one frame."""
    figures = measure_attention_mass(tokens_per_frame=tokens, cached_frames=cached, device=choose_device(device))
    record = asdict(figures) | {"overhead": figures.overhead}
    rows = [(name, f"{value:.3g}" if isinstance(value, float) else str(value)) for name, value in record.items()]
    show(record, [table(("", ""), rows)], as_json=as_json)
