"""A training in pieces, each resumed from the checkpoint of the last, with a bar that says how far it is."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from longtake.cli.signals import INTERRUPTED, stopped_by_signal
from longtake.errors import InputError, SettingError
from longtake.runtime.execution import choose_device
from longtake.weights.presets import MICRO, TINY
from training.micro_map import MicroMapTraining
from training.micro_vqa import MicroVqaTraining
from training.recipe import Recipe, Schedule, VqaRecipe, read_recipe, read_vqa_recipe, shipped_recipe
from training.trainer import CURVE, Fall, Line, Piece, Training
from training.vqa_model import MICRO_VQA, TINY_VQA

_QUICK_PROCESSES = 1
Tell = Callable[[Line], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainOptions:
    """The options of a training command."""

    folder: Path
    minutes: float
    device: str
    recipe: Path | None
    processes: int | None
    begin_with: Path | None
    falls: Fall | None
    quick: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedNetwork:
    """A network that can be trained."""

    name: str
    about: str
    file: str
    """What lies in the folder when all is done."""
    use: str
    """A command for it, but for the file."""
    read: Callable[[Path], Schedule]
    begin: Callable[[Any, Piece, Tell, bool], Training[Any]]
    """From a recipe of that kind."""


def _begin_map(recipe: Recipe, piece: Piece, tell: Tell, quick: bool) -> Training[Any]:
    return MicroMapTraining(recipe, piece, tell, network=TINY if quick else MICRO)


def _begin_vqa(recipe: VqaRecipe, piece: Piece, tell: Tell, quick: bool) -> Training[Any]:
    return MicroVqaTraining(recipe, piece, tell, network=TINY_VQA if quick else MICRO_VQA)


MAPPING = TrainedNetwork(
    name="micro-map",
    about="Train micro-map on walks through procedural houses",
    file="micro-map.safetensors",
    use="longtake map VIDEO --model",
    read=read_recipe,
    begin=_begin_map,
)
ASKING = TrainedNetwork(
    name="micro-vqa",
    about="Train micro-vqa on questions about walks through procedural houses",
    file="micro-vqa",
    use="longtake ask VIDEO QUESTION --model",
    read=read_vqa_recipe,
    begin=_begin_vqa,
)
NETWORKS = (MAPPING, ASKING)


def run_train(options: TrainOptions, kind: TrainedNetwork = MAPPING) -> None:
    recipe = kind.read(_recipe(options, kind))
    if options.quick:
        torch.set_num_threads(1)  # the miniature and its pictures are too small to share
    piece = Piece(
        folder=_made(options.folder),
        seconds=60 * options.minutes,
        device=choose_device("cpu" if options.quick else options.device),
        processes=options.processes or (_QUICK_PROCESSES if options.quick else None),
        begin_with=options.begin_with,
        falls=options.falls,
    )
    with _Bar(recipe.num_steps, piece.seconds) as bar:
        training = kind.begin(recipe, piece, bar.tell, options.quick)
        began_at = training.step
        bar.begin(began_at)
        if not training.is_done:
            with stopped_by_signal(training.stop):
                training.run()
    if training.is_done:
        training.export(options.folder / kind.file)
    print(_told(training, began_at, recipe.num_steps, options.folder, kind))
    if training.is_stopped and not training.is_done:
        sys.exit(INTERRUPTED)


def _recipe(options: TrainOptions, kind: TrainedNetwork) -> Path:
    if options.quick and options.recipe is not None:
        raise SettingError("--quick has a recipe of its own; leave out --quick or --recipe.")
    return options.recipe or shipped_recipe(f"{kind.name}-quick" if options.quick else kind.name)


def _made(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / CURVE).touch()
    except OSError as error:
        raise InputError(
            f"Expected a folder to put the training into, but nothing can be written to {folder} ({error})."
        ) from error
    return folder


def _told(training: Training[Any], began_at: int, num_steps: int, folder: Path, kind: TrainedNetwork) -> str:
    """What was done, and how to go on."""
    if training.is_done:
        path = folder / kind.file
        files = [path] if path.is_file() else list(path.iterdir())
        size = f"{sum(file.stat().st_size for file in files) / 1e6:.1f} MB"
        use = f"use it: {kind.use} {path}"
        done = f"All {num_steps}" if training.step == num_steps else f"{training.step} of {num_steps}"
        return f"{done} steps are done, and the model is {path} ({size}); {use}"
    again = f"the same command goes on from {folder}."
    if training.step == began_at:
        wish = "" if training.is_stopped else "with more --minutes "
        return f"No step was made in this time, {training.step} of {num_steps} are done; {wish}{again}"
    return f"Steps {began_at + 1} to {training.step} of {num_steps} are done and put away; {again}"


class _Bar:
    """Steps, the last figures, and how long it will be."""

    def __init__(self, num_steps: int, seconds: float) -> None:
        self._progress = Progress(
            TextColumn("step"),
            MofNCompleteColumn(),
            BarColumn(),
            TextColumn("{task.description}"),
            console=Console(stderr=True),
        )
        self._task = self._progress.add_task("", total=num_steps)
        self._num_steps, self._seconds = num_steps, seconds
        self._began_at, self._began_s = 0, 0.0
        self._figures: dict[str, str] = {}

    def __enter__(self) -> "_Bar":
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def begin(self, step: int) -> None:
        """Where this piece begins."""
        self._began_at = step
        text = "building houses" if step < self._num_steps else ""
        self._progress.update(self._task, completed=step, description=text)

    def tell(self, line: Line) -> None:
        """A line of the training's curve."""
        self._began_s = line.get("began_s", self._began_s)
        if "loss" in line:
            self._figures["loss"] = f"loss {line['loss']:.3f}"
        errors = [(int(name.rsplit("_", 1)[1]), value) for name, value in line.items() if name.startswith("path_error")]
        if errors:
            length, error = max(errors)
            self._figures["path"] = f"path error {100 * error:.1f} % of {length} frames' way"
        if "right_all" in line:
            self._figures["right"] = f"{100 * line['right_all']:.1f} % right answers"
        left = f"{self._seconds_left(line['step'], line['seconds']) / 60:.1f} min left"
        self._progress.update(
            self._task, completed=line["step"], description=", ".join([*self._figures.values(), left])
        )

    def _seconds_left(self, step: int | float, seconds: int | float) -> float:
        """Of this piece: until its time is up, or the last step is made at the pace so far."""
        time_left = max(0.0, self._seconds - seconds)
        done = step - self._began_at
        if done <= 0:
            return time_left
        return min(time_left, (seconds - self._began_s) / done * (self._num_steps - step))
