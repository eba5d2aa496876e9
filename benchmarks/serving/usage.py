"""What a server's process holds: memory, files, threads, sockets, folders."""

from dataclasses import dataclass

import psutil

from benchmarks.serving.process import ServerProcess

_SLACK = 0.05
_SLACK_BYTES = 20_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """At one moment."""

    resident_bytes: int
    num_files: int
    """Open descriptors, those of sockets included."""
    num_threads: int
    num_sockets: int
    num_folders: int
    """Of sessions, on the disk."""

    def is_flat_since(self, earlier: "Usage") -> bool:
        """Memory within 5 % or 20 MB, and of the rest no more than before."""
        allowed = max(_SLACK * earlier.resident_bytes, _SLACK_BYTES)
        return (
            self.resident_bytes - earlier.resident_bytes <= allowed
            and self.num_files <= earlier.num_files
            and self.num_threads <= earlier.num_threads
            and self.num_sockets <= earlier.num_sockets
            and self.num_folders <= earlier.num_folders
        )


def usage_of(server: ServerProcess) -> Usage:
    """Of a server and its folder, now."""
    process = psutil.Process(server.process.pid)
    return Usage(
        resident_bytes=process.memory_info().rss,
        num_files=process.num_fds(),
        num_threads=process.num_threads(),
        num_sockets=len(process.net_connections()),
        num_folders=sum(path.is_dir() for path in server.folder.iterdir()),
    )
