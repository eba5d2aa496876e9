"""Time and memory of a run, as its files tell them."""

import json
import sys

import psutil

from longtake.runtime.session import GeometrySession
from longtake.runtime.steps import VideoSession
from longtake.runtime.windowed import WindowedSession


def memory_bytes(session: VideoSession | None) -> int:
    """Of its keys and values."""
    inner = session.session if isinstance(session, WindowedSession) else session
    return inner.num_bytes if isinstance(inner, GeometrySession) else 0


def progress_line(index: int, seconds: float) -> str:
    """A line on how far a run is, how long it took and what the process holds."""
    resident = psutil.Process().memory_info().rss
    return json.dumps({"index": index, "seconds": round(seconds, 3), "resident_bytes": resident})


def peak_resident_bytes() -> int:
    """Of this process since it began; 0 where the system does not tell."""
    if sys.platform == "win32":
        return 0
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
