"""How much of a video is mapped while it runs: of its frames, or of those of its spans."""

from collections.abc import Iterable

from longtake.batch.job import Failed, Finished, Stopped, Told, Watched


class VideoShare:
    """Of one video, by what the workers of its parts tell."""

    def __init__(self, parts: Iterable[str], done: Iterable[str] = ()) -> None:
        """Names of the jobs that map it, and of those among them that an earlier batch did."""
        self._done = dict.fromkeys(parts, 0.0)
        self._here = dict(self._done)
        self._done.update(dict.fromkeys(done, 1.0))

    @property
    def done(self) -> float:
        """From 0 to 1, whoever did it."""
        return sum(self._done.values()) / len(self._done)

    @property
    def here(self) -> float:
        """Of this, what the batch itself did."""
        return sum(self._here.values()) / len(self._here)

    def hear(self, report: Told) -> None:
        """What fails begins again, or where a checkpoint says; nobody knows before its next worker does."""
        name = report.name
        if name not in self._done:
            return
        match report:
            case Watched(num_in_all=int(in_all)) if in_all:
                self._done[name] = min(1.0, (report.num_before + report.num_frames) / in_all)
                self._here[name] = min(1.0, report.num_frames / in_all)
            case Finished():
                self._here[name] += 1.0 - self._done[name]
                self._done[name] = 1.0
            case Failed() | Stopped():
                self._done[name] = self._here[name] = 0.0
