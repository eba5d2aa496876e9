"""What a training is, in full: the houses, the stages, the rates. A value, read from a file of its own."""

import math
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from longtake.errors import InputError, SettingError
from longtake.world.families import HELD_OUT, Family, family_named

SHORTEST_CLIP = 4
"""Frames: a path has a scale block, and something to be compared with."""
LONGEST_QUESTION = 20
"""Tokens of a question that closes a clip, with its answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Filming:
    """Which worlds are filmed, and how."""

    sizes: tuple[tuple[int, int], ...]
    """Heights and widths of pictures, taken in turn; one that comes twice is taken twice as often."""
    families: tuple[str, ...]
    """Of worlds, taken in turn as well."""
    worlds: int
    """Filmed at a time; each piece of a training films others."""
    first_worlds: int
    """As soon as these are filmed, training begins; the others come meanwhile."""
    world_frames: int
    longest_stride: int

    def __post_init__(self) -> None:
        numbers = (self.worlds, self.first_worlds, self.world_frames, self.longest_stride)
        _require(min(numbers) >= 1, "all numbers of filming to be 1 or more", numbers)
        sides = [side for size in self.sizes for side in size]
        _require(len(sides) > 0 and min(sides) >= 1, "sizes of pictures, of 1 pixel or more each way", self.sizes)
        _require(len(self.families) > 0, "families of worlds", self.families)
        held_out = [name for name in self.families if family_named(name) is HELD_OUT]
        _require(not held_out, f"families that may be learned from, which {HELD_OUT} may not", held_out)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judging:
    """Worlds for validation, of each kind so many, and when the model is tried on the first frames of each."""

    worlds: int
    clip_frames: tuple[int, ...]
    every_steps: int

    def __post_init__(self) -> None:
        _require(min(self.worlds, self.every_steps) >= 1, "to judge in some worlds, after some steps", self)
        _require_lengths(self.clip_frames)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Some steps over clips of some lengths, drawn with equal chance."""

    steps: int
    clip_frames: tuple[int, ...]

    def __post_init__(self) -> None:
        _require(self.steps >= 1, "a stage of one step or more", self.steps)
        _require_lengths(self.clip_frames)


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """What every training has: film, judgement, stages and rates."""

    film: Filming
    judge: Judging
    frames_per_step: int
    rate: float
    warmup_steps: int
    cooldown_steps: int
    """The last steps of all, over which the rate falls to nothing."""
    weight_decay: float
    stages: tuple[Stage, ...]

    def __post_init__(self) -> None:
        _require(len(self.stages) >= 1, "one stage or more", len(self.stages))
        _require(self.frames_per_step >= 1, "some frames in each step", self.frames_per_step)
        _require(min(self.warmup_steps, self.cooldown_steps) >= 0, "no or some steps of warm-up and cool-down", self)
        _require(self.rate > 0 and math.isfinite(self.rate), "a rate above 0", self.rate)
        _require(0 <= self.weight_decay < 1, "a weight decay of 0 to 1", self.weight_decay)
        lengths = [self.judge.clip_frames, *(stage.clip_frames for stage in self.stages)]
        longest = max(map(max, lengths))
        filmed = self.film.world_frames
        _require(longest <= filmed, f"clips of {filmed} frames at most, as many as a world is filmed for", longest)

    @property
    def num_steps(self) -> int:
        return sum(stage.steps for stage in self.stages)

    def stage_at(self, step: int) -> Stage:
        """The stage that a step belongs to."""
        until = 0
        for stage in self.stages:
            until += stage.steps
            if step < until:
                return stage
        raise SettingError(f"Expected a step below {self.num_steps}, but got {step}.")

    def rate_at(self, step: int) -> float:
        """It rises at first, stays, and falls to nothing at the end."""
        rising = (step + 1) / self.warmup_steps if self.warmup_steps else 1.0
        falling = (self.num_steps - step) / self.cooldown_steps if self.cooldown_steps else 1.0
        return self.rate * min(1.0, rising, falling)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cutting:
    """Shares of clips that are more than a stretch of a walk."""

    returning: float
    """They come back to a place that they saw."""
    strange: float
    """A stretch of them is of another walk."""

    def __post_init__(self) -> None:
        shares = (self.returning, self.strange)
        _require(min(shares) >= 0 and sum(shares) <= 1, "shares of clips that add up to 1 or less", shares)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe(Schedule):
    """All that decides a training of a geometry model but the network and the machine."""

    cut: Cutting

    depth_frames_per_step: int
    """Of these frames depth is learned; it costs the most and is learned the soonest."""

    def __post_init__(self) -> None:
        Schedule.__post_init__(self)
        _require(self.depth_frames_per_step >= 1, "some frames in each step", self.depth_frames_per_step)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """What is asked about a clip, and how fast its frames come."""

    shortest_stride: int
    """Frames of the walk, which has ten a second, from one of the clip to the next."""
    moments: int
    """At which a clip is asked about: its end, one with a frame that waits for its partner, and others."""
    questions: int
    """At each moment, where there are so many, of clips of `usual_frames` or fewer; of longer ones more, in proportion,
    or what happened long ago would hardly be asked about."""
    question_tokens: int
    """Places for all questions of such a clip and their answers."""
    usual_frames: int
    judged_clips: int
    """Of each house for validation."""

    def __post_init__(self) -> None:
        _require(self.shortest_stride >= 1, "a stride of 1 or more", self.shortest_stride)
        _require(self.moments >= 2, "two moments or more at which a clip is asked about", self.moments)
        few = min(self.questions, self.judged_clips)
        _require(few >= 1, "some questions at each moment, and some clips to be judged by", few)
        _require(self.question_tokens >= LONGEST_QUESTION, "places for the longest question", self.question_tokens)
        _require(self.usual_frames >= 1, "a usual length of clips of 1 or more", self.usual_frames)

    def for_clip(self, num_frames: int) -> "Asking":
        """What is asked about a clip of this length."""
        more = max(1.0, num_frames / self.usual_frames)
        return replace(self, questions=int(self.questions * more), question_tokens=int(self.question_tokens * more))


@dataclass(frozen=True, slots=True, kw_only=True)
class VqaRecipe(Schedule):
    """All that decides a training of a model that answers questions but the network and the machine."""

    ask: Asking

    def __post_init__(self) -> None:
        Schedule.__post_init__(self)
        _require(
            set(self.film.families) == {Family.HOUSE}, "houses, which alone can be asked about", self.film.families
        )
        _require(len(self.film.sizes) == 1, "one size of pictures", self.film.sizes)
        lengths = [*self.judge.clip_frames, *(length for stage in self.stages for length in stage.clip_frames)]
        _require(not any(length % 2 for length in lengths), "clips of pairs of frames", lengths)
        farthest = (max(lengths) - 1) * self.ask.shortest_stride + 1
        filmed = self.film.world_frames
        _require(farthest <= filmed, f"clips that reach over {filmed} frames at most, as filmed", farthest)
        strides = (self.ask.shortest_stride, self.film.longest_stride)
        _require(strides[0] <= strides[1], "a shortest stride no longer than the longest", strides)


def shipped_recipe(name: str) -> Path:
    """Where a recipe of this folder lies."""
    return Path(__file__).parent / "recipes" / f"{name}.toml"


def read_recipe(path: Path) -> Recipe:
    """A geometry model's recipe from its TOML file."""
    recipe: Recipe = _read(path, Recipe, {"cut": Cutting})
    return recipe


def read_vqa_recipe(path: Path) -> VqaRecipe:
    """The same for a model that answers questions."""
    recipe: VqaRecipe = _read(path, VqaRecipe, {"ask": Asking})
    return recipe


def _read(path: Path, kind: type[Any], more: dict[str, type[Any]]) -> Any:
    """With the tables that every recipe has, and more of its own."""
    try:
        table = tomllib.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise InputError(f"Expected a training recipe in {path}, but it cannot be read as one ({error}).") from error
    try:
        named = {"film": Filming, "judge": Judging} | more
        parts = {name: _filled(part, table.pop(name, {})) for name, part in named.items()}
        stages = table.pop("stage", [])
        filled = tuple(_filled(Stage, stage) for stage in (stages if isinstance(stages, list) else [stages]))
        return _filled(kind, table, stages=filled, **parts)
    except SettingError as error:
        raise InputError(f"The training recipe in {path} cannot be followed: {error}") from error


def _filled(kind: type[Any], table: object, **parts: object) -> Any:
    """A record of this kind from a table that has its fields, of their types, and nothing else."""
    wanted = {field.name: field.type for field in fields(kind) if field.name not in parts}
    if not isinstance(table, dict):
        raise SettingError(f"Expected a table of {', '.join(wanted)}, but got {table!r}.")
    if wanted.keys() != table.keys():
        odd = ", ".join(sorted(wanted.keys() ^ table.keys()))
        raise SettingError(f"Expected a table of {', '.join(wanted)}, but it has too much or too little: {odd}.")
    return kind(**{name: _value(name, wanted[name], given) for name, given in table.items()}, **parts)


_EXPECTED: dict[object, str] = {
    int: "a whole number",
    float: "a number",
    tuple[int, ...]: "a list of whole numbers",
    tuple[str, ...]: "a list of names",
    tuple[tuple[int, int], ...]: "a list of heights and widths",
}


def _value(name: str, wanted: object, given: object) -> Any:
    if wanted is int and type(given) is int:
        return given
    if wanted is float and type(given) in (int, float):
        return float(given)  # type: ignore[arg-type]
    if isinstance(given, list):
        if wanted == tuple[int, ...] and all(type(one) is int for one in given):
            return tuple(given)
        if wanted == tuple[str, ...] and all(type(one) is str for one in given):
            return tuple(given)
        if wanted == tuple[tuple[int, int], ...] and all(map(_is_size, given)):
            return tuple(map(tuple, given))
    raise SettingError(f"Expected {name} to be {_EXPECTED[wanted]}, but got {given!r}.")


def _is_size(given: object) -> bool:
    return isinstance(given, list) and len(given) == 2 and all(type(one) is int for one in given)


def _require_lengths(clip_frames: Sequence[int]) -> None:
    fits = len(clip_frames) > 0 and min(clip_frames) >= SHORTEST_CLIP
    _require(fits, f"lengths of clips, each of {SHORTEST_CLIP} frames or more", tuple(clip_frames))


def _require(holds: bool, expected: str, came: object) -> None:
    if not holds:
        raise SettingError(f"Expected {expected}, but got {came}.")
