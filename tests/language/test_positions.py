import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from longtake.errors import InputError
from longtake.language.model_config import SpecialIds
from longtake.language.positions import (
    Picture,
    Piece,
    Text,
    VideoSpan,
    append_grids,
    grid_times,
    library_positions,
    positions,
    uniform_times,
)
from longtake.language.qwen2_5_vl import pieces_of

CASES = [
    "text_only",
    "image_1",
    "video_1chunk",
    "stream_3chunks_mixed_fps",
    "stream_odd_frames",
    "stream_fractional_fps",
    "video_long_T",
    "mixed_image_video_multiturn",
    "stream_open_clip",
    "stream_eviction",
]
WITHOUT_LIBRARY_POSITIONS = {"text_only", "stream_open_clip", "stream_eviction"}
TOKENS_PER_SECOND = 2
MERGE = 2

Case = dict[str, Tensor]
sides = st.integers(1, 6)
times = st.lists(st.integers(0, 9), min_size=1, max_size=5).map(lambda gaps: tuple(np.cumsum(gaps).tolist()))
# A span is made inside the test: the checks of its types draw random numbers, which strategies must not.
spans = st.tuples(times, sides, sides)
prompts = st.lists(st.one_of(st.builds(Text, st.integers(0, 5)), st.builds(Picture, sides, sides), spans), max_size=6)
Drawn = list[Text | Picture | tuple[tuple[int, ...], int, int]]


def build(drawn: Drawn) -> list[Piece]:
    return [VideoSpan(*piece) if isinstance(piece, tuple) else piece for piece in drawn]


@pytest.fixture
def pieces(vlm_index: dict[str, Any], vlm_special: SpecialIds) -> Callable[[str, Case], list[Piece]]:
    def of(name: str, case: Case) -> list[Piece]:
        grids = case["video_grid_thw"].tolist() if "video_grid_thw" in case else []
        seconds = vlm_index[name].get("second_per_grid_ts", [])
        spans = [
            VideoSpan(uniform_times(count, second, TOKENS_PER_SECOND), height // MERGE, width // MERGE)
            for (count, height, width), second in zip(grids, seconds, strict=True)
        ]
        stills = case["image_grid_thw"].tolist() if "image_grid_thw" in case else []
        pictures = [Picture(height // MERGE, width // MERGE) for _, height, width in stills]
        return pieces_of(case["input_ids"].tolist(), vlm_special, pictures=pictures, video_spans=spans)

    return of


def test_every_case_with_positions_is_tried(vlm_index: dict[str, Any]) -> None:
    assert set(CASES) == set(vlm_index) - {"mrope_tables"}
    without = {name for name in CASES if "position_ids_hf_5_22_2" not in vlm_index[name]["tensors"]}
    assert without == WITHOUT_LIBRARY_POSITIONS


@pytest.mark.parametrize("name", CASES)
def test_positions_are_the_golden_ones(
    name: str,
    vlm_index: dict[str, Any],
    vlm_case: Callable[[str], Case],
    pieces: Callable[[str, Case], list[Piece]],
) -> None:
    case = vlm_case(name)
    got = positions(pieces(name, case))
    want = case["position_ids_keep" if name == "stream_eviction" else "position_ids"].numpy()
    assert (got.rows == want).all()
    told = vlm_index[name]
    if "next_position" in told:
        assert got.next_position == told["next_position"]
    if "next_position_after_question" in told:
        assert got.next_position == told["next_position_after_question"]


@pytest.mark.parametrize("name", [name for name in CASES if name not in WITHOUT_LIBRARY_POSITIONS])
def test_the_library_s_positions_are_the_golden_ones(
    name: str, vlm_case: Callable[[str], Case], pieces: Callable[[str, Case], list[Piece]]
) -> None:
    case = vlm_case(name)
    assert (library_positions(pieces(name, case)).rows == case["position_ids_hf_5_22_2"].numpy()).all()


def test_the_library_puts_text_into_the_time_of_a_long_clip() -> None:
    prompt = [Text(4), VideoSpan(uniform_times(8, 2.0, 2), 3, 4), Text(1)]
    assert positions(prompt).rows[:, -1].tolist() == [33, 33, 33]
    assert library_positions(prompt).rows[:, -1].tolist() == [8, 8, 8]


@pytest.mark.parametrize("name", ["stream_3chunks_mixed_fps", "stream_odd_frames", "stream_fractional_fps"])
def test_chunks_of_a_stream_carry_the_next_position_over(
    name: str,
    vlm_index: dict[str, Any],
    vlm_case: Callable[[str], Case],
    vlm_special: SpecialIds,
) -> None:
    told, case = vlm_index[name], vlm_case(name)
    ids, start, next_position = case["input_ids"].tolist(), 0, 0
    for chunk, length in enumerate(told["chunk_lengths"]):
        count, height, width = case["video_grid_thw"][chunk].tolist()
        seen = uniform_times(count, told["second_per_grid_ts"][chunk], TOKENS_PER_SECOND)
        span = VideoSpan(seen, height // MERGE, width // MERGE)
        got = positions(pieces_of(ids[start : start + length], vlm_special, video_spans=[span]), next_position)
        assert (got.rows == case["position_ids"][:, start : start + length].numpy()).all()
        assert got.next_position == told["next_position_after_chunk"][chunk]
        start, next_position = start + length, got.next_position


def test_appends_to_the_open_clip_are_the_golden_ones(
    vlm_index: dict[str, Any], vlm_case: Callable[[str], Case]
) -> None:
    told, want = vlm_index["stream_open_clip"], vlm_case("stream_open_clip")["position_ids"].numpy()
    base = start = told["base_position"]
    first_frame = 0
    for num_frames in told["append_sizes"]:
        first_frames_s = [frame / told["fps"][0] for frame in range(first_frame, first_frame + num_frames, 2)]
        got = append_grids(base, grid_times(first_frames_s, TOKENS_PER_SECOND), 3, 4)
        stop = start + got.rows.shape[1]
        assert (got.rows == want[:, start:stop]).all()
        first_frame, start = first_frame + num_frames, stop
    assert got.next_position == want[0, start]


def slow_positions(prompt: list[Piece], start: int) -> tuple[list[list[int]], int]:
    """Token by token; the next piece begins one after the largest number of this one."""
    found: list[list[int]] = []
    for piece in prompt:
        own: list[list[int]] = []
        if isinstance(piece, Text):
            own = [[start + token] * 3 for token in range(piece.num_tokens)]
        else:
            for time in piece.times if isinstance(piece, VideoSpan) else (0,):
                for row in range(piece.rows):
                    own += [[start + time, start + row, start + column] for column in range(piece.columns)]
        start = max([start - 1, *map(max, own)]) + 1
        found += own
    return found, start


@given(prompts, st.integers(0, 1000))
@settings(deadline=None, max_examples=60)
def test_positions_equal_a_walk_token_by_token(drawn: Drawn, start: int) -> None:
    prompt = build(drawn)
    want, next_position = slow_positions(prompt, start)
    got = positions(prompt, start)
    assert got.rows.T.tolist() == want
    assert got.next_position == next_position
    assert got.rows.shape == (3, sum(piece.num_tokens for piece in prompt))


@given(prompts, st.integers(0, 100_000))
@settings(deadline=None, max_examples=60)
def test_positions_move_with_their_start(drawn: Drawn, start: int) -> None:
    prompt = build(drawn)
    for rule in (positions, library_positions):
        here, there = rule(prompt), rule(prompt, start)
        assert (there.rows == here.rows + start).all()
        assert there.next_position == here.next_position + start


@given(prompts, st.data())
@settings(deadline=None, max_examples=60)
def test_a_prompt_in_two_parts_has_the_positions_of_the_whole(drawn: Drawn, data: st.DataObject) -> None:
    prompt = build(drawn)
    cut = data.draw(st.integers(0, len(prompt)))
    before = positions(prompt[:cut])
    after = positions(prompt[cut:], before.next_position)
    whole = positions(prompt)
    assert (np.concatenate([before.rows, after.rows], axis=1) == whole.rows).all()
    assert after.next_position == whole.next_position


@given(spans, st.integers(0, 1000), st.data())
@settings(deadline=None, max_examples=60)
def test_an_open_clip_in_any_parts_is_the_whole_clip(
    drawn: tuple[tuple[int, ...], int, int], base: int, data: st.DataObject
) -> None:
    span = VideoSpan(*drawn)
    last = len(span.times) - 1
    cuts = data.draw(st.sets(st.integers(1, last))) if last else set()
    borders = pairwise([0, *sorted(cuts), len(span.times)])
    parts = [append_grids(base, span.times[start:stop], span.rows, span.columns) for start, stop in borders]
    whole = positions([span], base)
    assert (np.concatenate([part.rows for part in parts], axis=1) == whole.rows).all()
    assert parts[-1].next_position == whole.next_position


@given(st.integers(1, 48), st.integers(1, 400), st.floats(0, 2e9))
@settings(deadline=None, max_examples=100)
def test_a_clock_that_began_long_ago_gives_the_times_of_the_frame_rate(
    fps: int, num_grids: int, started_s: float
) -> None:
    clock = [started_s + 2 * grid / fps for grid in range(num_grids)]
    got = grid_times([time_s - clock[0] for time_s in clock], 2)
    assert got == tuple(4 * grid // fps for grid in range(num_grids))


def test_times_are_floored_last() -> None:
    assert uniform_times(5, 2 / 3, 2) == (0, 1, 2, 4, 5)
    assert uniform_times(8, 2 / 30, 2) == (0, 0, 0, 0, 0, 0, 0, 0)
    assert uniform_times(3, 0.5, 2) == (0, 1, 2)
    assert uniform_times(4, 1.0, 0.5) == (0, 0, 1, 1)


def test_a_pause_is_kept_as_time() -> None:
    assert grid_times([0.0, 0.5, 60.25, 60.75], 2) == (0, 1, 120, 121)


def test_times_that_go_back_are_refused() -> None:
    with pytest.raises(InputError, match=r"^Times of frames must not go back, but 0\.5 s came after 1\.0 s; .*\.$"):
        grid_times([0.0, 1.0, 0.5], 2)
    with pytest.raises(InputError, match=r"but -1\.0 s came after 0 s"):
        grid_times([-1.0], 2)
    with pytest.raises(InputError, match="but 2 positions came after 3 positions"):
        VideoSpan((0, 3, 2), 1, 1)


@pytest.mark.parametrize("time_s", [math.nan, math.inf])
def test_a_time_that_is_no_number_is_refused(time_s: float) -> None:
    with pytest.raises(InputError, match=r"^A frame's time must be a finite number, but \[0\.0, (nan|inf)\] s came"):
        grid_times([0.0, time_s], 2)


def test_an_empty_clip_is_refused() -> None:
    for make in (lambda: grid_times([], 2), lambda: VideoSpan((), 3, 4), lambda: append_grids(0, (), 3, 4)):
        with pytest.raises(InputError, match=r"^A clip needs one frame at least, but it has none; show .*\.$"):
            make()
