"""Which files come of a video: while it is mapped, and in one go when it has ended."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from longtake.errors import SettingError
from longtake.exports.adjust import ExportAdjustments
from longtake.exports.cloud import CloudSettings
from longtake.exports.formats import FORMATS, Format, SinkOptions, format_named, require_format
from longtake.exports.reexport import ExportSettings
from longtake.exports.sink import AppendSink, OpenAppendSink, SinkKind, SinkState, Tee
from longtake.exports.take import DepthKind, PixelGrid, TakeSettings
from longtake.takes.images import ImageFiles

SESSION_NAME = "session.safetensors"

_POSES, _SESSION = "tum", "session"
_TAKE_PARTS = ("depth", "depth-npz", "confidence", "images")
MAP_FORMATS = (*(name for name in FORMATS if name != "take"), *_TAKE_PARTS, _SESSION)
"""What a run can be asked for: formats, what its take has beside poses, and the session itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outputs:
    """Which files are written: the take, and beside it."""

    take: TakeSettings = field(default_factory=TakeSettings)
    formats: tuple[str, ...] = ("ply",)
    """Of kind append, written while the video runs."""
    cloud: CloudSettings = field(default_factory=CloudSettings)
    """Which points they have."""
    session: bool = False
    """The session as it was after the last frame, for `resume_session` to go on with more."""
    export: ExportSettings | None = None
    """What is made of the take in a folder below it when the video was mapped to its end."""

    def __post_init__(self) -> None:
        for name in self.formats:
            if format_named(name).kind is not SinkKind.APPEND:
                raise SettingError(f"The format {name} is made of a whole take; ask for it as an export.")
        if self.export is None:
            return
        if self.export.needs_images and self.take.images is None:
            raise SettingError("The export is made of images, but the take has none; let the take have images.")
        if self.export.needs_depth and self.take.depth is None:
            raise SettingError("The export is made of depth, but the take has none; let the take have depth.")


def choose_outputs(
    names: Sequence[str],
    *,
    pixels: PixelGrid = PixelGrid.MODEL,
    fps: float | None = None,
    cloud: CloudSettings | None = None,
    adjustments: ExportAdjustments | None = None,
    may_move: bool = False,
) -> Outputs:
    """What these formats ask for, and what they need: an export of points has a take with depth and images.

    So has a cloud written while the video runs where frames `may_move` afterwards: it is made anew of them.
    """
    for name in names:
        if ":" not in name:
            require_format(name, MAP_FORMATS)
    cloud = CloudSettings() if cloud is None else cloud
    formats = [name for name in names if name not in (*_TAKE_PARTS, _SESSION)]
    export = _choose_export(formats, adjustments or ExportAdjustments(), cloud)
    running = tuple(name for name in formats if format_named(name).kind is SinkKind.APPEND)
    made_anew = may_move and any(format_named(name).has_points for name in running)
    return Outputs(
        take=_choose_take(names, export, pixels=pixels, fps=fps, made_anew=made_anew),
        formats=running,
        cloud=cloud,
        session=_SESSION in names,
        export=export,
    )


def _choose_export(
    formats: Sequence[str], adjustments: ExportAdjustments, cloud: CloudSettings
) -> ExportSettings | None:
    """What is known only when the video has ended: some formats, and all poses and points where they are adjusted."""
    if adjustments == ExportAdjustments():  # the take has the poses
        asked = [name for name in formats if name != _POSES and format_named(name).kind is SinkKind.ONE_SHOT]
    else:
        asked = [_POSES, *formats]
    in_order = tuple(name for name in dict.fromkeys((*FORMATS, *asked)) if name in asked)
    return ExportSettings(formats=in_order, cloud=cloud, adjustments=adjustments) if in_order else None


def _choose_take(
    names: Sequence[str], export: ExportSettings | None, *, pixels: PixelGrid, fps: float | None, made_anew: bool
) -> TakeSettings:
    has_points = made_anew or (export is not None and export.has_points)
    needs_depth = made_anew or (export is not None and export.needs_depth)
    depth = DepthKind.PNG if needs_depth or "depth" in names else None
    return TakeSettings(
        pixels=pixels,
        images=ImageFiles.JPEG if has_points or "images" in names else None,
        depth=DepthKind.NPZ if "depth-npz" in names else depth,
        confidence=has_points or "confidence" in names,
        fps=fps,
    )


def open_sinks(out: Path, outputs: Outputs, state: SinkState | None = None, *, overwrite: bool = False) -> Tee:
    """All files of a running video, new or gone on with; the take first, for it sees to the folder."""
    take = SinkOptions(path=out, take=outputs.take, cloud=outputs.cloud, unit=outputs.take.unit, overwrite=overwrite)
    of_take: OpenAppendSink = partial(_open_sink, FORMATS["take"], take)
    return Tee({"take": of_take, **_beside(out, outputs, overwrite=overwrite)}, state=state)


def open_anew(out: Path, outputs: Outputs, state: SinkState | None = None) -> Tee:
    """The files beside the take, in place of those that are there, to be made of the finished take."""
    return Tee(_beside(out, outputs, overwrite=True), state=state)


def _beside(out: Path, outputs: Outputs, *, overwrite: bool) -> dict[str, OpenAppendSink]:
    return {
        known.name: partial(_open_sink, known, _sink_options(out, known, outputs, overwrite=overwrite))
        for known in map(format_named, outputs.formats)
    }


def _sink_options(out: Path, known: Format, outputs: Outputs, *, overwrite: bool) -> SinkOptions:
    return SinkOptions(
        path=out / known.file,
        take=outputs.take,
        cloud=outputs.cloud,
        unit=outputs.take.unit,
        overwrite=overwrite,
    )


def _open_sink(known: Format, options: SinkOptions, state: SinkState | None) -> AppendSink:
    return known.open_append(replace(options, state=state))
