"""The benchmarks as commands; what they need is imported when they run."""

from pathlib import Path
from typing import Annotated

import typer

from longtake.cli.shared_options import AsJson
from longtake.hub.bundled import DEFAULT_LANGUAGE, DEFAULT_MODEL
from longtake.world.seeds import Split

app = bench = typer.Typer(help="Measure longtake on this machine.", no_args_is_help=True, add_completion=False)


@bench.command("memory")
def bench_memory(
    frames: Annotated[int, typer.Option(min=1, help="Frames to keep under each policy.")] = 320,
    size: Annotated[str, typer.Option(help="Width x height of the images, in pixels.")] = "518x378",
    as_json: AsJson = False,
    plot: Annotated[Path | None, typer.Option(help="Also draw bytes over frames into this PNG file.")] = None,
) -> None:
    """Count bytes per frame and layer at the published size, for each policy, against the closed formula."""
    from longtake.cli.bench import run_memory

    run_memory(frames, size, as_json=as_json, plot=plot)


@bench.command("speed")
def bench_speed(
    model: Annotated[str, typer.Option(help="tiny, or lingbot-map for the published size.")] = "tiny",
    weights: Annotated[Path | None, typer.Option(help="A checkpoint; without one the weights are random.")] = None,
    size: Annotated[str, typer.Option(help="Width x height of the images, in pixels.")] = "126x98",
    frames: Annotated[int, typer.Option(min=1, help="Frames to time once the window is full.")] = 100,
    window: Annotated[int, typer.Option(min=1, help="Window in kept frames.")] = 64,
    scale_frames: Annotated[int, typer.Option(min=1, help="Frames of the scale block, and anchors.")] = 8,
    interval: Annotated[int, typer.Option(min=1, help="Keep every n-th frame.")] = 1,
    dtype: Annotated[str, typer.Option(help="float32, bfloat16 or float16.")] = "float32",
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto.")] = "auto",
    backend: Annotated[str, typer.Option(help="Attention backend.")] = "sdpa",
    capture: Annotated[bool, typer.Option(help="Record what never changes as CUDA graphs.")] = False,
    as_json: AsJson = False,
) -> None:
    """Time single steps with a full window, and print the contract under which they were timed."""
    from longtake.cli.speed import SpeedSettings, run_speed

    run_speed(
        SpeedSettings(
            model=model,
            weights=weights,
            size=size,
            frames=frames,
            window=window,
            scale_frames=scale_frames,
            interval=interval,
            dtype=dtype,
            device=device,
            backend=backend,
            capture=capture,
        ),
        as_json=as_json,
    )


@bench.command("precision")
def bench_precision(
    model: Annotated[str, typer.Option(help="tiny, or lingbot-map for the published size.")] = "tiny",
    size: Annotated[str, typer.Option(help="Width x height of the images, in pixels.")] = "42x28",
    at: Annotated[str, typer.Option(help="Frames at which to compare.")] = "10,72,100",
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto.")] = "auto",
    backends: Annotated[str, typer.Option(help="Attention backends, separated by commas.")] = "sdpa",
    as_json: AsJson = False,
) -> None:
    """Compare bfloat16 with float32 on a random network, beside the plainest way to run in bfloat16."""
    from longtake.cli.speed import run_precision

    run_precision(model, size, at, device=device, backends=backends, as_json=as_json)


@bench.command("eviction")
def bench_eviction(
    model: Annotated[
        str, typer.Option(help="A checkpoint, a name of longtake models, or tiny (random weights, for a quick look).")
    ] = DEFAULT_MODEL,
    frames: Annotated[int, typer.Option(min=3, help="Frames of each world.")] = 40,
    size: Annotated[str | None, typer.Option(help="Width x height; without it as the model likes it.")] = None,
    budgets: Annotated[str, typer.Option(help="Budgets in frames a layer, separated by commas.")] = "4,8,16",
    worlds: Annotated[int, typer.Option(min=1, help="Houses to walk through.")] = 1,
    policies: Annotated[
        str,
        typer.Option(
            help="Of none, ratio, layerwise-R, strict-R, managed, key-diversity, farthest-frames, window, separated by "
            "commas; by default all, with ratios R of 0.5 and 0.7."
        ),
    ] = "",
    quick: Annotated[bool, typer.Option("--quick", help="Only 5 frames.")] = False,
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto.")] = "auto",
    as_json: AsJson = False,
    plot: Annotated[Path | None, typer.Option(help="Also draw what policies change into this PNG file.")] = None,
) -> None:
    """Compare memory policies on the same frames: bytes, time, agreement with the full cache, and with the truth."""
    from longtake.cli.eviction import DEFAULT_POLICIES, EvictionOptions, run_eviction

    options = EvictionOptions(
        model=model,
        frames=frames,
        size=size,
        budgets=budgets,
        worlds=worlds,
        policies=policies or DEFAULT_POLICIES,
        quick=quick,
        device=device,
    )
    run_eviction(options, as_json=as_json, plot=plot)


@bench.command("soak")
def bench_soak(
    frames: Annotated[int, typer.Option(min=3, help="Frames to stream.")] = 20_000,
    stretch: Annotated[int, typer.Option(min=1, help="Frames in the first and last stretch compared.")] = 1000,
    policy: Annotated[
        str | None, typer.Option(help="managed, or another memory policy with a bound; by default a window.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Stream for a long time and compare the first and the last stretch: memory, step time, live tensors."""
    from longtake.cli.bench import run_soak

    run_soak(frames, stretch, policy, as_json=as_json)


@bench.command("world")
def bench_world(
    sizes: Annotated[str, typer.Option(help="Width x height of the images, several separated by commas.")] = (
        "126x98,448x336"
    ),
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto.")] = "auto",
    houses: Annotated[int, typer.Option(min=1, help="Houses rendered at once.")] = 8,
    frames: Annotated[int, typer.Option(min=1, help="Frames of each.")] = 4,
    fuse: Annotated[bool, typer.Option(help="Compile the renderer first, as training does on a GPU.")] = False,
    as_json: AsJson = False,
) -> None:
    """Time the procedural world: frames a second in batches and one by one."""
    from longtake.cli.bench import run_world

    run_world(sizes, device, houses=houses, frames=frames, fuse=fuse, as_json=as_json)


@bench.command("pipeline")
def bench_pipeline(
    frames: Annotated[int, typer.Option(min=2, help="Length of the video.")] = 200,
    size: Annotated[str, typer.Option(help="Width x height of the video, in pixels.")] = "448x336",
    network: Annotated[str, typer.Option(help="micro (5.5 million parameters) or tiny; random weights.")] = "micro",
    as_json: AsJson = False,
) -> None:
    """Time the stages of `longtake map` alone and side by side."""
    from longtake.cli.bench import run_pipeline

    run_pipeline(frames, size, network, as_json=as_json)


@bench.command("ask")
def bench_ask(
    chunks: Annotated[int, typer.Option(min=1, help="Chunks of two frames to watch before questions.")] = 64,
    quick: Annotated[bool, typer.Option("--quick", help="A tiny network and 8 chunks.")] = False,
    as_json: AsJson = False,
) -> None:
    """Time a question about a watched video against encoding the video anew for it, and forks of a filled memory."""
    from longtake.cli.bench_ask import run_ask

    run_ask(chunks, quick=quick, as_json=as_json)


@bench.command("chunks")
def bench_chunks(
    model: Annotated[
        str | None, typer.Option(help="Folder of a Qwen2.5-VL model, or its hub name; else a random network.")
    ] = None,
    size: Annotated[str | None, typer.Option(help="Width x height of the frames, in pixels.")] = None,
    fps: Annotated[float, typer.Option(help="Frames a second that come, for how long each waits.")] = 2.0,
    rounds: Annotated[int, typer.Option(min=2, help="Rounds of 24 frames, of which the first warms up.")] = 4,
    quick: Annotated[bool, typer.Option("--quick", help="A tiny network and 2 rounds.")] = False,
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto.")] = "auto",
    as_json: AsJson = False,
) -> None:
    """Time chunks of 2, 3, 4, 6 and 8 frames in two formats; tokens, grids, padding, and how long a frame waits."""
    from longtake.cli.bench_chunks import ChunkOptions, run_chunks

    options = ChunkOptions(model=model, size=size, fps=fps, rounds=rounds, quick=quick, device=device)
    run_chunks(options, as_json=as_json)


@bench.command("quality")
def bench_quality(
    model: Annotated[
        str, typer.Option(help="A checkpoint, a name of longtake models, or tiny or micro (random weights).")
    ] = DEFAULT_MODEL,
    worlds: Annotated[int, typer.Option(min=1, help="Houses to walk through.")] = 50,
    split: Annotated[Split, typer.Option(help="Houses to judge by, or those to choose settings by.")] = Split.TEST,
    size: Annotated[str, typer.Option(help="Width x height of the images, in pixels.")] = "126x98",
    frames: Annotated[str, typer.Option(help="Length of the walks; several separated by commas.")] = "48",
    scale_frames: Annotated[str, typer.Option(help="Frames of the scale block, and anchors.")] = "usual",
    policy: Annotated[str, typer.Option(help="What to forget, as for longtake map.")] = "usual",
    memory: Annotated[str, typer.Option(help="Room for keys and values, such as 4GB or 8 frames.")] = "usual",
    keyframes: Annotated[str, typer.Option(help="every:6 or flow:12px.")] = "usual",
    windows: Annotated[str, typer.Option(help="128/16: kept frames by shared frames; none for one.")] = "usual",
    align: Annotated[str, typer.Option(help="Windows by first-frame, keyframe-pairs or robust.")] = "usual",
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto.")] = "cpu",
    json_file: Annotated[Path | None, typer.Option("--json", help="Also write all figures into this file.")] = None,
    card: Annotated[Path | None, typer.Option(help="Also write those over worlds, for a model card.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Also draw ways from above into this PNG file.")] = None,
) -> None:
    """Score a model's maps of unseen houses against the truth, beside baselines; options take several, with commas."""
    from longtake.cli.bench_quality import QualityOptions, run_quality

    options = QualityOptions(
        model=model,
        worlds=worlds,
        split=split,
        size=size,
        frames=frames,
        scale_frames=scale_frames,
        policy=policy,
        memory=memory,
        keyframes=keyframes,
        windows=windows,
        align=align,
        device=device,
    )
    run_quality(options, json_file=json_file, card=card, plot=plot)


@bench.command("answers")
def bench_answers(
    model: Annotated[
        str, typer.Option(help="Folder of a Qwen2.5-VL model, or its name in the package or on the Hugging Face hub.")
    ] = DEFAULT_LANGUAGE,
    worlds: Annotated[int, typer.Option(min=1, help="Houses to walk through.")] = 50,
    split: Annotated[Split, typer.Option(help="Houses to judge by, or those to choose settings by.")] = Split.TEST,
    size: Annotated[str, typer.Option(help="Width x height of the frames, in pixels.")] = "168x112",
    frames: Annotated[int, typer.Option(help="Length of the walks.")] = 32,
    fps: Annotated[float, typer.Option(help="Frames a second, up to 10.")] = 2.0,
    moments: Annotated[int, typer.Option(min=1, help="How often a walk is asked about, the last time at its end.")] = 4,
    questions: Annotated[int, typer.Option(min=1, help="Questions at each moment, kinds in turn.")] = 14,
    recent: Annotated[float, typer.Option(min=0, help="Seconds after which a sighting is to be recalled.")] = 4.0,
    policy: Annotated[
        str, typer.Option(help="Of keep-all, window, thinned, novel, recent-8, anew-8, separated by commas.")
    ] = "keep-all",
    memory: Annotated[str, typer.Option(help="Budgets such as 16 frames, separated by commas.")] = "16 frames",
    training: Annotated[int, typer.Option(min=1, help="Houses that tell the commonest answers.")] = 50,
    offline: Annotated[int, typer.Option(min=0, help="Questions a world compared with a plain network.")] = 8,
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto.")] = "cpu",
    json_file: Annotated[Path | None, typer.Option("--json", help="Also write all figures into this file.")] = None,
    card: Annotated[Path | None, typer.Option(help="Also write those over worlds, for a model card.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Also draw right answers into this PNG file.")] = None,
) -> None:
    """Score answers about unseen houses against the truth, realtime and recall apart, and memory policies by them."""
    from longtake.cli.bench_answers import AnswersOptions, run_answers

    options = AnswersOptions(
        model=model,
        worlds=worlds,
        split=split,
        size=size,
        frames=frames,
        fps=fps,
        moments=moments,
        questions=questions,
        recent=recent,
        policy=policy,
        memory=memory,
        training=training,
        offline=offline,
        device=device,
    )
    run_answers(options, json_file=json_file, card=card, plot=plot)
