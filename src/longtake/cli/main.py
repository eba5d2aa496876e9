"""The commands of `longtake`."""

from pathlib import Path
from typing import Annotated

import typer

from longtake import __version__
from longtake.cli.ask_commands import AskCommand, ask, live
from longtake.cli.bench_commands import bench
from longtake.cli.program import run_program
from longtake.cli.shared_options import AsJson
from longtake.hub.bundled import DEFAULT_MODEL

app = typer.Typer(
    name="longtake",
    help="Watch a video that never cuts: poses, depth and a map, frame by frame, from a bounded memory.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
app.add_typer(bench, name="bench")
models = typer.Typer(invoke_without_command=True)
app.add_typer(models, name="models")
explain = typer.Typer(help="Show what a model is told, without a model.", no_args_is_help=True)
app.add_typer(explain, name="explain")

DropPercent = Annotated[float, typer.Option(help="Least confident pixels that give no points.")]
Mask = Annotated[Path | None, typer.Option(help="Folder of masks: white gives points, black does not.")]
Sky = Annotated[Path | None, typer.Option(help="ONNX model that finds sky, which gives no points.")]
MaxPoints = Annotated[int, typer.Option(min=1, help="Voxels widen until no more points are left.")]
Intrinsics = Annotated[
    str | None,
    typer.Option(help="The camera: fx,fy,cx,cy in the video's pixels, cameras.txt, cameras.bin, transforms.json."),
]
FixedCamera = Annotated[bool, typer.Option("--fixed-camera", help="One camera, the median of all frames'.")]
ScaleFrom = Annotated[
    str | None, typer.Option(help="distance:0,57=2.4m, height:1.5m or depth:12=depth.png@0.001 makes it metric.")
]
Up = Annotated[str, typer.Option(help="auto turns the floor level and to y = 0; none leaves the world.")]


def _version(wanted: bool) -> bool:
    if wanted:
        print(f"longtake {__version__}")
        raise typer.Exit
    return wanted


@app.callback()
def _longtake(
    _: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")] = False,
) -> None:
    """Options before any command."""


@app.command()
def doctor(as_json: AsJson = False) -> None:
    """Say what is installed, which attention backend is used and why, and check that it computes right."""
    from longtake.cli.doctor import run

    run(as_json=as_json)


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the walk, the map, the picture and the figures.")] = Path("out"),
    frames: Annotated[int, typer.Option(min=3, help="Length of the walk.")] = 150,
    seed: Annotated[int, typer.Option(min=0, help="Which house; one that ends in 9 is of no training.")] = 9,
) -> None:
    """Film a walk through a house unseen in training, map it, ask about it, and score map and answers by the truth."""
    from longtake.cli.demo import run

    run(out, num_frames=frames, seed=seed)


@app.command("map")
def map_(
    sources: Annotated[
        list[str], typer.Argument(help="Videos, image folders, takes, camera:0, rtsp://…, http://…, or world:7.")
    ],
    out: Annotated[Path, typer.Option(help="Folder to write; several sources get one each below it.")] = Path(
        "out/map"
    ),
    model: Annotated[
        str, typer.Option(help="A checkpoint, a name of longtake models, or tiny (random weights, to test files fast).")
    ] = DEFAULT_MODEL,
    memory: Annotated[str | None, typer.Option(help="Room for keys and values, such as 4GB or 8 frames.")] = None,
    policy: Annotated[
        str | None, typer.Option(help="What to forget: managed, window, context, keep-all, ... By default as trained.")
    ] = None,
    keyframes: Annotated[str | None, typer.Option(help="every:6 or flow:12px; every frame by default.")] = None,
    windows: Annotated[
        str | None, typer.Option(help="128/16: kept frames by shared frames; none for one. By default as trained.")
    ] = None,
    align: Annotated[str | None, typer.Option(help="Windows by first-frame, keyframe-pairs or robust.")] = None,
    size: Annotated[int | None, typer.Option(help="Longer side of what the network sees, in pixels.")] = None,
    fit: Annotated[str, typer.Option(help="crop, pad or square.")] = "crop",
    formats: Annotated[
        str,
        typer.Option(
            "--format",
            help="Of tum (always), ply, kitti, depth, depth-npz, confidence, images; when the video has ended: colmap, "
            "nerfstudio, glb, rrd, session.",
        ),
    ] = "tum,ply,depth,confidence",
    pixels: Annotated[str, typer.Option(help="Depth and intrinsics in the model's or the source's pixels.")] = "model",
    start: Annotated[str | None, typer.Option(help="Where to begin, such as 00:42.")] = None,
    end: Annotated[str | None, typer.Option(help="Where to end.")] = None,
    fps: Annotated[float | None, typer.Option(help="At most so many frames a second, by their times.")] = None,
    stride: Annotated[int, typer.Option(min=1, help="Every n-th of these frames.")] = 1,
    picture_fps: Annotated[
        float, typer.Option(help="Frames a second of a folder, whose pictures have no times.")
    ] = 30.0,
    follow: Annotated[bool, typer.Option(help="The folder is still being written; wait for more.")] = False,
    when_full: Annotated[str, typer.Option(help="For live sources: newest-wins or block.")] = "newest-wins",
    drop_percent: DropPercent = 25.0,
    mask: Mask = None,
    sky: Sky = None,
    voxel: Annotated[float | None, typer.Option(help="One point a voxel of this edge.")] = None,
    max_points: MaxPoints = 2_000_000,
    intrinsics: Intrinsics = None,
    fixed_camera: FixedCamera = False,
    scale_from: ScaleFrom = None,
    up: Up = "none",
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto.")] = "auto",
    backend: Annotated[str, typer.Option(help="Attention backend.")] = "sdpa",
    resume: Annotated[bool, typer.Option(help="Go on with a run that was interrupted or killed.")] = False,
    skip_done: Annotated[bool, typer.Option(help="Leave out sources that are mapped already.")] = False,
    overwrite: Annotated[bool, typer.Option(help="Replace what is in the folder.")] = False,
    checkpoint_every: Annotated[int, typer.Option(min=1, help="Frames between checkpoints.")] = 250,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object for each event.")] = False,
) -> None:
    """Map a video: poses, depth and points, written while it runs; Ctrl-C ends it so that it can be resumed."""
    from longtake.cli.export import AdjustmentOptions, PointOptions
    from longtake.cli.map import MapOptions, run_map

    run_map(
        MapOptions(
            sources=tuple(sources),
            out=out,
            model=model,
            memory=memory,
            policy=policy,
            keyframes=keyframes,
            windows=windows,
            align=align,
            size=size,
            fit=fit,
            formats=formats,
            pixels=pixels,
            start=start,
            end=end,
            fps=fps,
            stride=stride,
            picture_fps=picture_fps,
            follow=follow,
            when_full=when_full,
            points=PointOptions(drop_percent=drop_percent, mask=mask, sky=sky, voxel=voxel, max_points=max_points),
            adjustments=AdjustmentOptions(
                intrinsics=intrinsics, fixed_camera=fixed_camera, scale_from=scale_from, up=up
            ),
            device=device,
            backend=backend,
            resume=resume,
            skip_done=skip_done,
            overwrite=overwrite,
            checkpoint_every=checkpoint_every,
        ),
        as_json=as_json,
    )


app.command(cls=AskCommand)(ask)
app.command(cls=AskCommand)(live)


@app.command()
def export(
    result: Annotated[Path, typer.Argument(help="A folder that map wrote.")],
    out: Annotated[Path, typer.Option(help="Folder to write; another than the result's.")],
    formats: Annotated[
        str, typer.Option("--format", help="Of tum, kitti, ply, take, colmap, nerfstudio, glb, rrd.")
    ] = "tum,ply",
    drop_percent: DropPercent = 25.0,
    mask: Mask = None,
    sky: Sky = None,
    voxel: Annotated[float | None, typer.Option(help="One point a voxel of this edge, in the exported unit.")] = None,
    max_points: MaxPoints = 2_000_000,
    intrinsics: Intrinsics = None,
    fixed_camera: FixedCamera = False,
    scale_from: ScaleFrom = None,
    up: Up = "none",
    overwrite: Annotated[bool, typer.Option(help="Replace what is in the folder.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write other files from a saved result, with other filters, a known camera or scale, upright; no model runs."""
    from longtake.cli.export import AdjustmentOptions, ExportOptions, PointOptions, run_export

    run_export(
        ExportOptions(
            result=result,
            out=out,
            formats=formats,
            points=PointOptions(drop_percent=drop_percent, mask=mask, sky=sky, voxel=voxel, max_points=max_points),
            adjustments=AdjustmentOptions(
                intrinsics=intrinsics, fixed_camera=fixed_camera, scale_from=scale_from, up=up
            ),
            overwrite=overwrite,
        ),
        as_json=as_json,
    )


@app.command()
def world(
    out: Annotated[Path, typer.Option(help="Folder to write; new or empty.")],
    seed: Annotated[int, typer.Option(min=0, help="Which house and which walk.")] = 7,
    frames: Annotated[int, typer.Option(min=1, help="Length of the walk.")] = 600,
    size: Annotated[str, typer.Option(help="Width x height of the images, in pixels.")] = "448x336",
    fps: Annotated[float, typer.Option(help="Frames a second.")] = 10.0,
    images: Annotated[str, typer.Option(help="mp4, png or jpg.")] = "mp4",
    depth: Annotated[str, typer.Option(help="png (16 bits), npz (float32) or none.")] = "png",
    questions: Annotated[int, typer.Option(min=0, help="Questions to ask along the way.")] = 40,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    overwrite: Annotated[bool, typer.Option(help="Replace a take that is there.")] = False,
    as_json: AsJson = False,
) -> None:
    """Film a walk through a procedural house, with its exact truth: poses, depth, what is visible, questions."""
    from longtake.cli.world import WorldSettings, run_world

    run_world(
        WorldSettings(
            seed=seed,
            frames=frames,
            size=size,
            fps=fps,
            images=images,
            depth=depth,
            questions=questions,
            device=device,
            out=out,
            overwrite=overwrite,
        ),
        as_json=as_json,
    )


@app.command("eval")
def evaluate(
    result: Annotated[Path, typer.Argument(help="A take's folder, or a TUM or KITTI file.")],
    truth: Annotated[Path, typer.Argument(help="A take's folder, or a TUM or KITTI file.")],
    align: Annotated[str, typer.Option(help="How the result may be moved: sim3, se3 or none.")] = "sim3",
    max_gap: Annotated[float, typer.Option(help="Largest gap between matched timestamps, in seconds.")] = 0.02,
    offset: Annotated[float, typer.Option(help="Seconds to add to the result's timestamps.")] = 0.0,
    delta: Annotated[str, typer.Option(help="Between the frames of a relative error: 1f, 10f, 0.5m.")] = "1f",
    all_pairs: Annotated[bool, typer.Option("--all-pairs", help="Let a relative error begin at every frame.")] = False,
    depth_align: Annotated[str, typer.Option(help="metric, scale or scale-shift; the one that is drawn.")] = "scale",
    depth_span: Annotated[str, typer.Option(help="Align depth over the sequence, or frame by frame.")] = "sequence",
    threshold: Annotated[float, typer.Option(help="Distance at which points count as met, in metres.")] = 0.05,
    only: Annotated[str | None, typer.Option(help="Some of trajectory,depth,points,answers.")] = None,
    times: Annotated[Path | None, typer.Option(help="Timestamps of a KITTI file, one a line.")] = None,
    fps: Annotated[float | None, typer.Option(help="Frame rate of a KITTI file.")] = None,
    as_json: AsJson = False,
    plots: Annotated[Path | None, typer.Option(help="Also draw into this folder.")] = None,
) -> None:
    """Compare a result with the truth: trajectory, depth, points and answers, as far as both have them."""
    from longtake.cli.eval import EvalOptions, run_eval

    options = EvalOptions(
        align=align,
        max_gap_s=max_gap,
        offset_s=offset,
        delta=delta,
        all_pairs=all_pairs,
        depth_align=depth_align,
        depth_span=depth_span,
        threshold=threshold,
        only=only,
        times=times,
        fps=fps,
    )
    run_eval(result, truth, options, as_json=as_json, plots=plots)


@explain.command("positions")
def explain_positions(
    size: Annotated[str, typer.Option(help="Width x height of the video, in pixels.")] = "1280x720",
    fps: Annotated[float, typer.Option(help="Frames a second.")] = 4.0,
    chunks: Annotated[int, typer.Option(min=1, max=1000, help="Chunks to show.")] = 3,
    chunk_frames: Annotated[int, typer.Option(min=1, help="Frames of each.")] = 2,
    tokens_per_second: Annotated[float, typer.Option(help="Positions a second, of the model's config.json.")] = 2.0,
    max_tokens_per_frame: Annotated[
        int | None, typer.Option(min=1, help="Frames are made smaller to have no more; by default as published.")
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Also draw time positions over time into this PNG file.")] = None,
    as_json: AsJson = False,
) -> None:
    """Where tokens of a video stand (time, row, column) in each format, and when the range runs out."""
    from longtake.cli.explain import run_positions

    run_positions(
        size,
        fps=fps,
        chunks=chunks,
        chunk_frames=chunk_frames,
        tokens_per_second=tokens_per_second,
        max_tokens_per_frame=max_tokens_per_frame,
        plot=plot,
        as_json=as_json,
    )


@models.callback()
def models_list(context: typer.Context, as_json: AsJson = False) -> None:
    """List the weights known by name: sizes, where from, their licence, and whether they are on this machine."""
    if context.invoked_subcommand is None:
        from longtake.cli.models import run_list

        run_list(as_json=as_json)


@models.command("check")
def models_check(
    name_or_path: Annotated[
        str, typer.Argument(metavar="PATH", help="A file, a folder, or a name in the hub's cache.")
    ],
    as_json: AsJson = False,
) -> None:
    """Say what a file of weights holds and check its names and shapes; its values are not read."""
    from longtake.cli.models import run_check

    run_check(name_or_path, as_json=as_json)


def main() -> None:
    """Run the command line."""
    run_program(app, "longtake")
