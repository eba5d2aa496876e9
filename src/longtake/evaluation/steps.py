"""How far a measurement is, for whoever shows it."""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

BeginSteps = Callable[[int], Callable[[], None]]
"""Is told how many steps there will be; gives what is to be called after each."""
_Item = TypeVar("_Item")


def uncounted(num_steps: int) -> Callable[[], None]:  # noqa: ARG001
    """Nobody shows it."""
    return lambda: None


def stepping(items: Iterable[_Item], advance: Callable[[], None]) -> Iterator[_Item]:
    """The items, each a step."""
    for item in items:
        yield item
        advance()
