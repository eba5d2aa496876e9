"""What a mapped folder holds, as far as it is there; what is missing or damaged is a sentence."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from longtake.errors import InputError
from longtake.exports.record import EXPORT_FOLDER, RECORD_NAME, ExportRecord
from longtake.exports.report.asked import ASKED_NAME, Asked
from longtake.exports.report.truth import TRUTH_NAME, Truth
from longtake.exports.tracking import TrackingSummary, tracking_in
from longtake.takes.fields import JsonObject, parse_file
from longtake.takes.take import Take, read_take

SUMMARY_NAME = "summary.json"
RUN_NAME = "run.json"
MERGE_NAME = "merge.json"
EVENTS_NAME = "events.jsonl"
PROGRESS_NAME = "progress.jsonl"

_Part = TypeVar("_Part")


@dataclass(frozen=True, slots=True)
class Event:
    """A frame without a result."""

    index: int
    timestamp_s: float
    problem: str


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run was at some moment."""

    index: int
    """Of the newest frame."""
    seconds: float
    """Since the run began; a resumed run begins at 0 again."""
    resident_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MappedFolder:
    """What could be read; `problems` says why the rest could not."""

    path: Path
    take: Take | None
    summary: Mapping[str, Any] | None
    events: tuple[Event, ...]
    progress: tuple[Progress, ...]
    export: ExportRecord | None
    """What was exported from it when the video had ended."""
    truth: Truth | None
    """How far it is from the truth, where that is known."""
    asked: Asked | None
    """What was asked about it, where somebody did."""
    merge: Mapping[str, Any] | None
    """What is said of two others that it was made of, which no run summed up."""
    problems: tuple[str, ...]

    def number(self, name: str) -> float | None:
        """A finite number of the summary, None where there is none."""
        value = (self.summary or {}).get(name)
        is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        return float(value) if is_number else None  # type: ignore[arg-type]

    @property
    def notes(self) -> list[str]:
        """What the run says of its model and its video."""
        notes = (self.summary or {}).get("notes")
        return [note for note in notes if isinstance(note, str)] if isinstance(notes, list) else []

    @property
    def all_notes(self) -> list[str]:
        """These, and how the camera was tracked."""
        words = None if self.tracking is None else self.tracking.in_words
        return self.notes if words is None else [*self.notes, words]

    @property
    def tracking(self) -> TrackingSummary | None:
        return tracking_in(self.summary or self.merge or {})

    @property
    def apart(self) -> frozenset[int]:
        """Sub-maps that no loop joined to the first."""
        return frozenset() if self.tracking is None else frozenset(self.tracking.apart)

    def table(self, name: str) -> Mapping[str, Any]:
        """An object of the summary, empty where there is none."""
        value = (self.summary or {}).get(name)
        return value if isinstance(value, dict) else {}


def read_folder(path: Path) -> MappedFolder:
    """A folder that holds a take or at least the summary of a run."""
    problems: list[str] = []
    take = _read_or_note(lambda: read_take(path), problems)
    summary = _read_or_note(lambda: parse_file(path / SUMMARY_NAME, JsonObject.parse), problems)
    merge = _read_or_note(lambda: parse_file(path / MERGE_NAME, JsonObject.parse), problems)
    if take is None and summary is None:
        raise InputError(f"Expected a mapped video in {path}, but there is none. {problems[0]}")
    return MappedFolder(
        path=path,
        take=take,
        summary=None if summary is None else summary.fields,
        events=_read_or_note(lambda: _events(path / EVENTS_NAME), problems) or (),
        progress=_read_or_note(lambda: _progress(path / PROGRESS_NAME), problems) or (),
        export=_read_or_note(lambda: parse_file(path / EXPORT_FOLDER / RECORD_NAME, ExportRecord.parse), problems),
        truth=_read_or_note(lambda: parse_file(path / TRUTH_NAME, Truth.parse), problems),
        asked=_read_or_note(lambda: parse_file(path / ASKED_NAME, Asked.parse), problems),
        merge=None if merge is None else merge.fields,
        problems=tuple(problems),
    )


def _read_or_note(read: Callable[[], _Part], problems: list[str]) -> _Part | None:
    try:
        return read()
    except InputError as error:
        problems.append(str(error))
        return None


def _events(path: Path) -> tuple[Event, ...]:
    return tuple(
        Event(line.integer("index"), line.number("timestamp_s"), line.text("problem")) for line in _lines(path)
    )


def _progress(path: Path) -> tuple[Progress, ...]:
    """In order of frames: what a resumed run did again counts as it was the last time."""
    rows: list[Progress] = []
    for line in _lines(path):
        row = Progress(line.integer("index"), line.number("seconds"), line.integer("resident_bytes"))
        while rows and rows[-1].index >= row.index:
            rows.pop()
        rows.append(row)
    return tuple(rows)


def _lines(path: Path) -> list[JsonObject]:
    """Whole lines only: a run that was killed may have torn the last."""
    return parse_file(path, _parse_lines) or []


def _parse_lines(content: bytes, where: str) -> list[JsonObject]:
    lines = content.split(b"\n")[:-1]
    return [JsonObject.parse(line, f"{where} line {number}") for number, line in enumerate(lines, start=1)]
