"""The table of positions, against a slow walk over whole prompts."""

from pathlib import Path

import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import Qwen2_5_VLConfig, Qwen2_5_VLModel

from longtake.errors import InputError, SettingError
from longtake.language.explain import QWEN2_5, RANGES, FormatPlaces, Place, Stream, explain, picture_format
from longtake.language.positions import Positions, Text, VideoSpan, library_positions, positions, uniform_times

GOLDEN = Path(__file__).parent.parent / "golden" / "vlm"
BASE = 15
"""Tokens before the first frame: 11 of the system's turn, 3 that begin the user's, and one before the video."""


def stream_of(
    fps: float = 4.0, num_chunks: int = 3, size: tuple[int, int] = (720, 1280), chunk_frames: int = 2, **more: float
) -> Stream:
    fit = picture_format(None).fit(*size)
    return Stream(fps=fps, num_chunks=num_chunks, chunk_frames=chunk_frames, fit=fit, **more)


def by_name(stream: Stream) -> dict[str, FormatPlaces]:
    return {one.name: one for one in explain(stream)}


def token(told: Positions, at: int) -> Place:
    return Place(*(int(row[at]) for row in told.rows))


def test_a_720p_stream_at_four_frames_a_second() -> None:
    found = by_name(stream_of())
    assert [chunk.first for chunk in found["native"].chunks] == [Place(15 + k, 15, 15) for k in range(3)]
    assert [chunk.last for chunk in found["native"].chunks] == [Place(15 + k, 40, 60) for k in range(3)]
    assert [chunk.question.time for chunk in found["turns"].chunks] == [64, 117, 170]
    assert found["turns"].chunks[1].first == Place(68, 68, 68)
    assert (found["native"].chunks[2].start_s, found["native"].chunks[2].end_s) == (1.0, 1.5)
    assert found["open clip"].position_s == 0.5
    assert found["open clip"].lasts_h[128_000] == pytest.approx(17.776, abs=1e-3)


def test_turns_of_1080p_last_28_minutes_at_a_chunk_a_second() -> None:
    turns = by_name(stream_of(fps=2.0, size=(1080, 1920)))["turns"]
    assert turns.lasts_h[128_000] * 60 == pytest.approx(28, abs=0.1)
    assert turns.position_s == pytest.approx(1 / 76)


@settings(deadline=None, max_examples=40)
@given(
    fps=st.sampled_from([0.5, 1.0, 2.0, 3.0, 4.0, 24.0, 29.97]),
    num_chunks=st.integers(1, 6),
    chunk_frames=st.integers(1, 7),
    size=st.sampled_from([(56, 84), (84, 56), (28, 280)]),
)
def test_one_clip_is_a_walk_over_the_prompt_of_the_video_so_far(
    fps: float, num_chunks: int, chunk_frames: int, size: tuple[int, int]
) -> None:
    stream = stream_of(fps, num_chunks, size, chunk_frames)
    found = by_name(stream)
    for chunk in range(num_chunks):
        num_frames = (chunk + 1) * chunk_frames
        times = uniform_times(-(-num_frames // 2), 2 / fps, 2)
        film = VideoSpan(times, stream.fit.rows, stream.fit.columns)
        pieces = [Text(BASE), film, Text(1)]
        first_grid = chunk * chunk_frames // 2
        at = (BASE + first_grid * stream.tokens_per_grid, -2, -1)
        for name, told in (("native", positions(pieces)), ("library", library_positions(pieces))):
            places = found[name].chunks[chunk]
            assert [places.first, places.last, places.question] == [token(told, one) for one in at]


@settings(deadline=None, max_examples=40)
@given(fps=st.floats(0.25, 30.0), num_chunks=st.integers(1, 6), chunk_frames=st.integers(1, 7))
def test_the_open_clip_equals_the_native_prompt(fps: float, num_chunks: int, chunk_frames: int) -> None:
    found = by_name(stream_of(fps, num_chunks, (56, 84), chunk_frames))
    for opened, native in zip(found["open clip"].chunks, found["native"].chunks, strict=True):
        assert (opened.first.row, opened.first.column) == (native.first.row, native.first.column)
        for one, other in (
            (opened.first, native.first),
            (opened.last, native.last),
            (opened.question, native.question),
        ):
            # a frame due exactly when a position begins may be rounded into the one before by the published rule
            assert 0 <= one.time - other.time <= 1


@pytest.mark.parametrize("fps", [0.5, 1.0, 2.0, 4.0, 8.0])
@pytest.mark.parametrize("chunk_frames", [1, 2, 3, 8])
def test_at_usual_rates_nothing_is_rounded_differently(fps: float, chunk_frames: int) -> None:
    found = by_name(stream_of(fps, 9, (56, 84), chunk_frames))
    assert found["open clip"].chunks == found["native"].chunks
    assert found["open clip"].lasts_h == found["native"].lasts_h


@pytest.mark.parametrize("chunk_frames", [2, 3, 8])
def test_turns_are_a_walk_over_all_turns(chunk_frames: int) -> None:
    stream = stream_of(1.0, 4, (56, 84), chunk_frames)
    turns = by_name(stream)["turns"]
    film = VideoSpan(uniform_times(-(-chunk_frames // 2), 2.0, 2), stream.fit.rows, stream.fit.columns)
    pieces: list[Text | VideoSpan] = [Text(11)]
    for places in turns.chunks:
        pieces += [Text(4), film]
        told = positions(pieces)
        assert places.first == token(told, -film.num_tokens)
        assert places.last == token(told, -1)
        pieces.append(Text(3))
        assert places.question.time == positions(pieces).next_position


def test_the_range_ends_with_the_last_chunk_that_fits() -> None:
    stream = stream_of(2.0, 1, (56, 84))
    turns = by_name(stream)["turns"]
    for most in RANGES:
        next_position, num_chunks = 11, 0
        while (after := next_position + 7 + max(stream.fit.rows, stream.fit.columns)) <= most:
            next_position, num_chunks = after, num_chunks + 1
        assert turns.lasts_h[most] == pytest.approx(num_chunks * 1.0 / 3600)


def test_only_the_library_lets_a_question_fall_behind_and_says_when() -> None:
    found = by_name(stream_of(2.0, 8, (84, 112)))
    behind_after_s = found["library"].question_behind_after_s
    assert behind_after_s == 2.0
    for chunk in found["library"].chunks:
        assert (chunk.question.time <= chunk.last.time) == (chunk.start_s >= behind_after_s)
    for name in ("native", "turns", "open clip"):
        assert found[name].question_behind_after_s is None
        assert all(chunk.question.time > chunk.last.time for chunk in found[name].chunks)


@pytest.mark.skipif(
    not transformers.__version__.startswith("5.22."), reason="the column is of 5.22; 5.17 also cuts seconds short"
)
@pytest.mark.parametrize("fps", [1.0, 2.0, 4.0])
def test_the_library_column_is_what_the_installed_library_says(fps: float) -> None:
    with torch.device("meta"):
        model = Qwen2_5_VLModel(Qwen2_5_VLConfig.from_pretrained(GOLDEN))
    stream = stream_of(fps, 6, (56, 84))
    kinds = torch.tensor([[0] * BASE + [2] * 6 * stream.tokens_per_grid + [0]])
    grid = torch.tensor([[6, 2 * stream.fit.rows, 2 * stream.fit.columns]])
    told, _ = model.get_rope_index(
        torch.zeros_like(kinds), kinds, video_grid_thw=grid, second_per_grid_ts=torch.tensor([2 / fps])
    )
    library = by_name(stream)["library"]
    for number, chunk in enumerate(library.chunks):
        first = BASE + number * stream.tokens_per_grid
        assert chunk.first == Place(*told[:, 0, first].tolist())
        assert chunk.last == Place(*told[:, 0, first + stream.tokens_per_grid - 1].tolist())
    assert library.chunks[-1].question == Place(*told[:, 0, -1].tolist())


def test_positions_a_second_and_fewer_tokens_are_followed() -> None:
    fit = picture_format(64).fit(720, 1280)
    assert fit.rows * fit.columns <= 64
    found = by_name(Stream(fps=1.0, num_chunks=2, tokens_per_second=4.0, fit=fit))
    assert found["native"].chunks[1].first.time == BASE + 8
    assert found["native"].position_s == 0.25


def test_special_tokens_are_those_of_the_published_vocabulary() -> None:
    assert QWEN2_5.video(2) == [151656, 151656]


@pytest.mark.parametrize(
    ("settings_", "sentence"),
    [
        ({"fps": 0.0}, "frames a second above 0"),
        ({"fps": float("nan")}, "frames a second above 0"),
        ({"tokens_per_second": -1.0}, "positions a second above 0"),
        ({"num_chunks": 0}, "one chunk of one frame"),
        ({"chunk_frames": 0}, "one chunk of one frame"),
        ({"num_chunks": 10_000}, "at most 4,000,000 tokens"),
    ],
)
def test_streams_that_cannot_be_are_refused(settings_: dict[str, float], sentence: str) -> None:
    with pytest.raises(SettingError, match=sentence):
        stream_of(**settings_)


def test_a_size_of_nothing_is_refused() -> None:
    with pytest.raises(InputError, match="one pixel at least"):
        stream_of(size=(0, 10))
