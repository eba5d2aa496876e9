"""Other files from a saved result: one pass for what must be known of the whole, where anything must, one to write."""

import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from longtake.errors import InputError, SettingError
from longtake.export.adjust import Adjustment, ExportAdjustments, adjusted_frames, plan_adjustment
from longtake.export.cloud import CloudSettings
from longtake.export.colmap import ColmapSink
from longtake.export.frame import MappedFrame
from longtake.export.glb import GlbSink
from longtake.export.kitti import KittiSink
from longtake.export.names import NAMES, RECORD_NAME
from longtake.export.nerfstudio import NerfstudioSink
from longtake.export.ply import PlySink
from longtake.export.record import ExportRecord, make_record
from longtake.export.rerun import RerunSink, require_rerun
from longtake.export.scale import KnownDistance
from longtake.export.sink import OpenSink, Sink
from longtake.export.take import DepthKind, TakeSettings, TakeSink
from longtake.export.tee import Tee
from longtake.export.tum import TumSink
from longtake.takes.atomic_files import require_writable, writing
from longtake.takes.header import TakeHeader, is_take
from longtake.takes.images import ImageFiles
from longtake.takes.take import Take

OF_POINTS = ("ply", "colmap", "nerfstudio", "glb", "rrd")
OF_IMAGES = ("colmap", "nerfstudio")

ProgressCallback = Callable[[Iterable[MappedFrame], int], Iterable[MappedFrame]]
"""Hands on the frames of an export, so many of them, and may tell how far it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportSettings:
    """What is made of a take."""

    formats: tuple[str, ...] = ("tum", "ply")
    cloud: CloudSettings = field(default_factory=CloudSettings)
    adjustments: ExportAdjustments = field(default_factory=ExportAdjustments)
    overwrite: bool = False

    def __post_init__(self) -> None:
        unknown = [name for name in self.formats if name not in NAMES]
        if unknown or not self.formats:
            raise SettingError(
                f"Expected formats of an export from {', '.join(NAMES)}, but got '{', '.join(unknown)}'."
            )

    @property
    def needs_images(self) -> bool:
        """Whether it cannot be made of a take without images."""
        return self.cloud.points.sky is not None or any(name in OF_IMAGES for name in self.formats)

    @property
    def has_points(self) -> bool:
        return any(name in OF_POINTS for name in self.formats)

    @property
    def needs_depth(self) -> bool:
        """Whether it, or a wish, is in vain without depth."""
        length = self.adjustments.length
        looks_at_depth = length is not None and not isinstance(length, KnownDistance)
        return self.has_points or self.adjustments.upright or looks_at_depth

    def require_packages(self) -> None:
        """Refuse what needs a package that is not installed."""
        if "rrd" in self.formats:
            require_rerun()


def no_progress(frames: Iterable[MappedFrame], num_frames: int) -> Iterable[MappedFrame]:  # noqa: ARG001
    """Tells nobody."""
    return frames


def export_take(take: Take, out: Path, settings: ExportSettings, told: ProgressCallback = no_progress) -> ExportRecord:
    """Write all formats into a folder, and last the record of it, without which the export is not whole."""
    _require_room(out)
    _require_content(take, settings)
    adjustment = plan_adjustment(take, settings.adjustments)
    require_writable(out / RECORD_NAME, overwrite=settings.overwrite)
    with Tee(_sinks(out, take.header, adjustment, settings)) as sinks:
        for frame in told(adjusted_frames(take, adjustment), len(take)):
            sinks.write(frame)
    record = make_record(
        take.folder,
        len(take),
        {name: out / NAMES[name] for name in settings.formats},
        adjustments=settings.adjustments,
        adjustment=adjustment,
        has_grey_points=settings.has_points and take.header.images is None,
    )
    record.write(out / RECORD_NAME)
    return record


def clear_export(out: Path) -> None:
    """Delete whatever an export may have left in its folder, whole or not; other files stay."""
    with writing(str(out)):
        for name in (RECORD_NAME, *NAMES.values()):
            path = out / name
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)


def _require_room(out: Path) -> None:
    if is_take(out):
        raise SettingError(f"{out} is a take, whose own files would be replaced; name another folder with --out.")


def _require_content(take: Take, settings: ExportSettings) -> None:
    """Refuse what cannot be made of a take."""
    points = [name for name in settings.formats if name in OF_POINTS]
    if points and take.header.depth is None:
        raise InputError(
            f"Expected depth in {take.folder}, of which {points[0]} is made, but it has none; map the video again "
            "with --format depth."
        )
    if take.header.images is None and settings.needs_images:
        raise InputError(
            f"Expected images in {take.folder}, but it has none; map the video again with --format images."
        )


def _sinks(out: Path, header: TakeHeader, adjustment: Adjustment, settings: ExportSettings) -> Mapping[str, OpenSink]:
    overwrite, cloud, unit = settings.overwrite, settings.cloud, adjustment.unit
    paths = {name: out / file for name, file in NAMES.items()}
    images = ImageFiles.PNG if header.images is ImageFiles.PNG else ImageFiles.JPEG
    make: dict[str, Callable[[], Sink]] = {
        "tum": lambda: TumSink(paths["tum"], overwrite=overwrite),
        "kitti": lambda: KittiSink(paths["kitti"], overwrite=overwrite),
        "ply": lambda: PlySink(paths["ply"], cloud, unit=unit, overwrite=overwrite),
        "take": lambda: TakeSink(paths["take"], _take_settings(header, adjustment), overwrite=overwrite),
        "colmap": lambda: ColmapSink(paths["colmap"], cloud, images=images, overwrite=overwrite),
        "nerfstudio": lambda: NerfstudioSink(paths["nerfstudio"], cloud, unit=unit, images=images, overwrite=overwrite),
        "glb": lambda: GlbSink(paths["glb"], cloud, unit=unit, overwrite=overwrite),
        "rrd": lambda: RerunSink(paths["rrd"], cloud, overwrite=overwrite),
    }
    return {name: _always_new(make[name]) for name in settings.formats}


def _always_new(make: Callable[[], Sink]) -> OpenSink:
    """An export is made in one go, and never from a checkpoint."""
    return lambda _: make()


def _take_settings(header: TakeHeader, adjustment: Adjustment) -> TakeSettings:
    """As the take is; a step of 16-bit depth grows with what it measures, so that the values stay."""
    step = None if header.depth is None else header.depth.step
    kind = DepthKind.NPZ if step is None else DepthKind.PNG
    return TakeSettings(
        unit=adjustment.unit,
        fps=header.fps,
        images=ImageFiles.PNG if header.images is ImageFiles.VIDEO else header.images,
        depth=None if header.depth is None else kind,
        depth_step=None if step is None else step * (adjustment.metres_per_unit or 1.0),
        confidence=header.confidence,
    )
