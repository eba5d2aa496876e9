"""All videos of a batch with what came of each: `videos.csv`, in the order of the manifest."""

import csv
import io
from collections.abc import Callable, Mapping
from typing import Any

from longtake.batch.manifest import Manifest, Row
from longtake.batch.naming import TABLE_NAME
from longtake.batch.storage import Storage
from longtake.errors import InputError, StorageError
from longtake.exports.tracking import tracking_in
from longtake.types import TrackingState
from longtake.video.addresses import shown_address

_FIGURES = (
    *("num_frames", "num_keyframes", "num_windows", "num_dropped"),
    *("num_loops", "num_lost_frames", "num_sub_maps", "num_apart", "unlikeness"),
    *("seconds", "frames_per_s", "memory_bytes", "peak_resident_bytes", "model"),
)
COLUMNS = ("name", "source", "state", "tries", "problem", *_FIGURES, "notes")


def require_own_table(storage: Storage) -> None:
    """Refuse to put the table in place of somebody's file of its name."""
    own = ",".join(COLUMNS[:3]).encode()
    found = storage.beginning(TABLE_NAME, len(own))
    if found not in (None, own):
        raise InputError(
            f"The table of results would replace {storage.address}/{TABLE_NAME}, which is none; move it away, or name "
            "another place."
        )


def write_table(
    storage: Storage, manifest: Manifest, problems: Mapping[str, tuple[int, str]], is_done: Callable[[Row], bool]
) -> None:
    """`problems` are of videos that were set aside: after how many tries, and why."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(COLUMNS)
    for row in manifest:
        summary = _summary(storage, row.name)
        tries, problem = problems.get(row.name, ("", ""))
        state = "failed" if problem else "done" if summary.get("is_complete") and is_done(row) else "missing"
        notes = " ".join(map(str, listed)) if isinstance(listed := summary.get("notes"), list) else ""
        writer.writerow([row.name, shown_address(row.source), state, tries, problem, *_figures(summary), notes])
    storage.write(TABLE_NAME, text.getvalue().encode(errors="backslashreplace"))


def _figures(summary: Mapping[str, Any]) -> list[Any]:
    """One for each column; empty where there is none."""
    found = {**summary, **_of_loops(summary)}
    return ["" if found.get(name) is None else found[name] for name in _FIGURES]


def _of_loops(summary: Mapping[str, Any]) -> dict[str, Any]:
    """As far as a summary says; one of an older version may not."""
    found: dict[str, Any] = {}
    if isinstance(loops := summary.get("loops"), dict):
        found["num_loops"] = loops.get("num_loops")
    if (tracking := tracking_in(summary)) is not None:
        found["num_lost_frames"] = tracking.states.get(TrackingState.LOST, 0)
        found["num_sub_maps"], found["num_apart"] = tracking.num_sub_maps, len(tracking.apart)
    return found


def _summary(storage: Storage, name: str) -> Mapping[str, Any]:
    """One that cannot be read costs the table its figures alone."""
    try:
        return storage.summary(name) or {}
    except StorageError:
        raise  # nothing can be written there either
    except InputError:
        return {}
