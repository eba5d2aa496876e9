"""Throughput of the mapping pipeline beside that of its stages, each measured alone in the same run."""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path

import torch

from longtake.exports.frame import MappedFrame
from longtake.exports.sink import Sink
from longtake.geometry.model import GeometryModel
from longtake.pipeline.map_results import Prepared
from longtake.pipeline.mapper import Mapper
from longtake.pipeline.outputs import open_sinks
from longtake.pipeline.video_map import MapSettings, map_video, preprocessor
from longtake.pipeline.writer_process import WriterProcess, WriterProcessSink
from longtake.runtime.build import open_session
from longtake.video.frame import VideoFrame
from longtake.video.reading import Source
from longtake.video.resize import Preprocessor


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineFigures:
    """Frames a second."""

    num_frames: int
    torch_threads: int
    decode: float
    prepare: float
    map: float
    write: float
    pipeline: float

    @property
    def share_of_slowest(self) -> float:
        return self.pipeline / min(self.decode, self.prepare, self.map, self.write)


def measure_pipeline(
    open_source: Callable[[], Source], model: GeometryModel, settings: MapSettings, folder: Path
) -> PipelineFigures:
    """Each stage alone on what the one before it made, then all side by side, with the same threads.

    Writing is done aside, by a process that is ready; what it takes to start is not counted.
    """
    prepare = preprocessor(settings.session, model.config, settings.fit)
    frames: list[VideoFrame] = []
    decode_s = _seconds(lambda: frames.extend(open_source().frames()))
    prepared: list[Prepared] = []
    prepare_s = _seconds(lambda: prepared.extend(_prepare(frames, prepare)))
    mapper = Mapper(lambda size: open_session(model, settings.session, size), prepare)
    mapped: list[MappedFrame] = []
    map_s = _seconds(lambda: mapped.extend(_map(prepared, mapper)))
    with WriterProcess() as writer_process:
        writer_process.wait_until_ready()
        sinks = WriterProcessSink(writer_process, partial(open_sinks, folder / "stage", settings.outputs))
        write_s = _seconds(lambda: _write(mapped, sinks))
        run = map_video(open_source(), model, folder / "pipeline", settings, writer_process=writer_process)
        pipeline_s = _seconds(lambda: deque(run, maxlen=0))
    count = len(frames)
    return PipelineFigures(
        num_frames=count,
        torch_threads=torch.get_num_threads(),
        decode=count / decode_s,
        prepare=count / prepare_s,
        map=count / map_s,
        write=count / write_s,
        pipeline=count / pipeline_s,
    )


def _prepare(frames: Iterable[VideoFrame], prepare: Preprocessor) -> Iterator[Prepared]:
    for frame in frames:
        if frame.image is not None:
            yield Prepared(frame, prepare(frame.image))


def _map(prepared: Iterable[Prepared], mapper: Mapper) -> Iterator[MappedFrame]:
    """Final results."""
    steps = chain((mapper.step(frame) for frame in prepared), (mapper.finish() for _ in range(1)))
    for stepped in steps:
        for told in () if stepped is None else mapper.results.take(stepped):
            if isinstance(told, MappedFrame):
                yield told


def _write(mapped: Iterable[MappedFrame], sinks: Sink) -> None:
    with sinks:
        for frame in mapped:
            sinks.write(frame)


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
