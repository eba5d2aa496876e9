"""`longtake map`: poses, depth and points of videos, image folders, cameras and streams."""

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer

from longtake.api.arguments import one_of
from longtake.api.exporting import UPRIGHT, cloud_settings, export_adjustments
from longtake.api.locating import open_earlier
from longtake.api.video import frame_sampling
from longtake.cli import options
from longtake.cli.reporting import JsonReporter, Reporter, TerminalReporter, report_run
from longtake.cli.served import NamedServer, ServedRun, map_served, named_server, title_of
from longtake.cli.served_results import fetch_results, parse_formats, require_place
from longtake.cli.signals import INTERRUPTED
from longtake.errors import InputError, LongtakeError, SettingError
from longtake.exports.take import PixelGrid
from longtake.geometry.model import GeometryModel
from longtake.hub.bundled import DEFAULT_MODEL, MICRO_MAP, model_notes
from longtake.hub.load import knowledge_of, load_model, loops_of
from longtake.pipeline.checkpoint import CheckpointRule
from longtake.pipeline.outputs import Outputs, choose_outputs
from longtake.pipeline.prefetch import WhenFull
from longtake.pipeline.run import Run
from longtake.pipeline.run_folder import is_done
from longtake.pipeline.unlikeness import Knowledge
from longtake.pipeline.video_map import MapSettings, map_video
from longtake.pipeline.writer_process import WriterProcess
from longtake.runtime.build import SMALL, adjusted_session, usual_settings
from longtake.runtime.execution import choose_execution
from longtake.types import counted
from longtake.video.addresses import shown_address
from longtake.video.resize import Fit
from longtake.video.source import Source, SourceOptions, open_source, videos_of
from longtake.weights.files import existing

app = options.command_app()
_MEANT_WITH_SERVER = ("sources", "out", "model", "memory", "loops", "formats", "stride", "follow", "overwrite")


@app.command("map")
def map_(
    sources: Annotated[
        list[str],
        typer.Argument(
            help="Videos or folders of them, image folders, takes, camera:0, rtsp://…, http://…, or world:7."
        ),
    ],
    out: Annotated[Path, typer.Option(help="Folder to write; several sources get one each below it.")] = Path(
        "out/map"
    ),
    model: Annotated[
        str | None,
        typer.Option(
            help="A checkpoint, a name of longtake models, or tiny (random weights, to test files fast). "
            f"{DEFAULT_MODEL} knows {MICRO_MAP.trained_on} only; for real video type --model {MICRO_MAP.instead}.",
            show_default=DEFAULT_MODEL,
        ),
    ] = None,
    continue_from: Annotated[
        Path | None,
        typer.Option("--continue", help="Go on in the world of this earlier result, if the video shows a place of it."),
    ] = None,
    memory: Annotated[str | None, typer.Option(help="Room for keys and values, such as 4GB or 8 frames.")] = None,
    policy: Annotated[
        str | None, typer.Option(help="What to forget: managed, window, context, keep-all, ... By default as trained.")
    ] = None,
    keyframes: Annotated[str | None, typer.Option(help="every:6 or flow:12px. By default as the model is run.")] = None,
    windows: Annotated[
        str | None, typer.Option(help="128/16: kept frames by shared frames; none for one. By default as trained.")
    ] = None,
    align: Annotated[str | None, typer.Option(help="Windows by first-frame, keyframe-pairs or robust.")] = None,
    loops: options.Loops = True,
    size: Annotated[int | None, typer.Option(help="Longer side of what the network sees, in pixels.")] = None,
    fit: Annotated[
        str,
        typer.Option(help="Of a picture that is not the network's shape: crop shows the middle, pad and square all."),
    ] = "crop",
    formats: Annotated[
        str,
        typer.Option(
            "--format",
            help="Of tum (always), ply, kitti, depth, depth-npz, confidence, images; when the video has ended: colmap, "
            "nerfstudio, glb, rrd, session.",
        ),
    ] = "tum,ply,depth,confidence,images",
    pixels: Annotated[str, typer.Option(help="Depth and intrinsics in the model's or the source's pixels.")] = "model",
    start: options.Start = None,
    end: options.End = None,
    fps: options.Fps = None,
    stride: Annotated[int, typer.Option(min=1, help="Every n-th of these frames.")] = 1,
    picture_fps: options.PictureFps = None,
    follow: Annotated[bool, typer.Option(help="The folder is still being written; wait for more.")] = False,
    when_full: Annotated[str, typer.Option(help="For live sources: newest-wins or block.")] = "newest-wins",
    drop_percent: options.DropPercent = 25.0,
    mask: options.Mask = None,
    sky: options.Sky = None,
    voxel: options.Voxel = None,
    max_points: options.MaxPoints = 2_000_000,
    intrinsics: options.Intrinsics = None,
    fixed_camera: options.FixedCamera = False,
    scale_from: options.ScaleFrom = None,
    up: options.Up = "none",
    device: options.Device = "auto",
    precision: options.PrecisionName = "auto",
    backend: options.BackendName = "auto",
    resume: Annotated[bool, typer.Option(help="Go on with a run that was interrupted or killed.")] = False,
    skip_done: Annotated[bool, typer.Option(help="Leave out sources that are mapped already.")] = False,
    overwrite: options.Overwrite = False,
    checkpoint_every: Annotated[
        int | None,
        typer.Option(min=1, help="Frames between checkpoints; by default 250, or more where saving takes long."),
    ] = None,
    server: options.ServerUrl = None,
    token: options.ServerToken = None,
    certificate: options.ServerCertificate = None,
    as_json: options.JsonEvents = False,
) -> None:
    """Map a video: poses, depth and points, written while it runs; Ctrl-C ends it so that it can be resumed."""
    elsewhere = named_server(map_, locals(), _MEANT_WITH_SERVER)
    if elsewhere is not None:
        if not follow:
            sources = [video for text in sources for video in videos_of(text)]
        _map_elsewhere(
            elsewhere,
            _folders(sources, out),
            lambda text: open_source(
                text,
                frame_sampling(start, end, fps, stride),
                SourceOptions(follow=follow, picture_fps=picture_fps),
            ),
            formats=parse_formats(formats),
            model=model or "default",
            memory=memory,
            loops=loops,
            overwrite=overwrite,
            reporter=JsonReporter() if as_json else TerminalReporter(),
        )
        return
    earlier = open_earlier(continue_from)
    model = model or (DEFAULT_MODEL if earlier is None else earlier.known.network.name)
    execution, closing = choose_execution(device, precision, backend), loops_of(model, are_wanted=loops)
    adjust = partial(
        adjusted_session,
        precision=execution.precision,
        size=size,
        memory=memory,
        policy=policy,
        keyframes=keyframes,
        windows=windows,
        align=align,
    )
    points = cloud_settings(drop_percent=drop_percent, mask=mask, sky=sky, voxel=voxel, max_points=max_points)
    adjustments = export_adjustments(
        intrinsics, fixed_camera=fixed_camera, scale_from=scale_from, up=one_of("--up", up, UPRIGHT)
    )
    settings = MapSettings(
        session=adjust(SMALL),  # until the network is known; what was asked for is checked now
        fit=Fit(one_of("--fit", fit, Fit)),
        outputs=choose_outputs(
            tuple(dict.fromkeys(formats.split(","))),
            pixels=PixelGrid(one_of("--pixels", pixels, PixelGrid)),
            fps=fps,
            cloud=points,
            adjustments=adjustments,
            may_move=closing.card is not None or earlier is not None,
        ),
        when_full=WhenFull(one_of("--when-full", when_full, WhenFull)),
        checkpoints=CheckpointRule(checkpoint_every),
        model_name=model,
        execution=execution,
        loops=closing,
    )
    sampling = frame_sampling(start, end, fps, stride)
    reading = SourceOptions(follow=follow, picture_fps=picture_fps, device=execution.device)
    if not follow:
        sources = [video for text in sources for video in videos_of(text)]
    reporter: Reporter = JsonReporter() if as_json else TerminalReporter()
    _note_beforehand(settings.outputs, reporter)
    tell_once = cache(reporter.note)

    @cache
    def network() -> GeometryModel:
        """Loaded, and said how it is computed, when the first source is to be mapped; once for all of them."""
        loaded = load_model(model, device=execution.device, trunk_dtype=execution.precision.dtype)
        reporter.uses(model, execution, execution.why_portable(loaded.config.head_dim), closing)
        return loaded

    @cache
    def knowledge() -> Knowledge | None:
        return knowledge_of(model, "longtake map VIDEO --model {}")

    with WriterProcess(at_once=execution.device != "cpu") as writer_process:

        def open_run(source: Source, folder: Path) -> Run:
            config = network().config
            notes = model_notes(model, shows_world=source.shows_world)
            for note in notes:
                tell_once(note)
            adjusted, computed = adjust(usual_settings(config)), execution.of(config.head_dim)
            return map_video(
                source,
                network(),
                folder,
                replace(settings, session=adjusted, execution=computed, notes=notes, knowledge=knowledge()),
                overwrite=overwrite,
                resume=resume,
                on_export=reporter.exporting,
                on_finish=reporter.finishing,
                writer_process=writer_process,
                earlier=earlier,
            )

        leaves_out_done = skip_done or (resume and len(sources) > 1)
        is_done_already = partial(is_done, outputs=settings.outputs) if leaves_out_done else lambda _: False
        _map_each(
            _folders(sources, out),
            lambda text, folder: open_run(open_source(text, sampling, reading), folder),
            is_done_already,
            reporter,
        )


def _map_elsewhere(
    elsewhere: NamedServer,
    folders: Sequence[tuple[str, Path]],
    open_video: Callable[[str], Source],
    *,
    formats: Sequence[str],
    model: str,
    memory: str | None,
    loops: bool,
    overwrite: bool,
    reporter: Reporter,
) -> None:
    """Each source in turn, on a server; what fails ends it."""
    client = elsewhere.client()
    for text, folder in folders:
        require_place(folder, overwrite=overwrite)
        video = open_video(text)
        with client.open_session(map=model, ask=None, memory=memory, loops=loops, title=title_of(video)) as session:
            reporter.uses_server(str(session.info["model"]), elsewhere.url)
            run = ServedRun(video, session, elsewhere.url, folder)
            map_served(run, reporter, partial(fetch_results, out=folder, formats=formats))


def _map_each(
    folders: Sequence[tuple[str, Path]],
    open_run: Callable[[str, Path], Run],
    is_done_already: Callable[[Path], bool],
    reporter: Reporter,
) -> None:
    """Each source in turn; of several, one that fails does not keep the others from being mapped."""
    num_failed = 0
    for text, folder in folders:
        if is_done_already(folder):
            reporter.skipped(shown_address(text), folder)
            continue
        try:
            run = open_run(text, folder)
            report_run(run, reporter)
        except LongtakeError as error:
            if len(folders) == 1:
                raise
            num_failed += 1
            reporter.failed(shown_address(text), str(error))
        else:
            assert run.summary is not None
            if not run.summary.is_complete:
                sys.exit(INTERRUPTED)
    if num_failed:
        raise InputError(f"{num_failed} of {counted(len(folders), 'source')} could not be mapped; the others are done.")


def _note_beforehand(outputs: Outputs, reporter: Reporter) -> None:
    has_scene = outputs.export is not None and any(known.needs_images for known in outputs.export.known)
    if has_scene and outputs.take.pixels is PixelGrid.MODEL:
        reporter.note("Images of colmap and nerfstudio are made of the network's; --pixels source keeps the video's.")


def _folders(sources: Sequence[str], out: Path) -> list[tuple[str, Path]]:
    """Where each source goes: into the folder itself if it is the only one, else into one of its own below it."""
    if len(sources) == 1:
        return [(sources[0], out)]
    if twice := _first_pair(sources, _place):
        raise SettingError(f"{shown_address(twice[0])} is named twice; name each source once.")
    name_of = partial(_name_among, sources)
    if twice := _first_pair(sources, name_of):
        raise SettingError(
            f"{' and '.join(map(shown_address, twice))} would both go to '{name_of(twice[0])}'; map them one by one, "
            "each with its own --out."
        )
    return [(text, out / name_of(text)) for text in sources]


def _first_pair(sources: Sequence[str], of: Callable[[str], str]) -> tuple[str, str] | None:
    """The first two of which something is the same."""
    seen: dict[str, str] = {}
    for text in sources:
        if (same := of(text)) in seen:
            return seen[same], text
        seen[same] = text
    return None


def _place(text: str) -> str:
    """What a text names: a path may be written in many ways."""
    try:
        return text if "://" in text else str(Path(text).resolve())
    except (OSError, ValueError, RuntimeError):  # no path at all, as it is told when it is opened
        return text


def _name_among(sources: Sequence[str], text: str) -> str:
    """A source's name, with as much of its ending and of what it lies in as others of the same name make needful."""
    for num_parents in range(len(_parents(text)) + 1):
        for name_of in (_stem, _whole_name):
            name = _joined(text, num_parents, name_of)
            if [_joined(other, num_parents, name_of) for other in sources].count(name) == 1:
                return name
    return _stem(text)


def _joined(text: str, num_parents: int, name_of: Callable[[str], str]) -> str:
    parents = _parents(text)
    return "_".join([*(_plain(parent) for parent in parents[len(parents) - num_parents :]), name_of(text)])


def _parents(text: str) -> Sequence[str]:
    """What a source lies in, the nearest last: folders, or the host of an address and what follows."""
    if "://" not in text:
        return Path(text).absolute().parts[1:-1]
    address = urlsplit(text)
    return [address.hostname or "", *Path(address.path).parts[1:-1]]


def _stem(text: str) -> str:
    shown = shown_address(text)
    path = Path(shown)
    is_file = existing(path) is not None and path.is_file()
    return _plain((path.stem if is_file else path.name) or shown)


def _whole_name(text: str) -> str:
    """With the ending of a file behind it: clip_avi and clip_webm."""
    return _stem(text) + Path(shown_address(text)).suffix.replace(".", "_")


def _plain(name: str) -> str:
    return re.sub(r"[^\w.-]+", "_", name)
