"""Frames and answers of one video as one stream."""

import threading
from collections.abc import Iterator

import pytest

from longtake.errors import InputError
from longtake.pipeline.interleaving import Interleaving


def words(*texts: str) -> Iterator[str]:
    yield from texts


def test_all_that_is_made_comes_out_and_frames_in_their_order() -> None:
    def drive(work: Interleaving[str]) -> None:
        work.answer(words("a", "b", "c"))
        for number in range(3):
            work.frame(words(f"frame {number}"))
        work.emit(["beside"])
        work.answer(words("d"))

    items = list(Interleaving[str](drive, capacity=1).items())
    assert [item for item in items if item.startswith("frame")] == ["frame 0", "frame 1", "frame 2"]
    assert [item for item in items if len(item) == 1] == ["a", "b", "c", "d"]
    assert "beside" in items


def failing() -> Iterator[str]:
    yield "begun"
    raise InputError("It fails.")


@pytest.mark.parametrize("kind", ["frame", "answer"])
def test_an_error_reaches_who_takes_the_items(kind: str) -> None:
    def drive(work: Interleaving[str]) -> None:
        (work.frame if kind == "frame" else work.answer)(failing())

    items = Interleaving[str](drive, capacity=1).items()
    assert next(items) == "begun"
    with pytest.raises(InputError, match="It fails"):
        list(items)


def test_leaving_early_ends_the_driver_and_the_worker() -> None:
    before = threading.active_count()

    def drive(work: Interleaving[str]) -> None:
        while True:
            work.frame(words("frame"))

    items = Interleaving[str](drive, capacity=1).items()
    assert next(items) == "frame"
    items.close()
    assert threading.active_count() == before
