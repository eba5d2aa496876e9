"""`longtake bench memory`: bytes of each retention policy at the published size, against the closed formula."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from longtake.bench.memory import POLICIES, MemoryFigures, measure, trunk_formula
from longtake.cli.options import AsJson, Size, parse_size
from longtake.cli.tables import show, table
from longtake.evaluation.figures import new_figure, save_figure
from longtake.weights.presets import LINGBOT_MAP

_HEADINGS = ("policy", "frame kB", "last kB", "trunk GB", "cam MB", "room GB", "formula", "ms")
_MEANING = """
frame: keys and values of one whole frame in one trunk layer. last: what the last frame added there, net of what it
pushed out. trunk, cam: held now by the trunk and the camera head, all layers. room: allocated once and never exceeded,
for up to 4096 kept frames. ms: median to stage and commit one frame, without any arithmetic on keys and values."""


def bench_memory(
    frames: Annotated[int, typer.Option(min=1, help="Frames to keep under each policy.")] = 320,
    size: Size = "518x378",
    as_json: AsJson = False,
    plot: Annotated[Path | None, typer.Option(help="Also draw bytes over frames into this PNG file.")] = None,
) -> None:
    """Count bytes per frame and layer at the published size, for each policy, against the closed formula."""
    height_width = parse_size(size)
    if plot is not None:
        draw_memory(plot, height_width, frames)
    figures = measure(LINGBOT_MAP, height_width, num_frames=frames)
    show([asdict(row) | {"agrees": row.agrees} for row in figures], _blocks(figures, size), as_json=as_json)
    if not all(row.agrees for row in figures):
        raise SystemExit(1)


def _blocks(figures: Sequence[MemoryFigures], size: str) -> Iterator[str | Table]:
    title = f"lingbot-map at {size}, bfloat16, after {figures[0].num_frames} kept frames"
    yield table(_HEADINGS, map(_cells, figures), title=title)
    yield _MEANING


def _cells(row: MemoryFigures) -> tuple[str, ...]:
    return (
        row.policy,
        f"{row.resident_frame_layer_bytes / 1e3:.1f}",
        f"{row.last_frame_layer_bytes / 1e3:+.1f}",
        f"{row.trunk_bytes / 1e9:.3f}",
        f"{row.camera_bytes / 1e6:.1f}",
        f"{row.declared_bytes / 1e9:.2f}",
        "equal" if row.agrees else f"{row.trunk_formula_bytes} + {row.camera_formula_bytes} bytes",
        f"{row.commit_ms:.1f}",
    )


def draw_memory(path: Path, size: tuple[int, int], frames: int) -> None:
    """Bytes the trunk holds over kept frames, by the closed formula."""
    figure = new_figure(7.0, 4.2)
    axes = figure.subplots()
    counts = sorted({max(1, round(frames * step / 100)) for step in range(1, 101)})
    for name, retention in POLICIES.items():
        held = [trunk_formula(LINGBOT_MAP, size, retention, count, 2) / 1e9 for count in counts]
        axes.plot(counts, held, label=name)
    axes.set(xlabel="kept frames", ylabel="keys and values in the trunk, GB", yscale="log")
    axes.grid(visible=True, alpha=0.3)
    axes.legend(frameon=False)
    save_figure(figure, path)
