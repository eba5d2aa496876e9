"""A whole video mapped into a folder."""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from longtake.attention.backend import Backend
from longtake.attention.choose import backend_named
from longtake.errors import SavedSessionError
from longtake.exports.reexport import ProgressCallback, no_progress
from longtake.geometry.config import GeometryConfig
from longtake.geometry.model import GeometryModel
from longtake.pipeline.checkpoint import Checkpoint, CheckpointRule
from longtake.pipeline.continuing import EarlierTake
from longtake.pipeline.live import LiveSession
from longtake.pipeline.mapper import Mapper
from longtake.pipeline.outputs import Outputs
from longtake.pipeline.prefetch import WhenFull
from longtake.pipeline.run import Run
from longtake.pipeline.run_folder import FinishCallback, RunFolder, tell_nothing
from longtake.pipeline.run_record import plain
from longtake.pipeline.unlikeness import Knowledge
from longtake.pipeline.writer_process import WriterProcess
from longtake.places.build import resume_session, with_loops
from longtake.places.loop_choice import LoopChoice
from longtake.runtime.build import SessionSettings, open_session
from longtake.runtime.execution import Execution
from longtake.runtime.record import fingerprint, weights_fingerprint
from longtake.runtime.steps import VideoSession
from longtake.takes.header import Network
from longtake.video.reading import Source
from longtake.video.resize import Fit, Preprocessor


@dataclass(frozen=True, slots=True, kw_only=True)
class MapSettings:
    """How a video is mapped."""

    session: SessionSettings
    fit: Fit = Fit.CROP
    outputs: Outputs = field(default_factory=Outputs)
    when_full: WhenFull = WhenFull.BLOCK
    checkpoints: CheckpointRule = field(default_factory=CheckpointRule)
    """When a run of a source that can be read again is saved."""
    model_name: str | None = None
    """By which it can be loaded again."""
    notes: tuple[str, ...] = ()
    """What a reader of the results should know of the model."""
    knowledge: Knowledge | None = None
    """Of the model, where it is known what it was trained on."""
    execution: Execution = field(default_factory=Execution)
    """How the network is computed; its number type is that of the session."""
    loops: LoopChoice = field(default_factory=LoopChoice)
    """Whether places are known again, and by what."""


def map_video(
    source: Source,
    model: GeometryModel,
    out: Path,
    settings: MapSettings,
    *,
    overwrite: bool = False,
    resume: bool = False,
    on_export: ProgressCallback = no_progress,
    writer_process: WriterProcess | None = None,
    earlier: EarlierTake | None = None,
    on_finish: FinishCallback = tell_nothing,
) -> Run:
    """A run that maps a video into a folder; iterate to do it.

    Everything is opened here but the session, which waits for the first frame unless it is resumed. A `writer_process`
    writes the files as soon as it is ready. Of a video that was mapped to its end, what is resumed is the export, if
    there is none. With an `earlier` take, the video is laid into its world when it has ended, if it shows a place. What
    takes long then is told to `on_finish` and `on_export`.
    """
    if settings.outputs.export is not None:
        settings.outputs.export.require_packages()
    outputs = settings.outputs
    if settings.model_name is not None:
        network = Network(settings.model_name, weights_fingerprint(model))
        outputs = replace(outputs, take=replace(outputs.take, network=network))
    if earlier is not None:
        earlier.require_fit(outputs, model, out)
    folder = RunFolder(
        out,
        {**_what_must_stay(source, model, settings), **({} if earlier is None else {"continues": earlier.identity})},
        outputs,
        source=_path_of(source),
        is_live=source.is_live,
        overwrite=overwrite,
        resume=resume,
        writer_process=writer_process,
        on_finish=on_finish,
    )
    backend = backend_named(settings.execution.backend)
    with ExitStack() as opened:
        opened.callback(folder.close)

        def open_for(size: tuple[int, int]) -> VideoSession:
            if earlier is not None:
                earlier.require_size(size)
            return _opened(open_session(model, settings.session, size, backend), settings.loops)

        mapper = Mapper(
            open_for,
            preprocessor(settings.session, model.config, settings.fit),
            settings.knowledge,
        )
        if folder.checkpoint is not None:
            source.go_on_after(folder.checkpoint.taken)
            mapper.resume(_session_of(folder.checkpoint, model, backend), folder.checkpoint.results)
        opened.pop_all()  # the run closes it
    return Run(
        source,
        LiveSession(mapper),
        output=folder,
        model_name=settings.model_name or "a model without a name",
        notes=settings.notes,
        execution=settings.execution,
        loops=settings.loops,
        checkpoints=settings.checkpoints,
        when_full=settings.when_full,
        on_export=on_export,
        writer_process=writer_process,
        earlier=earlier,
    )


def _opened(session: VideoSession, loops: LoopChoice) -> VideoSession:
    return with_loops(session, loops.card, loops.rule)


def _session_of(checkpoint: Checkpoint, model: GeometryModel, backend: Backend) -> VideoSession:
    try:
        return resume_session(checkpoint.session, model, backend)
    except SavedSessionError as error:
        why = str(error).removesuffix("; save it again.").rstrip(".")
        raise SavedSessionError(f"{why}; start again with --overwrite (overwrite=True).") from error


def preprocessor(session: SessionSettings, config: GeometryConfig, fit: Fit = Fit.CROP) -> Preprocessor:
    """What makes of a video's frames the pictures that a session of these settings takes."""
    return Preprocessor(fit=fit, size=session.image_size, patch=config.patch, sizes=session.sizes)


def _what_must_stay(source: Source, model: GeometryModel, settings: MapSettings) -> Mapping[str, Any]:
    """What must be the same when a run goes on; an export is made afterwards, and may be another."""
    loops = settings.loops
    return {
        "source": {"name": source.name, **plain(source.extent), **source.identity},
        "address": source.digest,
        "sampling": plain(source.sampling),
        "model": fingerprint(model),
        "session": plain(settings.session),
        "execution": {name: value for name, value in asdict(settings.execution).items() if name != "why"},
        "fit": settings.fit.value,
        "outputs": plain(replace(settings.outputs, export=None)),
        **({} if loops.card is None else {"loops": {"card": loops.card.to_record(), "rule": plain(loops.rule)}}),
    }


def _path_of(source: Source) -> Path | None:
    path = Path(source.name)
    return path if path.exists() else None
