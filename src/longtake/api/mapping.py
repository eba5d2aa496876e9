"""A whole video into a folder, in the words of `longtake map`."""

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path

from longtake.api.arguments import checked_arguments
from longtake.api.map_request import MapRequest, Networks
from longtake.api.progress import progress_bar
from longtake.api.take import Take, open_take
from longtake.exports.take import PixelGrid
from longtake.geometry.model import GeometryModel
from longtake.pipeline.events import Frame, Noted, Unreadable
from longtake.pipeline.prefetch import WhenFull
from longtake.pipeline.run_folder import is_done
from longtake.pipeline.writer_process import WriterProcess
from longtake.runtime.execution import AUTO
from longtake.video.raw import Pixels
from longtake.video.resize import Fit

_log = logging.getLogger(__name__)


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
    request = MapRequest(
        model=model,
        memory=memory,
        policy=policy,
        keyframes=keyframes,
        windows=windows,
        align=align,
        loops=loops,
        continue_from=continue_from,
        size=size,
        fit=fit,
        format=format,
        pixels=pixels,
        start=start,
        end=end,
        fps=fps,
        stride=stride,
        picture_fps=picture_fps,
        follow=follow,
        when_full=when_full,
        drop_percent=drop_percent,
        mask=mask,
        sky=sky,
        voxel=voxel,
        max_points=max_points,
        intrinsics=intrinsics,
        fixed_camera=fixed_camera,
        scale_from=scale_from,
        up=up,
        device=device,
        precision=precision,
        backend=backend,
        checkpoint_every=checkpoint_every,
    ).checked()
    folder = Path(out)
    if skip_done and is_done(folder, request.outputs):
        return open_take(folder)
    with (
        WriterProcess(at_once=request.execution.device != "cpu") as writer,
        request.open(source, folder, Networks(), writer, overwrite=overwrite, resume=resume) as run,
        progress_bar(run.source.name, run.source.num_frames) as show_done,
    ):
        for note in run.notes:
            _log.warning(note)
        for event in run:
            if isinstance(event, Frame | Unreadable):
                show_done(run.num_told)
            elif isinstance(event, Noted):
                _log.warning(event.text)
    return open_take(folder)
