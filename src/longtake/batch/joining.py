"""Spans of a video, all of them mapped, as one take: laid into one world by what they share, and by loops across them.

span 0  ├───────────────┤
span 1               ├──╫─────────────┤                each shared stretch is cut in its middle
span 2                             ├──╫────────────┤
             └─────────── loop ──────────────┘         where the video closes loops, all windows move as all of them say
"""

import json
import math
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from longtake.api.map_request import CheckedRequest
from longtake.batch.asked import write_asked
from longtake.batch.job import JoinJob
from longtake.batch.naming import JOINING
from longtake.batch.spans import JOIN_NAME
from longtake.errors import InputError
from longtake.exports.frame import MappedFrame
from longtake.exports.record import EXPORT_FOLDER
from longtake.exports.reexport import export_take
from longtake.exports.report.folder import SUMMARY_NAME
from longtake.exports.report.page import write_report
from longtake.exports.take import PixelGrid
from longtake.exports.tracking import TrackingSummary
from longtake.pipeline.merging import moved_frame, moved_frames, with_sub_maps_later
from longtake.pipeline.outputs import open_sinks
from longtake.pipeline.tracked import count_tracking, tracking_summary
from longtake.places.chain import Closed, LaidTake, close_loops
from longtake.places.verification import Verifier
from longtake.runtime.alignment import Alignment, Anchoring
from longtake.spatial.similarity import Similarity
from longtake.takes.atomic_files import replace_file
from longtake.takes.corrections import CorrectedSpan, Corrections
from longtake.takes.sealed_json import sealed
from longtake.takes.take import Take, read_take
from longtake.types import FrameKind, Geometry, counted

_FEWEST_SHARED = 4


def join_spans(job: JoinJob, out: Path) -> None:
    """Writes the whole as if it had been mapped in one go; it is there at once, or not at all."""
    takes = [read_take(job.storage.fetched(name)) for name in job.spans]
    summaries = [job.storage.summary(name) or {} for name in job.spans]
    laid = _laid(takes, summaries)
    checked = job.request.checked()
    closed = _closed(laid, checked)
    num_links = 0 if closed is None else closed.num_links
    moves = _moves(laid) if closed is None else closed.moves.after(_moves(laid))
    outputs = checked.outputs
    network = takes[0].header.network
    outputs = replace(outputs, take=replace(outputs.take, network=network, unit=takes[0].header.unit))
    making = out.with_name(out.name + JOINING)
    shutil.rmtree(making, ignore_errors=True)
    sink = open_sinks(making, outputs)
    kinds: Counter[str] = Counter()
    try:
        for frame in _frames(laid, moves):
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
        "num_links": num_links,
        "spans": [_span_record(one, moves, summary) for one, summary in zip(laid, summaries, strict=True)],
    }
    replace_file(making / JOIN_NAME, sealed(record))
    replace_file(making / SUMMARY_NAME, json.dumps(_summary(laid, summaries, kinds, num_links), indent=1).encode())
    write_report(making)
    write_asked(making, job.asked)
    making.rename(out)


def _laid(takes: list[Take], summaries: list[dict[str, Any]]) -> list[LaidTake]:
    """Each where the one before says by the frames that they share."""
    laid: list[LaidTake] = []
    world, first = Similarity.of_matrix(torch.eye(4, dtype=torch.float64)), 0
    frames_later = windows_later = sub_maps_later = 0
    for number, (take, summary) in enumerate(zip(takes, summaries, strict=True)):
        apart = frozenset((summary.get("tracking") or {}).get("apart", ()))
        if number:
            before = laid[-1]
            pairs = _shared(before.take, take)
            if len(pairs) < _FEWEST_SHARED:
                raise InputError(
                    f"Expected {_FEWEST_SHARED} frames or more that {before.take.folder.name} and {take.folder.name} "
                    f"share, but there are {len(pairs)}; map the video in fewer spans, or in one."
                )
            old, new = (_geometry(one, [pair[side] for pair in pairs]) for side, one in enumerate((before.take, take)))
            world = before.world_from_take @ Alignment(Anchoring.ROBUST).align(old, new)
            frames_later = before.frames_later + old.frame_index[0] - new.frame_index[0]
            stop, first = pairs[len(pairs) // 2]
            windows_later = before.window(stop - 1) + 1
            sub_maps_later = before.newest_sub_map(stop - 1)
            laid[-1] = replace(before, stop=stop)
            if sub_maps_later - before.sub_maps_later in before.apart:  # it hangs on what lies apart
                apart = _sub_maps(take)
        laid.append(
            LaidTake(
                take=take,
                world_from_take=world,
                frames_later=frames_later,
                windows_later=windows_later,
                sub_maps_later=sub_maps_later,
                first=first,
                stop=len(take),
                apart=apart,
            )
        )
    return laid


def _sub_maps(take: Take) -> frozenset[int]:
    tracked = [record.tracking for record in take.records if record.tracking is not None]
    return frozenset(one.sub_map for one in tracked if one.sub_map is not None)


def _closed(laid: list[LaidTake], checked: CheckedRequest) -> Closed | None:
    """By loops across spans, where the video closes loops and its spans have what places are known by."""
    card = checked.loops.card
    has_places = all(one.take.header.descriptor_channels is not None for one in laid)
    if card is None or not has_places or checked.outputs.take.pixels is not PixelGrid.MODEL:
        return None
    return close_loops(laid, Verifier(card), checked.loops.rule)


def _moves(laid: list[LaidTake]) -> Corrections:
    """Of all frames of the whole into the world of the first span."""
    return Corrections(
        tuple(
            CorrectedSpan(
                first_frame=one.frame(one.first),
                last_frame=one.frame(one.stop - 1),
                known_from_said=one.world_from_take,
            )
            for one in laid
        )
    )


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


def _frames(laid: list[LaidTake], moves: Corrections) -> Iterator[MappedFrame]:
    for one in laid:
        for position, frame in enumerate(moved_frames(one.take, None)):
            if one.first <= position < one.stop:
                there = with_sub_maps_later(frame, one.sub_maps_later)
                yield moved_frame(replace(there, index=one.frame(position), window=one.window(position)), moves)


def _span_record(one: LaidTake, moves: Corrections, summary: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "first_frame": one.frame(one.first),
        "num_frames": one.stop - one.first,
        "scale": moves.scale_at(one.frame(one.first)),
        "seconds": summary.get("seconds"),
    }


def _summary(
    laid: list[LaidTake], summaries: list[dict[str, Any]], kinds: Counter[str], num_links: int
) -> dict[str, Any]:
    """Of the whole, by those of its spans: figures of time and memory are of them all, or the largest."""
    first = summaries[0]
    num_keyframes = kinds.pop("keyframes")
    num_frames, seconds = sum(kinds.values()), sum(one["seconds"] for one in summaries)
    tracking = _tracking(laid)
    known = [one["unlikeness"] for one in summaries if one.get("unlikeness") is not None]
    return {
        **first,
        "is_complete": True,
        "num_frames": num_frames,
        "statuses": dict(kinds),
        "num_keyframes": num_keyframes,
        "num_windows": sum(one["num_windows"] for one in summaries),
        "loops": _loops([one.get("loops") or {} for one in summaries], tracking, num_links),
        "tracking": None if tracking is None else asdict(tracking),
        "unlikeness": max(known) if known else None,
        "seconds": seconds,
        "frames_per_s": num_frames / seconds if seconds else 0.0,
        "memory_bytes": max(one["memory_bytes"] for one in summaries),
        "peak_resident_bytes": max(one["peak_resident_bytes"] for one in summaries),
        "notes": list(
            dict.fromkeys(
                [
                    *(note for one in summaries for note in one["notes"]),
                    f"Mapped as {counted(len(summaries), 'span')} side by side, joined by the frames that they share"
                    f"{_and_places(num_links)}.",
                ]
            )
        ),
    }


def _tracking(laid: list[LaidTake]) -> TrackingSummary | None:
    """Of the whole."""
    counts, apart = Counter[str](), set[int]()
    for one in laid:
        for record in one.take.records[one.first : one.stop]:
            count_tracking(counts, record.tracking, later=one.sub_maps_later)
        within = range(one.sub_maps_later, one.newest_sub_map(one.stop - 1) + 1)
        apart |= {one.sub_maps_later + number for number in one.apart} & set(within)
    return tracking_summary(counts, num_sub_maps=laid[-1].newest_sub_map(laid[-1].stop - 1) + 1, apart=sorted(apart))


def _loops(of_spans: list[dict[str, Any]], tracking: TrackingSummary | None, num_links: int) -> dict[str, Any]:
    """Those of the spans and between them."""
    counts = {name: sum(one.get(name, 0) for one in of_spans) for name in ("num_loops", "num_withdrawn")}
    counts["num_loops"] += num_links
    largest = {name: max(one[name] for one in of_spans) for name in ("num_bytes", "most_bytes") if name in of_spans[0]}
    parts = {} if tracking is None else {"num_sub_maps": tracking.num_sub_maps, "apart": tracking.apart}
    return of_spans[0] | (counts if "num_loops" in of_spans[0] else {}) | largest | parts


def _and_places(num_links: int) -> str:
    return f", and by {counted(num_links, 'place')} of one that another came back to" if num_links else ""
