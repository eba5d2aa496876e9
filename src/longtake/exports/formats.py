"""The formats there are, by name: what each needs of a take, when its frames reach it, and how it is opened.

A format of one's own is a `Format` in any module that can be imported, named as `module:attribute`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from longtake.errors import SettingError
from longtake.exports.cloud import CloudSettings
from longtake.exports.colmap import ColmapSink
from longtake.exports.glb import GlbSink
from longtake.exports.nerfstudio import NerfstudioSink
from longtake.exports.ply import CLOUD_NAME, PlySink
from longtake.exports.poses import KITTI_NAME, KittiSink, TumSink
from longtake.exports.rerun import RerunSink
from longtake.exports.sink import AppendSink, Sink, SinkKind, SinkState
from longtake.exports.take import TakeSettings, TakeSink
from longtake.extras import import_from_extra, import_own
from longtake.takes.header import POSES_NAME, Unit
from longtake.takes.images import ImageFiles


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """What a sink is opened with; each takes what it needs."""

    path: Path
    """The file or folder to make."""
    cloud: CloudSettings = field(default_factory=CloudSettings)
    unit: Unit = Unit.MODEL
    images: ImageFiles = ImageFiles.JPEG
    """How images are encoded."""
    take: TakeSettings = field(default_factory=TakeSettings)
    overwrite: bool = False
    state: SinkState | None = None
    """The checkpoint from which an append sink goes on; None for new files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """One way to write mapped frames."""

    name: str
    file: str
    """What the file or folder is called in the folder of a result or an export."""
    open: Callable[[SinkOptions], Sink]
    kind: SinkKind = SinkKind.ONE_SHOT
    """How a run writes it; an append sink serves exports of finished takes as well."""
    has_points: bool = False
    """Whether it needs depth, and looks better with images and confidence."""
    needs_images: bool = False
    package: str | None = None
    extra: str | None = None
    """The module it needs, and which of our extras brings it."""

    def require_package(self) -> None:
        """Refuse a format whose package is not installed."""
        if self.package is not None:
            import_from_extra(self.package, self.extra or self.package, f"The format {self.name}")

    def open_append(self, options: SinkOptions) -> AppendSink:
        sink = self.open(options)
        assert isinstance(sink, AppendSink), "formats of kind append open such sinks"
        return sink


FORMATS = {
    known.name: known
    for known in (
        Format(name="tum", file=POSES_NAME, open=lambda o: TumSink(o.path, overwrite=o.overwrite)),
        Format(
            name="kitti",
            file=KITTI_NAME,
            kind=SinkKind.APPEND,
            open=lambda o: KittiSink(o.path, overwrite=o.overwrite, state=o.state),
        ),
        Format(
            name="ply",
            file=CLOUD_NAME,
            kind=SinkKind.APPEND,
            has_points=True,
            open=lambda o: PlySink(o.path, o.cloud, unit=o.unit, overwrite=o.overwrite, state=o.state),
        ),
        Format(
            name="take",
            file="take",
            kind=SinkKind.APPEND,
            open=lambda o: TakeSink(o.path, o.take, overwrite=o.overwrite, state=o.state),
        ),
        Format(
            name="colmap",
            file="colmap",
            has_points=True,
            needs_images=True,
            open=lambda o: ColmapSink(o.path, o.cloud, images=o.images, overwrite=o.overwrite),
        ),
        Format(
            name="nerfstudio",
            file="nerfstudio",
            has_points=True,
            needs_images=True,
            open=lambda o: NerfstudioSink(o.path, o.cloud, unit=o.unit, images=o.images, overwrite=o.overwrite),
        ),
        Format(
            name="glb",
            file="scene.glb",
            has_points=True,
            open=lambda o: GlbSink(o.path, o.cloud, unit=o.unit, overwrite=o.overwrite),
        ),
        Format(
            name="rrd",
            file="rerun",
            has_points=True,
            package="rerun",
            extra="rerun",
            open=lambda o: RerunSink(o.path, o.cloud, overwrite=o.overwrite),
        ),
    )
}
"""Those of this package."""


def format_named(name: str) -> Format:
    """One of ours, or one's own as `module:attribute`."""
    if ":" not in name:
        require_format(name, tuple(FORMATS))
        return FORMATS[name]
    found = import_own(name, "a format")
    if not isinstance(found, Format):
        raise SettingError(f"Expected a longtake.exports.formats.Format at '{name}', but got {type(found).__name__}.")
    return found


def require_format(name: str, known: Sequence[str]) -> None:
    """Refuse a name that is not known, with those that are."""
    if name not in known:
        raise SettingError(f"Expected format as {', '.join(known)}, or module:attribute, but got '{name}'.")
