"""Two finished takes that share places as one, in the world of the first."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path

from longtake.errors import InputError
from longtake.exports.frame import MappedFrame
from longtake.exports.reexport import ProgressCallback, no_progress
from longtake.exports.report.folder import MERGE_NAME
from longtake.exports.report.page import write_report
from longtake.exports.saved import saved_frames
from longtake.exports.take import DepthKind, TakeSettings
from longtake.exports.tracking import TrackingSummary
from longtake.pipeline.outputs import Outputs, open_sinks
from longtake.pipeline.tracked import count_tracking, tracking_summary
from longtake.places.finding import find_way
from longtake.places.known_take import KnownTake, require_one_network
from longtake.places.laying import Laid, lay
from longtake.places.verification import Verifier
from longtake.takes.atomic_files import making_folder, replace_file, require_makeable, resolved
from longtake.takes.corrections import Corrections
from longtake.takes.folder_lock import locked
from longtake.takes.images import ImageFiles
from longtake.takes.sealed_json import sealed
from longtake.takes.take import Take
from longtake.takes.tum import as_written


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    """What came of two takes."""

    folder: str
    takes: tuple[str, str]
    num_frames: tuple[int, int]
    first_frame_of_second: int
    """Its place in the new take; frames of the first have theirs."""
    seconds_later: float
    """By which times of the second were moved."""
    num_places: int
    """That both takes know."""
    scale: float
    """Of the second's unit, in that of the first, where it begins."""
    tracking: TrackingSummary | None
    """Of all frames; sub-maps of the second come behind those of the first."""


def merge_takes(
    first: Take, second: Take, out: Path, verifier: Verifier, progress: ProgressCallback = no_progress
) -> Merge:
    """Writes a new take; nothing is written where the two cannot be joined, and neither of them is changed."""
    if resolved(out).exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"Expected a new or empty folder for the merged take, but {out} is not; name another.")
    require_makeable(out)
    if resolved(first.folder) == resolved(second.folder):
        raise InputError(f"Expected two takes, but got {first.folder} twice; name another one beside it.")
    for take in (first, second):
        if resolved(out).is_relative_to(resolved(take.folder)):
            raise InputError(f"Expected a folder outside of {take.folder}, which stays as it is; name another.")
    old, new = KnownTake.finished(first), KnownTake.finished(second)
    require_one_network(old, new)
    if first.header.size != second.header.size:
        raise InputError(
            f"Expected two takes of one camera, but {first.folder} has {first.header.width}x{first.header.height} "
            f"pixels and {second.folder} {second.header.width}x{second.header.height}; map one of them in the shape "
            "of the other."
        )
    laid = _laid(old, new, verifier)
    second_from = first.records[-1].index + 1
    later_s = _later_s(first, second)
    merge = Merge(
        folder=str(out),
        takes=(str(first.folder), str(second.folder)),
        num_frames=(len(first), len(second)),
        first_frame_of_second=second_from + second.records[0].index,
        seconds_later=later_s,
        num_places=laid.num_links,
        scale=float(laid.new.scale_at(second.records[0].index)),
        tracking=_tracking(old, new),
    )
    frames = chain(
        moved_frames(first, laid.old),
        (_behind(frame, second_from, later_s, first) for frame in moved_frames(second, laid.new)),
    )
    with locked(out), making_folder(out) as making:
        sink = open_sinks(making, Outputs(take=_take_settings(first, second)))
        try:
            for frame in progress(frames, len(first) + len(second)):
                sink.write(frame)
        finally:
            sink.close()
        replace_file(making / MERGE_NAME, sealed({"format": "longtake-merge", "version": 1, **asdict(merge)}))
        write_report(making)
    return merge


def _laid(old: KnownTake, new: KnownTake, verifier: Verifier) -> Laid:
    way = find_way(old, new, verifier)
    laid = None if way is None else lay(old, new, way.links, moves_old=True)
    if laid is None:
        raise InputError(
            f"Expected two takes that share places, but no two frames of {new.take.folder} show what "
            f"{old.take.folder} knows; film a way from one to the other, and merge with that."
        )
    return laid


def moved_frames(take: Take, corrections: Corrections | None) -> Iterator[MappedFrame]:
    """All frames of a take, with what they look like, where they are known to be."""
    for frame, descriptor in zip(saved_frames(take), take.descriptors(), strict=True):
        seen = replace(frame, descriptor=descriptor, source_name=None)  # both takes may have files of one name
        yield seen if corrections is None else moved_frame(seen, corrections)


def moved_frame(frame: MappedFrame, corrections: Corrections) -> MappedFrame:
    """A frame where it is known to be."""
    return replace(
        frame,
        world_from_camera=as_written(corrections.of_pose(frame.index, frame.world_from_camera)),
        depth=frame.depth * corrections.scale_at(frame.index),
    )


def _behind(frame: MappedFrame, places: int, later_s: float, first: Take) -> MappedFrame:
    """A frame of the second take behind all of the first."""
    windows = 1 + max(record.window or 0 for record in first.records)
    return replace(
        with_sub_maps_later(frame, _num_sub_maps(first)),
        index=frame.index + places,
        timestamp_s=frame.timestamp_s + later_s,
        window=frame.window + windows,
    )


def with_sub_maps_later(frame: MappedFrame, later: int) -> MappedFrame:
    """A frame whose sub-map has a number so much higher."""
    tracking = frame.tracking
    if tracking is None or tracking.sub_map is None:
        return frame
    return replace(frame, tracking=replace(tracking, sub_map=tracking.sub_map + later))


def _tracking(old: KnownTake, new: KnownTake) -> TrackingSummary | None:
    counts, before = Counter[str](), _num_sub_maps(old.take)
    for record in old.take.records:
        count_tracking(counts, record.tracking)
    for record in new.take.records:
        count_tracking(counts, record.tracking, later=before)
    apart = (*sorted(old.apart), *(before + number for number in sorted(new.apart)))
    return tracking_summary(counts, num_sub_maps=before + _num_sub_maps(new.take), apart=apart)


def _num_sub_maps(take: Take) -> int:
    tracked = [record.tracking for record in take.records if record.tracking is not None]
    return 1 + max((one.sub_map for one in tracked if one.sub_map is not None), default=-1)


def _later_s(first: Take, second: Take) -> float:
    """So that the second begins one step of the first's after its end."""
    times = first.trajectory.timestamp_s
    step_s = float(times[-1] - times[0]) / (len(times) - 1) if len(times) > 1 else 1.0
    return float(times[-1]) + step_s - second.records[0].timestamp_s


def _take_settings(first: Take, second: Take) -> TakeSettings:
    header = first.header
    assert header.depth is not None
    return TakeSettings(
        unit=header.unit,
        fps=header.fps,
        images=ImageFiles.PNG if header.images is ImageFiles.PNG else ImageFiles.JPEG,
        depth=DepthKind.NPZ if header.depth.step is None else DepthKind.PNG,
        depth_step=header.depth.step,
        confidence=header.confidence and second.header.confidence,
        network=header.network,
    )
