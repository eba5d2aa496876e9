"""`longtake eval`: a result against the truth, as tables or JSON, with plots if wanted."""

import json
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from longtake.api.evaluating import choose_word, parse_delta, parse_parts
from longtake.cli.eval_tables import print_report
from longtake.evaluate.alignment_mode import AlignmentMode
from longtake.evaluate.depth_alignment import AlignmentSpan, DepthAlignment
from longtake.evaluate.plots import draw_report, require_plots
from longtake.evaluate.report import evaluate
from longtake.evaluate.report_json import report_json
from longtake.evaluate.settings import EvalSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalOptions:
    """Options as people write them."""

    align: str
    max_gap_s: float
    offset_s: float
    delta: str
    all_pairs: bool
    depth_align: str
    depth_span: str
    threshold: float
    only: str | None
    times: Path | None
    fps: float | None

    def settings(self) -> EvalSettings:
        return EvalSettings(
            align=choose_word(self.align, AlignmentMode, "alignment"),
            max_gap_s=self.max_gap_s,
            offset_s=self.offset_s,
            delta=parse_delta(self.delta, all_pairs=self.all_pairs),
            depth_align=choose_word(self.depth_align, DepthAlignment, "depth alignment"),
            depth_span=choose_word(self.depth_span, AlignmentSpan, "span of a depth alignment"),
            threshold=self.threshold,
            only=None if self.only is None else parse_parts(self.only),
            times=self.times,
            fps=self.fps,
        )


def run_eval(result: Path, truth: Path, options: EvalOptions, *, as_json: bool, plots: Path | None) -> None:
    settings = options.settings()
    if plots is not None:
        require_plots()
    with Console(stderr=True).status("reading") as status:
        report = evaluate(result, truth, settings, starting=lambda part: status.update(f"measuring {part}"))
    drawn = [] if plots is None else draw_report(report, plots)
    if as_json:
        print(json.dumps(report_json(report), indent=1, allow_nan=False))
    else:
        print_report(report, drawn)
