"""What is written when a video has ended: the session, to be gone on with; an export of the whole take."""

from collections.abc import Iterator
from pathlib import Path

from longtake.export.frame import MappedFrame
from longtake.export.record import EXPORT_FOLDER, RECORD_NAME, ExportRecord
from longtake.export.reexport import ExportSettings, ProgressCallback, clear_export, export_take, no_progress
from longtake.export.saved import read_result
from longtake.pipeline.mapper import Mapper
from longtake.pipeline.status import StatusJudge
from longtake.runtime.steps import VideoSession
from longtake.takes.atomic_files import writing


class SavingMapper(Mapper):
    """Saves its session when no more frames come, before the last results are given out: no frame may follow those."""

    def __init__(self, session: VideoSession, judge: StatusJudge, path: Path) -> None:
        super().__init__(session, judge)
        self._path = path

    def finish(self) -> Iterator[MappedFrame]:
        with writing(str(self._path)):
            self.session.save(self._path)
        return super().finish()


def is_exported(out: Path) -> bool:
    """Whether an export of this mapped folder is whole; its record is written last."""
    return (out / EXPORT_FOLDER / RECORD_NAME).exists()


def export_mapped(out: Path, settings: ExportSettings, told: ProgressCallback = no_progress) -> ExportRecord:
    """Export the take of a mapped folder into a folder below it, in place of what an earlier try left there."""
    clear_export(out / EXPORT_FOLDER, settings.formats)
    return export_take(read_result(out), out / EXPORT_FOLDER, settings, told)
