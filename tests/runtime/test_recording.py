"""Recording where there is no GPU: what must hold when it fails half-way, when weights change, and of many shapes."""

from collections.abc import Callable
from contextlib import nullcontext

import pytest
import torch

from longtake.errors import InputError
from longtake.runtime import recording
from longtake.runtime.recording import MostRecent, Recording, Weights


class _Stream:
    def __init__(self) -> None:
        self.waited_for: list[object] = []

    def wait_stream(self, other: object) -> None:
        self.waited_for.append(other)


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_kernels_launched_aside_are_waited_for_when_the_next_one_fails(
    error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, aside = _Stream(), _Stream()
    monkeypatch.setattr(recording, "stream_aside", lambda _: aside)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: here)
    monkeypatch.setattr(torch.cuda, "stream", lambda _: nullcontext())

    def compute() -> None:
        raise error

    with pytest.raises(error):
        Recording(torch.device("cuda"), None)._record(compute)
    assert here.waited_for == [aside]


def test_of_many_shapes_those_used_last_are_held() -> None:
    made: list[int] = []

    def make(shape: int) -> str:
        made.append(shape)
        return f"of {shape}"

    recent = MostRecent[int, str](most=3)
    for shape in (1, 2, 3, 1, 4, 1, 3):
        assert recent.of(shape, make) == f"of {shape}"
    assert made == [1, 2, 3, 4]
    assert len(recent) == 3
    recent.of(2, make)
    assert made == [1, 2, 3, 4, 2]


def test_what_could_not_be_made_is_made_when_it_is_asked_for_again() -> None:
    recent = MostRecent[int, str]()

    def fail(_: int) -> str:
        raise RuntimeError

    with pytest.raises(RuntimeError):
        recent.of(1, fail)
    assert recent.of(1, str) == "1"


def test_numbers_made_while_nothing_is_learned_can_be_changed_later() -> None:
    recent = MostRecent[int, torch.Tensor]()
    with torch.inference_mode():
        numbers = recent.of(3, torch.zeros)
    numbers.fill_(1)
    assert not numbers.is_inference()


def _move(model: torch.nn.Linear) -> None:
    model.weight.data = model.weight.data.clone()


def _change(model: torch.nn.Linear) -> None:
    model.load_state_dict({name: 2 * value for name, value in model.state_dict().items()})


@pytest.mark.parametrize("alter", [_move, _change])
def test_weights_that_were_moved_or_changed_are_noticed(alter: Callable[[torch.nn.Linear], None]) -> None:
    model = torch.nn.Linear(2, 3)
    weights = Weights(model)
    weights.require_unchanged()
    assert weights.are_those_of(model)
    alter(model)
    assert not weights.are_those_of(model)
    with pytest.raises(InputError, match="moved or changed while a session of it was open; open a new session"):
        weights.require_unchanged()
