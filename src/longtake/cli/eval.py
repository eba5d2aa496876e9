"""`longtake eval`: a result against the truth, as tables or JSON, with plots if wanted."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from longtake.api.evaluating import choose_word, parse_delta, parse_parts
from longtake.cli.eval_tables import print_report
from longtake.cli.options import AsJson, command_app
from longtake.evaluation.alignment_mode import AlignmentMode
from longtake.evaluation.depth_alignment import AlignmentSpan, DepthAlignment
from longtake.evaluation.plots import draw_report, require_plots
from longtake.evaluation.report import evaluate
from longtake.evaluation.report_json import report_json
from longtake.evaluation.settings import EvalSettings

app = command_app()


@app.command("eval")
def evaluate_(
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
    settings = EvalSettings(
        align=choose_word(align, AlignmentMode, "alignment"),
        max_gap_s=max_gap,
        offset_s=offset,
        delta=parse_delta(delta, all_pairs=all_pairs),
        depth_align=choose_word(depth_align, DepthAlignment, "depth alignment"),
        depth_span=choose_word(depth_span, AlignmentSpan, "span of a depth alignment"),
        threshold=threshold,
        only=None if only is None else parse_parts(only),
        times=times,
        fps=fps,
    )
    if plots is not None:
        require_plots()
    with Console(stderr=True).status("reading") as status:
        report = evaluate(result, truth, settings, starting=lambda part: status.update(f"measuring {part}"))
    drawn = [] if plots is None else draw_report(report, plots)
    if as_json:
        print(json.dumps(report_json(report), indent=1, allow_nan=False))
    else:
        print_report(report, drawn)
