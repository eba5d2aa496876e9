"""Which frames of a take lie in the world of its first part: those of parts that no loop joined to it, and those that
were lost, do not."""

from dataclasses import dataclass, replace

from longtake.errors import InputError
from longtake.exports.report.folder import MERGE_NAME, SUMMARY_NAME
from longtake.exports.tracking import tracking_in
from longtake.takes.fields import JsonObject, parse_file
from longtake.takes.sealed_json import unsealed
from longtake.takes.take import Take
from longtake.types import TrackingState


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Positions in a take."""

    joined: tuple[int, ...]
    """Of frames in the world of the first part, and of all where the camera was not tracked."""
    not_joined: tuple[int, ...] = ()
    """Of frames in other parts: each lies where the camera was last known, in a unit of its own."""
    lost: tuple[int, ...] = ()
    """Of frames whose poses say nothing."""


def places_of(take: Take) -> Places:
    """By the take's own lines, and by the summary beside them, which alone knows what was joined in the end."""
    apart = _apart_in(take) or frozenset()
    tracked = [record.tracking for record in take.records]
    lost = {place for place, one in enumerate(tracked) if one is not None and one.state is TrackingState.LOST}
    not_joined = {place for place, one in enumerate(tracked) if one is not None and one.sub_map in apart}
    joined = set(range(len(take))) - lost - not_joined
    return Places(joined=tuple(sorted(joined)), not_joined=tuple(sorted(not_joined)), lost=tuple(sorted(lost)))


def joined_part(take: Take) -> Take:
    """Only frames that are joined and not lost; where cameras are tracked, pictures are files of their own."""
    sub_maps = {record.tracking.sub_map for record in take.records if record.tracking is not None} - {None}
    if len(sub_maps) > 1 and _apart_in(take) is None:
        raise InputError(
            f"Expected {take.folder} to say which of its {len(sub_maps)} parts were joined, but it has no "
            f"{SUMMARY_NAME} that does; name the folder of a finished longtake map."
        )
    joined = list(places_of(take).joined)
    if not joined:
        raise InputError(f"Expected frames of {take.folder} that are joined, but it has none; leave out --joined-only.")
    if len(joined) == len(take):
        return take
    return replace(
        take,
        trajectory=replace(
            take.trajectory,
            timestamp_s=take.trajectory.timestamp_s[joined],
            world_from_camera=take.trajectory.world_from_camera[joined],
        ),
        intrinsics=take.intrinsics[joined],
        records=tuple(take.records[position] for position in joined),
    )


def tracking_record(take: Take) -> JsonObject | None:
    """The file that says how a finished take was tracked: the summary of its run, or the record of a merge."""
    summary = parse_file(take.folder / SUMMARY_NAME, JsonObject.parse)
    return parse_file(take.folder / MERGE_NAME, _unsealed) if summary is None else summary


def _unsealed(content: bytes, where: str) -> JsonObject:
    return unsealed(JsonObject.parse(content, where))


def _apart_in(take: Take) -> frozenset[int] | None:
    """Numbers of the parts that no loop joined to the first; None where nothing says it."""
    told = tracking_record(take)
    tracking = None if told is None else tracking_in(told.fields)
    return None if tracking is None else frozenset(tracking.apart)
