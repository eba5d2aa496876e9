"""The parts of the page as HTML, each with a sentence where there is nothing to show."""

import json
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from longtake.exports.record import EXPORT_FOLDER, ExportRecord
from longtake.exports.report.folder import MappedFolder
from longtake.exports.report.ply_points import PointSample
from longtake.exports.report.strips import Strips, colours_near_to_far
from longtake.takes.header import Unit
from longtake.takes.take import Take

MOST_PROBLEMS = 20
_MOST_ROWS = 80
_LONGEST_TEXT = 400
_DEEPEST = 3
_VIEW = """<div id="stage">
<canvas id="view" tabindex="0" role="img" aria-label="{label}"></canvas>
<div class="controls">
<button type="button" id="reset">Reset view</button>
<button type="button" id="above">From above</button>
<label>Point size <input type="range" id="point-size" min="0.3" max="4" step="0.1" value="1"></label>
<label><input type="checkbox" id="backs"> Show backs of walls</label>
</div>
<p class="hint">Drag to orbit, scroll or pinch to zoom, shift-drag or two fingers to move. {words}</p>
</div>
<p id="no-webgl" hidden>This browser shows no WebGL 2, so the cloud cannot be drawn; open cloud.ply in a viewer.</p>
<noscript><p>The cloud is drawn by a script, and scripts are switched off here.</p></noscript>"""


def bytes_in_words(count: float) -> str:
    size, units = count, ["bytes", "kB", "MB", "GB", "TB"]
    while size >= 1000 and len(units) > 1:
        size, units = size / 1000, units[1:]
    return f"{size:.3g} {units[0]}" if size < 1000 else f"{size:.0f} {units[0]}"


def seconds_in_words(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d} h" if hours else f"{minutes}:{rest:02d} min"


def figures_section(figures: Mapping[str, str | None]) -> str:
    """Each a number and, in small letters, its unit."""
    known = [(escape(name), *escape(value).partition(" ")) for name, value in figures.items() if value is not None]
    return "".join(
        f"<div><dt>{name}</dt><dd>{number}{space}<small>{unit}</small></dd></div>"
        for name, number, space, unit in known
    )


def view_section(cloud: PointSample | None, missing: str | None) -> str:
    """The canvas; the script finds its data in the page."""
    if cloud is None:
        words = f"{escape(missing or '')} Only the way of the camera is shown."
        return _VIEW.format(label="The way of the camera in three dimensions", words=words)
    shown, count = len(cloud.points), cloud.num_in_file
    words = f"{shown:,} of {count:,} points are shown." if shown < count else f"All {count:,} points are shown."
    return _VIEW.format(
        label="The cloud of points and the way of the camera, which can be turned and zoomed", words=words
    )


def strips_section(take: Take, strips: Strips, unit: str) -> str:
    if not strips.strips:
        return _paragraphs(strips.problems[:1] or ("There is no depth.",))
    figures = "".join(
        f'<figure><div class="shots">{_shots(strip.image, strip.depth, caption)}</div>'
        f"<figcaption>{caption}</figcaption></figure>"
        for strip in strips.strips
        for caption in [_caption(take, strip.position)]
    )
    ramp = (
        f'<p class="ramp" role="img" aria-label="Colours of depth from {strips.near:.3g} to {strips.far:.3g} {unit}">'
        f'<span>{strips.near:.3g}</span><i style="background:linear-gradient(90deg,{",".join(colours_near_to_far())})">'
        f"</i><span>{strips.far:.3g} {unit}</span><span>grey: no depth</span></p>"
    )
    return f'<div class="strips">{figures}</div>{ramp}'


def export_section(export: ExportRecord | None) -> str:
    """What lengths, cameras and up are in the files exported beside this page; nothing where there are none."""
    if export is None:
        return ""
    files = ", ".join(Path(path).name for path in export.files.values())
    sentences = [f"In the folder {EXPORT_FOLDER}: {files}.", _word_on_scale(export), _word_on_camera(export)]
    return (
        '<section aria-labelledby="export-heading"><h2 id="export-heading">Export</h2>'
        f"{_paragraphs([*sentences, _word_on_up(export)])}</section>"
    )


def problems_section(folder: MappedFolder, more: Sequence[str]) -> str:
    events = [f"Frame {event.index} ({event.timestamp_s:.2f} s): {event.problem}" for event in folder.events]
    everything = [*folder.problems, *more, *events]
    if not everything:
        return ""
    items = "".join(f"<li>{escape(_cut(problem))}</li>" for problem in everything[:MOST_PROBLEMS])
    rest = len(everything) - MOST_PROBLEMS
    last = f"<p>And {rest:,} more; events.jsonl has them all.</p>" if rest > 0 else ""
    return (
        '<section aria-labelledby="problems-heading"><h2 id="problems-heading">Problems</h2>'
        f'<ul class="problems">{items}</ul>{last}</section>'
    )


def table_section(caption: str, values: Mapping[str, Any]) -> str:
    rows = "".join(
        f'<tr><th scope="row">{escape(_cut(name))}</th><td>{escape(_cut(value))}</td></tr>'
        for name, value in list(_flat(values).items())[:_MOST_ROWS]
    )
    return f"<table><caption>{escape(caption)}</caption><tbody>{rows}</tbody></table>" if rows else ""


def _flat(values: Mapping[str, Any], depth: int = _DEEPEST) -> dict[str, str]:
    """Nested objects flattened to dotted names."""
    flat: dict[str, str] = {}
    for name, value in values.items():
        if isinstance(value, dict) and value and depth:
            flat |= {f"{name}.{inner}": text for inner, text in _flat(value, depth - 1).items()}
        else:
            flat[name] = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return flat


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else text[:_LONGEST_TEXT] + "…"


def _paragraphs(sentences: Sequence[str]) -> str:
    return "".join(f"<p>{escape(_cut(sentence))}</p>" for sentence in sentences)


def _word_on_scale(export: ExportRecord) -> str:
    if export.metres_per_unit is not None:
        return f"Lengths are in metres, {export.metres_per_unit:.6g} m for each unit here, from {export.scale_from}."
    return "Lengths are in metres." if export.unit == Unit.METRE else "Lengths are in the model's own unit."


def _word_on_camera(export: ExportRecord) -> str:
    if export.intrinsics is None:
        return "Each frame has the camera that the network found for it."
    numbers = ", ".join(f"{number:.6g}" for number in export.intrinsics)
    whose = "the median of what the network found" if export.fixed_camera else "as it was given"
    return f"All frames have one camera, {whose}: fx, fy, cx, cy of {numbers} in the video's pixels."


def _word_on_up(export: ExportRecord) -> str:
    if export.floor_share is not None:
        return f"The floor, {export.floor_share:.0%} of all surfaces, is level and at y = 0."
    found = "no floor was found convincingly, so that " if export.up == "auto" else ""
    return f"{found}the world is as it was mapped.".capitalize()


def _caption(take: Take, position: int) -> str:
    record = take.records[position]
    status = "" if record.status is None else f" · {escape(_cut(record.status))}"
    return f"frame {record.index:,} · {seconds_in_words(record.timestamp_s)}{status}"


def _shots(image: str | None, depth: str, caption: str) -> str:
    shot = "" if image is None else f'<img src="{image}" alt="Image of {caption}">'
    return f'{shot}<img src="{depth}" alt="Depth of {caption}" style="image-rendering:pixelated">'
