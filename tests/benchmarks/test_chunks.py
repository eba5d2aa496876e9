"""What chunks cost, on a tiny network: what is counted is exact, what is timed only has to be there."""

import json
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.ask import TINY, random_language
from benchmarks.chunks import CHUNKS, ROUND, ChunkStudy, measure_chunks, waits
from benchmarks.language_commands import chunks
from longtake.errors import SettingError
from longtake.language.load import load_language
from longtake.language.prompt_builder import StreamFormat
from longtake.language.sampling import TextSampling
from longtake.runtime.answers import Answer, Ending
from longtake.runtime.dialogue import SYSTEM, DialogueSession
from training.vqa_model import TINY_VQA, build_vqa, save_vqa

pytestmark = pytest.mark.extra


@pytest.fixture(scope="module")
def study() -> ChunkStudy:
    return measure_chunks(random_language(TINY), TINY.frame, rounds=2, fps=2.0)


def test_tokens_grids_and_padding_are_those_of_the_formats(study: ChunkStudy) -> None:
    frames, grid = 2 * ROUND, 6
    system, turn, clip = 5 + len(SYSTEM.split()), 7, 4
    assert study.tokens_per_grid == grid
    for figures in study.figures:
        pads = figures.stream_format is StreamFormat.TURNS
        padded = frames // figures.chunk if pads and figures.chunk % 2 else 0
        grids = (frames + padded) // 2
        around = frames // figures.chunk * turn if pads else clip
        assert (figures.num_frames, figures.num_padded, figures.num_grids) == (frames, padded, grids)
        assert figures.num_tokens == system + around + grids * grid
        assert figures.num_wasted == (grids - frames // 2) * grid
    assert [(figures.stream_format, figures.chunk) for figures in study.figures] == [
        (stream_format, chunk)
        for stream_format in (StreamFormat.OPEN_CLIP, StreamFormat.TURNS)
        for chunk in (2, 3, 4, 6, 8)
    ]
    assert {figures.num_wasted for figures in study.figures if figures.chunk != 3} == {0}


def test_times_are_of_one_typical_round_and_answers_do_not_depend_on_chunks(study: ChunkStudy) -> None:
    assert study.agrees
    for figures in study.figures:
        assert figures.chunk_s == pytest.approx(figures.chunk * figures.frame_s)
        assert figures.load == pytest.approx(study.fps * figures.frame_s)
        assert figures.chunk_s > 0
    assert study.quickest in CHUNKS


def test_model_of_few_words_is_asked_what_it_knows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_vqa(build_vqa(TINY_VQA), tmp_path)
    ask, endings = DialogueSession.ask, set()

    def ask_and_note(session: DialogueSession, question: str, sampling: TextSampling) -> Answer:
        answer = ask(session, question, sampling)
        endings.add(answer.ending)
        return answer

    monkeypatch.setattr(DialogueSession, "ask", ask_and_note)
    assert measure_chunks(load_language(tmp_path), (112, 168), rounds=2, fps=2.0).agrees
    assert endings <= {Ending.STOP, Ending.LENGTH}
    assert endings


def test_study_names_the_quickest_size_and_the_smallest_that_keeps_up(study: ChunkStudy) -> None:
    cost = {2: 1.2, 3: 0.5, 4: 1.1, 6: 0.4, 8: 0.9}
    figures = tuple(replace(one, frame_s=cost[one.chunk] / study.fps, load=cost[one.chunk]) for one in study.figures)
    slow = replace(study, figures=figures)
    assert (slow.quickest, slow.keeping_up) == (6, 8)
    assert replace(slow, figures=tuple(replace(one, load=one.load / 2) for one in figures)).keeping_up == 2


def test_rate_that_is_too_high_leaves_frames_waiting_ever_longer() -> None:
    study = measure_chunks(random_language(TINY), TINY.frame, rounds=2, fps=1e9)
    assert all(figures.wait_s is None and figures.worst_wait_s is None for figures in study.figures)
    assert all(figures.load > 1 for figures in study.figures)
    assert study.keeping_up == 8


@pytest.mark.parametrize(
    ("chunk", "pads", "frames"),
    [
        (2, False, [1, 0] * 3),
        (3, False, [2, 1, 3, 2, 1, 0]),
        (3, True, [2, 1, 0] * 2),
        (6, False, [5, 4, 3, 2, 1, 0]),
    ],
)
def test_frame_waits_for_the_last_of_its_chunk_and_for_its_partner(chunk: int, pads: bool, frames: list[int]) -> None:
    waited = waits(chunk, [0.0] * (6 // chunk), fps=4.0, pads=pads)
    assert waited == [wait / 4 for wait in frames]


def played(chunk: int, seeing_s: Sequence[float], fps: float, *, pads: bool) -> list[float]:
    """The same, frame by frame as they come."""
    waiting: list[int] = []
    held: list[int] = []
    waited = [math.nan] * (chunk * len(seeing_s))
    busy_until_s, call = 0.0, 0
    for place in range(len(waited)):
        waiting.append(place)
        if len(waiting) < chunk:
            continue
        busy_until_s = max(busy_until_s, place / fps) + seeing_s[call]
        call += 1
        held += waiting
        waiting = []
        num_whole = len(held) if pads else len(held) - len(held) % 2
        for seen in held[:num_whole]:
            waited[seen] = busy_until_s - seen / fps
        held = held[num_whole:]
    return waited


@given(
    chunk=st.sampled_from(CHUNKS),
    fps=st.sampled_from([0.5, 2.0, 30.0]),
    pads=st.booleans(),
    took_s=st.lists(st.floats(min_value=0, max_value=3), min_size=12, max_size=12),
)
@settings(deadline=None, max_examples=60)
def test_waits_are_those_of_frames_that_come_one_by_one(
    chunk: int, fps: float, pads: bool, took_s: list[float]
) -> None:
    seeing_s = took_s[: ROUND // chunk]
    assert waits(chunk, seeing_s, fps=fps, pads=pads) == pytest.approx(played(chunk, seeing_s, fps, pads=pads))


@pytest.mark.parametrize(("rounds", "fps"), [(1, 2.0), (2, 0.0), (2, math.inf), (2, math.nan)])
def test_nothing_to_time_is_refused(rounds: int, fps: float) -> None:
    with pytest.raises(SettingError, match="2 rounds and more than 0 frames a second"):
        measure_chunks(random_language(TINY), TINY.frame, rounds=rounds, fps=fps)


def test_command_prints_a_row_for_each_size_and_what_auto_comes_to(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    chunks(quick=True, device="cpu")
    told = " ".join(capsys.readouterr().out.split())
    assert "48 frames of 84x56, 6 tokens for two of them" in told
    assert "open clip" in told
    assert "turns" in told
    assert "lead to the same answer" in told
    assert re.search("takes 8 of a file, and [248] of a camera", told)


def test_command_takes_a_model_and_a_size(word_language: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chunks(model=str(word_language), size="84x112", fps=1.0, quick=True, device="cpu", as_json=True)
    told = json.loads(capsys.readouterr().out)
    parameters = sum(weight.numel() for weight in load_language(word_language).model.parameters())
    assert (told["num_parameters"], told["frame"], told["tokens_per_grid"]) == (parameters, [112, 84], 12)
    assert [row["chunk"] for row in told["figures"]] == [*CHUNKS, *CHUNKS]
    assert told["figures"][6]["num_wasted"] == 48 // 3 * 6
    assert told["agrees"] is True
    assert told["quickest"] in CHUNKS


def test_answers_that_depend_on_chunks_end_with_an_error(monkeypatch: pytest.MonkeyPatch, study: ChunkStudy) -> None:
    monkeypatch.setattr("benchmarks.language_commands.measure_chunks", lambda *_, **__: replace(study, agrees=False))
    with pytest.raises(SystemExit, match="1"):
        chunks(quick=True, device="cpu", as_json=True)


def test_size_that_is_none_is_refused() -> None:
    with pytest.raises(SettingError, match="a size such as"):
        chunks(size="large", quick=True, device="cpu")
