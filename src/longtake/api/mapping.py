"""A whole video into a folder, in the words of `longtake map`."""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from longtake.api.arguments import checked_arguments, one_of
from longtake.api.exporting import cloud_settings, export_adjustments, format_names
from longtake.api.locating import open_earlier
from longtake.api.models import loops_for, model_and_execution
from longtake.api.progress import progress_bar
from longtake.api.take import Take, open_take
from longtake.api.video import frame_sampling, open_any
from longtake.exports.take import PixelGrid
from longtake.geometry.model import GeometryModel
from longtake.hub.bundled import DEFAULT_MODEL, model_notes
from longtake.hub.load import knowledge_of
from longtake.pipeline.checkpoint import CheckpointRule
from longtake.pipeline.events import Frame, Noted, Unreadable
from longtake.pipeline.outputs import choose_outputs
from longtake.pipeline.prefetch import WhenFull
from longtake.pipeline.run_folder import is_done
from longtake.pipeline.video_map import MapSettings, adjusted_session, map_video
from longtake.pipeline.writer_process import WriterProcess
from longtake.runtime.build import SMALL, usual_settings
from longtake.runtime.execution import AUTO, choose_execution
from longtake.video.raw import Pixels
from longtake.video.resize import Fit
from longtake.video.source import SourceOptions

_log = logging.getLogger(__name__)
_INSTEAD = 'longtake.map(VIDEO, OUT, model="{}")'


@checked_arguments
def map(
    source: str | Path | Iterable[Pixels],
    out: str | Path = "out/map",
    *,
    model: str | Path | GeometryModel | None = None,
    memory: str | int | None = None,
    policy: str | None = None,
    keyframes: str | None = None,
    windows: str | None = None,
    align: str | None = None,
    loops: bool = True,
    continue_from: str | Path | None = None,
    size: int | None = None,
    fit: str = Fit.CROP.value,
    format: str | Sequence[str] = "tum,ply,depth,confidence,images",
    pixels: str = PixelGrid.MODEL.value,
    start: str | float | None = None,
    end: str | float | None = None,
    fps: float | None = None,
    stride: int = 1,
    picture_fps: float | None = None,
    follow: bool = False,
    when_full: str = WhenFull.NEWEST_WINS.value,
    drop_percent: float = 25.0,
    mask: str | Path | None = None,
    sky: str | Path | None = None,
    voxel: float | None = None,
    max_points: int = 2_000_000,
    intrinsics: str | None = None,
    fixed_camera: bool = False,
    scale_from: str | None = None,
    up: str = "none",
    device: str = AUTO,
    precision: str = AUTO,
    backend: str = AUTO,
    resume: bool = False,
    skip_done: bool = False,
    overwrite: bool = False,
    checkpoint_every: int | None = None,
) -> Take:
    """Map a video into the folder `out`, with a progress bar on a terminal; files are written while it runs.

        take = longtake.map("walk.mp4", out="mapped", model="lingbot-map", memory="2GB")
        print(take.trajectory, take.depth(0).shape, take.summary)

    `source` is whatever `open_video` opens. Every keyword is an option of `longtake map`, which explains them all with
    `--help`; `continue_from` is its `--continue`. After a break, the same call with `resume=True` goes on.
    """
    watching = partial(
        adjusted_session, memory=memory, policy=policy, keyframes=keyframes, windows=windows, align=align, size=size
    )
    earlier = open_earlier(None if continue_from is None else Path(continue_from))
    if model is None:
        model = DEFAULT_MODEL if earlier is None else earlier.known.network.name
    closing = loops_for(model, are_wanted=loops)
    settings = MapSettings(
        session=watching(SMALL),  # until the network is known; what was asked for is checked now
        fit=Fit(one_of("fit", fit, Fit)),
        outputs=choose_outputs(
            format_names(format),
            pixels=PixelGrid(one_of("pixels", pixels, PixelGrid)),
            fps=fps,
            cloud=cloud_settings(drop_percent=drop_percent, mask=mask, sky=sky, voxel=voxel, max_points=max_points),
            adjustments=export_adjustments(intrinsics, fixed_camera=fixed_camera, scale_from=scale_from, up=up),
            may_move=closing.card is not None or earlier is not None,
        ),
        when_full=WhenFull(one_of("when_full", when_full, WhenFull)),
        checkpoints=CheckpointRule(checkpoint_every),
        loops=closing,
    )
    folder = Path(out)
    if skip_done and is_done(folder, settings.outputs):
        return open_take(folder)
    options = SourceOptions(
        follow=follow, picture_fps=picture_fps, device=choose_execution(device, precision, backend).device
    )
    opened = open_any(source, frame_sampling(start, end, fps, stride), options)
    loaded, execution = model_and_execution(model, device, precision, backend)
    notes = (
        ()
        if isinstance(model, GeometryModel)
        else model_notes(str(model), shows_world=opened.shows_world, naming='model="{}"')
    )
    for note in notes:
        _log.warning(note)
    settings = replace(
        settings,
        session=watching(usual_settings(loaded.config), precision=execution.precision),
        model_name=None if isinstance(model, GeometryModel) else str(model),
        notes=notes,
        execution=execution,
        knowledge=None if isinstance(model, GeometryModel) else knowledge_of(model, _INSTEAD),
    )
    with (
        WriterProcess(at_once=execution.device != "cpu") as writer,
        map_video(
            opened,
            loaded,
            folder,
            settings,
            overwrite=overwrite,
            resume=resume,
            writer_process=writer,
            earlier=earlier,
        ) as run,
        progress_bar(opened.name, opened.num_frames) as show_done,
    ):
        for event in run:
            if isinstance(event, Frame | Unreadable):
                show_done(run.num_told)
            elif isinstance(event, Noted):
                _log.warning(event.text)
    return open_take(folder)
