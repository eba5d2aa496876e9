"""Lanes that share one worker: deficit round-robin by measured time, so that none gets more of it than another."""

from collections import deque
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Item = TypeVar("Item")

_LEAST_QUANTUM_S = 1e-4


@dataclass(slots=True)
class _Lane(Generic[Item]):
    """Items that wait in order, and what the lane may still spend."""

    waiting: deque[Item] = field(default_factory=deque)
    balance_s: float = 0.0
    """Seconds; below 0 after a step that took longer than the lane had."""
    granted_before_s: float = 0.0
    """Seconds that all lanes had got when it was last emptied."""


class FairQueue(Generic[Item]):
    """Items of several lanes; the one that comes next is served for a step, and what that took is paid afterwards.

        lanes in turn:  a ─▶ b ─▶ c ─▶ a ...     each gets a quantum of time when its turn comes, and is served
                                                 while its balance is above 0

    A lane whose steps take long goes into debt and sits out the turns that pay for it. One that is empty earns no
    credit, but its debt is paid off. Not safe for threads: the scheduler holds a lock.
    """

    def __init__(self) -> None:
        self._lanes: dict[str, _Lane[Item]] = {}
        self._turns: deque[str] = deque()
        self._granted_s = 0.0
        self._has_quantum = False
        """Whether the lane whose turn it is got what the turn brings."""

    def __len__(self) -> int:
        return sum(len(self._lanes[name].waiting) for name in self._turns)

    def put(self, name: str, item: Item) -> None:
        """Let an item wait behind those of its lane."""
        lane = self._lanes.setdefault(name, _Lane())
        if not lane.waiting:
            self._come_back(name, lane)
        lane.waiting.append(item)

    def peek(self, quantum_s: float) -> tuple[str, Item]:
        """The lane whose turn it is, and its first item; there must be one."""
        while (lane := self._first_lane(max(quantum_s, _LEAST_QUANTUM_S))).balance_s <= 0:
            self._turns.rotate(-1)
            self._has_quantum = False
        return self._turns[0], lane.waiting[0]

    def pay(self, name: str, seconds: float) -> None:
        """Charge a step to its lane."""
        self._lanes[name].balance_s -= seconds

    def take(self, name: str, item: Item) -> None:
        """Remove an item, served or not; one that is not there is fine."""
        lane = self._lanes.get(name)
        if lane is None or item not in lane.waiting:
            return
        lane.waiting.remove(item)
        if not lane.waiting:
            self._has_quantum = self._has_quantum and self._turns[0] != name
            self._turns.remove(name)
            lane.balance_s, lane.granted_before_s = min(lane.balance_s, 0.0), self._granted_s

    def waiting(self, name: str) -> tuple[Item, ...]:
        """The items of a lane, in order."""
        return tuple(self._lanes[name].waiting) if name in self._lanes else ()

    def forget(self, name: str) -> None:
        """Remove an empty lane and its debt."""
        if name in self._lanes and not self._lanes[name].waiting:
            del self._lanes[name]

    def _first_lane(self, quantum_s: float) -> _Lane[Item]:
        """The one whose turn it is, with the quantum of this turn."""
        lane = self._lanes[self._turns[0]]
        if not self._has_quantum:
            lane.balance_s += quantum_s
            self._granted_s, self._has_quantum = self._granted_s + quantum_s, True
        return lane

    def _come_back(self, name: str, lane: _Lane[Item]) -> None:
        """Behind the others, with what is left of a debt after the turns that it sat out."""
        sat_out_s = (self._granted_s - lane.granted_before_s) / max(1, len(self._turns))
        lane.balance_s = min(0.0, lane.balance_s + sat_out_s)
        self._turns.append(name)
