"""Whether sessions of a model close loops: they do where its card says how, unless that is declined."""

from dataclasses import dataclass

from longtake.places.loop_card import LoopCard
from longtake.places.loop_rule import LoopRule


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopChoice:
    """What a run says of loops in its first line and in its summary."""

    card: LoopCard | None = None
    """None where no loops are closed."""
    rule: LoopRule = LoopRule()  # noqa: RUF009 (a frozen value)
    why: str = "nobody asked for them"
    """They are closed, or not."""

    @property
    def told(self) -> dict[str, bool | str]:
        """As plain values."""
        return {"are_closed": self.card is not None, "why": self.why}

    def most_bytes(self, size: tuple[int, int], num_channels: int) -> int:
        """That places of frames of this height and width may come to take beside keys and values."""
        return 0 if self.card is None else self.rule.most_bytes(size, num_channels)

    def __str__(self) -> str:
        return f"no loops: {self.why}" if self.card is None else "loops are closed"


NOT_NAMED = LoopChoice(why="a model that is given without its name has no card of loops")


def choose_loops(card: LoopCard | None, *, are_wanted: bool = True) -> LoopChoice:
    """For a model with this card, or without one."""
    if not are_wanted:
        return LoopChoice(why="as asked for")
    if card is None:
        return LoopChoice(why="the model has no card of loops")
    if card.side is not None:
        return LoopChoice(why="the model's card asks the network about each, for which a session has no time")
    return LoopChoice(card=card, why="the model's card says how")
