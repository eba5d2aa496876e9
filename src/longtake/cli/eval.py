"""`longtake eval`: a result against the truth, as tables or JSON, with plots if wanted."""

import json
import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

from rich.console import Console

from longtake.cli.eval_tables import print_report
from longtake.errors import SettingError
from longtake.evaluate.alignment_mode import AlignmentMode
from longtake.evaluate.depth_alignment import AlignmentSpan, DepthAlignment
from longtake.evaluate.plots import draw_report, require_plots
from longtake.evaluate.relative import Delta, DeltaUnit
from longtake.evaluate.report import evaluate
from longtake.evaluate.report_json import report_json
from longtake.evaluate.settings import EvalSettings, Part

_Choice = TypeVar("_Choice", bound=StrEnum)


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
            align=_choose(self.align, AlignmentMode, "alignment"),
            max_gap_s=self.max_gap_s,
            offset_s=self.offset_s,
            delta=parse_delta(self.delta, all_pairs=self.all_pairs),
            depth_align=_choose(self.depth_align, DepthAlignment, "depth alignment"),
            depth_span=_choose(self.depth_span, AlignmentSpan, "span of a depth alignment"),
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


def parse_delta(text: str, *, all_pairs: bool) -> Delta:
    """`10f` is ten frames, `0.5m` half a metre of the way."""
    match = re.fullmatch(r"(\d+\.?\d*|\.\d+)([fm])", text)
    if match is None:
        raise SettingError(f"Expected a delta such as 10f (frames) or 0.5m (metres), but got '{text}'.")
    unit = DeltaUnit.FRAMES if match[2] == "f" else DeltaUnit.METRES
    return Delta(length=float(match[1]), unit=unit, all_pairs=all_pairs)


def parse_parts(text: str) -> tuple[Part, ...]:
    """Names separated by commas."""
    return tuple(_choose(name.strip(), Part, "part") for name in text.split(","))


def _choose(text: str, choices: type[_Choice], what: str) -> _Choice:
    if text not in list(choices):
        raise SettingError(f"There is no {what} '{text}'; choose one of {', '.join(choices)}.")
    return choices(text)
