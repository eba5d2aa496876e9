"""`longtake map`: poses, depth and points of videos, image folders, cameras and streams."""

import re
import sys
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch

from longtake.attention.choose import backend_named
from longtake.cli.export import AdjustmentOptions, PointOptions
from longtake.cli.interrupt import stopped_by_interrupt
from longtake.cli.networks import RANDOM, network_named
from longtake.cli.options import choose_device, one_of
from longtake.cli.reporting import JsonReporter, Reporter, TerminalReporter
from longtake.errors import InputError, LongtakeError, SettingError
from longtake.export.adjust import ExportAdjustments
from longtake.export.cloud import CloudSettings
from longtake.export.reexport import OF_IMAGES, ExportSettings
from longtake.export.take import DepthKind, PixelGrid, TakeSettings
from longtake.geometry.model import GeometryModel
from longtake.memory.budget import Budget
from longtake.memory.registry import stream_policy_named
from longtake.pipeline.outputs import Outputs
from longtake.pipeline.prefetch import WhenFull
from longtake.pipeline.video_map import MapSettings, VideoMap, is_done
from longtake.pipeline.writer_process import WriterProcess
from longtake.runtime.alignment import Alignment
from longtake.runtime.build import SMALL, SessionSettings, parse_keyframes, parse_windows, usual_settings
from longtake.takes.images import ImageFiles
from longtake.video.resize import Fit
from longtake.video.sampling import FrameSampling, parse_time
from longtake.video.source import Source, SourceOptions, open_source

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it."""
_WHILE_IT_RUNS = ("tum", "ply", "kitti", "depth", "depth-npz", "confidence", "images")
_AFTERWARDS = ("colmap", "nerfstudio", "glb", "rrd")
_WITH_WISHES = ("tum", "kitti", "ply", *_AFTERWARDS)
_FORMATS = (*_WHILE_IT_RUNS, *_AFTERWARDS, "session")


@dataclass(frozen=True, slots=True, kw_only=True)
class MapOptions:
    """What the command line says, word by word."""

    sources: tuple[str, ...]
    out: Path
    model: str
    memory: str | None
    policy: str | None
    keyframes: str | None
    windows: str | None
    align: str | None
    size: int | None
    fit: str
    formats: str
    pixels: str
    start: str | None
    end: str | None
    fps: float | None
    stride: int
    picture_fps: float
    follow: bool
    when_full: str
    points: PointOptions
    adjustments: AdjustmentOptions
    device: str
    backend: str
    resume: bool
    skip_done: bool
    overwrite: bool
    checkpoint_every: int


def run_map(options: MapOptions, *, as_json: bool) -> None:
    """Each source in turn; of several, one that fails does not keep the others from being mapped."""
    torch.set_num_threads(max(1, torch.get_num_threads() - 1))  # one is left to decode, prepare and write
    settings = _settings(options)
    reporter: Reporter = JsonReporter() if as_json else TerminalReporter()
    if options.model in RANDOM:
        reporter.note("The weights are random: the files show how longtake works, and no geometry.")
    if _has_small_images(settings.outputs):
        reporter.note("Images of colmap and nerfstudio are made of the network's; --pixels source keeps the video's.")
    with WriterProcess() as writer_process:
        num_failed = _map_each(options, settings, reporter, writer_process)
    if num_failed:
        raise InputError(f"{num_failed} of {len(options.sources)} sources could not be mapped; the others are done.")


def _map_each(options: MapOptions, settings: MapSettings, reporter: Reporter, writer_process: WriterProcess) -> int:
    """How many of several failed."""
    sampling, device = _sampling(options), choose_device(options.device)
    model: GeometryModel | None = None
    num_failed = 0
    for text, out in _folders(options):
        if options.skip_done and is_done(out, settings.outputs):
            reporter.skipped(text, out)
            continue
        try:
            source = open_source(text, sampling, _source_options(options, device))
            if model is None:
                model = network_named(options.model, device)
                settings = replace(settings, session=_session_settings(options, usual_settings(model.config)))
            _map_one(source, model, out, settings, options, reporter, writer_process)
        except LongtakeError as error:
            if len(options.sources) == 1:
                raise
            num_failed += 1
            reporter.failed(text, str(error))
    return num_failed


def _map_one(
    source: Source,
    model: GeometryModel,
    out: Path,
    settings: MapSettings,
    options: MapOptions,
    reporter: Reporter,
    writer_process: WriterProcess,
) -> None:
    video = VideoMap(
        source,
        model,
        out,
        settings,
        backend=backend_named(options.backend),
        overwrite=options.overwrite,
        resume=options.resume,
        on_export=reporter.exporting,
        writer_process=writer_process,
    )
    try:
        with reporter.telling(source, out), stopped_by_interrupt(partial(_stop, video)):
            for item in video:
                reporter.frame(item, video)
    finally:  # an export that fails leaves a video that is mapped
        if video.summary is not None:
            reporter.done(video.summary, out)
    assert video.summary is not None
    if video.exported is not None:
        reporter.exported(video.exported)
    if not video.summary.is_complete:
        sys.exit(INTERRUPTED)


def _stop(video: VideoMap) -> None:
    """End the run after the frames begun, or at once while it exports."""
    if video.summary is not None:
        raise KeyboardInterrupt
    video.stop()


def _folders(options: MapOptions) -> list[tuple[str, Path]]:
    """Where each source goes: into the folder itself if it is the only one, else into one of its own below it."""
    if len(options.sources) == 1:
        return [(options.sources[0], options.out)]
    folders = [(text, options.out / _stem(text)) for text in options.sources]
    names = [folder.name for _, folder in folders]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise SettingError(f"Two sources would go to '{twice[0]}'; map them one by one, each with its own --out.")
    return folders


def _stem(text: str) -> str:
    path = Path(text)
    name = path.stem if path.is_file() else path.name
    return re.sub(r"[^\w.-]+", "_", name or text)


def _settings(options: MapOptions) -> MapSettings:
    return MapSettings(
        session=_session_settings(options, SMALL),  # until the network is known; what was asked for is checked now
        fit=Fit(one_of("fit", options.fit, [fit.value for fit in Fit])),
        outputs=_outputs(options),
        when_full=WhenFull(one_of("--when-full", options.when_full, [policy.value for policy in WhenFull])),
        checkpoint_every=options.checkpoint_every,
    )


def _session_settings(options: MapOptions, usual: SessionSettings) -> SessionSettings:
    return replace(
        usual,
        image_size=options.size or usual.image_size,
        retention=usual.retention if options.policy is None else stream_policy_named(options.policy),
        keyframes=usual.keyframes if options.keyframes is None else parse_keyframes(options.keyframes),
        windows=usual.windows if options.windows is None else parse_windows(options.windows),
        alignment=usual.alignment if options.align is None else Alignment.named(options.align),
        budget=None if options.memory is None else Budget.parse(options.memory),
    )


def _outputs(options: MapOptions) -> Outputs:
    formats = {one_of("--format", name, _FORMATS) for name in options.formats.split(",")}
    cloud = options.points.parsed()
    export = _export(formats, options.adjustments.parsed(), cloud)
    has_points = export is not None and export.has_points
    needs_depth = export is not None and export.needs_depth
    depth = DepthKind.NPZ if "depth-npz" in formats else DepthKind.PNG if needs_depth or "depth" in formats else None
    take = TakeSettings(
        pixels=PixelGrid(one_of("--pixels", options.pixels, [grid.value for grid in PixelGrid])),
        images=ImageFiles.JPEG if has_points or "images" in formats else None,
        depth=depth,
        confidence=has_points or "confidence" in formats,
        fps=options.fps,
    )
    return Outputs(
        take=take,
        cloud=cloud if "ply" in formats else None,
        kitti="kitti" in formats,
        session="session" in formats,
        export=export,
    )


def _export(formats: set[str], adjustments: ExportAdjustments, cloud: CloudSettings) -> ExportSettings | None:
    """What is known only when the video has ended: some formats, and with a wish all files of poses and points."""
    asked = {"tum", *formats}
    names = [name for name in (_AFTERWARDS if adjustments == ExportAdjustments() else _WITH_WISHES) if name in asked]
    return ExportSettings(formats=tuple(names), cloud=cloud, adjustments=adjustments) if names else None


def _has_small_images(outputs: Outputs) -> bool:
    is_scene = outputs.export is not None and any(name in OF_IMAGES for name in outputs.export.formats)
    return is_scene and outputs.take.pixels is PixelGrid.MODEL


def _source_options(options: MapOptions, device: torch.device) -> SourceOptions:
    return SourceOptions(follow=options.follow, picture_fps=options.picture_fps, device=str(device))


def _sampling(options: MapOptions) -> FrameSampling:
    return FrameSampling(
        start_s=0.0 if options.start is None else parse_time(options.start),
        end_s=None if options.end is None else parse_time(options.end),
        fps=options.fps,
        stride=options.stride,
    )
