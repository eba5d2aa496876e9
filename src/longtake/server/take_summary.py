"""What a downloaded take says of itself: `summary.json` as `longtake map` writes it, as far as a session knows it."""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from longtake import __version__
from longtake.pipeline.notes import cut_off
from longtake.pipeline.tracked import count_tracking, tracking_summary
from longtake.runtime.steps import LoopUse
from longtake.server.notes import map_notes
from longtake.server.session import ServedSession
from longtake.server.shelf import Recorded
from longtake.takes.take import Take
from longtake.types import counted
from longtake.video.addresses import shown_address

_OF_A_MOMENT = ("num_bytes", "most_bytes")
"""Of what loops hold, in a server's memory; the rest is of the frames."""


def take_summary(session: ServedSession, recorded: Recorded, take: Take) -> bytes:
    """The same bytes for the same frames, wherever the session was in between: no times, and nothing of the server."""
    record, loops = session.record, session.loops
    summary: dict[str, Any] = {
        "source": record.spec.title or shown_address(record.spec.source),
        "model": record.spec.model,
        "num_frames": len(take),
        "unlikeness": record.unlikeness.model,
        "loops": session.told_loops | _found(loops),
        "tracking": _tracking(take, loops),
        "notes": list(_notes(session, recorded, take)),
        "longtake": __version__,
    }
    if record.is_finished and len(take) == record.num_frames:  # else the take is whole, but not all of the session
        summary["is_complete"] = True
    return json.dumps(summary, indent=1).encode()


def _notes(session: ServedSession, recorded: Recorded, take: Take) -> Iterator[str]:
    """What to know of the model, the video and the recording before the take is trusted."""
    yield from map_notes(session.record)
    cut = None if take.header.source is None else cut_off(take.header.source, take.header.size)
    if cut is not None:
        yield f"{cut}."
    if recorded.why_stopped is not None:
        why = session.events.shown(recorded.why_stopped)
        yield f"Recording stopped after {counted(len(take), 'frame')}, and what came later is not in this take: {why}"


def _found(loops: LoopUse | None) -> dict[str, Any]:
    found = {} if loops is None else asdict(loops)
    return {name: value for name, value in found.items() if name not in _OF_A_MOMENT}


def _tracking(take: Take, loops: LoopUse | None) -> dict[str, Any] | None:
    counts: Counter[str] = Counter()
    for record in take.records:
        count_tracking(counts, record.tracking)
    if loops is None:
        return None
    tracking = tracking_summary(counts, num_sub_maps=loops.num_sub_maps, apart=loops.apart)
    return None if tracking is None else asdict(tracking)
