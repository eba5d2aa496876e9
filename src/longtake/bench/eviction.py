"""Memory policies side by side on the same frames: what they hold, what they cost, what they change.

All sessions take turns frame by frame, so that whatever else the machine does slows all of them alike:

    frame 0: session A, B, C …   frame 1: session B, C … A   frame 2: session C … A, B
"""

import itertools
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float
from torch import Tensor

from longtake.bench.contenders import KEEP_ALL, Contender, contenders, even_attention_twin
from longtake.bench.machine import synchronize
from longtake.bench.quality import film_world
from longtake.evaluation.agreement import Agreement, ClipGeometry, Mean, agreement, mean_over_worlds
from longtake.evaluation.scoring import Score, score
from longtake.geometry.config import TRUNK
from longtake.geometry.model import GeometryModel
from longtake.memory.policies.lockstep import KeepAll
from longtake.memory.policy import StreamPolicy
from longtake.runtime.build import usual_settings
from longtake.runtime.memory_plan import MemoryPlan
from longtake.runtime.session import SequenceSession
from longtake.types import Geometry
from longtake.world.seeds import Split, seeds


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionSettings:
    """What is compared, on what."""

    policies: tuple[str, ...]
    budgets: tuple[int, ...]
    """In frames a layer."""
    num_frames: int
    num_worlds: int
    size: tuple[int, int]
    """Height and width."""
    split: Split = Split.TEST
    is_trained: bool
    """Whether the model's answers are worth comparing with the truth."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionFigures:
    """What one policy held, took and changed; bytes and tokens are of the last world's end unless they say more."""

    declared_bytes: int
    """Allocated once: keys and values of trunk and camera head, and all statistics of tokens."""
    live_bytes: int
    """Keys and values of remembered tokens."""
    most_live_bytes: int
    """After any frame of any world."""
    tokens_by_layer: tuple[int, ...]
    tokens_by_frame: tuple[int, ...]
    """Which frames they are of, over all layers."""
    tokens_over_time: tuple[int, ...]
    """Over all layers, after each frame."""
    step_ms: float
    """Median over the second half of each world's frames."""
    statistics_ratio: float | None
    """Median of a step's time over that of a twin without statistics; none where the policy needs none."""
    depth_median: Mean | None
    depth_p95: Mean | None
    rotation_deg: Mean | None
    centre_share: Mean | None
    ate_share: Mean | None
    true_rotation_deg: Mean | None
    """Of medians over frames of turns since the first one, as for `bench quality`: straight ways have no other."""
    depth_abs_rel: Mean | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionRow:
    """A policy at a budget, with figures or with the sentence that refuses the budget."""

    policy: str
    budget_frames: int | None
    refused: str | None
    figures: EvictionFigures | None


@dataclass(slots=True)
class _Runner:
    """A session and what was measured while it took its turns."""

    session: SequenceSession
    times_ms: list[list[float]] = field(default_factory=list)
    """Of each world."""
    most_live_bytes: int = 0
    tokens_over_time: list[int] = field(default_factory=list)
    parts: list[Geometry] = field(default_factory=list)
    agreements: list[Agreement] = field(default_factory=list)
    scores: list[Score] = field(default_factory=list)

    def start(self) -> None:
        self.session.clear()
        self.times_ms.append([])
        self.tokens_over_time, self.parts = [], []

    def step(self, image: Float[Tensor, "3 height width"], *, is_last: bool) -> None:
        device = self.session.device
        synchronize(device)
        start = time.perf_counter()
        geometry = self.session.step(image)
        synchronize(device)
        self.times_ms[-1].append((time.perf_counter() - start) * 1e3)
        self.parts += [geometry, self.session.finish()] if is_last else [geometry]
        self.most_live_bytes = max(self.most_live_bytes, _live_bytes(self.session))
        self.tokens_over_time.append(sum(_tokens_by_layer(self.session)))

    def clip(self) -> ClipGeometry:
        return ClipGeometry.of(Geometry.join([part for part in self.parts if len(part)]))

    def compare(self, full: ClipGeometry, truth: ClipGeometry | None) -> None:
        clip = self.clip()
        self.agreements.append(agreement(clip, full))
        if truth is not None:
            self.scores.append(score(clip, truth))


def measure_eviction(
    model: GeometryModel, settings: EvictionSettings, progress: Callable[[int], None]
) -> list[EvictionRow]:
    """One row for each policy and budget; the first of them keeps all, and the others are compared with it."""
    names = (KEEP_ALL, *(name for name in settings.policies if name != KEEP_ALL))
    entries = contenders(names, settings.budgets, model.config, settings.size, settings.num_frames)
    runners = [None if entry.rule is None else _open(model, entry.rule, settings) for entry in entries]
    twins = [None if entry.rule is None else _open_twin(model, entry.rule, settings) for entry in entries]
    in_turn = [runner for pair in zip(runners, twins, strict=True) for runner in pair if runner is not None]
    full = in_turn[0]
    for seed in itertools.islice(seeds(settings.split), settings.num_worlds):
        walk = film_world(seed, settings.num_frames, settings.size, full.session.device, lambda _: None)
        _run_world(in_turn, walk.images, progress)
        reference = full.clip()
        for runner in runners:
            if runner is not None:
                runner.compare(reference, walk.truth if settings.is_trained else None)
    return [_row(entry, runner, twin) for entry, runner, twin in zip(entries, runners, twins, strict=True)]


def _open(model: GeometryModel, rule: StreamPolicy, settings: EvictionSettings) -> _Runner:
    plan = MemoryPlan(
        config=model.config,
        size=settings.size,
        retention=rule,
        num_scale_frames=usual_settings(model.config).num_scale_frames,
    )
    most_kept = max(settings.num_frames, plan.num_scale_frames)  # a video that ends within its scale block has less
    room = plan.requirements.num_bytes(most_kept) if isinstance(rule, KeepAll) else None
    return _Runner(SequenceSession(model, plan, budget_bytes=room))


def _open_twin(model: GeometryModel, rule: StreamPolicy, settings: EvictionSettings) -> _Runner | None:
    twin = even_attention_twin(rule)
    return None if twin is None else _open(model, twin, settings)


def _run_world(
    runners: Sequence[_Runner], images: Float[Tensor, "frames 3 height width"], progress: Callable[[int], None]
) -> None:
    """Let all sessions see one walk, each time another one first."""
    for runner in runners:
        runner.start()
    for index, image in enumerate(images):
        first = index % len(runners)
        for runner in (*runners[first:], *runners[:first]):
            runner.step(image, is_last=index == len(images) - 1)
        progress(1)


def _row(entry: Contender, runner: _Runner | None, twin: _Runner | None) -> EvictionRow:
    return EvictionRow(
        policy=entry.policy,
        budget_frames=entry.budget_frames,
        refused=entry.refused,
        figures=None if runner is None else _figures(runner, twin),
    )


def _figures(runner: _Runner, twin: _Runner | None) -> EvictionFigures:
    session, times_ms = runner.session, _timed(runner)
    agreed, scores = runner.agreements, runner.scores
    ratios = None if twin is None else [own / other for own, other in zip(times_ms, _timed(twin), strict=True)]
    return EvictionFigures(
        declared_bytes=session.num_bytes,
        live_bytes=_live_bytes(session),
        most_live_bytes=runner.most_live_bytes,
        tokens_by_layer=_tokens_by_layer(session),
        tokens_by_frame=_tokens_by_frame(session),
        tokens_over_time=tuple(runner.tokens_over_time),
        step_ms=statistics.median(times_ms),
        statistics_ratio=None if ratios is None else statistics.median(ratios),
        depth_median=mean_over_worlds([one.depth_median for one in agreed]),
        depth_p95=mean_over_worlds([one.depth_p95 for one in agreed]),
        rotation_deg=mean_over_worlds([one.rotation_deg for one in agreed]),
        centre_share=mean_over_worlds([one.centre_share for one in agreed]),
        ate_share=mean_over_worlds([one.ate_share for one in scores]),
        true_rotation_deg=mean_over_worlds([one.rotation_since_first_deg for one in scores]),
        depth_abs_rel=mean_over_worlds([one.depth_abs_rel for one in scores]),
    )


def _timed(runner: _Runner) -> list[float]:
    """The second half of each world: what came before warmed the machine and filled the memory."""
    return [step_ms for of_world in runner.times_ms for step_ms in of_world[len(of_world) // 2 :]]


def _live_bytes(session: SequenceSession) -> int:
    return sum(use.live_bytes for use in session.use().values())


def _tokens_by_layer(session: SequenceSession) -> tuple[int, ...]:
    return tuple(len(session.remembered(layer)) for layer in range(session.plan.config.trunk.depth))


def _tokens_by_frame(session: SequenceSession) -> tuple[int, ...]:
    layers = range(session.plan.requirements.streams[TRUNK][0].num_layers)
    counts = [np.bincount(session.remembered(layer).frame, minlength=session.num_kept) for layer in layers]
    return tuple(np.sum(counts, axis=0).tolist())
