"""A result against the truth, in the words of `longtake eval`."""

import re
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

from longtake.api.arguments import checked_arguments
from longtake.errors import SettingError
from longtake.evaluation.alignment_mode import AlignmentMode
from longtake.evaluation.depth_alignment import AlignmentSpan, DepthAlignment
from longtake.evaluation.relative import Delta, DeltaUnit
from longtake.evaluation.report import EvalReport
from longtake.evaluation.report import evaluate as evaluate_folders
from longtake.evaluation.settings import EvalSettings, Part
from longtake.takes.take import Take

_Choice = TypeVar("_Choice", bound=StrEnum)


@checked_arguments
def evaluate(
    result: str | Path | Take,
    truth: str | Path | Take,
    *,
    align: str = "sim3",
    max_gap: float = 0.02,
    offset: float = 0.0,
    delta: str = "1f",
    all_pairs: bool = False,
    depth_align: str = "scale",
    depth_span: str = "sequence",
    threshold: float = 0.05,
    only: str | Sequence[str] | None = None,
    times: str | Path | None = None,
    fps: float | None = None,
) -> EvalReport:
    """Compare a result with the truth, each a take, its folder, or a TUM or KITTI file, as far as both go.

        report = longtake.evaluate("mapped", "walk")
        print(report.trajectory.absolute.translation.rmse)

    `align` says how the result may be moved (sim3, se3, none), `max_gap` and `offset` how timestamps are matched (in
    seconds), `delta` the distance of a relative error (10f, 0.5m), `threshold` when points count as met (in metres),
    `only` some of trajectory, depth, points, answers; `times` or `fps` give a KITTI file its times.
    """
    settings = EvalSettings(
        align=choose_word(align, AlignmentMode, "alignment"),
        max_gap_s=max_gap,
        offset_s=offset,
        delta=parse_delta(delta, all_pairs=all_pairs),
        depth_align=choose_word(depth_align, DepthAlignment, "depth alignment"),
        depth_span=choose_word(depth_span, AlignmentSpan, "span of a depth alignment"),
        threshold=threshold,
        only=None if only is None else parse_parts(only),
        times=None if times is None else Path(times),
        fps=fps,
    )
    return evaluate_folders(_path_of(result), _path_of(truth), settings)


def parse_delta(text: str, *, all_pairs: bool) -> Delta:
    """`10f` is ten frames, `0.5m` half a metre along the path."""
    match = re.fullmatch(r"(\d+\.?\d*|\.\d+)([fm])", text)
    if match is None:
        raise SettingError(f"Expected a delta such as 10f (frames) or 0.5m (metres), but got '{text}'.")
    unit = DeltaUnit.FRAMES if match[2] == "f" else DeltaUnit.METRES
    return Delta(length=float(match[1]), unit=unit, all_pairs=all_pairs)


def parse_parts(only: str | Sequence[str]) -> tuple[Part, ...]:
    """Names in a list, or separated by commas."""
    names = only.split(",") if isinstance(only, str) else only
    return tuple(choose_word(name.strip(), Part, "part") for name in names)


def choose_word(text: str, choices: type[_Choice], what: str) -> _Choice:
    """The choice of this name; another is answered with those there are."""
    if text not in list(choices):
        raise SettingError(f"There is no {what} '{text}'; choose one of {', '.join(choices)}.")
    return choices(text)


def _path_of(side: str | Path | Take) -> Path:
    return side.folder if isinstance(side, Take) else Path(side)
