"""What a person gets who types `longtake map`: milliseconds a frame, beside the best row of `longtake bench speed`.

A folder of JPEGs in, the default files out, random weights of a published size; both are processes of their own, one
after the other, on the same device.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from PIL import Image

from longtake.cli.options import AsJson
from longtake.cli.tables import show, table
from longtake.errors import LongtakeError
from longtake.geometry.model import GeometryModel
from longtake.weights.load import save_geometry
from longtake.weights.presets import LINGBOT_MAP

_PICTURE_SIZE = 1008, 756
_MODEL_SIZE = 504, 378
_COMMAND = [sys.executable, "-c", "from longtake.cli.main import main; main()"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MapSpeed:
    """One run of `longtake map`, once its window was full and its writer process at work."""

    formats: str
    mean_ms: float
    """From one told frame to the next, checkpoints included."""
    p50_ms: float
    p90_ms: float
    longest_ms: float
    num_frames: int
    ratio: float
    """Of the mean to the best row."""
    whole_s: float
    """From the command to its end, model, report and all."""
    checkpoints: int
    peak_resident_bytes: int
    execution: dict[str, str]


def map_speed(
    *,
    frames: Annotated[int, typer.Option(min=200, help="JPEGs to map.")] = 400,
    formats: Annotated[
        list[str] | None, typer.Option("--format", help="As `longtake map` takes it; may be repeated.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Time `longtake map` on a folder of JPEGs against the best row of `longtake bench speed`; needs a GPU."""
    if not torch.cuda.is_available():
        raise LongtakeError("Expected a GPU to measure on, but there is none.")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = {options: _bench_row(options) for options in ("--no-capture", "--capture")}
        best_ms = min(rows.values())
        _make_pictures(folder / "pictures", frames)
        _make_checkpoint(folder / "random.safetensors")
        runs = [_run(folder, str(place), asked, best_ms) for place, asked in enumerate(formats or [""])]
    cells = [
        (
            run.formats or "default files",
            *(f"{value:.1f}" for value in (run.mean_ms, run.p50_ms, run.p90_ms, run.longest_ms)),
            f"{run.ratio:.2f}",
            f"{run.whole_s:.0f} s",
            f"{run.peak_resident_bytes / 1e9:.1f} GB",
        )
        for run in runs
    ]
    headings = ("longtake map", "mean ms", "p50", "p90", "longest", "of best", "whole", "resident")
    show(
        {"bench_speed_p50_ms": rows, "map": [asdict(run) for run in runs]},
        [
            f"bench speed, p50: {', '.join(f'{row} {value:.1f} ms' for row, value in rows.items())}",
            table(headings, cells),
        ],
        as_json=as_json,
    )


def _bench_row(capture: str) -> float:
    width, height = _MODEL_SIZE
    options = ["--model", "lingbot-map", "--size", f"{width}x{height}", capture, "--json"]
    answer = subprocess.run([*_COMMAND, "bench", "speed", *options], check=True, stdout=subprocess.PIPE)  # noqa: S603
    return float(json.loads(answer.stdout)["p50_ms"])


def _make_pictures(folder: Path, count: int) -> None:
    """Crops of one soft picture, which moves a little from frame to frame."""
    folder.mkdir()
    width, height = _PICTURE_SIZE
    noise = np.random.default_rng(0).integers(0, 256, (60, 80, 3), dtype=np.uint8)
    scene = Image.fromarray(noise).resize((width + 300, height + 200), Image.Resampling.BICUBIC)
    for index in range(count):
        left, top = index % 300, index % 200
        scene.crop((left, top, left + width, top + height)).save(folder / f"{index:05d}.jpg", quality=90)


def _make_checkpoint(path: Path) -> None:
    torch.manual_seed(0)
    with torch.device("cuda"):
        save_geometry(GeometryModel(LINGBOT_MAP).eval().cast_products(torch.bfloat16), path)


def _run(folder: Path, name: str, formats: str, best_ms: float) -> MapSpeed:
    options = ["--model", str(folder / "random.safetensors"), "--size", str(_MODEL_SIZE[0]), "--json"]
    options += ["--out", str(folder / name), *(["--format", formats] if formats else [])]
    started_s = time.perf_counter()
    events = list(_timed_events([*_COMMAND, "map", str(folder / "pictures"), *options]))
    whole_s = time.perf_counter() - started_s
    told_s = [time_s for time_s, event in events if event["event"] == "frame"]
    # the first ones fill the window, the last ones come from queues with nothing behind them
    times_ms = [(after - before) * 1e3 for before, after in pairwise(told_s[120:-20])]
    done = next(event for _, event in events if event["event"] == "done")
    return MapSpeed(
        formats=formats,
        mean_ms=statistics.mean(times_ms),
        p50_ms=statistics.median(times_ms),
        p90_ms=statistics.quantiles(times_ms, n=10)[-1],
        longest_ms=max(times_ms),
        num_frames=len(told_s),
        ratio=statistics.mean(times_ms) / best_ms,
        whole_s=whole_s,
        checkpoints=sum(event["event"] == "saved" for _, event in events),
        peak_resident_bytes=done["peak_resident_bytes"],
        execution=done["execution"],
    )


def _timed_events(command: list[str]) -> Iterator[tuple[float, dict[str, Any]]]:
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603
        assert process.stdout is not None
        for line in process.stdout:
            yield time.perf_counter(), json.loads(line)
    if process.returncode:
        raise LongtakeError(f"Expected {' '.join(command[3:])} to end well, but it ended with {process.returncode}.")
