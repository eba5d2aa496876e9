"""A long video as spans that share some frames: mapped side by side, and laid into one world by what they share.

video   ├──────────────────────────────────────────┤
span 0  ├───────────────┤
span 1               ├────────────────┤                each shared stretch is cut in its middle when they are joined
span 2                             ├───────────────┤
"""

import json
import math
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from longtake.api.map_request import CheckedRequest
from longtake.batch.job import Job, JoinJob, MapJob
from longtake.batch.manifest import Row
from longtake.batch.storage import Storage
from longtake.errors import InputError
from longtake.exports.frame import MappedFrame
from longtake.exports.record import EXPORT_FOLDER
from longtake.exports.reexport import export_take
from longtake.exports.report.folder import SUMMARY_NAME
from longtake.exports.report.page import write_report
from longtake.pipeline.merging import moved_frames
from longtake.pipeline.outputs import open_sinks
from longtake.runtime.alignment import Alignment, Anchoring
from longtake.spatial.similarity import Similarity
from longtake.takes.atomic_files import replace_file
from longtake.takes.corrections import CorrectedSpan, Corrections
from longtake.takes.sealed_json import sealed
from longtake.takes.take import Take, read_take
from longtake.types import FrameKind, Geometry, counted
from longtake.video.source import SourceOptions, open_source

SHARED_FRAMES = 32
"""That two neighbouring spans both see."""
FEWEST_FRAMES = 128
"""Of a span: a shorter one costs more than it saves."""
JOIN_NAME = "join.json"
_FEWEST_SHARED = 4
_SPAN_FORMATS = ("tum", "depth", "confidence", "images")
_EARLIER_S = 1e-4
"""So that a span begins with its first frame, whatever is lost in writing its time."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The jobs of a video by name; that of the video itself comes last."""

    name: str
    jobs: Mapping[str, Job]

    def owed(self) -> list[Job]:
        """Those that need no other, and are not done; that of the video where all of them are."""
        spans = [job for name, job in self.jobs.items() if name != self.name]
        return [job for job in spans if not _is_mapped(job)] or [self.jobs[self.name]]

    def job(self, name: str) -> Job:
        return self.jobs[name]


def _is_mapped(job: Job) -> bool:
    summary = job.storage.summary(job.name)
    return summary is not None and summary.get("is_complete") is True


def plan_of(row: Row, checked: CheckedRequest, storage: Storage) -> Plan:
    """What has to be done for a video."""
    request = checked.request
    whole = MapJob(name=row.name, source=row.source, request=request, storage=storage)
    if row.spans == 1:
        return Plan(row.name, {row.name: whole})
    starts_s = _starts_s(row, checked)
    if len(starts_s) == 1:
        return Plan(row.name, {row.name: whole})
    jobs: dict[str, Job] = {}
    for number, (start_s, end_s) in enumerate(starts_s):
        name = f"{row.name}.span-{number + 1}-of-{len(starts_s)}"
        part = replace(request, start=start_s, end=end_s, format=_SPAN_FORMATS)
        jobs[name] = MapJob(name=name, source=row.source, request=part, storage=storage)
    jobs[row.name] = JoinJob(name=row.name, source=row.source, spans=tuple(jobs), request=request, storage=storage)
    return Plan(row.name, jobs)


def _starts_s(row: Row, checked: CheckedRequest) -> list[tuple[float, float | None]]:
    """When each span begins and ends, on frames that the whole would have; fewer where the video is short."""
    source = open_source(row.source, checked.sampling, SourceOptions(picture_fps=checked.request.picture_fps))
    num_frames, fps = source.num_frames, source.extent.fps
    if num_frames is None or fps is None:
        raise InputError(
            f"Expected a video whose length is known, to be cut into spans, but that of {row.name} is not."
        )
    sampling = checked.sampling
    step_s = sampling.stride / min(fps, sampling.fps or fps)
    num_spans = max(1, min(row.spans, num_frames // FEWEST_FRAMES))
    cuts = [round(number * num_frames / num_spans) for number in range(num_spans + 1)]
    half = SHARED_FRAMES // 2
    spans: list[tuple[float, float | None]] = []
    for number in range(num_spans):
        first, stop = cuts[number] - (half if number else 0), cuts[number + 1] + half
        start_s = sampling.start_s + max(0.0, first * step_s - (_EARLIER_S if first else 0.0))
        spans.append((start_s, sampling.end_s if number == num_spans - 1 else sampling.start_s + stop * step_s))
    return spans


@dataclass(frozen=True, slots=True)
class _Laid:
    """A span in the world of the first."""

    take: Take
    world_from_span: Similarity
    places_later: int
    """By which its frames come after their own places."""
    first: int
    stop: int
    """Positions of frames that are its own in the whole."""


def join_spans(job: JoinJob, out: Path) -> None:
    """Writes the whole as if it had been mapped in one go; it is there at once, or not at all."""
    takes = [read_take(job.storage.fetched(name)) for name in job.spans]
    summaries = [job.storage.summary(name) or {} for name in job.spans]
    laid = _laid(takes)
    checked = job.request.checked()
    outputs = checked.outputs
    network = takes[0].header.network
    outputs = replace(outputs, take=replace(outputs.take, network=network, unit=takes[0].header.unit))
    making = out.with_name(f"{out.name}.joining")
    shutil.rmtree(making, ignore_errors=True)
    sink = open_sinks(making, outputs)
    kinds: Counter[str] = Counter()
    try:
        for frame in _frames(laid):
            sink.write(frame)
            kinds[frame.status] += 1
            kinds["keyframes"] += frame.kind is not FrameKind.PASSING
    finally:
        sink.close()
    if outputs.export is not None:
        export_take(read_take(making), making / EXPORT_FOLDER, outputs.export)
    record = {
        "format": "longtake-join",
        "version": 1,
        "spans": [_span_record(one, summary) for one, summary in zip(laid, summaries, strict=True)],
    }
    replace_file(making / JOIN_NAME, sealed(record))
    replace_file(making / SUMMARY_NAME, json.dumps(_summary(summaries, kinds), indent=1).encode())
    write_report(making)
    making.rename(out)


def _laid(takes: list[Take]) -> list[_Laid]:
    laid: list[_Laid] = []
    world, later = Similarity.of_matrix(torch.eye(4, dtype=torch.float64)), 0
    for number, take in enumerate(takes):
        first = 0
        if number:
            before = laid[-1]
            pairs = _shared(before.take, take)
            if len(pairs) < _FEWEST_SHARED:
                raise InputError(
                    f"Expected {_FEWEST_SHARED} frames or more that {before.take.folder.name} and {take.folder.name} "
                    f"share, but there are {len(pairs)}; map the video in fewer spans, or in one."
                )
            old, new = (_geometry(one, [pair[side] for pair in pairs]) for side, one in enumerate((before.take, take)))
            world = before.world_from_span @ Alignment(Anchoring.ROBUST).align(old, new)
            later = before.places_later + old.frame_index[0] - new.frame_index[0]
            stop, first = pairs[len(pairs) // 2]
            laid[-1] = replace(before, stop=stop)
        laid.append(_Laid(take, world, later, first, len(take)))
    return laid


def _shared(before: Take, take: Take) -> list[tuple[int, int]]:
    """Positions of the same moments in two takes."""
    places = {round(record.timestamp_s, 6): at for at, record in enumerate(before.records)}
    return [
        (places[key], at) for at, record in enumerate(take.records) if (key := round(record.timestamp_s, 6)) in places
    ]


def _geometry(take: Take, positions: list[int]) -> Geometry:
    """Some frames as an alignment takes them."""
    records = [take.records[at] for at in positions]
    return Geometry(
        frame_index=tuple(record.index for record in records),
        timestamp_s=tuple(record.timestamp_s for record in records),
        kind=tuple(FrameKind.KEYFRAME for _ in records),
        window=tuple(0 for _ in records),
        provisional=tuple(False for _ in records),
        pose_encoding=torch.zeros(len(records), 9, dtype=torch.float64),
        world_from_camera=take.trajectory.world_from_camera[positions],
        intrinsics=torch.stack([take.intrinsics[at] for at in positions]),
        depth=torch.stack([_usable(take.depth(at)) for at in positions]),
        depth_confidence=torch.stack([torch.from_numpy(take.confidence(at)).double() for at in positions]),
    )


def _usable(depth: Any) -> torch.Tensor:
    """A pixel without depth is none to measure by."""
    values = torch.from_numpy(depth).double()
    return torch.where(values > 0, values, math.nan)


def _frames(laid: list[_Laid]) -> Iterator[MappedFrame]:
    windows = 0
    for one in laid:
        moved = Corrections(
            (
                CorrectedSpan(
                    first_frame=one.take.records[0].index,
                    last_frame=one.take.records[-1].index,
                    known_from_said=one.world_from_span,
                ),
            )
        )
        last_window = 0
        for position, frame in enumerate(moved_frames(one.take, moved)):
            if one.first <= position < one.stop:
                last_window = windows + frame.window
                yield replace(frame, index=frame.index + one.places_later, window=last_window)
        windows = last_window + 1


def _span_record(one: _Laid, summary: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "first_frame": one.take.records[one.first].index + one.places_later,
        "num_frames": one.stop - one.first,
        "scale": float(one.world_from_span.scale),
        "seconds": summary.get("seconds"),
    }


def _summary(summaries: list[dict[str, Any]], kinds: Counter[str]) -> dict[str, Any]:
    """Of the whole, by those of its spans: figures of time and memory are of them all, or the largest."""
    first = summaries[0]
    num_keyframes = kinds.pop("keyframes")
    num_frames, seconds = sum(kinds.values()), sum(one["seconds"] for one in summaries)
    known = [one["unlikeness"] for one in summaries if one.get("unlikeness") is not None]
    return {
        **first,
        "is_complete": True,
        "num_frames": num_frames,
        "statuses": dict(kinds),
        "num_keyframes": num_keyframes,
        "num_windows": sum(one["num_windows"] for one in summaries),
        "unlikeness": max(known) if known else None,
        "seconds": seconds,
        "frames_per_s": num_frames / seconds if seconds else 0.0,
        "memory_bytes": max(one["memory_bytes"] for one in summaries),
        "peak_resident_bytes": max(one["peak_resident_bytes"] for one in summaries),
        "notes": list(
            dict.fromkeys(
                [
                    *(note for one in summaries for note in one["notes"]),
                    f"Mapped as {counted(len(summaries), 'span')} side by side, joined by the frames that they share.",
                ]
            )
        ),
    }
