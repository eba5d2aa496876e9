"""What happened when, as strips and curves over the frames' indices; each drawing is as wide as the page lets it be."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

from longtake.exports.frame import FrameStatus
from longtake.exports.report.folder import PROGRESS_NAME, Event, MappedFolder, Progress
from longtake.exports.report.sections import bytes_in_words, seconds_in_words
from longtake.takes.frames import FrameRecord
from longtake.takes.take import Take
from longtake.types import Tracking, TrackingState

UNSTATED = "unstated"
"""Of frames whose take says no status, or one that nobody knows."""

_TRACKING = {
    "joined, in shades by sub-map": ("track", "track odd"),
    "not joined to the first": ("track apart",),
    "weak": ("track weak",),
    "lost": ("track lost",),
}
"""What its colours mean, by how they are drawn."""
STATUSES = (*(status.value for status in FrameStatus), UNSTATED)

_WIDTH, _STRIP_HEIGHT, _CURVE_HEIGHT = 1000, 24, 90
_MOST_BINS = 500
_NUM_TICKS = 5
_WORST_FIRST = ("unreadable", "cut", "jump", "weak", "repeated", UNSTATED, "ok")

_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class Curve:
    """One or more lines, for a run that was broken off has a gap; points are (frame's index, value)."""

    lines: tuple[tuple[tuple[float, float], ...], ...]

    @property
    def top(self) -> float:
        return max((value for line in self.lines for _, value in line), default=0.0)


def timeline_section(folder: MappedFolder) -> str:
    records = folder.take.records if folder.take else ()
    statuses = _statuses_by_index(records, folder.events)
    if not statuses:
        return "<p>No frame is known of.</p>"
    num_indices = max(statuses) + 1
    rows = _row("Status", _draw_statuses(statuses, num_indices)) + _row("", _legend(statuses))
    if any(record.window is not None for record in records):
        rows += _row("Windows", _draw_windows(records, num_indices))
    if folder.tracking is not None and folder.tracking.in_words is not None:
        rows += _row("Tracking", _draw_tracking(records, num_indices, folder.apart))
        rows += _row("", _tracking_legend(records, folder.apart))
    rows += _curve_rows(folder, num_indices) + _row("", _axis(folder.take, num_indices))
    return f'<div class="rows">{rows}</div>' + _word_on_curves(folder)


def _statuses_by_index(records: Sequence[FrameRecord], events: Sequence[Event]) -> dict[int, str]:
    """The status of every frame that a take or its events know of."""
    stated = {record.index: record.status if record.status in STATUSES else UNSTATED for record in records}
    missing = {event.index: FrameStatus.UNREADABLE.value for event in events}
    return {index: status or UNSTATED for index, status in {**stated, **missing}.items()}


def _draw_statuses(statuses: dict[int, str], num_indices: int) -> str:
    """A piece of frames has the colour of its worst one."""
    worst: dict[int, str] = {}
    for index, status in statuses.items():
        bin_ = _bin(index, num_indices)
        worst[bin_] = min(status, worst.get(bin_, status), key=_WORST_FIRST.index)
    rectangles = [_rectangle(run, num_indices, f"status {run[0]}", run[0]) for run in _runs(worst)]
    counts = ", ".join(f"{count} {status}" for status, count in _count_statuses(statuses).items())
    return _strip(rectangles, f"Status of the frames over time: {counts or 'none'}")


def _count_statuses(statuses: dict[int, str]) -> dict[str, int]:
    counts = dict.fromkeys(STATUSES, 0)
    for status in statuses.values():
        counts[status] += 1
    return {status: count for status, count in counts.items() if count}


def _draw_windows(records: Sequence[FrameRecord], num_indices: int) -> str:
    """Windows as bands of two alternating shades."""
    windows = {_bin(record.index, num_indices): record.window for record in records if record.window is not None}
    rectangles = [
        _rectangle(run, num_indices, "window odd" if run[0] % 2 else "window", f"window {run[0]}")
        for run in _runs(windows)
    ]
    return _strip(rectangles, f"Windows over time: {len(set(windows.values()))}")


def _draw_tracking(records: Sequence[FrameRecord], num_indices: int, apart: Collection[int]) -> str:
    """Sub-maps as bands of two shades, those that lie apart of a third; and where it was lost or weak."""
    worst: dict[int, tuple[int, str, str]] = {}
    for record in records:
        if record.tracking is not None:
            bin_, said = _bin(record.index, num_indices), _tracked(record.tracking, apart)
            worst[bin_] = min(said, worst.get(bin_, said))
    rectangles = [_rectangle(run, num_indices, run[0][1], run[0][2]) for run in _runs(worst)]
    return _strip(rectangles, "Tracking over time: where the camera was lost or weak, and sub-maps")


def _tracked(tracking: Tracking, apart: Collection[int]) -> tuple[int, str, str]:
    """What is worst comes first; how it is drawn, and what it is."""
    why = "" if tracking.reason is None else f" ({tracking.reason})"
    if tracking.sub_map is None:
        return 0, "track lost", f"lost{why}"
    if tracking.sub_map in apart:
        return 1, "track apart", f"sub-map {tracking.sub_map}, not joined to the first"
    if tracking.state is TrackingState.WEAK:
        return 2, "track weak", f"weak{why}"
    return 3, "track odd" if tracking.sub_map % 2 else "track", f"sub-map {tracking.sub_map}"


def _speed_of(progress: Sequence[Progress]) -> Curve:
    """Frames a second between one moment and the next."""
    lines = []
    for run in _runs_of(progress):
        rows = run[:: -(-len(run) // _MOST_BINS)]
        pairs = [(before, after) for before, after in pairwise(rows) if after.seconds > before.seconds]
        speeds = [
            (float(after.index), (after.index - before.index) / (after.seconds - before.seconds))
            for before, after in pairs
        ]
        lines.append(tuple(speeds))
    return Curve(tuple(line for line in lines if line))


def _memory_of(progress: Sequence[Progress]) -> Curve:
    """Resident bytes; where moments are many, the largest of several."""
    lines = []
    for run in _runs_of(progress):
        step = -(-len(run) // _MOST_BINS)
        pieces = [run[place : place + step] for place in range(0, len(run), step)]
        lines.append(tuple((float(p[-1].index), float(max(row.resident_bytes for row in p))) for p in pieces))
    return Curve(tuple(lines))


def _draw_curve(curve: Curve, top: float, num_indices: int, words: str) -> str:
    """A curve as SVG, its axis from 0 to `top`."""
    lines = "".join(
        f'<polyline class="curve" points="{_curve_points(line, top, num_indices)}"/>' for line in curve.lines
    )
    return (
        f'<svg class="graph" viewBox="0 0 {_WIDTH} {_CURVE_HEIGHT}" preserveAspectRatio="none" role="img" '
        f'aria-label="{words}"><path class="grid" d="M0 {_CURVE_HEIGHT / 2}H{_WIDTH}"/>{lines}</svg>'
    )


def _curve_points(line: Sequence[tuple[float, float]], top: float, num_indices: int) -> str:
    """A line of one point is drawn one frame long, so that it is seen."""
    (last_index, last_value) = line[-1]
    drawn = [*line, (last_index + 1, last_value)] if len(line) == 1 else line
    return " ".join(
        f"{(index + 0.5) / num_indices * _WIDTH:.1f},{_CURVE_HEIGHT * (1 - value / top):.1f}" for index, value in drawn
    )


def _runs_of(progress: Sequence[Progress]) -> list[list[Progress]]:
    """Moments grouped by run: a new one begins where the clock starts again."""
    runs: list[list[Progress]] = []
    for row in progress:
        if not runs or row.seconds <= runs[-1][-1].seconds:
            runs.append([])
        runs[-1].append(row)
    return runs


def _step(num_indices: int) -> int:
    """How many frames share one bin of the drawing."""
    return -(-num_indices // _MOST_BINS)


def _bin(index: int, num_indices: int) -> int:
    return index // _step(num_indices)


def _runs(values: Mapping[int, _Value]) -> list[tuple[_Value, int, int]]:
    """Values of bins that follow one another, with their first bin and the one after their last."""
    runs: list[tuple[_Value, int, int]] = []
    for place, value in sorted(values.items()):
        if runs and runs[-1][0] == value and runs[-1][2] == place:
            runs[-1] = (value, runs[-1][1], place + 1)
        else:
            runs.append((value, place, place + 1))
    return runs


def _rectangle(run: tuple[object, int, int], num_indices: int, style: str, words: str) -> str:
    step = _step(num_indices)
    first, after = run[1] * step, min(run[2] * step, num_indices)
    x, width = (number * _WIDTH / num_indices for number in (first, after - first))
    return (
        f'<rect class="{style}" x="{x:.2f}" width="{width:.2f}" height="{_STRIP_HEIGHT}">'
        f"<title>{words}, frames {first} to {after - 1}</title></rect>"
    )


def _strip(rectangles: Sequence[str], words: str) -> str:
    return (
        f'<svg class="strip" viewBox="0 0 {_WIDTH} {_STRIP_HEIGHT}" preserveAspectRatio="none" role="img" '
        f'aria-label="{words}">{"".join(rectangles)}</svg>'
    )


def _row(name: str, drawing: str) -> str:
    return f'<div class="{"name" if name else "empty"}">{name}</div><div>{drawing}</div>'


def _legend(statuses: dict[int, str]) -> str:
    items = [
        f'<li><span class="key {status}"></span>{status} {count:,}</li>'
        for status, count in _count_statuses(statuses).items()
    ]
    return f'<ul class="legend">{"".join(items)}</ul>'


def _tracking_legend(records: Sequence[FrameRecord], apart: Collection[int]) -> str:
    tracked = [record.tracking for record in records if record.tracking is not None]
    counts = Counter(_tracked(one, apart)[1] for one in tracked)
    items = ""
    for words, styles in _TRACKING.items():
        drawn = [style for style in styles if counts[style]]
        if drawn:
            keys = "".join(f'<span class="key of-{style.replace(" ", "-")}"></span>' for style in drawn)
            items += f"<li>{keys}{words} {sum(counts[style] for style in drawn):,}</li>"
    return f'<ul class="legend">{items}</ul>'


def _curve_rows(folder: MappedFolder, num_indices: int) -> str:
    rows = ""
    speed, memory = _speed_of(folder.progress), _memory_of(folder.progress)
    if speed.top > 0:
        most = f"{speed.top:.3g} frames/s"
        words = f"Speed over time, {most} at most"
        rows += _row(f"Speed <small>to {most}</small>", _draw_curve(speed, speed.top, num_indices, words))
    if memory.top > 0:
        most = bytes_in_words(memory.top)
        words = f"Memory of the process over time, {most} at most"
        rows += _row(f"Memory <small>to {most}</small>", _draw_curve(memory, memory.top, num_indices, words))
    return rows


def _word_on_curves(folder: MappedFolder) -> str:
    if len(folder.progress) > 1:
        return '<p class="hint">Curves begin at 0. Memory is that of the whole process.</p>'
    why = f"Of a run this short {PROGRESS_NAME} has one moment:" if folder.progress else f"Without {PROGRESS_NAME},"
    return f'<p class="hint">{why} speed and memory are known for the whole run only.</p>'


def _axis(take: Take | None, num_indices: int) -> str:
    """Indices of frames, and their times below where a take knows them."""
    indices = sorted({round(tick * (num_indices - 1) / (_NUM_TICKS - 1)) for tick in range(_NUM_TICKS)})
    ticks = [f"<span>{'frame ' if index == 0 else ''}{index:,}{_time_at(take, index)}</span>" for index in indices]
    return f'<div class="axis">{"".join(ticks)}</div>'


def _time_at(take: Take | None, index: int) -> str:
    if take is None:
        return ""
    nearest = min(take.records, key=lambda record: abs(record.index - index))
    return f"<br>{seconds_in_words(nearest.timestamp_s)}"
