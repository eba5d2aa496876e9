"""Exports of a finished take: a first pass for what depends on all frames, such as the floor, then one that writes."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from longtake.errors import InputError, SettingError
from longtake.exports.adjust import Adjustment, ExportAdjustments, adjusted_frames, plan_adjustment
from longtake.exports.cloud import CloudSettings
from longtake.exports.formats import FORMATS, Format, SinkOptions, format_named
from longtake.exports.frame import MappedFrame
from longtake.exports.placed import joined_part, places_of
from longtake.exports.record import RECORD_NAME, ExportRecord, make_record
from longtake.exports.saved import same_pixels
from longtake.exports.scale import KnownDistance
from longtake.exports.take import DepthKind, TakeSettings
from longtake.takes.atomic_files import require_writable, sync_path, writing
from longtake.takes.folder_lock import locked
from longtake.takes.header import Content, TakeHeader, is_take
from longtake.takes.images import ImageFiles
from longtake.takes.take import Take

ProgressCallback = Callable[[Iterable[MappedFrame], int], Iterable[MappedFrame]]
"""Hands on the frames of an export, so many of them, and may show how far it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportSettings:
    """What is exported from a take."""

    formats: tuple[str, ...] = ("tum", "ply")
    cloud: CloudSettings = field(default_factory=CloudSettings)
    adjustments: ExportAdjustments = field(default_factory=ExportAdjustments)
    joined_only: bool = False
    """Leave out frames of parts that no loop joined to the first, and lost ones."""
    overwrite: bool = False

    def __post_init__(self) -> None:
        if not self.formats:
            raise SettingError(f"Expected format as {', '.join(FORMATS)}, but got none.")
        for name in self.formats:
            format_named(name)

    @property
    def known(self) -> tuple[Format, ...]:
        return tuple(map(format_named, self.formats))

    @property
    def needs_images(self) -> bool:
        """Whether it cannot be made of a take without images."""
        return self.cloud.points.sky is not None or any(known.needs_images for known in self.known)

    @property
    def has_points(self) -> bool:
        return any(known.has_points for known in self.known)

    @property
    def needs_depth(self) -> bool:
        """Whether it, or an adjustment, cannot be made without depth."""
        length = self.adjustments.length
        looks_at_depth = length is not None and not isinstance(length, KnownDistance)
        return self.has_points or self.adjustments.upright or looks_at_depth

    def require_packages(self) -> None:
        """Refuse what needs a package that is not installed."""
        for known in self.known:
            known.require_package()


def no_progress(frames: Iterable[MappedFrame], num_frames: int) -> Iterable[MappedFrame]:  # noqa: ARG001
    """Hands on the frames and shows nothing."""
    return frames


def export_take(
    take: Take, out: Path, settings: ExportSettings, progress: ProgressCallback = no_progress
) -> ExportRecord:
    """Write all formats into a folder, and last the record of it, without which the export is not whole."""
    _require_room(out)
    _require_content(take, settings)
    settings.require_packages()
    num_frames = len(take)
    take = joined_part(take) if settings.joined_only else take
    places = places_of(take)
    adjustment = plan_adjustment(take, settings.adjustments)
    require_writable(out / RECORD_NAME, overwrite=settings.overwrite)
    files = {name: out / known.file for name, known in zip(settings.formats, settings.known, strict=True)}
    with locked(out):
        _remove_seal(out / RECORD_NAME)
        num_with_points = _write_files(take, files, settings, adjustment, progress=progress)
        record = make_record(
            take,
            num_with_points if settings.has_points else None,
            files,
            adjustments=settings.adjustments,
            adjustment=adjustment,
            lacks=_lacks(take.header, settings),
            joined_only=settings.joined_only,
            num_not_joined=len(places.not_joined),
            num_lost=len(places.lost),
            num_left_out=num_frames - len(take),
        )
        record.write(out / RECORD_NAME)
    return record


def _remove_seal(path: Path) -> None:
    """No record of an earlier export may stand beside files of this one before it is whole."""
    with writing(str(path)):
        path.unlink(missing_ok=True)
        sync_path(path.parent)


def _write_files(
    take: Take,
    files: Mapping[str, Path],
    settings: ExportSettings,
    adjustment: Adjustment,
    *,
    progress: ProgressCallback,
) -> int:
    """Every format into its file; returns how many frames give points."""
    num_with_points = 0
    with ExitStack() as opened:
        sinks = [
            opened.enter_context(known.open(_sink_options(path, take.header, adjustment, settings)))
            for known, path in zip(settings.known, files.values(), strict=True)
        ]
        for frame in progress(adjusted_frames(take, adjustment), len(take)):
            num_with_points += settings.cloud.points.takes(frame)
            for sink in sinks:
                sink.write(frame)
    return num_with_points


def _require_room(out: Path) -> None:
    if is_take(out):
        raise SettingError(f"{out} is a take, whose own files would be replaced; name another folder.")


def _require_content(take: Take, settings: ExportSettings) -> None:
    """Refuse what cannot be made of a take."""
    points = [known.name for known in settings.known if known.has_points]
    if points and take.header.depth is None:
        raise InputError(
            f"Expected depth in {take.folder}, of which {points[0]} is made, but it has none; map the video again "
            "with the format depth."
        )
    if take.header.images is None and settings.needs_images:
        raise InputError(
            f"Expected images in {take.folder}, but it has none; map the video again with the format images."
        )


def _lacks(header: TakeHeader, settings: ExportSettings) -> list[str]:
    """Notes on what the take lacks for its points and images."""
    lacks = []
    scenes = [known.name for known in settings.known if known.needs_images]
    if scenes and header.source is not None and header.source != same_pixels(header.size):
        lacks.append(
            f"Images of {' and '.join(scenes)} are made of the network's, {header.width}x{header.height} pixels; map "
            "with --pixels source (pixels='source') to keep the video's."
        )
    if settings.has_points and header.images is None:
        lacks.append("The result has no images, so points are grey; map with the format images for colours.")
    is_estimated = header.content is Content.RESULT
    if is_estimated and settings.has_points and not header.confidence and settings.cloud.points.drop_percent:
        lacks.append(
            "The result has no confidence, so no pixels are left out as unsure, unlike in its cloud.ply; map with "
            "the format confidence for the same points."
        )
    if is_estimated and settings.has_points and header.depth is not None and header.depth.step is not None:
        lacks.append(
            f"Depth is kept in steps of {header.depth.step:.2g}, so points differ a little from those of cloud.ply; "
            "map with the format depth-npz for the same."
        )
    return lacks


def _sink_options(path: Path, header: TakeHeader, adjustment: Adjustment, settings: ExportSettings) -> SinkOptions:
    return SinkOptions(
        path=path,
        cloud=settings.cloud,
        unit=adjustment.unit,
        images=ImageFiles.PNG if header.images is ImageFiles.PNG else ImageFiles.JPEG,
        take=_take_settings(header, adjustment),
        overwrite=settings.overwrite,
    )


def _take_settings(header: TakeHeader, adjustment: Adjustment) -> TakeSettings:
    """The settings of the take itself; the step of 16-bit depth is scaled with the world, so that its values stay."""
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
