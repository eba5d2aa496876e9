"""Candidates of whole families judged, world by world in one process or handed out to several."""

import itertools
from collections.abc import Callable, Sequence
from functools import partial

from benchmarks.loop_candidates import CandidateSettings, Looks, candidates, world_candidates, world_looks
from benchmarks.loop_scores import Judged, judge
from longtake.bench.workers import Workers
from longtake.geometry.model import GeometryModel
from longtake.hub.load import load_model_once
from longtake.places.side_look import SideLook
from longtake.runtime.build import usual_settings


def judge_worlds(
    model: GeometryModel, asked: Sequence[CandidateSettings], progress: Callable[[int], None], *, points_only: bool
) -> list[Judged]:
    """All candidates, in the order of families, worlds and places."""
    side = _side(model, points_only=points_only)
    return [judge(one, side) for settings in asked for one in candidates(model, settings, progress)]


def judge_worlds_apart(
    model: str,
    asked: Sequence[CandidateSettings],
    workers: Workers,
    progress: Callable[[int], None],
    *,
    points_only: bool,
) -> list[Judged]:
    """The same by a model of this name: what each world looks like, then each among those before it."""
    worlds = [(settings, seed) for settings in asked for seed in settings.seeds()]
    looks = iter(workers.in_order(partial(_look, model), worlds, lambda _: None))
    before = itertools.chain(*(_before(list(itertools.islice(looks, settings.num_worlds))) for settings in asked))
    tasks = [(*world, known) for world, known in zip(worlds, before, strict=True)]
    judged = workers.in_order(partial(_judge, model, points_only), tasks, progress)
    return list(itertools.chain(*judged))


def _before(looks: Sequence[Looks]) -> list[Sequence[Looks]]:
    """For each world, those that come before it."""
    return [looks[:place] for place in range(len(looks))]


def _look(model: str, task: tuple[CandidateSettings, int]) -> Looks:
    return world_looks(load_model_once(model), *task)


def _judge(model: str, points_only: bool, task: tuple[CandidateSettings, int, Sequence[Looks]]) -> list[Judged]:
    network = load_model_once(model)
    side = _side(network, points_only=points_only)
    return [judge(one, side) for one in world_candidates(network, *task)]


def _side(model: GeometryModel, *, points_only: bool) -> SideLook | None:
    return None if points_only else SideLook(model, usual_settings(model.config))
