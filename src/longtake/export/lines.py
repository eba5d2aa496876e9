"""A text file of whole lines, flushed as they come; what the disk does not take is one sentence."""

from pathlib import Path

from longtake.takes.atomic_files import GrowingFile, require_writable, sync_path, writing


class LineFile:
    """Begins empty, or goes on after the first bytes of what a run before it wrote."""

    def __init__(self, path: Path, *, overwrite: bool = False, num_bytes: int | None = None) -> None:
        if num_bytes is None:
            require_writable(path, overwrite=overwrite)
        self._path = path
        with writing(str(path)):
            self._file = GrowingFile(path, num_bytes=num_bytes or 0)

    @property
    def is_empty(self) -> bool:
        return self._file.num_bytes == 0

    def append(self, *lines: str) -> None:
        """All of these lines, or none."""
        with writing(str(self._path)):
            self._file.append("".join(f"{line}\n" for line in lines).encode())

    def sync(self) -> int:
        """Return, when all lines are on the disk, how many bytes they have."""
        with writing(str(self._path)):
            self._file.sync()
            sync_path(self._path.parent)
        return self._file.num_bytes

    def close(self) -> None:
        self._file.close()
