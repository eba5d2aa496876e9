"""What a batch needs of those who work for it, wherever they are."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from longtake.batch.job import Job, Told


class Pool(ABC):
    """Workers that take a job each; one that dies is replaced, and its job told as failed."""

    @property
    @abstractmethod
    def num_workers(self) -> int: ...

    @property
    @abstractmethod
    def num_free(self) -> int:
        """That could take a job now."""

    @abstractmethod
    def give(self, job: Job) -> None:
        """To one that is free."""

    @abstractmethod
    def told(self, timeout_s: float) -> Sequence[Told]:
        """What was told since, at the latest after so long; may be nothing."""

    @abstractmethod
    def stop(self) -> None:
        """Ask all to end what they do so that it can go on; how each job ended is told."""

    @abstractmethod
    def close(self) -> None:
        """End all workers, whatever they do."""
