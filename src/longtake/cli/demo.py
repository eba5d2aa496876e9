"""`longtake demo`: walks that no training has seen, filmed, mapped, asked about, judged and drawn."""

import time
from collections.abc import Iterator
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
from longtake.evaluation.take_quality import read_walk, score_take
from longtake.evaluation.walk_quality import FilmedWalk, WorldQuality
from longtake.exports.reexport import ExportSettings
from longtake.exports.report.asked import ASKED_NAME, Asked
from longtake.exports.report.page import REPORT_NAME, write_report
from longtake.exports.report.truth import TRUTH_NAME
from longtake.geometry.model import GeometryModel
from longtake.hub.bundled import DEFAULT_LANGUAGE, DEFAULT_MODEL
from longtake.hub.load import knowledge_of, load_language_model, load_model, loops_of
from longtake.pipeline.events import Frame, MapSummary
from longtake.pipeline.outputs import Outputs
from longtake.pipeline.video_map import MapSettings, map_video
from longtake.runtime.build import SessionSettings, adjusted_session, usual_settings
from longtake.runtime.execution import Execution, choose_execution
from longtake.takes.take import Take, read_take
from longtake.types import counted
from longtake.video.source import open_source
from longtake.world.families import HELD_OUT, Family
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
_HELD_OUT_FRAMES = 48
"""Of the second walk, which is there to show what is known of a world like none in training."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """A walk of the demo, and where what comes of it lies."""

    out: Path
    family: Family
    seed: int
    num_frames: int

    @property
    def walk(self) -> Path:
        return self.out / f"{self._name}-walk"

    @property
    def map(self) -> Path:
        return self.out / f"{self._name}-map"

    @property
    def picture(self) -> Path:
        return self.out / f"{self._name}.png"

    @property
    def _name(self) -> str:
        return "demo" if self.family is Family.HOUSE else f"demo-{self.family}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MappedScene:
    """What is true of a walk, what was said of it, and how good that is."""

    scene: Scene
    clip: FilmedWalk
    result: Take
    summary: MapSummary
    quality: WorldQuality

    def record(self) -> dict[str, Any]:
        run = {
            "family": self.scene.family,
            "seed": self.scene.seed,
            "frames": self.scene.num_frames,
            "frames_per_s": self.summary.frames_per_s,
            "memory_bytes": self.summary.memory_bytes,
            "unlikeness": self.summary.unlikeness,
        }
        return run | self.quality.figures()


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoFigures:
    """What the demo measured."""

    house: MappedScene
    held_out: MappedScene
    execution: Execution
    exactness: Exactness
    asked: Asked | None
    """None where nothing could be asked."""
    seconds: float

    def record(self) -> dict[str, Any]:
        asked = self.asked or Asked(about="", questions=())
        answers = {
            "answers_asked": len(asked.questions),
            "answers_right": asked.num_right,
            "evidence_asked": asked.num_evident,
            "evidence_met": asked.num_met,
            "evidence_met_by_chance": round(asked.num_by_chance, 1),
        }
        run = {"seconds": self.seconds} | asdict(self.execution) | asdict(self.exactness)
        return self.house.record() | run | answers | {"held_out": self.held_out.record()}


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
    """Film a house unseen in training and a table, map both, ask about the house, and score all by the truth."""
    if split_of(seed) is not Split.TEST:
        raise SettingError(
            f"Expected the seed of a house that no training has seen, one that ends in 9, but got {seed}."
        )
    started_s, execution = time.monotonic(), choose_execution(device, precision, backend)
    torch.set_num_threads(1)  # the network and its pictures are too small to share
    console = plain_console(stderr=False)
    model = load_model(DEFAULT_MODEL, device=execution.device, trunk_dtype=execution.precision.dtype)
    house = _mapped(Scene(out=out, family=Family.HOUSE, seed=seed, num_frames=frames), model, execution)
    with console.status("Asking on the way"):
        asked = _ask(frames, seed, house.scene.map / ASKED_NAME, execution)
    _show(house)
    held_out = Scene(out=out, family=HELD_OUT, seed=seed, num_frames=min(frames, _HELD_OUT_FRAMES))
    _show(other := _mapped(held_out, model, execution))
    with console.status("Streaming against the whole clip at once, and after a break"):
        exactness = _check(model, house.clip, execution)
    figures = DemoFigures(
        house=house,
        held_out=other,
        execution=execution,
        exactness=exactness,
        asked=asked,
        seconds=time.monotonic() - started_s,
    )
    write_json(out / "demo.json", figures.record())
    for line in _lines(figures):
        console.print(line, soft_wrap=True)


def _mapped(scene: Scene, model: GeometryModel, execution: Execution) -> MappedScene:
    settings = WorldSettings(
        out=scene.walk,
        seed=scene.seed,
        family=scene.family,
        frames=scene.num_frames,
        size=_SIZE,
        images="png",
        depth="npz",
        overwrite=True,
    )
    film(settings, plain_console(stderr=True))
    summary = _map(scene, model, execution)
    clip, result = read_walk(read_take(scene.walk)), read_take(scene.map)
    quality = score_take(result, clip, seed=scene.seed, watched_s=summary.seconds)
    return MappedScene(scene=scene, clip=clip, result=result, summary=summary, quality=quality)


def _map(scene: Scene, model: GeometryModel, execution: Execution) -> MapSummary:
    """As `longtake map` does it; of the house with everything that it can write."""
    outputs = Outputs(formats=("ply",))
    if scene.family is Family.HOUSE:
        formats = _EXPORTED if find_spec("rerun") is None else (*_EXPORTED, "rrd")
        outputs = Outputs(formats=("ply", "kitti"), session=True, export=ExportSettings(formats=formats))
    settings = MapSettings(
        session=_session(model, execution),
        outputs=outputs,
        model_name=DEFAULT_MODEL,
        knowledge=knowledge_of(DEFAULT_MODEL, "longtake map VIDEO --model {}"),
        execution=execution,
        loops=loops_of(DEFAULT_MODEL),
    )
    source, reporter = open_source(str(scene.walk)), TerminalReporter()
    run = map_video(
        source,
        model,
        scene.map,
        settings,
        overwrite=True,
        on_export=reporter.exporting,
        on_finish=reporter.finishing,
    )
    with reporter.watching(run), run:
        for event in run:
            if isinstance(event, Frame):
                reporter.report(event)
    assert run.summary is not None
    return run.summary


def _show(mapped: MappedScene) -> None:
    """A page with the truth beside the map, and a picture."""
    scene, result, clip, quality = mapped.scene, mapped.result, mapped.clip, mapped.quality
    truth_for_report(result, clip, quality, scene.family).write(scene.map / TRUTH_NAME)
    write_report(scene.map)
    draw_demo(result, clip, quality).save(scene.picture)


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
    return measure_exactness(model, images, _session(model, execution), backend_named(execution.backend))


def _session(model: GeometryModel, execution: Execution) -> SessionSettings:
    return adjusted_session(usual_settings(model.config), precision=execution.precision)


def _lines(figures: DemoFigures) -> Iterator[str]:
    """One for each walk, the house's with all else that was found out."""
    exactness, execution = figures.exactness, figures.execution
    same = "bit-identical" if exactness.resumed_is_identical else "DIFFERENT"
    yield _line(
        figures.house,
        _answers(figures.asked),
        f"memory of {figures.house.summary.memory_bytes / 1e6:.1f} MB",
        f"streamed against the whole clip {exactness.stream_to_clip_error:.1e}, resumed {same}",
    )
    seconds = f"{figures.seconds:.0f} s in all, {execution.precision} on {execution.device}"
    yield _line(figures.held_out, "a kind of world that no training has seen", seconds)


def _line(mapped: MappedScene, *more: str) -> str:
    scene, quality = mapped.scene, mapped.quality
    score, baselines = quality.score, quality.baselines
    parts = (
        f"{counted(scene.num_frames, 'frame')} of {scene.family} {scene.seed}, {quality.path_m:.1f} m",
        f"{mapped.summary.frames_per_s:.0f} frames/s",
        f"ATE {_percent(score.ate_share)} of the path (constant velocity {_percent(baselines.velocity_ate_share)})",
        f"rotation {score.rotation_deg:.1f}°, scale range {_number(score.scale_range)}",
        f"depth AbsRel {score.depth_abs_rel:.3f} (mean depth {baselines.mean_depth_abs_rel:.3f})",
        *more,
        f"see {scene.map / REPORT_NAME} and {scene.picture}",
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
