"""Values that change together do so at once, wherever an interrupt or an error comes."""

from collections.abc import Sequence
from functools import partial

import pytest
from broken import Interrupt
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from longtake.memory.change import Change, Changing, Part, change_together

numbers = st.integers(0, 99)


def becoming(values: Sequence[Changing[int]], after: Sequence[int]) -> list[Part]:
    return [partial(value.become_with, number) for value, number in zip(values, after, strict=True)]


def read(values: Sequence[Changing[int]]) -> list[int]:
    return [value.value for value in values]


def test_value_changes_alone() -> None:
    value = Changing(1)
    value.become(2)
    assert value.value == 2


@given(st.lists(st.tuples(numbers, numbers), max_size=6))
def test_values_change_together(pairs: list[tuple[int, int]]) -> None:
    values, after = [Changing(before) for before, _ in pairs], [after for _, after in pairs]
    change_together(*becoming(values, after))
    assert read(values) == after


@given(st.lists(st.tuples(numbers, numbers), min_size=1, max_size=6), st.data())
def test_values_are_as_before_until_all_are_ready(pairs: list[tuple[int, int]], data: st.DataObject) -> None:
    before, after = (list(side) for side in zip(*pairs, strict=True))
    values, seen = [Changing(number) for number in before], list[list[int]]()

    def look(change: Change) -> None:
        seen.append(read(values))
        change.go_on()

    parts = becoming(values, after)
    parts.insert(data.draw(st.integers(0, len(parts))), look)
    change_together(*parts)
    assert seen == [before]
    assert read(values) == after


def test_locks_that_parts_hold_are_held_until_the_change_is_made() -> None:
    value, events = Changing(1), list[tuple[str, int]]()

    def hold(name: str, change: Change) -> None:
        events.append((f"{name} held", value.value))
        change.go_on()
        events.append((f"{name} let go", value.value))

    change_together(partial(hold, "one"), partial(value.become_with, 2), partial(hold, "other"))
    assert events == [("one held", 1), ("other held", 1), ("other let go", 2), ("one let go", 2)]


def test_what_a_value_was_is_let_go_with_the_change() -> None:
    class Large:
        """Whatever takes room."""

    before = Large()
    value = Changing(before)
    change_together(partial(value.become_with, Large()))
    assert all(side is not before for side in (value._ready.before, value._ready.after))


def test_interrupt_at_any_instruction_finds_all_values_as_before_or_all_changed() -> None:
    whole = Interrupt(None, ("memory/change",))
    whole.during(lambda: change_together(*becoming([Changing(1), Changing(2), Changing(3)], [4, 5, 6])))
    found = []
    for number in range(1, len(whole.lines) + 1):
        values, broken = [Changing(1), Changing(2), Changing(3)], Interrupt(number, ("memory/change",))
        broken.during(partial(change_together, *becoming(values, [4, 5, 6])))
        found.append(tuple(read(values)))
        change_together(*becoming(values, [7, 8, 9]))
        assert read(values) == [7, 8, 9], broken.at
    assert set(found) == {(1, 2, 3), (4, 5, 6)}
    assert found == sorted(found)  # first those that came too early to be taken, then the others


class Several(RuleBasedStateMachine):
    """Three values that change in any company and order, failing now and then, beside a plain list."""

    def __init__(self) -> None:
        super().__init__()
        self.values, self.twin = [Changing(0) for _ in range(3)], [0, 0, 0]

    @rule(which=st.integers(0, 2), after=numbers)
    def alone(self, which: int, after: int) -> None:
        self.values[which].become(after)
        self.twin[which] = after

    @rule(which=st.permutations(range(3)), count=st.integers(0, 3), after=st.tuples(numbers, numbers, numbers))
    def together(self, which: list[int], count: int, after: tuple[int, ...]) -> None:
        change_together(*(partial(self.values[one].become_with, after[one]) for one in which[:count]))
        for one in which[:count]:
            self.twin[one] = after[one]

    @rule(which=st.permutations(range(3)), count=st.integers(0, 3), after=st.tuples(numbers, numbers, numbers))
    def fail(self, which: list[int], count: int, after: tuple[int, ...]) -> None:
        """What was laid ready is never adopted, whatever changes afterwards."""
        parts: list[Part] = [partial(self.values[one].become_with, after[one]) for one in which]
        with pytest.raises(ZeroDivisionError):
            change_together(*parts[:count], lambda _: 1 // 0, *parts[count:])

    @invariant()
    def all_are_as_they_were_made(self) -> None:
        assert read(self.values) == self.twin


TestSeveral = Several.TestCase
