"""`longtake live` as a user meets it, with tiny models, against the commands that do one half of it each."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from done import Done

from longtake.cli.live import Shares
from longtake.errors import SettingError
from longtake.takes.tum import read_tum

GOLDEN = Path(__file__).parents[1] / "golden" / "vlm"
SOURCE = "world:3?frames=12&size=112x84&fps=4"
MEMORY = "60MB"


@pytest.fixture(scope="module")
def language(word_language: Path) -> Path:
    return word_language


@pytest.fixture
def live(language: Path, run_here: Callable[..., Done]) -> Callable[..., Done]:
    def started(*arguments: str) -> Done:
        options = [] if "--language" in arguments else ["--language", str(language)]
        options += [] if "--memory" in arguments else ["--memory", MEMORY]
        options += [] if "--model" in arguments else ["--model", "tiny"]
        options += [] if "--device" in arguments else ["--device", "cpu"]
        return run_here("live", *arguments, *options, "--max-tokens", "4")

    return started


def test_json_lines_have_every_pose_and_answers_with_time_evidence_and_pose(
    live: Callable[..., Done], run_here: Callable[..., Done], language: Path, tmp_path: Path
) -> None:
    done = live(SOURCE, "w90", "w91 w92", "--at", "2.3", "--every", "2s", "w93", "--json", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    assert [event["event"] for event in done.events if event["event"] != "frame"] == [
        "note",
        "start",
        *["answer"] * 3,
        "watched",
        "note",
    ]
    assert done.events[-1]["text"] == f"The poses are in {tmp_path / 'poses.tum'}."
    frames = {frame["index"]: frame for frame in done.of("frame")}
    assert list(frames) == list(range(12))
    options = ("--model", str(language), "--max-tokens", "4", "--json", "--device", "cpu")
    asked = run_here("ask", SOURCE, "w90", "w91 w92", "--at", "2.3", "--every", "2s", "w93", *options).of("answer")
    for answer, expected in zip(done.of("answer"), asked, strict=True):
        same = ("kind", "question", "text")
        assert [answer[key] for key in same] == [expected[key] for key in same]
        assert sum(span["weight"] for span in answer["evidence"]) == pytest.approx(1)
        assert all(0 <= span["start_s"] <= span["end_s"] <= answer["seen_until_s"] for span in answer["evidence"])
        assert answer["pose"]["time_s"] == answer["seen_until_s"]
        assert answer["pose"]["world_from_camera"] == frames[answer["pose"]["index"]]["world_from_camera"]
    times = [(answer["time_s"], answer["seen_until_s"]) for answer in done.of("answer")]
    assert times == [(2.0, 2.0), (2.3, 2.0), (2.75, 2.5)]
    (watched,) = done.of("watched")
    assert (watched["num_frames"], watched["num_dropped"]) == (6, 0)
    written = read_tum(tmp_path / "poses.tum")
    assert written.timestamp_s.tolist() == [frame["time_s"] for frame in frames.values()]
    told = torch.tensor([frame["world_from_camera"] for frame in frames.values()], dtype=torch.float64)
    assert torch.allclose(written.world_from_camera, told, rtol=0, atol=1e-12)


def test_terminal_gets_a_line_for_each_answer_with_its_place_and_what_it_looked_at(live: Callable[..., Done]) -> None:
    done = live(SOURCE, "w90", "w91", "--at", "0.1", "--at", "00:42", "--ask-fps", "4")
    assert done.returncode == 0, done.stderr
    first, last = done.stdout.splitlines()
    assert first.startswith("[00:00.1] w90 ")
    assert "(no pose yet" in first
    number = r"-?\d+\.\d\d"
    assert re.fullmatch(
        rf"\[00:02\.8\] w91 .*\(at {number} {number} {number}; looked at 00:0[\d.]+(-00:0[\d.]+)? \d+%.*\)", last
    )
    assert "weights are random" in done.stderr
    assert "The video ends at 00:02.8, before 00:42; 'w91' is answered at its end." in done.stderr
    assert "12 frames up to 00:02.8" in done.stderr


def test_of_an_answer_and_its_opposite_one_is_told_when_it_turns(live: Callable[..., Done]) -> None:
    done = live(SOURCE, "--when", "w90 w91", "--when", "w90 w91=no", "--json")
    found = done.of("answer")
    assert found[0]["time_s"] == 0.0
    assert {(answer["kind"], answer["question"]) for answer in found} == {("when", "w90 w91")}
    assert [answer["text"] for answer in found[:2]] in (["yes"], ["no"], ["yes", "no"], ["no", "yes"])


def test_question_that_was_never_due_is_named(live: Callable[..., Done]) -> None:
    done = live(SOURCE, "w90", "--every", "10s", "w91", "--json")
    assert [note["text"] for note in done.of("note")[1:]] == [
        "The video ended within 10 s of its first frame; 'w91' was never due."
    ]
    assert len(done.of("answer")) == 1


def test_progress_is_shown_on_a_terminal_and_answers_stay_the_same(
    live: Callable[..., Done], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = live(SOURCE, "w90")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    shown = live(SOURCE, "w90")
    assert shown.stdout == plain.stdout
    assert "12/12" in re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", shown.stderr)
    assert "12/12" not in plain.stderr


def test_interrupt_ends_the_watching_and_what_is_left_is_answered(
    live: Callable[..., Done], interrupt_after: Callable[[int], None]
) -> None:
    interrupt_after(3)
    done = live("world:3?size=112x84&fps=2", "w90", "--json")
    assert done.returncode == 0, done.stderr
    (answer,), (watched,) = done.of("answer"), done.of("watched")
    assert 3 <= watched["num_frames"] < 20
    assert answer["time_s"] == answer["pose"]["time_s"] == watched["seen_until_s"]


def test_shares_are_parts_of_one_memory_to_the_byte() -> None:
    shares = Shares.of("1001", 0.3)
    assert (shares.map_bytes, shares.dialogue_bytes) == (300, 701)
    for share in (0.0, 1.0, -0.5, 1.5, float("nan")):
        with pytest.raises(SettingError, match="--share between 0 and 1"):
            Shares.of("1GB", share)


@pytest.mark.parametrize("whose", ["map", "dialogue"])
def test_share_that_is_too_small_says_the_smallest_and_that_works(whose: str, live: Callable[..., Done]) -> None:
    share = 0.01 if whose == "map" else 0.98
    refused = live(SOURCE, "w90", "--share", str(share), "--memory", "45MB")
    assert refused.returncode == 1
    problem = refused.stderr.splitlines()[-1]
    assert f"For the {whose}'s share of --memory" in problem
    found = re.search(r"the smallest that works is .*\((\d+) bytes\)", problem)
    assert found is not None
    part = share if whose == "map" else 1 - share
    enough = str(int(int(found[1]) / part) + 2)
    too_little = str(int((int(found[1]) - 2) / part))
    assert f"For the {whose}'s share" in live(SOURCE, "w90", "--share", str(share), "--memory", too_little).stderr
    assert f"For the {whose}'s share" not in live(SOURCE, "w90", "--share", str(share), "--memory", enough).stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([SOURCE, "w90", "--share", "0"], "--share between 0 and 1"),
        ([SOURCE, "w90", "--share", "1"], "--share between 0 and 1"),
        ([SOURCE, "w90", "--memory", "8 frames"], "--memory in bytes"),
        ([SOURCE, "w90", "--memory", "lots"], "such as 4GB"),
        (
            [SOURCE, "w90", "--ask-policy", "all"],
            "There is no memory policy 'all' for a dialogue; choose one of keep-all, window, thinned, novel",
        ),
        ([SOURCE, "w90", "--ask-fps", "0"], "more than 0 frames a second"),
        ([SOURCE], "Expected a question"),
        ([SOURCE, "w90", "--at", "1", "--at", "2"], "a question for each of 2 --at, but got 1"),
        ([SOURCE, " "], "words in it"),
        ([SOURCE, "--when", "w90=w91"], "other answers to wait for"),
        ([SOURCE, "w90", "--start", "soon"], "Expected a time such as"),
        ([SOURCE, "w90", "--language", "/no/model"], "Expected the folder of a model at /no/model"),
        ([SOURCE, "w90", "--model", "/no/model"], "/no/model"),
        ([SOURCE, "w90", "--policy", "luck"], "luck"),
        (["nowhere.mp4", "w90"], "there is no 'nowhere.mp4'"),
        ([SOURCE, "w90", "--device", "tpu"], "no device 'tpu'"),
    ],
)
def test_bad_input_is_one_sentence(arguments: list[str], sentence: str, live: Callable[..., Done]) -> None:
    done = live(*arguments)
    of_data = ("Expected the folder of a model at /no/model", "/no/model", "there is no 'nowhere.mp4'")
    assert done.returncode == (1 if sentence in of_data else 2)
    (problem,) = done.stderr.splitlines()
    assert sentence in problem
    assert not done.stdout


def test_without_a_language_model_the_bundled_one_answers_and_says_what_it_knows(run_here: Callable[..., Done]) -> None:
    questions = ("Have you seen a red ball?", "What is that?")
    done = run_here("live", SOURCE, *questions, "--model", "tiny", "--json")
    assert done.returncode == 3, done.stderr
    answered, refused = done.of("answer")
    assert answered["evidence"]
    assert refused["text"].startswith("I only know about")
    assert refused["evidence"] == []
    asked = run_here("ask", SOURCE, questions[1], "--json").of("answer")
    assert asked[0]["text"] == refused["text"]


def test_strange_standing_question_is_refused_before_the_video_is_watched(run_here: Callable[..., Done]) -> None:
    done = run_here("live", SOURCE, "--when", "is it dark?=yes", "--model", "tiny")
    assert done.returncode == 3
    assert "I only know about" in done.stderr
    assert not done.stdout


@pytest.mark.extra
def test_picture_too_large_for_the_dialogue_says_what_to_change(live: Callable[..., Done]) -> None:
    done = live("world:3?frames=3&size=1120x840&fps=2", "w90", "--share", "0.97")
    assert done.returncode == 1
    assert "no room for the frames after 00:00; raise --memory, or lower --share" in done.stderr


def test_sides_that_are_cut_off_are_told_without_an_option_that_is_not_there(live: Callable[..., Done]) -> None:
    done = live("world:3?frames=3&size=112x280&fps=4", "w90")
    assert done.returncode == 0, done.stderr
    (note,) = [line for line in done.stderr.splitlines() if "cut off" in line]
    assert note.endswith("of 112x280 pixels those above and below are cut off.")


def test_poses_of_before_are_kept(live: Callable[..., Done], tmp_path: Path) -> None:
    (tmp_path / "poses.tum").write_text("mine")
    done = live(SOURCE, "w90", "--out", str(tmp_path))
    assert done.returncode == 1
    assert "exists already; name another, or replace it with --overwrite" in done.stderr
    assert (tmp_path / "poses.tum").read_text() == "mine"
    assert live(SOURCE, "w90", "--out", str(tmp_path), "--overwrite").returncode == 0
    assert "mine" not in (tmp_path / "poses.tum").read_text()
