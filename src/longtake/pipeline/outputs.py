"""Which files come of a video while it is mapped, and the sinks that write them."""

from dataclasses import dataclass, field
from pathlib import Path

from longtake.errors import SettingError
from longtake.export.cloud import CloudSettings
from longtake.export.kitti import KittiSink
from longtake.export.names import CLOUD_NAME, KITTI_NAME
from longtake.export.ply import PlySink
from longtake.export.reexport import ExportSettings
from longtake.export.sink import OpenSink, SinkState
from longtake.export.take import TakeSettings, TakeSink
from longtake.export.tee import Tee


@dataclass(frozen=True, slots=True, kw_only=True)
class Outputs:
    """Which files are written beside the take."""

    take: TakeSettings = field(default_factory=TakeSettings)
    cloud: CloudSettings | None = field(default_factory=CloudSettings)
    kitti: bool = False
    session: bool = False
    """The session as it was after the last frame, for `resume_session` to go on with more."""
    export: ExportSettings | None = None
    """What is made of the take in a folder below it when the video was mapped to its end."""

    def __post_init__(self) -> None:
        if self.export is None:
            return
        if self.export.needs_images and self.take.images is None:
            raise SettingError("The export is made of images, but the take has none; let the take have images.")
        if self.export.needs_depth and self.take.depth is None:
            raise SettingError("The export is made of depth, but the take has none; let the take have depth.")


def open_sinks(out: Path, outputs: Outputs, state: SinkState | None = None, *, overwrite: bool = False) -> Tee:
    """All files of a result, new or gone on with; the take first, for it sees to the folder."""
    sinks: dict[str, OpenSink] = {"take": lambda part: TakeSink(out, outputs.take, overwrite=overwrite, state=part)}
    if outputs.cloud is not None:
        cloud, unit = outputs.cloud, outputs.take.unit
        sinks["cloud"] = lambda part: PlySink(out / CLOUD_NAME, cloud, unit=unit, overwrite=overwrite, state=part)
    if outputs.kitti:
        sinks["kitti"] = lambda part: KittiSink(out / KITTI_NAME, overwrite=overwrite, state=part)
    return Tee(sinks, state=state)
