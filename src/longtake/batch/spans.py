"""A long video as spans that share some frames, to be mapped side by side; `joining` lays them into one world.

video   ├──────────────────────────────────────────┤
span 0  ├───────────────┤
span 1               ├────────────────┤
span 2                             ├───────────────┤
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from longtake.api.map_request import CheckedRequest
from longtake.batch.asked import ASKED_NAME, require_same
from longtake.batch.job import Job, JoinJob, MapJob
from longtake.batch.manifest import Row
from longtake.batch.naming import span_name
from longtake.batch.storage import Storage
from longtake.errors import InputError
from longtake.video.source import SourceOptions, open_source

JOIN_NAME = "join.json"
"""Says in the folder of a video what it was joined of."""
SHARED_FRAMES = 32
"""That two neighbouring spans both see."""
FEWEST_FRAMES = 128
"""Of a span: a shorter one costs more than it saves."""
_SPAN_FORMATS = ("tum", "depth", "confidence", "images")
_EARLIER_S = 1e-4
"""So that a span begins with its first frame, whatever is lost in writing its time."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The jobs of a video by name; that of the video itself comes last."""

    name: str
    jobs: Mapping[str, Job]

    def owed(self) -> list[Job]:
        """Those that need no other, and are not done; that of the video where all are, or only its end is missing.

        A span that was done for something else is refused, and so is a place where they cannot be joined.
        """
        whole = self.jobs[self.name]
        spans = [job for name, job in self.jobs.items() if name != self.name]
        if not spans or _is_mapped(whole):
            return [whole]
        whole.storage.require_free(self.name)
        return [job for job in spans if not _is_mapped(job)] or [whole]

    def job(self, name: str) -> Job:
        return self.jobs[name]


def _is_mapped(job: Job) -> bool:
    summary = job.storage.summary(job.name)
    if summary is None or summary.get("is_complete") is not True:
        return False
    require_same(job.name, job.storage.record(job.name, ASKED_NAME), job.asked)
    return True


def plan_of(row: Row, checked: CheckedRequest, storage: Storage, asked: Mapping[str, Any] | None = None) -> Plan:
    """What has to be done for a video; `asked` is kept with each of its results."""
    request, known = checked.request, asked or {}
    whole = MapJob(name=row.name, source=row.source, request=request, storage=storage, asked=known)
    if row.spans == 1:
        return Plan(row.name, {row.name: whole})
    starts_s = _starts_s(row, checked)
    if len(starts_s) == 1:
        return Plan(row.name, {row.name: whole})
    jobs: dict[str, Job] = {}
    for number, (start_s, end_s) in enumerate(starts_s):
        name = span_name(row.name, number + 1, len(starts_s))
        part = replace(request, start=start_s, end=end_s, format=_SPAN_FORMATS)
        jobs[name] = MapJob(name=name, source=row.source, request=part, storage=storage, asked=known)
    jobs[row.name] = JoinJob(
        name=row.name, source=row.source, spans=tuple(jobs), request=request, storage=storage, asked=known
    )
    return Plan(row.name, jobs)


def remove_joined(name: str, storage: Storage) -> None:
    """What a kill after the end of a video may have left of its spans."""
    joined = storage.record(name, JOIN_NAME) or {}
    count = len(joined.get("spans", ()))
    for number in range(1, count + 1):
        storage.remove(span_name(name, number, count))


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
