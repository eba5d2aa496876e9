"""A finished take whose places can be known again: what its keyframes look like, with their pictures and depth."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float64
from torch import Tensor

from longtake.errors import InputError
from longtake.exports.placed import tracking_record
from longtake.exports.report.folder import RUN_NAME, SUMMARY_NAME
from longtake.exports.tracking import TrackingSummary
from longtake.places.index import IndexRule, PlaceIndex
from longtake.places.key_view import KeyView, shared_intrinsics
from longtake.records import record_from
from longtake.takes.fields import JsonObject, parse_file
from longtake.takes.header import Network
from longtake.takes.take import Take
from longtake.types import Tracking


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KnownTake:
    """Places are named by their frames, as `frames.jsonl` has them; pixels are read when they are asked for."""

    take: Take
    network: Network
    index: PlaceIndex
    intrinsics: Float64[Tensor, "3 3"]
    """Of the one camera that all frames were taken with."""
    positions: Mapping[int, int]
    """Of the places, in the take."""
    apart: frozenset[int]
    """Sub-maps that are not in its world, and have no places."""

    @classmethod
    def finished(cls, take: Take, rule: IndexRule | None = None) -> "KnownTake":
        """Refuses, in one sentence, a take that was broken off, or in which no place could be known."""
        summary = parse_file(take.folder / SUMMARY_NAME, JsonObject.parse)
        if summary is None:  # the last thing that a run writes
            is_stopped = (take.folder / RUN_NAME).exists()
        else:
            is_stopped = summary.fields.get("is_complete") is False
        if is_stopped or take.header.num_frames is None:
            raise InputError(
                f"Expected a finished take in {take.folder}, but it was broken off, or is still written; go on with it "
                "by map --resume, or wait."
            )
        return cls.of(take, _apart_in(take), rule)

    @classmethod
    def of(cls, take: Take, apart: Iterable[int], rule: IndexRule | None = None) -> "KnownTake":
        """The same, of a take whose run may not be over yet; sub-maps that lie apart are none of its world."""
        network = _require_places(take)
        index, positions = PlaceIndex.empty(take.header.descriptor_channels or 1, rule), dict[int, int]()
        apart = frozenset(apart)
        for record, (position, descriptor) in zip(take.records, enumerate(take.descriptors()), strict=True):
            if descriptor is not None and is_placed(record.tracking, apart):
                index = index.with_keyframe(
                    descriptor, frame=record.index, window=record.window or 0, timestamp_s=record.timestamp_s
                )
                positions[record.index] = position
        if not len(index):
            raise InputError(f"Expected keyframes in the take {take.folder}, but it has none; map the video again.")
        return cls(
            take=take,
            network=network,
            index=index,
            intrinsics=shared_intrinsics(take.intrinsics),
            positions={int(frame): positions[int(frame)] for frame in index.frame},
            apart=apart,
        )

    def camera(self, frame: int) -> Float64[Tensor, "4 4"]:
        """`world_from_camera` of a place."""
        return self.take.trajectory.world_from_camera[self.positions[frame]]

    def view(self, frame: int) -> KeyView:
        """A place as it is verified by, in the unit of the take."""
        return view_at(self.take, self.positions[frame], self.intrinsics)


def view_at(take: Take, position: int, intrinsics: Float64[Tensor, "3 3"]) -> KeyView:
    """A frame of a take with images and depth."""
    depth = torch.from_numpy(take.depth(position))
    return KeyView(
        frame_index=take.records[position].index,
        image=torch.from_numpy(take.image(position).copy()).movedim(-1, 0),
        depth=depth,
        depth_confidence=torch.from_numpy(take.confidence(position))
        if take.header.confidence
        else torch.ones_like(depth),
        intrinsics=intrinsics,
    )


def require_one_network(old: KnownTake, new: KnownTake) -> None:
    """Refuse two takes whose descriptors have nothing to do with each other."""
    if old.network.fingerprint != new.network.fingerprint:
        raise InputError(
            f"Expected two takes of one model, but {old.take.folder} was made by {old.network.name} and "
            f"{new.take.folder} by {new.network.name}{_other_weights(old, new)}; map one of the videos again."
        )


def _other_weights(old: KnownTake, new: KnownTake) -> str:
    return " with other weights" if old.network.name == new.network.name else ""


def is_placed(tracking: Tracking | None, apart: Collection[int]) -> bool:
    """Whether it is known where in the take's world a frame is: not where the camera was lost."""
    return tracking is None or (tracking.sub_map is not None and tracking.sub_map not in apart)


def _apart_in(take: Take) -> Iterable[int]:
    """Numbers of the sub-maps that no loop joined to the first."""
    told = tracking_record(take)
    if told is None or told.fields.get("tracking") is None:
        return ()
    try:
        return record_from(TrackingSummary, told.fields["tracking"]).apart
    except ValueError as error:
        raise InputError(
            f"{told.where} does not say which sub-maps were joined ({error}); map the video again."
        ) from error


def _require_places(take: Take) -> Network:
    header, folder = take.header, take.folder
    if header.descriptor_channels is None:
        raise InputError(
            f"Expected what keyframes of {folder} look like, but the take has no descriptors; name a result "
            "of longtake map."
        )
    if header.network is None:
        raise InputError(
            f"Expected {folder} to say which model made it, but it does not; map the video again with a model by name."
        )
    if header.images is None or header.depth is None:
        missing = "images" if header.images is None else "depth"
        raise InputError(
            f"Expected images and depth in {folder}, by which places are known again, but it has no {missing}; map the "
            "video again with --format images,depth."
        )
    return header.network
