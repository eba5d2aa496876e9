"""All videos of a batch with what came of each: `videos.csv`, in the order of the manifest."""

import csv
import io
from collections.abc import Callable, Mapping

from longtake.batch.manifest import Manifest, Row
from longtake.batch.storage import Storage
from longtake.video.addresses import shown_address

TABLE_NAME = "videos.csv"
_OF_SUMMARY = (
    *("num_frames", "num_keyframes", "num_windows", "num_dropped", "unlikeness"),
    *("seconds", "frames_per_s", "memory_bytes", "peak_resident_bytes", "model"),
)
COLUMNS = ("name", "source", "state", "tries", "problem", *_OF_SUMMARY, "notes")


def write_table(
    storage: Storage, manifest: Manifest, problems: Mapping[str, tuple[int, str]], is_done: Callable[[Row], bool]
) -> None:
    """`problems` are of videos that were set aside: after how many tries, and why."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(COLUMNS)
    for row in manifest:
        summary = storage.summary(row.name) or {}
        tries, problem = problems.get(row.name, ("", ""))
        state = "failed" if problem else "done" if summary.get("is_complete") and is_done(row) else "missing"
        figures = ["" if summary.get(name) is None else summary[name] for name in _OF_SUMMARY]
        notes = " ".join(map(str, summary.get("notes") or ()))
        writer.writerow([row.name, shown_address(row.source), state, tries, problem, *figures, notes])
    storage.write(TABLE_NAME, text.getvalue().encode(errors="backslashreplace"))
