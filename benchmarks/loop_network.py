"""A geometry model with the card by which it knows places again, opened once a process."""

from dataclasses import dataclass
from functools import lru_cache

from longtake.errors import SettingError
from longtake.geometry.model import GeometryModel
from longtake.hub.resolve import resolve
from longtake.places.loop_card import LoopCard, read_loop_card
from longtake.runtime.build import open_session, usual_settings
from longtake.runtime.steps import VideoSession
from longtake.weights.load import load_geometry

SIZE = (98, 126)
"""Height and width of what it is shown."""


@dataclass(frozen=True, slots=True)
class LoopNetwork:
    """What is needed to walk with loops and without."""

    model: GeometryModel
    card: LoopCard

    def open(self) -> VideoSession:
        """A session that knows of no loops."""
        return open_session(self.model, usual_settings(self.model.config), SIZE)


@lru_cache(maxsize=1)
def loop_network(name: str) -> LoopNetwork:
    """Refused where there is no card."""
    weights = resolve(name)
    card = read_loop_card(weights)
    if card is None:
        raise SettingError(f"Expected a model with a card of loops, but {name} has none; choose one with loop-pairs.")
    return LoopNetwork(load_geometry(weights).eval(), card)
