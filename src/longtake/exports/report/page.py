"""Puts the page together from its parts and writes it as one file."""

from collections.abc import Mapping
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template

from longtake import __version__
from longtake.errors import InputError
from longtake.exports.ply import CLOUD_NAME
from longtake.exports.report.asked import asked_section
from longtake.exports.report.folder import MappedFolder, read_folder
from longtake.exports.report.payload import MOST_CLOUD_POINTS, as_script, payload
from longtake.exports.report.plan import Axes, axes_of, draw_plan, length_of
from longtake.exports.report.ply_points import PointSample, read_some_points
from longtake.exports.report.sections import (
    bytes_in_words,
    export_section,
    figures_section,
    problems_section,
    seconds_in_words,
    strips_section,
    table_section,
    view_section,
)
from longtake.exports.report.strips import draw_strips
from longtake.exports.report.timeline import timeline_section
from longtake.exports.report.truth import Truth, truth_section
from longtake.exports.viewer.script import as_one_script
from longtake.takes.atomic_files import replace_file
from longtake.takes.header import Content, Unit
from longtake.takes.take import Take

REPORT_NAME = "report.html"

_NO_TAKE = "<p>No frame has a result.</p>"


def write_report(out: Path) -> Path:
    """Write `report.html` into a mapped folder, replacing the one before; the same folder gives the same page."""
    page = make_page(read_folder(out))
    path = out / REPORT_NAME
    replace_file(path, page.encode(errors="replace"))
    return path


def make_page(folder: MappedFolder) -> str:
    take = folder.take
    parts = {"cloud": _NO_TAKE, "plan": _NO_TAKE, "strips": _NO_TAKE, "data": "{}"}
    problems: tuple[str, ...] = ()
    figures = _figures_of_run(folder)
    if take is not None:
        cloud, missing = _read_cloud(folder.path / CLOUD_NAME)
        strips = draw_strips(take)
        axes, unit = axes_of(take.trajectory.world_from_camera), _unit_of(take)
        problems = strips.problems if strips.strips else ()
        figures = {**_figures_of_take(folder, take, cloud), **figures}
        parts = _drawings(take, axes, folder.truth, cloud, missing) | {"strips": strips_section(take, strips, unit)}
    return Template(_read("page.html")).substitute(
        parts,
        title=escape(_title(folder)),
        badge=_badge(folder),
        subtitle=escape(_subtitle(folder)),
        notes=_notes(folder),
        figures=figures_section(figures),
        truth=truth_section(folder.truth),
        asked=asked_section(folder.asked),
        timeline=timeline_section(folder),
        export=export_section(folder.export),
        problems=problems_section(folder, problems),
        tables=_tables(folder),
        footer=f"Made by longtake {escape(__version__)}. This page needs no network and nothing beside it.",
        style=_read("style.css"),
        script=as_one_script(_read("view.js")),
    )


def _drawings(
    take: Take, axes: Axes, truth: Truth | None, cloud: PointSample | None, missing: str | None
) -> dict[str, str]:
    true_path = None if truth is None else truth.centres
    return {
        "cloud": view_section(cloud, missing),
        "plan": draw_plan(take.trajectory, axes, _unit_of(take), true_path),
        "data": as_script(payload(take, axes, cloud, true_path)),
    }


def _read_cloud(path: Path) -> tuple[PointSample | None, str | None]:
    """The cloud, or the sentence on why there is none."""
    if not path.exists():
        return None, f"There is no {path.name}."
    try:
        cloud = read_some_points(path, MOST_CLOUD_POINTS)
    except InputError as error:
        return None, str(error)
    return (cloud, None) if len(cloud.points) else (None, f"{path.name} has no points.")


def _unit_of(take: Take) -> str:
    return take.header.unit.in_words


def _title(folder: MappedFolder) -> str:
    source = (folder.summary or {}).get("source")
    if isinstance(source, str) and source:
        return source
    merged = (folder.merge or {}).get("folder")  # by another name until it is whole
    return Path(merged).name if isinstance(merged, str) else folder.path.resolve().name


def _badge(folder: MappedFolder) -> str:
    if folder.take is not None and folder.take.header.content is Content.TRUTH:
        return '<span class="badge">ground truth</span>'
    if folder.summary is None and folder.merge is not None:
        return '<span class="badge complete">merged</span>'
    if folder.summary is None:
        return '<span class="badge partial">no summary: not finished</span>'
    if folder.summary.get("is_complete") is True:
        if folder.notes:
            return '<span class="badge partial">complete, but mind the note</span>'
        return '<span class="badge complete">complete</span>'
    return '<span class="badge partial">stopped early</span>'


def _notes(folder: MappedFolder) -> str:
    """What the run says, and how the camera was tracked: no warning where all of it is known and joined."""
    notes = "".join(f'<p class="note">{escape(note)}</p>' for note in folder.notes)
    tracking = folder.tracking
    if tracking is None or tracking.in_words is None:
        return notes
    style = "note" if tracking.has_trouble else "note quiet"
    return f'{notes}<p class="{style}">{escape(tracking.in_words)}</p>'


def _subtitle(folder: MappedFolder) -> str:
    if folder.take is None:
        return "Nothing was mapped."
    header, model = folder.take.header, (folder.summary or {}).get("model")
    by = f" by {model}" if isinstance(model, str) else ""
    words = "metres" if header.unit is Unit.METRE else "model units, whose length in metres is unknown"
    return f"Depth and poses{by} of {header.width}x{header.height} pixels a frame; lengths are in {words}."


def _figures_of_take(folder: MappedFolder, take: Take, cloud: PointSample | None) -> Mapping[str, str | None]:
    times = take.trajectory.timestamp_s
    among = f" of {len(take) + len(folder.events):,}" if folder.events else ""
    return {
        "Frames": f"{len(take):,}{among}",
        "Video": seconds_in_words(float(times[-1] - times[0])),
        "Way": f"{length_of(take.trajectory):.3g} {_unit_of(take)}",
        "Points": None if cloud is None else f"{cloud.num_in_file:,}",
    }


def _figures_of_run(folder: MappedFolder) -> Mapping[str, str | None]:
    speed, memory = folder.number("frames_per_s"), folder.number("memory_bytes")
    peak, kept, windows = (folder.number(name) for name in ("peak_resident_bytes", "num_keyframes", "num_windows"))
    return {
        "Remembered": None if kept is None else f"{kept:,.0f}",
        "Windows": None if windows is None else f"{windows:,.0f}",
        "Loops closed": _num_loops(folder),
        "Speed": None if speed is None else f"{speed:.3g} frames/s",
        "Keys and values": None if memory is None else bytes_in_words(memory),
        "Peak memory": None if not peak else bytes_in_words(peak),
    }


def _num_loops(folder: MappedFolder) -> str | None:
    """That are believed; None of a run that looks for none."""
    loops = folder.table("loops")
    counts = loops.get("num_loops"), loops.get("num_withdrawn")
    return f"{counts[0] - counts[1]:,}" if isinstance(counts[0], int) and isinstance(counts[1], int) else None


def _tables(folder: MappedFolder) -> str:
    summary = folder.summary or {}
    of_run = {name: value for name, value in summary.items() if name not in ("settings", "versions", "longtake")}
    versions = {name: summary[name] for name in ("longtake",) if name in summary} | dict(folder.table("versions"))
    if folder.take is None:
        return table_section("Run", of_run) + table_section("Versions", versions)
    header = folder.take.header
    of_take = {
        "content": header.content.value,
        "width": header.width,
        "height": header.height,
        "unit": header.unit.value,
        "images": header.images,
        "depth": None if header.depth is None else header.depth.to_json(),
        "confidence": header.confidence,
    }
    tables = {
        "Settings": folder.table("settings"),
        "Run": of_run,
        "Take": of_take,
        "Versions": {"take made by": header.made_by, **versions},
    }
    return "".join(table_section(caption, values) for caption, values in tables.items())


def _read(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")
