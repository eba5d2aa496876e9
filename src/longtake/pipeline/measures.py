"""Time and memory of a run, as its files tell them."""

import json

from longtake.runtime.session import SequenceSession
from longtake.runtime.steps import VideoSession
from longtake.runtime.windowed import WindowedSession


def memory_bytes(session: VideoSession | None) -> int:
    """Of its keys and values."""
    inner = session.session if isinstance(session, WindowedSession) else session
    return inner.num_bytes if isinstance(inner, SequenceSession) else 0


def progress_line(index: int, seconds: float, resident_bytes: int) -> str:
    """A line on how far a run is, how long it took and what it holds."""
    return json.dumps({"index": index, "seconds": round(seconds, 3), "resident_bytes": resident_bytes})
