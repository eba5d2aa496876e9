"""Ctrl-C as memory changes: a step was taken or not, `num_frames` tells which, and going on gives the same bits."""

import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from smallest import smallest_model

import longtake
from longtake import DialogueSession, GeometrySession, LiveSession
from longtake.language.load import LanguageModel
from longtake.memory.change import Change
from longtake.memory.transaction import Transaction
from longtake.types import Geometry

PICTURES = np.random.default_rng(1).integers(0, 256, (22, 56, 56, 3), dtype=np.uint8)
NUMBER = 17
QUESTION, CHOICES = "w60 w61", ["w72", "w154"]
MAPS = {"windows as usual": (None, 10), "windows of 16": ("12/4", 19)}
"""Windows, and the picture at which the signal comes: one that is kept, one that completes a scale block."""


@pytest.fixture(scope="module")
def tiny_ask(word_language: Path) -> LanguageModel:
    return longtake.load_language_model(word_language, device="cpu")


@pytest.fixture(params=["before", "after"])
def interrupted(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., object]]:
    """Makes a call during which SIGINT comes right before or right after a memory commits."""
    real, is_after = Transaction.commit_with, request.param == "after"

    def commit_with(self: Transaction, change: Change, *, num_frames: int | None = None) -> None:
        if not is_after:
            signal.raise_signal(signal.SIGINT)
        real(self, change, num_frames=num_frames)
        signal.raise_signal(signal.SIGINT)

    def call(step: Callable[[], object]) -> BaseException:
        with monkeypatch.context() as patched:
            patched.setattr(Transaction, "commit_with", commit_with)
            with pytest.raises(KeyboardInterrupt) as raised:
                step()
        return raised.value  # with its traceback, as a notebook keeps it

    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield call
    signal.signal(signal.SIGINT, previous)


def bits(geometry: Geometry) -> list[object]:
    moved = [] if geometry.moved is None else bits(geometry.moved.geometry)
    tensors = (geometry.world_from_camera, geometry.depth, geometry.depth_confidence)
    return [geometry.frame_index, geometry.provisional, *(tensor.numpy().tobytes() for tensor in tensors), *moved]


def open_map(windows: str | None) -> GeometrySession:
    return GeometrySession.from_pretrained(
        smallest_model(), memory="12 frames", policy="window", windows=windows, size=56
    )


def open_dialogue(language: LanguageModel) -> DialogueSession:
    num_bytes = (1024 + 2 + 24) * language.network.layout().bytes_per_slot
    return DialogueSession.from_pretrained(language, memory=num_bytes, max_tokens=2)


@pytest.mark.parametrize(("windows", "number"), MAPS.values(), ids=MAPS)
def test_map_goes_on_to_the_bit(interrupted: Callable[..., object], windows: str | None, number: int) -> None:
    undisturbed = open_map(windows)
    want = [bits(undisturbed.step(picture)) for picture in PICTURES]
    session = open_map(windows)
    for picture in PICTURES[:number]:
        session.step(picture)
    kept = interrupted(partial(session.step, PICTURES[number]))
    rest = range(session.info.num_frames, len(PICTURES))
    assert session.info.num_frames in (number, number + 1)
    assert [bits(session.step(PICTURES[index])) for index in rest] == want[rest.start :]
    assert bits(session.finish()) == bits(undisturbed.finish())
    assert session.info == undisturbed.info
    del kept


def test_dialogue_goes_on_to_the_bit(interrupted: Callable[..., object], tiny_ask: LanguageModel) -> None:
    undisturbed, session = open_dialogue(tiny_ask), open_dialogue(tiny_ask)
    for index, picture in enumerate(PICTURES):
        undisturbed.see(picture, index / 2)
    for index in range(NUMBER):
        session.see(PICTURES[index], index / 2)
    kept = interrupted(partial(session.see, PICTURES[NUMBER], NUMBER / 2))
    assert session.info.num_frames in (NUMBER, NUMBER + 1)
    for index in range(session.info.num_frames, len(PICTURES)):
        session.see(PICTURES[index], index / 2)
    assert session.ask_choice(QUESTION, CHOICES) == undisturbed.ask_choice(QUESTION, CHOICES)
    assert session.info.num_forgotten == undisturbed.info.num_forgotten
    del kept


def test_both_go_on_to_the_bit(interrupted: Callable[..., object], tiny_ask: LanguageModel) -> None:
    undisturbed = LiveSession(open_map(None), open_dialogue(tiny_ask))
    want = [bits(undisturbed.step(picture, index / 2)) for index, picture in enumerate(PICTURES)]
    session = LiveSession(open_map(None), open_dialogue(tiny_ask))
    for index in range(NUMBER):
        session.step(PICTURES[index], index / 2)
    kept = interrupted(partial(session.step, PICTURES[NUMBER], NUMBER / 2))
    taken = session.map.info.num_frames
    assert taken == session.dialogue.info.num_frames
    assert taken in (NUMBER, NUMBER + 1)
    assert [bits(session.step(PICTURES[index], index / 2)) for index in range(taken, len(PICTURES))] == want[taken:]
    assert session.dialogue.ask_choice(QUESTION, CHOICES) == undisturbed.dialogue.ask_choice(QUESTION, CHOICES)
    assert session._trail.value.looks_s == undisturbed._trail.value.looks_s
    del kept
