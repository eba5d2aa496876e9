"""What knowing places again costs in a video of 100,000 frames: a node, a step of the solver, a query; bytes."""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Annotated

import numpy as np
import torch
import typer

from longtake.cli.options import AsJson
from longtake.cli.tables import show, table
from longtake.errors import SettingError
from longtake.places.graph import PlaceGraph
from longtake.places.index import IndexRule, PlaceIndex
from longtake.places.loops import Spread
from longtake.places.solver import Solving
from longtake.spatial.similarities import Similarities, exp
from longtake.spatial.similarity import Similarity

_DRIFT = Spread(translation=0.02, rotation_rad=0.01, log_scale=0.01)
_NOISE = Spread(translation=0.05, rotation_rad=0.035, log_scale=0.03)
_NODE = 52
"""Frames of a node of micro-map's walks, half of what a window adds."""
_WRONG = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphFigures:
    """Of one graph; times are of one processor core, without what others take of it."""

    nodes: int
    loops: int
    num_bytes: int
    node_ms: float
    """To add one."""
    step_ms: float
    slowest_step_ms: float
    num_steps: int
    """Of a solution."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexFigures:
    """Of one index after so many keyframes."""

    keyframes: int
    places: int
    num_bytes: int
    keyframe_ms: float
    """To add one, the mean of the last thousand."""
    slowest_keyframe_ms: float
    query_ms: float


def graph_speed(
    *,
    frames: Annotated[int, typer.Option(min=200, help="Frames of the simulated video.")] = 100_000,
    loops: Annotated[str, typer.Option(help="Numbers of loops, separated by commas.")] = "32,64,128",
    places: Annotated[int, typer.Option(min=8, help="Places that the index may hold.")] = IndexRule().max_places,
    as_json: AsJson = False,
) -> None:
    """Time the graph of a simulated video with some numbers of loops, and an index of its places as it fills."""
    torch.set_num_threads(1)
    if not all(count.isdecimal() and int(count) for count in loops.split(",")):
        raise SettingError(f"Expected numbers of loops such as 32,64, but got '{loops}'.")
    graphs = [measure_graph(frames // _NODE, int(count)) for count in loops.split(",")]
    indices = measure_index(frames, places)
    record = {"graphs": [asdict(figures) for figures in graphs], "indices": [asdict(figures) for figures in indices]}
    graph_rows = [
        [
            str(one.nodes),
            str(one.loops),
            str(one.num_bytes),
            f"{one.node_ms:.2f}",
            f"{one.step_ms:.1f}",
            f"{one.slowest_step_ms:.1f}",
            str(one.num_steps),
        ]
        for one in graphs
    ]
    index_rows = [
        [
            str(one.keyframes),
            str(one.places),
            str(one.num_bytes),
            f"{one.keyframe_ms:.3f}",
            f"{one.slowest_keyframe_ms:.1f}",
            f"{one.query_ms:.2f}",
        ]
        for one in indices
    ]
    blocks = [
        table(["nodes", "loops", "bytes", "a node, ms", "a step, ms", "slowest", "steps"], graph_rows),
        table(["keyframes", "places", "bytes", "a keyframe, ms", "slowest", "a query, ms"], index_rows),
    ]
    show(record, blocks, as_json=as_json)


def measure_graph(nodes: int, loops: int) -> GraphFigures:
    """A walk that drifts, with loops of which some are wrong."""
    random = np.random.default_rng(0)
    steps = random.normal(size=(nodes, 7)) * [0.8, 0.8, 0.05, 0, 0, 0.6, 0]
    true = exp(steps).products()
    measured = exp(steps) @ exp(random.normal(size=(nodes, 7)) * np.repeat(_DRIFT.numbers, [3, 3, 1]))
    graph = PlaceGraph.of_first(Similarity.identity(torch.device("cpu")), max_loops=loops)
    for node in range(1, nodes):
        graph = graph.followed_by(measured.one(node), _DRIFT)
    for _ in range(loops):
        first, second = sorted(random.choice(nodes, 2, replace=False).tolist())
        graph = graph.with_loop(first, second, _found(true, first, second, random), _NOISE)
    solving, times = Solving.of(graph), []
    while not solving.is_done:
        started = time.process_time()
        solving = solving.stepped()
        times.append(1000 * (time.process_time() - started))
    last = measured.one(nodes - 1)
    return GraphFigures(
        nodes=nodes,
        loops=loops,
        num_bytes=graph.num_bytes,
        node_ms=_fastest_ms(lambda: graph.followed_by(last, _DRIFT)),
        step_ms=float(np.median(times)),
        slowest_step_ms=max(times),
        num_steps=len(times),
    )


def _found(true: Similarities, first: int, second: int, random: np.random.Generator) -> Similarity:
    if random.random() < _WRONG:
        return exp(random.normal(size=(1, 7)) * [0.5, 0.5, 0.5, 0.3, 0.3, 0.3, 0.1]).one(0)
    noise = exp(random.normal(size=(1, 7)) * np.repeat(_NOISE.numbers, [3, 3, 1]))
    return (true[np.array([first])].inverse() @ true[np.array([second])] @ noise).one(0)


def measure_index(keyframes: int, places: int) -> list[IndexFigures]:
    """At a tenth, a half and all of the keyframes, whose descriptors wander as those of a walk do."""
    random, channels = np.random.default_rng(1), 144
    index, look, times, figures = PlaceIndex.empty(channels, IndexRule(max_places=places)), np.zeros(channels), [], []
    for frame in range(keyframes):
        look = 0.98 * look + 0.2 * random.normal(size=channels)
        started = time.process_time()
        index = index.with_keyframe(look, frame=frame, window=frame // _NODE, timestamp_s=frame / 10)
        times.append(1000 * (time.process_time() - started))
        if frame + 1 in (keyframes // 10, keyframes // 2, keyframes):
            figures.append(
                IndexFigures(
                    keyframes=frame + 1,
                    places=len(index),
                    num_bytes=index.num_bytes,
                    keyframe_ms=float(np.mean(times[-1000:])),
                    slowest_keyframe_ms=max(times),
                    query_ms=_fastest_ms(index.candidates),
                )
            )
    return figures


def _fastest_ms(work: Callable[[], object]) -> float:
    times = []
    for _ in range(5):
        started = time.process_time()
        work()
        times.append(time.process_time() - started)
    return 1000 * min(times)
