"""Standing questions of a session: asked again and again, told when the answer becomes the one that is waited for."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from longtake.server.problems import RequestError
from longtake.takes.fields import JsonObject
from longtake.video.addresses import shown_address

MOST_WATCHES = 4
"""Of one session."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """A question that stands."""

    id: str
    question: str
    expected: str
    """The answer that is waited for, whatever its case."""
    every_s: float = 1.0
    """Of the video, between two times that it is asked."""
    hold_s: float = 0.0
    """How long the answer must stay before it is told."""
    webhook: str | None = None
    """Where it is told too, of hosts that the operator allows."""

    def __post_init__(self) -> None:
        if not self.question.strip() or not self.expected.strip() or not self.id:
            raise RequestError("bad_watch", "Expected a question, and the answer to wait for as expected.")
        if not 0 < self.every_s < math.inf or not 0 <= self.hold_s < math.inf:
            raise RequestError("bad_watch", "Expected every_s above 0, and hold_s of 0 or more, in seconds.")

    def to_record(self) -> dict[str, Any]:
        """All of it, for the disk."""
        return asdict(self)

    @property
    def description(self) -> dict[str, Any]:
        """What clients are told; of the webhook no more than may be shown."""
        return {**asdict(self), "webhook": None if self.webhook is None else shown_address(self.webhook)}

    @classmethod
    def from_record(cls, record: JsonObject) -> "Watch":
        return cls(
            id=record.text("id"),
            question=record.text("question"),
            expected=record.text("expected"),
            every_s=record.positive_number("every_s"),
            hold_s=record.number("hold_s"),
            webhook=record.optional("webhook", record.text),
        )


@dataclass(slots=True)
class _Progress:
    """How far a watch has come, by the times of the video."""

    asked_s: float = -math.inf
    since_s: float | None = None
    """When the answer became the expected one; None while it is another."""
    is_told: bool = False


class Watches:
    """The watches of one session, by id."""

    def __init__(self, watches: Sequence[Watch] = ()) -> None:
        self._watches = {watch.id: watch for watch in watches}
        self._progress = {watch.id: _Progress() for watch in watches}

    @property
    def all(self) -> tuple[Watch, ...]:
        return tuple(self._watches.values())

    def add(self, watch: Watch) -> None:
        """One of an id that is there takes its place."""
        if watch.id not in self._watches and len(self._watches) >= MOST_WATCHES:
            raise RequestError("too_many_watches", f"Expected at most {MOST_WATCHES} standing questions.", status=429)
        self._watches[watch.id], self._progress[watch.id] = watch, _Progress()

    def remove(self, id: str) -> None:
        if id not in self._watches:
            raise RequestError("unknown_watch", "There is no standing question of this id.", status=404)
        del self._watches[id], self._progress[id]

    def due(self, time_s: float) -> tuple[Watch, ...]:
        """Those to be asked at this time of the video; they count as asked."""
        found = tuple(
            watch for watch in self._watches.values() if time_s - self._progress[watch.id].asked_s >= watch.every_s
        )
        for watch in found:
            self._progress[watch.id].asked_s = time_s
        return found

    def fires(self, watch: Watch, answer: str, time_s: float) -> bool:
        """Whether this answer is to be told: the expected one, for long enough, and not told since it became that."""
        progress = self._progress.get(watch.id)
        if progress is None:  # removed while it was asked
            return False
        if answer.strip().casefold() != watch.expected.strip().casefold():
            progress.since_s, progress.is_told = None, False
            return False
        progress.since_s = time_s if progress.since_s is None else progress.since_s
        is_first = not progress.is_told and time_s - progress.since_s >= watch.hold_s
        progress.is_told = progress.is_told or is_first
        return is_first
