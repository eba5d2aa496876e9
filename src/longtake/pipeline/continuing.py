"""A video that goes on in the world of an earlier take, if it shows a place of it; the earlier one stays as it is."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from longtake.errors import InputError, SettingError
from longtake.exports.take import PixelGrid
from longtake.geometry.model import GeometryModel
from longtake.pipeline.outputs import Outputs
from longtake.places.finding import Way, find_way
from longtake.places.known_take import KnownTake
from longtake.places.laying import Laid, lay
from longtake.places.verification import Verifier
from longtake.runtime.record import weights_fingerprint
from longtake.takes.atomic_files import resolved
from longtake.takes.corrections import Corrections
from longtake.takes.fields import content_of
from longtake.takes.header import DESCRIPTORS_NAME, FRAMES_NAME, HEADER_NAME, NUMBERED_FOLDERS, POSES_NAME
from longtake.takes.take import Take
from longtake.takes.trajectory import Trajectory
from longtake.types import counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Continued:
    """What an earlier take knows of a new one."""

    record: Mapping[str, Any]
    """For the summary."""
    note: str
    corrections: Corrections | None
    """What moves the new one from where it was said to be, all in all."""


@dataclass(frozen=True, slots=True)
class EarlierTake:
    """A finished take, and by what its places are believed."""

    known: KnownTake
    verifier: Verifier

    @property
    def identity(self) -> Mapping[str, str]:
        """By which a run that goes on knows that it is the same as when it began."""
        return identity_of(self.known.take.folder)

    def require_fit(self, outputs: Outputs, model: GeometryModel, out: Path) -> None:
        """Refuse, before anything is written, what could not find its way."""
        folder, network = self.known.take.folder, self.known.network
        if weights_fingerprint(model) != network.fingerprint:
            raise InputError(
                f"Expected the model that made {folder}, {network.name}, but got another, or other weights by that "
                "name; map both videos with one."
            )
        if resolved(out).is_relative_to(resolved(folder)):
            raise SettingError(f"Expected a folder outside of {folder}, which is continued and stays; name another.")
        if outputs.take.images is None or outputs.take.depth is None or outputs.take.pixels is not PixelGrid.MODEL:
            raise SettingError(
                "Expected images and depth in the model's pixels, by which places are known again; name them with "
                "--format images,depth --pixels model."
            )

    def require_size(self, size: tuple[int, int]) -> None:
        """Refuse a video of another shape, of which no place would be known."""
        header = self.known.take.header
        if size != header.size:
            raise InputError(
                f"Expected a video of the camera of {self.known.take.folder}, which the network saw with "
                f"{header.width}x{header.height} pixels, but this one gives {size[1]}x{size[0]}; film with the same "
                "camera, or map both with the same --size and --fit."
            )

    def continued_by(self, take: Take, moved: Corrections | None, apart: Iterable[int] = ()) -> Continued:
        """What becomes of a take whose frames were moved so since they were written; what lies apart stays so."""
        new = KnownTake.of(_as_moved(take, moved), apart)
        way = find_way(self.known, new, self.verifier)
        laid = None if way is None else lay(self.known, new, way.links, moves_old=False)
        folder = self.known.take.folder
        if way is None or laid is None:
            return Continued(
                record={"take": str(folder), "is_known": False},
                note=f"{folder} does not know the place: no two frames show what it knows; the map has its own world.",
                corrections=moved,
            )
        return Continued(record=self._record(way, laid), note=self._note(way, laid), corrections=laid.new.after(moved))

    def _record(self, way: Way, laid: Laid) -> Mapping[str, Any]:
        return {
            "take": str(self.known.take.folder),
            "is_known": True,
            "known_at_frame": way.known_at,
            "position_bound": way.position_bound,
            "rotation_bound_deg": way.rotation_bound_deg,
            "unit": self.known.take.header.unit.value,
            "num_places": laid.num_links,
        }

    def _note(self, way: Way, laid: Laid) -> str:
        unit = self.known.take.header.unit.in_words
        return (
            f"The map goes on in the world of {self.known.take.folder}: known with frame {way.known_at}, within "
            f"{way.position_bound:.2g} {unit} and {way.rotation_bound_deg:.1f} degrees of the place it was known by "
            f"(what that map has drifted itself comes on top), by {counted(laid.num_links, 'place')} in all."
        )


def identity_of(folder: Path) -> Mapping[str, str]:
    """Of a take: its lines, and the names and sizes of its pictures and depth."""
    digest = hashlib.sha256()
    for name in (HEADER_NAME, FRAMES_NAME, POSES_NAME, DESCRIPTORS_NAME):
        digest.update(content_of(folder / name))
    for name in NUMBERED_FOLDERS:
        for path in sorted((folder / name).glob("*")):
            digest.update(f"{name}/{path.name} {path.stat().st_size}\n".encode())
    return {"folder": folder.name, "sha256": digest.hexdigest()}


def _as_moved(take: Take, moved: Corrections | None) -> Take:
    if moved is None:
        return take
    poses = [
        moved.of_pose(record.index, pose)
        for record, pose in zip(take.records, take.trajectory.world_from_camera, strict=True)
    ]
    trajectory = Trajectory(timestamp_s=take.trajectory.timestamp_s, world_from_camera=torch.stack(poses))
    return replace(take, trajectory=trajectory, corrections=moved)
