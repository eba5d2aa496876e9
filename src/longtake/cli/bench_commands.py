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
    from longtake.cli.bench_memory import run_memory

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
    from longtake.cli.bench_speed import SpeedSettings, run_speed

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
    as_json: AsJson = False,
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
    run_quality(options, as_json=as_json, card=card, plot=plot)


@bench.command("policies")
def bench_policies(
    model: Annotated[
        str,
        typer.Option(help="Of maps: a checkpoint, a name of longtake models, tiny (random weights); none for no maps."),
    ] = DEFAULT_MODEL,
    language: Annotated[
        str, typer.Option(help="Of answers: folder of a Qwen2.5-VL model, or its name; none for no answers.")
    ] = DEFAULT_LANGUAGE,
    budgets: Annotated[str, typer.Option(help="Frames that may be remembered, separated by commas.")] = "4,8,16",
    worlds: Annotated[int, typer.Option(min=1, help="Houses to walk through.")] = 1,
    split: Annotated[Split, typer.Option(help="Houses to judge by, or those to choose settings by.")] = Split.TEST,
    policy: Annotated[
        str,
        typer.Option(
            help="For maps, of none, ratio, layerwise-R, strict-R, context, managed, key-diversity, farthest-frames, "
            "window, separated by commas; by default all, with ratios R of 0.5 and 0.7."
        ),
    ] = "",
    frames: Annotated[int, typer.Option(min=3, help="Frames of each world for maps.")] = 40,
    size: Annotated[str | None, typer.Option(help="Width x height for maps; by default as the model likes it.")] = None,
    ask_policy: Annotated[
        str, typer.Option(help="For answers, of keep-all, window, thinned, novel, recent-8, anew-8, with commas.")
    ] = "keep-all,window,thinned,novel",
    ask_frames: Annotated[int, typer.Option(help="Frames of each world for answers.")] = 32,
    ask_size: Annotated[str, typer.Option(help="Width x height of the frames for answers.")] = "168x112",
    ask_fps: Annotated[float, typer.Option(help="Frames a second for answers, up to 10.")] = 2.0,
    moments: Annotated[int, typer.Option(min=1, help="How often a walk is asked about, the last time at its end.")] = 4,
    questions: Annotated[int, typer.Option(min=1, help="Questions at each moment, kinds in turn.")] = 14,
    recent: Annotated[float, typer.Option(min=0, help="Seconds after which a sighting is to be recalled.")] = 4.0,
    training: Annotated[int, typer.Option(min=1, help="Houses that tell the commonest answers.")] = 50,
    offline: Annotated[int, typer.Option(min=0, help="Questions a world compared with a plain network.")] = 8,
    quick: Annotated[bool, typer.Option("--quick", help="Few small frames, to see that all works.")] = False,
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto.")] = "auto",
    as_json: AsJson = False,
    card: Annotated[Path | None, typer.Option(help="Also write the answers' figures, for a model card.")] = None,
    plots: Annotated[Path | None, typer.Option(help="Also draw into this folder.")] = None,
) -> None:
    """Compare memory policies on the same frames: what each costs in a map and in answers, against the truth."""
    from longtake.cli.answer_policies import AnswerPolicyOptions
    from longtake.cli.bench_policies import run_policies
    from longtake.cli.map_policies import DEFAULT_POLICIES, MapPolicyOptions

    maps = MapPolicyOptions(
        model=model,
        policies=policy or DEFAULT_POLICIES,
        budgets=budgets,
        worlds=worlds,
        split=split,
        frames=min(frames, 5) if quick else frames,
        size=size,
        device=device,
    )
    answers = AnswerPolicyOptions(
        model=language,
        policies=ask_policy,
        budgets=budgets,
        worlds=worlds,
        split=split,
        frames=min(ask_frames, 8) if quick else ask_frames,
        size="84x56" if quick else ask_size,
        fps=ask_fps,
        moments=min(moments, 2) if quick else moments,
        questions=questions,
        recent=recent,
        training=min(training, 2) if quick else training,
        offline=offline,
        device=device,
    )
    run_policies(
        None if model == "none" else maps,
        None if language == "none" else answers,
        as_json=as_json,
        card=card,
        plots=plots,
    )
