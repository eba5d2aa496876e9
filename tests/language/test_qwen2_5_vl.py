from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from longtake.errors import InputError
from longtake.language.model_config import SpecialIds
from longtake.language.positions import Picture, Text, VideoSpan
from longtake.language.prompt_builder import time_text
from longtake.language.qwen2_5_vl import (
    clip_question,
    first_chunk,
    next_chunk,
    open_clip,
    pieces_of,
    reopen_clip,
    system_turn,
    turn_end,
    turn_question,
)

Case = dict[str, Tensor]
TURNS = ["stream_3chunks_mixed_fps", "stream_odd_frames", "stream_fractional_fps", "stream_eviction"]
WORDS = {2: "<|im_start|>", 3: "<|im_end|>", 4: "<|vision_start|>", 5: "<|vision_end|>", 7: "<|video_pad|>", 8: "\n"}
WORDS |= {9: "system", 10: "user", 11: "assistant", 20: "Be kind.", 30: "What?", 40: "Time=0.0-1.0s"}


def spell(ids: list[int]) -> str:
    return "".join(WORDS[token] for token in ids)


def test_an_open_clip_is_the_golden_prompt(
    vlm_index: dict[str, Any], vlm_case: Callable[[str], Case], vlm_special: SpecialIds
) -> None:
    told = vlm_index["stream_open_clip"]
    prefix, suffix = open_clip(vlm_special, [20, 21, 22, 23]), clip_question(vlm_special, [80, 81])
    assert prefix == told["prefix_ids"]
    assert suffix == told["question_suffix_ids"]
    pads = vlm_special.video(6 * 3 * 4)
    assert prefix + pads + suffix == vlm_case("stream_open_clip")["input_ids"].tolist()


@pytest.mark.parametrize("name", TURNS)
def test_turns_are_the_golden_prompt(
    name: str, vlm_index: dict[str, Any], vlm_case: Callable[[str], Case], vlm_special: SpecialIds
) -> None:
    told, case = vlm_index[name], vlm_case(name)
    want = case["input_ids"].tolist()
    tokens = [int(grid.prod()) // 4 for grid in case["video_grid_thw"]]
    end_of_system = want.index(vlm_special.im_end)
    end_of_clip = want.index(vlm_special.vision_end)
    text = want[end_of_clip + 1 : end_of_clip + 3]
    ids = first_chunk(vlm_special, tokens[0], system=want[3:end_of_system], text=text)
    for count in tokens[1:]:
        ids += next_chunk(vlm_special, count)
    question = told["question_ids"]
    assert ids + turn_question(vlm_special, question[3 : question.index(vlm_special.im_end)]) == want


def test_formats_read_as_they_are_written(vlm_special: SpecialIds) -> None:
    system = "<|im_start|>system\nBe kind.<|im_end|>\n"
    assert spell(system_turn(vlm_special, [20])) == system
    assert spell(open_clip(vlm_special, [20])) == system + "<|im_start|>user\n<|vision_start|>"
    assert spell(reopen_clip(vlm_special)) == "<|im_start|>user\n<|vision_start|>"
    assert spell(clip_question(vlm_special, [30])) == "<|vision_end|>What?<|im_end|>\n<|im_start|>assistant\n"
    assert spell(turn_question(vlm_special, [30])) == "<|im_start|>user\nWhat?<|im_end|>\n<|im_start|>assistant\n"
    assert spell(turn_end(vlm_special)) == "<|im_end|>\n"


def test_a_timed_turn_says_its_time_before_the_clip(vlm_special: SpecialIds) -> None:
    clip = "<|vision_start|><|video_pad|><|video_pad|><|vision_end|>"
    turn = f"<|im_start|>user\nTime=0.0-1.0s{clip}What?<|im_end|>\n"
    assert spell(next_chunk(vlm_special, 2, time=[40], text=[30])) == turn
    system = "<|im_start|>system\nBe kind.<|im_end|>\n"
    assert spell(first_chunk(vlm_special, 2, system=[20], time=[40], text=[30])) == system + turn


def test_times_are_told_with_one_decimal() -> None:
    assert time_text(12.0, 13.0) == "Time=12.0-13.0s"
    assert time_text(0.04, 3600.96) == "Time=0.0-3601.0s"


def test_a_turn_costs_seven_tokens_beside_its_clip(vlm_special: SpecialIds) -> None:
    assert len(next_chunk(vlm_special, 12)) == 12 + 7


@given(st.lists(st.tuples(st.integers(1, 4), st.booleans()), max_size=5))
@settings(deadline=None, max_examples=40)
def test_pieces_cover_a_prompt_in_order(parts: list[tuple[int, bool]]) -> None:
    roles = {"system": (9,), "user": (10,), "assistant": (11,)}
    special = SpecialIds(
        im_start=2, im_end=3, vision_start=4, vision_end=5, image_pad=6, video_pad=7, newline=8, **roles
    )
    ids, want, pictures, films = [1], [Text(1)], [], []
    for size, still in parts:
        piece = Picture(size, 2) if still else VideoSpan((0, 1), size, 1)
        (pictures if still else films).append(piece)
        ids += [6 if still else 7] * piece.num_tokens + [30] * size
        want += [piece, Text(size)]
    assert pieces_of(ids, special, pictures=pictures, video_spans=films) == want


def test_grids_that_do_not_fit_their_prompt_are_refused(vlm_special: SpecialIds) -> None:
    ids = next_chunk(vlm_special, 12)
    with pytest.raises(InputError, match=r"^Each run .* a run of 12 meets one of 6 tokens; give the grids .*\.$"):
        pieces_of(ids, vlm_special, video_spans=[VideoSpan((0,), 2, 3)])
    with pytest.raises(InputError, match="a run of 12 meets none"):
        pieces_of(ids, vlm_special)
    with pytest.raises(InputError, match=r"^A prompt must have a place for every .*, but 2 found none; leave .*\.$"):
        pieces_of(
            ids, vlm_special, video_spans=[VideoSpan((0,), 3, 4), VideoSpan((0,), 3, 4)], pictures=[Picture(1, 1)]
        )
