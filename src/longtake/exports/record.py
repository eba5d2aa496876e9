"""The record of an export, `export.json`: its files, unit, scale and camera."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from longtake.exports.adjust import Adjustment, ExportAdjustments
from longtake.takes.atomic_files import replace_file
from longtake.takes.fields import JsonObject
from longtake.takes.header import Unit
from longtake.takes.take import Take
from longtake.types import counted

RECORD_NAME = "export.json"
EXPORT_FOLDER = "export"
"""Below a mapped folder: what was exported from it when the video had ended."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ExportRecord:
    """What was made of a take, and how."""

    result: str
    """The take's folder."""
    frames: int
    """That were exported, each with its pose."""
    frames_with_points: int | None
    """Those that give images and points; others jumped, were cut or repeat one. None where no format has points."""
    files: Mapping[str, str]
    """By format."""
    unit: str
    scale_from: str | None
    metres_per_unit: float | None
    intrinsics: tuple[float, ...] | None
    """fx, fy, cx, cy in the video's pixels, where all frames have one camera."""
    fixed_camera: bool
    up: str
    floor_share: float | None
    exported_from_saved: Sequence[Sequence[float]]
    """The similarity from the take's world to the exported one, 4x4."""
    notes: tuple[str, ...]
    frames_not_joined: int = 0
    """Of the exported ones, those in parts that no loop joined to the first."""
    frames_lost: int = 0
    """Of the exported ones, those whose poses say nothing."""
    joined_only: bool = False
    frames_left_out: int = 0
    """By that: those of parts that are not joined, and lost ones."""

    def __repr__(self) -> str:
        files = ", ".join(f"{name} in {path}" for name, path in self.files.items())
        scale = "" if self.metres_per_unit is None else f", {self.metres_per_unit:.6g} m for each unit of the take"
        return (
            f"ExportRecord({counted(self.frames, 'frame')} of {self.result}, lengths in {Unit(self.unit).in_words}"
            f"{scale}: {files})"
        )

    @classmethod
    def parse(cls, text: bytes, where: str) -> "ExportRecord":
        record = JsonObject.parse(text, where)
        files = record.object("files")
        return cls(
            result=record.text("result"),
            frames=record.integer("frames"),
            frames_with_points=record.optional("frames_with_points", record.integer),
            files={name: files.text(name) for name in files.fields},
            unit=record.choice("unit", Unit).value,
            scale_from=record.optional("scale_from", record.text),
            metres_per_unit=record.optional("metres_per_unit", record.positive_number),
            intrinsics=record.optional("intrinsics", lambda name: record.numbers(name, 4)),
            fixed_camera=record.boolean("fixed_camera"),
            up=record.text("up"),
            floor_share=record.optional("floor_share", record.number),
            exported_from_saved=record.fields.get("exported_from_saved", ()),
            notes=record.texts("notes"),
            frames_not_joined=record.optional("frames_not_joined", record.integer) or 0,
            frames_lost=record.optional("frames_lost", record.integer) or 0,
            joined_only=record.optional("joined_only", record.boolean) or False,
            frames_left_out=record.optional("frames_left_out", record.integer) or 0,
        )

    def write(self, path: Path) -> None:
        replace_file(path, json.dumps(asdict(self), indent=1).encode())


def make_record(
    take: Take,
    num_with_points: int | None,
    files: Mapping[str, Path],
    *,
    adjustments: ExportAdjustments,
    adjustment: Adjustment,
    lacks: Sequence[str],
    joined_only: bool,
    num_not_joined: int,
    num_lost: int,
    num_left_out: int,
) -> ExportRecord:
    """The record of an export of this take, or of the joined part of one; `lacks` has notes on what it did not have."""
    camera, floor = adjustment.camera, adjustment.floor
    numbers = None if camera is None else (camera.focal_x, camera.focal_y, camera.center_x, camera.center_y)
    return ExportRecord(
        result=str(take.folder),
        frames=len(take),
        frames_with_points=num_with_points,
        files={name: str(path) for name, path in files.items()},
        unit=adjustment.unit.value,
        scale_from=None if adjustments.length is None else str(adjustments.length),
        metres_per_unit=adjustment.metres_per_unit,
        intrinsics=numbers,
        fixed_camera=adjustments.fixed_camera,
        up="auto" if adjustments.upright else "none",
        floor_share=None if floor is None else floor.share,
        exported_from_saved=adjustment.exported_from_saved.matrix.tolist(),
        notes=(*lacks, *_notes(adjustments, adjustment), *_note_on(num_not_joined)),
        frames_not_joined=num_not_joined,
        frames_lost=num_lost,
        joined_only=joined_only,
        frames_left_out=num_left_out,
    )


def _notes(adjustments: ExportAdjustments, adjustment: Adjustment) -> tuple[str, ...]:
    notes = []
    if adjustments.upright and adjustment.floor is None:
        notes.append("No floor was found convincingly, so the world is left as it is.")
    if adjustment.unit is Unit.MODEL:
        notes.append("Lengths are in the model's own unit; --scale-from (scale_from=) makes them metres.")
    return tuple(notes)


def _note_on(num_not_joined: int) -> tuple[str, ...]:
    if not num_not_joined:
        return ()
    return (
        "Parts that are not joined lie where the camera was last known, each in a unit of its own; longtake export "
        "--joined-only (joined_only=True) leaves them out, and lost frames.",
    )
