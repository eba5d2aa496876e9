"""How a video is to be mapped, in the words of `longtake map`: a value that is checked when it is made.

It knows nothing of which video, and crosses processes, so that many videos can be mapped by one request elsewhere.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from longtake.api.arguments import one_of
from longtake.api.exporting import cloud_settings, export_adjustments, format_names
from longtake.api.locating import open_earlier
from longtake.api.models import loops_for, model_and_execution
from longtake.api.video import frame_sampling, open_any
from longtake.exports.take import PixelGrid
from longtake.geometry.model import GeometryModel
from longtake.hub.bundled import DEFAULT_MODEL, model_notes
from longtake.hub.load import knowledge_of
from longtake.pipeline.checkpoint import CheckpointRule
from longtake.pipeline.continuing import EarlierTake
from longtake.pipeline.outputs import Outputs, choose_outputs
from longtake.pipeline.prefetch import WhenFull
from longtake.pipeline.run import Run
from longtake.pipeline.video_map import MapSettings, map_video
from longtake.pipeline.writer_process import WriterProcess
from longtake.places.loop_choice import LoopChoice
from longtake.runtime.build import SMALL, SessionSettings, adjusted_session, usual_settings
from longtake.runtime.execution import AUTO, Execution, Precision, choose_execution, require_execution_names
from longtake.video.raw import Pixels
from longtake.video.resize import Fit
from longtake.video.sampling import FrameSampling
from longtake.video.source import SourceOptions

_INSTEAD = 'longtake.map(VIDEO, OUT, model="{}")'


@dataclass(frozen=True, slots=True, kw_only=True)
class MapRequest:
    """Each field is an option of `longtake map`, which explains them all with `--help`."""

    model: str | Path | GeometryModel | None = None
    memory: str | int | None = None
    policy: str | None = None
    keyframes: str | None = None
    windows: str | None = None
    align: str | None = None
    loops: bool = True
    continue_from: str | Path | None = None
    size: int | None = None
    fit: str = Fit.CROP.value
    format: str | Sequence[str] = "tum,ply,depth,confidence,images"
    pixels: str = PixelGrid.MODEL.value
    start: str | float | None = None
    end: str | float | None = None
    fps: float | None = None
    stride: int = 1
    picture_fps: float | None = None
    follow: bool = False
    when_full: str = WhenFull.NEWEST_WINS.value
    drop_percent: float = 25.0
    mask: str | Path | None = None
    sky: str | Path | None = None
    voxel: float | None = None
    max_points: int = 2_000_000
    intrinsics: str | None = None
    fixed_camera: bool = False
    scale_from: str | None = None
    up: str = "none"
    device: str = AUTO
    precision: str = AUTO
    backend: str = AUTO
    checkpoint_every: int | None = None

    def checked(self) -> "CheckedRequest":
        """With every word understood, or refused in a sentence; an earlier take and a card of loops are read here."""
        earlier = open_earlier(None if self.continue_from is None else Path(self.continue_from))
        model = self.model
        if model is None:
            model = DEFAULT_MODEL if earlier is None else earlier.known.network.name
        loops = loops_for(model, are_wanted=self.loops)
        execution = choose_execution(self.device, self.precision, self.backend)
        return CheckedRequest(
            request=self,
            model=model,
            earlier=earlier,
            loops=loops,
            outputs=choose_outputs(
                format_names(self.format),
                pixels=PixelGrid(one_of("pixels", self.pixels, PixelGrid)),
                fps=self.fps,
                cloud=cloud_settings(
                    drop_percent=self.drop_percent,
                    mask=self.mask,
                    sky=self.sky,
                    voxel=self.voxel,
                    max_points=self.max_points,
                ),
                adjustments=export_adjustments(
                    self.intrinsics, fixed_camera=self.fixed_camera, scale_from=self.scale_from, up=self.up
                ),
                may_move=loops.card is not None or earlier is not None,
            ),
            settings=MapSettings(
                session=self.adjusted(SMALL),  # until the network is known
                fit=Fit(one_of("fit", self.fit, Fit)),
                when_full=WhenFull(one_of("when_full", self.when_full, WhenFull)),
                checkpoints=CheckpointRule(self.checkpoint_every),
                loops=loops,
            ),
            sampling=frame_sampling(self.start, self.end, self.fps, self.stride),
            reading=SourceOptions(follow=self.follow, picture_fps=self.picture_fps, device=execution.device),
            execution=execution,
        )

    def planned(self) -> "CheckedRequest":
        """The same for who plans and does not compute: a GPU that was named may be on another machine."""
        require_execution_names(self.device, self.precision, self.backend)
        return replace(replace(self, device=AUTO, precision=AUTO, backend=AUTO).checked(), request=self)

    def adjusted(self, usual: SessionSettings, precision: Precision = Precision.FP32) -> SessionSettings:
        """How a network is usually run, with what was asked for in place of it."""
        return adjusted_session(
            usual,
            memory=self.memory,
            policy=self.policy,
            keyframes=self.keyframes,
            windows=self.windows,
            align=self.align,
            size=self.size,
            precision=precision,
        )


class Networks:
    """The model of videos that are mapped one after the other: loaded once, until another one is asked for."""

    def __init__(self) -> None:
        self._key: tuple[str, ...] = ()
        self._loaded: tuple[GeometryModel, Execution] | None = None

    def get(self, model: str | Path | GeometryModel, request: MapRequest) -> tuple[GeometryModel, Execution]:
        """It, and how it is computed."""
        words = (request.device, request.precision, request.backend)
        if isinstance(model, GeometryModel):
            return model_and_execution(model, *words)
        if self._loaded is None or self._key != (str(model), *words):
            self._loaded = None  # so that never two are held
            self._loaded, self._key = model_and_execution(model, *words), (str(model), *words)
        return self._loaded


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedRequest:
    """A request whose words were understood."""

    request: MapRequest
    model: str | Path | GeometryModel
    earlier: EarlierTake | None
    loops: LoopChoice
    outputs: Outputs
    settings: MapSettings
    sampling: FrameSampling
    reading: SourceOptions
    execution: Execution
    """As far as it can be known before the model is."""

    def open(
        self,
        source: str | Path | Iterable[Pixels],
        out: Path,
        networks: Networks,
        writer_process: WriterProcess,
        *,
        overwrite: bool = False,
        resume: bool = False,
        instead: str = _INSTEAD,
    ) -> Run:
        """A run that maps a video into a folder; iterate to do it. For another model its reader types `instead`."""
        request, model, name = self.request, self.model, None
        opened = open_any(source, self.sampling, self.reading)
        network, execution = networks.get(model, request)
        notes: tuple[str, ...] = ()
        knowledge = None
        if not isinstance(model, GeometryModel):
            name, knowledge = str(model), knowledge_of(model, instead)
            notes = model_notes(name, shows_world=opened.shows_world, naming=instead)
        settings = replace(
            self.settings,
            session=request.adjusted(usual_settings(network.config), execution.precision),
            outputs=self.outputs,
            model_name=name,
            notes=notes,
            execution=execution,
            knowledge=knowledge,
        )
        return map_video(
            opened,
            network,
            out,
            settings,
            overwrite=overwrite,
            resume=resume,
            writer_process=writer_process,
            earlier=self.earlier,
        )
