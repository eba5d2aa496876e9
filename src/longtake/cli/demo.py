"""`longtake demo`: a walk through a house that no training has seen, filmed, mapped, asked about, judged and drawn."""

import time
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from longtake.api.progress import plain_console
from longtake.attention.choose import backend_named
from longtake.bench.exactness import Exactness, measure_exactness
from longtake.cli.demo_picture import draw_demo
from longtake.cli.demo_report import ask_on_the_way, truth_for_report
from longtake.cli.options import BackendName, Device, PrecisionName, command_app
from longtake.cli.reporting import TerminalReporter
from longtake.cli.tables import write_json
from longtake.cli.world import WorldSettings, film
from longtake.errors import SettingError
from longtake.evaluation.asked_walk import FEWEST_FRAMES, QuestionPlan
from longtake.evaluation.walk_quality import FilmedWalk, WorldQuality, read_walk, score_take
from longtake.exports.reexport import ExportSettings
from longtake.exports.report.asked import ASKED_NAME, Asked
from longtake.exports.report.page import REPORT_NAME, write_report
from longtake.exports.report.truth import TRUTH_NAME
from longtake.geometry.model import GeometryModel
from longtake.hub.bundled import DEFAULT_LANGUAGE, DEFAULT_MODEL
from longtake.hub.load import load_language_model, load_model, loops_of
from longtake.pipeline.events import Frame, MapSummary
from longtake.pipeline.outputs import Outputs
from longtake.pipeline.video_map import MapSettings, adjusted_session, map_video
from longtake.runtime.build import SMALL
from longtake.runtime.execution import Execution, choose_execution
from longtake.takes.take import Take, read_take
from longtake.types import counted
from longtake.video.source import open_source
from longtake.world.seeds import Split, split_of
from longtake.world.walk import WALK_FPS

_SIZE = "126x98"
_CHECKED_FRAMES = 48
"""A masked pass over the whole clip takes memory by the square of its length."""
_ASKED_SIZE = (112, 168)
"""Height and width of what micro-vqa sees: the same camera at the size that it was trained for."""
_ASKED_STRIDE = 5
_MOMENTS, _QUESTIONS = 4, 7
_RECENT_S = 4.0
_EXPORTED = ("colmap", "nerfstudio", "glb")


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoFigures:
    """What the demo measured."""

    seed: int
    frames: int
    frames_per_s: float
    memory_bytes: int
    execution: Execution
    exactness: Exactness
    quality: WorldQuality
    asked: Asked | None
    """None where nothing could be asked."""
    seconds: float

    def record(self) -> dict[str, Any]:
        asked = self.asked or Asked(about="", questions=())
        run = {
            "seed": self.seed,
            "frames": self.frames,
            "frames_per_s": self.frames_per_s,
            "memory_bytes": self.memory_bytes,
            "seconds": self.seconds,
        }
        answers = {
            "answers_asked": len(asked.questions),
            "answers_right": asked.num_right,
            "evidence_asked": asked.num_evident,
            "evidence_met": asked.num_met,
            "evidence_met_by_chance": round(asked.num_by_chance, 1),
        }
        return run | asdict(self.execution) | asdict(self.exactness) | self.quality.figures() | answers


app = command_app()


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the walk, the map, the picture and the figures.")] = Path("out"),
    frames: Annotated[int, typer.Option(min=3, help="Length of the walk.")] = 150,
    seed: Annotated[int, typer.Option(min=0, help="Which house; one that ends in 9 is of no training.")] = 9,
    device: Device = "auto",
    precision: PrecisionName = "auto",
    backend: BackendName = "auto",
) -> None:
    """Film a walk through a house unseen in training, map it, ask about it, and score map and answers by the truth."""
    if split_of(seed) is not Split.TEST:
        raise SettingError(
            f"Expected the seed of a house that no training has seen, one that ends in 9, but got {seed}."
        )
    started_s, execution = time.monotonic(), choose_execution(device, precision, backend)
    torch.set_num_threads(1)  # the network and its pictures are too small to share
    console = plain_console(stderr=False)
    model = load_model(DEFAULT_MODEL, device=execution.device, trunk_dtype=execution.precision.dtype)
    walk, mapped = out / "demo-walk", out / "demo-map"
    truth = _film(walk, frames, seed)
    summary = _map(walk, model, mapped, execution)
    clip, result = read_walk(truth), read_take(mapped)
    quality = score_take(result, clip, seed=seed, watched_s=summary.seconds)
    truth_for_report(result, clip, quality).write(mapped / TRUTH_NAME)
    with console.status("Asking on the way"):
        asked = _ask(frames, seed, mapped / ASKED_NAME, execution)
    write_report(mapped)
    draw_demo(result, clip, quality).save(out / "demo.png")
    with console.status("Streaming against the whole clip at once, and after a break"):
        exactness = _check(model, clip, execution)
    figures = DemoFigures(
        seed=seed,
        frames=frames,
        frames_per_s=summary.frames_per_s,
        memory_bytes=summary.memory_bytes,
        execution=execution,
        exactness=exactness,
        quality=quality,
        asked=asked,
        seconds=time.monotonic() - started_s,
    )
    write_json(out / "demo.json", figures.record())
    console.print(f"{_line(figures)}; see {mapped / REPORT_NAME} and {out / 'demo.png'}", soft_wrap=True)


def _film(out: Path, num_frames: int, seed: int) -> Take:
    settings = WorldSettings(
        out=out, seed=seed, frames=num_frames, size=_SIZE, images="png", depth="npz", overwrite=True
    )
    film(settings, plain_console(stderr=True))
    return read_take(out)


def _map(walk: Path, model: GeometryModel, out: Path, execution: Execution) -> MapSummary:
    """As `longtake map` does it, with everything that it can write."""
    formats = _EXPORTED if find_spec("rerun") is None else (*_EXPORTED, "rrd")
    settings = MapSettings(
        session=adjusted_session(SMALL, precision=execution.precision),
        outputs=Outputs(formats=("ply", "kitti"), session=True, export=ExportSettings(formats=formats)),
        model_name=DEFAULT_MODEL,
        execution=execution,
        loops=loops_of(DEFAULT_MODEL),
    )
    source, reporter = open_source(str(walk)), TerminalReporter()
    run = map_video(source, model, out, settings, overwrite=True, on_export=reporter.exporting)
    with reporter.watching(run), run:
        for event in run:
            if isinstance(event, Frame):
                reporter.report(event)
    assert run.summary is not None
    return run.summary


def _ask(num_frames: int, seed: int, path: Path, execution: Execution) -> Asked | None:
    """Questions on the way, answered as `longtake ask` does it; none about a walk of a few frames."""
    stride = max(1, min(_ASKED_STRIDE, num_frames // FEWEST_FRAMES))
    num_seen = len(range(0, num_frames, stride))
    if find_spec("transformers") is None or num_seen < FEWEST_FRAMES:
        path.unlink(missing_ok=True)
        return None
    asking = QuestionPlan(
        num_frames=num_seen,
        fps=WALK_FPS / stride,
        num_moments=_MOMENTS,
        num_questions=_QUESTIONS,
        recent_s=_RECENT_S,
    )
    language = load_language_model(DEFAULT_LANGUAGE, device=execution.device, dtype=execution.precision.dtype)
    attention = backend_named(execution.backend)
    asked = ask_on_the_way(language, seed, asking, _ASKED_SIZE, name=DEFAULT_LANGUAGE, backend=attention)
    asked.write(path)
    return asked


def _check(model: GeometryModel, clip: FilmedWalk, execution: Execution) -> Exactness:
    images = clip.images[:_CHECKED_FRAMES].to(execution.device)
    settings = adjusted_session(SMALL, precision=execution.precision)
    return measure_exactness(model, images, settings, backend_named(execution.backend))


def _line(figures: DemoFigures) -> str:
    quality, exactness = figures.quality, figures.exactness
    score, baselines = quality.score, quality.baselines
    same = "bit-identical" if exactness.resumed_is_identical else "DIFFERENT"
    parts = (
        f"{counted(figures.frames, 'frame')} of house {figures.seed}, {quality.path_m:.1f} m",
        f"{figures.frames_per_s:.0f} frames/s",
        f"ATE {_percent(score.ate_share)} of the path (constant velocity {_percent(baselines.velocity_ate_share)})",
        f"rotation {score.rotation_deg:.1f}°, scale range {_number(score.scale_range)}",
        f"depth AbsRel {score.depth_abs_rel:.3f} (mean depth {baselines.mean_depth_abs_rel:.3f})",
        _answers(figures.asked),
        f"memory of {figures.memory_bytes / 1e6:.1f} MB",
        f"streamed against the whole clip {exactness.stream_to_clip_error:.1e}, resumed {same}",
        f"{figures.seconds:.0f} s, {figures.execution.precision} on {figures.execution.device}",
    )
    return "; ".join(parts)


def _answers(asked: Asked | None) -> str:
    if asked is None:
        why = "the extra qwen is missing" if find_spec("transformers") is None else "the walk is too short"
        return f"nothing asked ({why})"
    return (
        f"{asked.num_right} of {len(asked.questions)} answers right, "
        f"{asked.num_met} of {asked.num_evident} looked at the true moment, {asked.num_by_chance:.0f} by chance"
    )


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
