"""`longtake bench`: run a measurement, print a table or JSON."""

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from longtake.bench.memory import POLICIES, MemoryFigures, measure, trunk_formula
from longtake.bench.pipeline import PipelineFigures, measure_pipeline
from longtake.bench.soak import SoakFigures, small, soak
from longtake.bench.world import WorldFigures, measure_world
from longtake.cli.networks import random_model
from longtake.cli.options import choose_device, one_of, parse_size
from longtake.cli.world import WorldSettings, film
from longtake.errors import SettingError
from longtake.extras import import_from_extra
from longtake.memory.registry import stream_policy_named
from longtake.pipeline.video_map import MapSettings
from longtake.runtime.build import SMALL
from longtake.video.source import SourceOptions, open_source
from longtake.weights.presets import LINGBOT_MAP, MICRO, TINY

_NETWORKS = {"micro": MICRO, "tiny": TINY}
_SOAK_VERDICTS = {
    "is_flat": ("memory is flat", "memory grew"),
    "is_bounded": ("the memory never took more than declared", "the memory took more than declared"),
    "is_steady": (
        "steps are as fast as a new session's, within 10 %",
        "steps are more than 10 % slower than a new one's",
    ),
}


def run_memory(frames: int, size: str, *, as_json: bool, plot: Path | None) -> None:
    height_width = parse_size(size)
    if plot is not None:
        draw_memory(plot, height_width, frames)
    figures = measure(LINGBOT_MAP, height_width, num_frames=frames)
    if as_json:
        print(json.dumps([asdict(row) | {"agrees": row.agrees} for row in figures], indent=1))
    else:
        _print_memory(figures, size)
    if not all(row.agrees for row in figures):
        raise SystemExit(1)


def _print_memory(figures: Sequence[MemoryFigures], size: str) -> None:
    frames = figures[0].num_frames
    table = Table(title=f"lingbot-map at {size}, bfloat16, after {frames} kept frames", box=None, title_justify="left")
    table.add_column("policy", no_wrap=True)
    for heading in ("frame kB", "last kB", "trunk GB", "cam MB", "room GB", "formula", "ms"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in figures:
        table.add_row(
            row.policy,
            f"{row.resident_frame_layer_bytes / 1e3:.1f}",
            f"{row.last_frame_layer_bytes / 1e3:+.1f}",
            f"{row.trunk_bytes / 1e9:.3f}",
            f"{row.camera_bytes / 1e6:.1f}",
            f"{row.declared_bytes / 1e9:.2f}",
            "equal" if row.agrees else f"[red]{row.trunk_formula_bytes} + {row.camera_formula_bytes} bytes[/]",
            f"{row.commit_ms:.1f}",
        )
    console = Console()
    console.print(table)
    console.print(
        "\nframe: keys and values of one whole frame in one trunk layer. last: what the last frame added there, "
        "net of what it pushed out.\ntrunk, cam: held now by the trunk and the camera head, all layers. room: "
        "allocated once and never exceeded, for up to 4096 kept frames.\nms: median to stage and commit one frame, "
        "without any arithmetic on keys and values.",
        highlight=False,
    )


def draw_memory(path: Path, size: tuple[int, int], frames: int) -> None:
    """Bytes the trunk holds over kept frames, by the closed formula."""
    matplotlib = import_from_extra("matplotlib", "plot", "Drawing")
    matplotlib.use("Agg")
    pyplot = import_from_extra("matplotlib.pyplot", "plot", "Drawing")
    figure, axes = pyplot.subplots(figsize=(7, 4.2), layout="constrained")
    counts = sorted({max(1, round(frames * step / 100)) for step in range(1, 101)})
    for name, retention in POLICIES.items():
        held = [trunk_formula(LINGBOT_MAP, size, retention, count, 2) / 1e9 for count in counts]
        axes.plot(counts, held, label=name)
    axes.set(xlabel="kept frames", ylabel="keys and values in the trunk, GB", yscale="log")
    axes.grid(visible=True, alpha=0.3)
    axes.legend(frameon=False)
    figure.savefig(path, dpi=150)
    pyplot.close(figure)


def run_soak(frames: int, stretch: int, policy: str | None, *, as_json: bool) -> None:
    """With a policy by name, its bytes and its step time must hold too; without one only memory must be flat."""
    if frames < 2 * stretch:
        raise SettingError(f"Expected at least two stretches of {stretch} frames, but got {frames} frames in all.")
    rule = None if policy is None else small(stream_policy_named(policy))
    torch.set_num_threads(1)  # the network is too small to share
    with Progress(console=Console(stderr=True)) as progress:
        task = progress.add_task("streaming", total=frames)
        figures = soak(frames, stretch, lambda count: progress.advance(task, count), rule)
    judged = {name: value for name, value in _judged(figures).items() if policy is not None or name == "is_flat"}
    if as_json:
        print(json.dumps(asdict(figures) | {"policy": policy, "step_ratio": figures.step_ratio} | judged, indent=1))
    else:
        _print_soak(figures, judged)
    if not all(judged.values()):
        raise SystemExit(1)


def _judged(figures: SoakFigures) -> dict[str, bool]:
    return {"is_flat": figures.is_flat, "is_bounded": figures.is_bounded, "is_steady": figures.is_steady}


def _print_soak(figures: SoakFigures, judged: Mapping[str, bool]) -> None:
    title = f"{figures.num_frames} frames, memory of {figures.memory_bytes / 1e6:.3f} MB"
    table = Table(title=title, box=None, title_justify="left")
    for heading in ("", f"first {figures.stretch_frames}", f"last {figures.stretch_frames}", "last / first"):
        table.add_column(heading, justify="right" if heading else "left")
    first, last = figures.first, figures.last
    for name, a, b, unit in (
        ("resident memory", first.resident_bytes / 1e6, last.resident_bytes / 1e6, " MB"),
        ("memory taken", first.taken_bytes / 1e6, last.taken_bytes / 1e6, " MB"),
        ("median step", first.step_ms, last.step_ms, " ms"),
        ("live tensors", first.num_tensors, last.num_tensors, ""),
        ("live objects", first.num_objects, last.num_objects, ""),
    ):
        table.add_row(name, f"{a:.6g}{unit}", f"{b:.6g}{unit}", f"{b / a:.4f}")
    console = Console()
    console.print(table)
    console.print()
    if (ages := figures.ages) is not None:
        medians = f"{ages.old_step_ms:.2f} ms, of a new session beside it {ages.young_step_ms:.2f} ms"
        console.print(f"{ages.num_frames} more frames: median step {medians}, ratio {ages.ratio:.3f}", highlight=False)
    for name, holds in judged.items():
        said, otherwise = _SOAK_VERDICTS[name]
        console.print(said if holds else f"[red]{otherwise}[/]")


def run_world(sizes: str, device: str, *, houses: int, frames: int, fuse: bool, as_json: bool) -> None:
    torch.set_num_threads(1)  # rays are cast in pieces too small to share
    wanted = [parse_size(size) for size in sizes.split(",")]
    chosen = choose_device(device)
    figures = [measure_world(size, chosen, houses=houses, frames=frames, fuse=fuse) for size in wanted]
    if as_json:
        print(json.dumps([asdict(row) for row in figures], indent=1))
    else:
        _print_world(figures)


def _print_world(figures: Sequence[WorldFigures]) -> None:
    first = figures[0]
    title = f"{first.device}: {first.batch_houses} houses of {first.batch_frames} frames at once"
    table = Table(title=f"{title}, compiled" if first.fused else title, box=None, title_justify="left")
    for heading in ("size", "frames/s at once", "frames/s one by one"):
        table.add_column(heading, justify="right")
    for row in figures:
        rates = (f"{row.batch_frames_per_s:.1f}", f"{row.stream_frames_per_s:.1f}")
        table.add_row(f"{row.width}x{row.height}", *rates)
    console = Console()
    console.print(table)
    console.print(f"\n{first.houses_per_s:.0f} houses/s built, {first.steps_per_s:.0f} steps/s walked", highlight=False)


def run_pipeline(frames: int, size: str, network: str, *, as_json: bool) -> None:
    height, width = parse_size(size)
    config = _NETWORKS[one_of("--network", network, list(_NETWORKS))]
    torch.set_num_threads(1)
    model = random_model(config, torch.device("cpu"))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        walk = WorldSettings(
            seed=0,
            frames=frames,
            size=f"{width}x{height}",
            fps=10.0,
            images="mp4",
            depth="none",
            questions=0,
            device="cpu",
            out=folder / "walk",
            overwrite=False,
        )
        film(walk, Console(stderr=True))
        figures = measure_pipeline(
            lambda: open_source(str(folder / "walk" / "video.mp4"), options=SourceOptions(threads=1)),
            model,
            MapSettings(session=SMALL),
            folder,
        )
    if as_json:
        print(json.dumps(asdict(figures) | {"share_of_slowest": figures.share_of_slowest}, indent=1))
    else:
        _print_pipeline(figures, f"{size}, {network} network")


def _print_pipeline(figures: PipelineFigures, what: str) -> None:
    title = f"{figures.num_frames} frames of {what}, {figures.torch_threads} torch thread"
    table = Table(title=title, box=None, title_justify="left")
    table.add_column("stage")
    table.add_column("frames/s alone", justify="right")
    for name in ("decode", "prepare", "map", "write"):
        table.add_row(name, f"{asdict(figures)[name]:.1f}")
    console = Console()
    console.print(table)
    share = figures.share_of_slowest
    console.print(f"\nside by side {figures.pipeline:.1f} frames/s, {share:.0%} of the slowest stage", highlight=False)
