"""What keyframes look like, a line a frame: half floats come back, resumed takes go on, broken lines are refused."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from longtake.errors import InputError
from longtake.takes.descriptors import descriptor_line, parse_descriptor
from longtake.takes.frames import TakeFrame
from longtake.takes.header import DESCRIPTORS_NAME, TakeHeader
from longtake.takes.take import read_take
from longtake.takes.writer import TakeWriter

MakeFrame = Callable[..., TakeFrame]
MakeHeader = Callable[..., TakeHeader]
CHANNELS = 6


def described(make_frame: MakeFrame, step: int) -> TakeFrame:
    """Every third frame is forgotten."""
    values = np.random.default_rng(step).normal(size=CHANNELS).astype(np.float32)
    return replace(make_frame(step), descriptor=None if step % 3 == 2 else values)


@given(arrays.arrays(np.float32, CHANNELS, elements=st.floats(-1e5, 1e5, width=32)))
def test_halves_come_back(values: np.ndarray) -> None:
    line = descriptor_line(values)
    assert line.endswith(b"\n")
    found = parse_descriptor(line[:-1], CHANNELS, Path("d"), 1)
    assert found is not None
    np.testing.assert_array_equal(found, values.clip(-65504, 65504).astype(np.float16).astype(np.float32))


def test_take_has_a_line_a_frame_and_reads_it_when_asked(
    tmp_path: Path, make_frame: MakeFrame, make_header: MakeHeader
) -> None:
    with TakeWriter(tmp_path / "take", replace(make_header(), descriptor_channels=CHANNELS)) as writer:
        for step in range(5):
            writer.write(described(make_frame, step))
    take = read_take(tmp_path / "take")
    found = take.descriptors()
    assert [one is None for one in found] == [False, False, True, False, False]
    for step in (0, 1, 3, -1):
        expected = described(make_frame, step % 5).descriptor
        assert expected is not None
        np.testing.assert_allclose(take.descriptor(step), expected, rtol=1e-3, atol=1e-6)
    assert take.descriptor(2) is None
    with pytest.raises(InputError, match="a frame from 0 to 4"):
        take.descriptor(5)
    (tmp_path / "take" / DESCRIPTORS_NAME).unlink()
    assert len(read_take(tmp_path / "take")) == 5  # nothing else needs them
    with pytest.raises(InputError, match=r"descriptors\.txt"):
        read_take(tmp_path / "take").descriptors()


def test_older_takes_are_read_and_say_that_they_have_none(
    tmp_path: Path, make_frame: MakeFrame, make_header: MakeHeader
) -> None:
    with TakeWriter(tmp_path / "take", make_header()) as writer:
        writer.write(make_frame(0))
    assert not (tmp_path / "take" / DESCRIPTORS_NAME).exists()
    with pytest.raises(InputError, match="has no descriptors; map the video again"):
        read_take(tmp_path / "take").descriptor(0)


def test_resumed_take_has_the_bytes_of_one_that_was_never_broken_off(
    tmp_path: Path, make_frame: MakeFrame, make_header: MakeHeader
) -> None:
    header = replace(make_header(), descriptor_channels=CHANNELS)
    for name, first in (("whole", 6), ("broken", 5)):
        with TakeWriter(tmp_path / name, header) as writer:
            for step in range(first):
                writer.write(described(make_frame, step))
                if step == 2:
                    digests = writer.digests
    with TakeWriter.resume(tmp_path / "broken", 3, digests) as writer:
        for step in range(3, 6):
            writer.write(described(make_frame, step))
    assert DESCRIPTORS_NAME in digests
    whole, broken = ((tmp_path / name / DESCRIPTORS_NAME).read_bytes() for name in ("whole", "broken"))
    assert whole == broken
    changed = b"AAAA" + whole[4:]
    (tmp_path / "broken" / DESCRIPTORS_NAME).write_bytes(changed)
    with pytest.raises(InputError, match="--overwrite"), TakeWriter.resume(tmp_path / "broken", 3, digests):
        pass


def test_frame_whose_descriptor_the_header_does_not_promise_is_refused(
    tmp_path: Path, make_frame: MakeFrame, make_header: MakeHeader
) -> None:
    with TakeWriter(tmp_path / "take", make_header()) as writer, pytest.raises(InputError, match="Expected no numbers"):
        writer.write(described(make_frame, 0))


@pytest.mark.parametrize("line", [b"AAAA", b"not base64!", b"AAAAAAAAAAAAAAAAAAA=", b"fHx8fHx8fHx8fHx8"])
def test_line_that_is_no_descriptor_is_one_sentence(line: bytes) -> None:
    with pytest.raises(InputError, match="Expected 6 finite numbers of 16 bits as base64 in d line 7"):
        parse_descriptor(line, CHANNELS, Path("d"), 7)
