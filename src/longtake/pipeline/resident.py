"""What the system says that this process holds."""

import sys

import psutil


def resident_bytes() -> int:
    """Now."""
    return int(psutil.Process().memory_info().rss)


def peak_bytes() -> int:
    """The most since the process began; 0 where the system does not tell."""
    if sys.platform == "win32":
        return 0
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
