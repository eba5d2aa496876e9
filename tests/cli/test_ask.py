"""`longtake ask` as a user meets it, with a tiny model in the hub's layout, against the session it stands for."""

import builtins
import itertools
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from done import Done
from PIL import Image
from selected import rest_in_extra

import longtake.cli.progress as progress
from longtake.cli.reporting import looked_at
from longtake.language.load import LanguageModel
from longtake.language.sampling import TextSampling
from longtake.memory.registry import segment_policy_named
from longtake.pipeline.prefetch import WhenFull
from longtake.pipeline.question_schedule import format_time
from longtake.runtime.answers import Evidence
from longtake.runtime.dialogue import DialogueSession
from longtake.runtime.dialogue_memory import DialogueMemory, Feed
from longtake.video.reading import Source
from longtake.video.sampling import FrameSampling
from longtake.video.source import SourceOptions, open_source

LONGTAKE = str(Path(sys.executable).with_name("longtake"))
GOLDEN = Path(__file__).parents[1] / "golden" / "vlm"
SOURCE = "world:3?frames=12&size=112x84&fps=2"
WALK = "world:9?frames=8&size=168x112&fps=2"
FOUR = TextSampling(max_new_tokens=4)
BUDGET = 8_000_000
OF_DATA = (
    "Expected the folder of a model at /no/model",
    "tokenizer.json",
    "there is no 'nowhere.mp4'",
    "cannot hold",
    "no room for the frames after 00:00",
    "ends before",
)
"""What is told of wrong data, not of wrong options."""


@pytest.fixture(scope="module")
def model(word_language: Path) -> Path:
    return word_language


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def ask(model: Path, monkeypatch: pytest.MonkeyPatch, run_here: Callable[..., Done]) -> Callable[..., Done]:
    def run(*arguments: str, stdin: str = "", terminal: bool = False) -> Done:
        options = [] if "--model" in arguments else ["--model", str(model)]
        options += [] if "--memory" in arguments else ["--memory", str(BUDGET)]
        monkeypatch.setattr(sys, "stdin", Terminal(stdin) if terminal else StringIO(stdin))
        return run_here("ask", *arguments, *options, "--max-tokens", "4")

    return run


@pytest.fixture
def session(model: Path, load_once: Callable[..., LanguageModel]) -> Iterator[DialogueSession]:
    session = DialogueSession(load_once(model), budget_bytes=BUDGET)
    yield session
    session.close()


def show(session: DialogueSession, start: int, stop: int) -> None:
    """The source's frames from one to another, one by one."""
    for frame in list(open_source(SOURCE).frames())[start:stop]:
        assert frame.image is not None
        picture = torch.from_numpy(np.ascontiguousarray(frame.image.transpose(2, 0, 1)))
        session.see(picture[None], [frame.timestamp_s])


def test_answer_alone_is_on_stdout_and_is_that_of_a_session(ask: Callable[..., Done], session: DialogueSession) -> None:
    done = ask(SOURCE, "w90 w91")
    show(session, 0, 12)
    assert done.returncode == 0, done.stderr
    assert done.stdout == session.ask("w90 w91", FOUR).text + "\n"
    assert f"12 frames up to 00:05.5, {session.info.num_tokens} tokens in memory" in done.stderr


@pytest.mark.parametrize("chunk", rest_in_extra(["auto", "2", "1", "5"], keep=1))
def test_questions_at_moments_see_the_frames_up_to_them_whatever_the_chunks(
    chunk: str, ask: Callable[..., Done], session: DialogueSession
) -> None:
    done = ask(SOURCE, "w90", "w91", "w92", "--at", "00:02", "--at", "3.2", "--json", "--chunk", chunk)
    answers = done.of("answer")
    assert [answer["time_s"] for answer in answers] == [2.0, 3.2, 5.5]
    for answer, (start, stop) in zip(answers, [(0, 5), (5, 7), (7, 12)], strict=True):
        show(session, start, stop)
        expected = session.ask(answer["question"], FOUR)
        assert (answer["text"], answer["tokens"]) == (expected.text, len(expected.ids))
        assert answer["ending"] == expected.ending
        assert 0 < answer["first_token_s"] <= answer["total_s"]
    assert [event["event"] for event in done.events] == ["start", "answer", "answer", "answer", "watched"]
    assert done.events[0]["num_frames"] == done.events[-1]["num_frames"] == 12
    assert not done.stderr


def test_questions_of_one_moment_are_written_side_by_side_and_told_as_if_asked_one_by_one(
    ask: Callable[..., Done], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = (SOURCE, "w90", "w91 w92", "w93", "--at", "2", "--every", "2s", "w94", "--when", "w95=no")
    one_by_one = ask(*asked)
    sizes, feed = set[int](), DialogueMemory.feed_together

    def feed_and_count(feeds: list[Feed]) -> list[torch.Tensor]:
        sizes.add(len(feeds))
        return feed(feeds)

    monkeypatch.setattr(DialogueMemory, "shares_passes", property(lambda _: True))  # as on a GPU
    monkeypatch.setattr(DialogueMemory, "feed_together", staticmethod(feed_and_count))
    together = ask(*asked)
    assert sizes == {1, 2}  # two at 00:02, one at 00:04, two at the end
    assert together.stdout == one_by_one.stdout
    assert [line.partition("]")[0] for line in together.stdout.splitlines() if " w95" not in line] == [
        "[00:02",
        "[00:02",
        "[00:04",
        "[00:05.5",
        "[00:05.5",
    ]


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many frames came together, look by look."""
    see, sizes = DialogueSession.see, []

    def see_and_count(session: DialogueSession, frames: torch.Tensor, timestamps_s: list[float]) -> None:
        sizes.append(len(frames))
        see(session, frames, timestamps_s)

    monkeypatch.setattr(DialogueSession, "see", see_and_count)
    return sizes


@pytest.mark.parametrize(
    ("options", "sizes"),
    [
        ([], [8, 4]),
        (["--every", "2s", "w92"], [5, 4, 3]),
        (["--when", "w90"], [2] * 6),
        (["--when", "w90", "--chunk", "4"], [4] * 3),
        (["--chunk", "07"], [7, 5]),
    ],
)
def test_of_a_file_many_frames_are_seen_together_unless_someone_waits_for_each_look(
    options: list[str], sizes: list[int], ask: Callable[..., Done], looks: list[int]
) -> None:
    assert ask(SOURCE, "w90", *options).returncode == 0
    assert looks == sizes


def test_of_a_camera_more_frames_are_seen_together_once_it_is_too_fast(
    ask: Callable[..., Done], looks: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def open_camera(text: str, sampling: FrameSampling, options: SourceOptions) -> Source:
        source = open_source(text, sampling, options)
        source.is_live = True
        return source

    monkeypatch.setattr("longtake.cli.ask.open_source", open_camera)
    # a world does not wait for its frames, so that too many would come
    monkeypatch.setattr("longtake.cli.ask.WhenFull", SimpleNamespace(BLOCK=None, NEWEST_WINS=WhenFull.BLOCK))
    arguments = ("world:3?frames=34&size=112x84&fps=2", "w90")
    monkeypatch.setattr("longtake.pipeline.live.time", SimpleNamespace(perf_counter=itertools.count(0.0, 0.9).__next__))
    ask(*arguments)
    assert looks == [2] * 17
    looks.clear()
    monkeypatch.setattr("longtake.pipeline.live.time", SimpleNamespace(perf_counter=itertools.count(0.0, 9.0).__next__))
    ask(*arguments)
    assert looks == [2, 2, 2, 4, 4, 4, 8, 8]


def test_people_are_told_which_times_an_answer_comes_from(ask: Callable[..., Done]) -> None:
    done = ask(SOURCE, "w90", "--max-tokens", "3")
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("looked at")]
    shares = re.findall(r"(\d\d:\d\d(?:\.\d)?)-(\d\d:\d\d(?:\.\d)?) (\d+)%", line)
    assert shares
    assert sum(int(share) for *_, share in shares) == pytest.approx(100, abs=len(shares))
    assert "looked at" not in done.stdout
    assert "looked at" not in ask(SOURCE, "w90", "--choices", "w1,w2").stderr
    of_newest_frame = Evidence(start_s=3.0, end_s=3.0, weight=1.0)
    assert looked_at([of_newest_frame]) == "looked at 00:03 100%"


def test_question_that_was_never_due_is_named(ask: Callable[..., Done]) -> None:
    sentence = "The video ended within 10 s of its first frame; 'w91 w92' was never due."
    done = ask(SOURCE, "--every", "10s", "w91 w92", "--every", "2s", "w90")
    assert len(done.stdout.splitlines()) == 2
    assert (
        next(
            line for line in done.stderr.splitlines() if not line.startswith("looked at") and "attention by" not in line
        )
        == sentence
    )
    told = ask(SOURCE, "--every", "10s", "w91 w92", "--json")
    assert [event["event"] for event in told.events] == ["start", "note", "watched"]
    assert told.of("note")[0]["text"] == sentence


def test_moment_beyond_the_video_is_answered_at_its_end_and_that_is_said(ask: Callable[..., Done]) -> None:
    late, plain = ask(SOURCE, "w90", "--at", "01:42"), ask(SOURCE, "w90")
    assert late.returncode == 0
    assert late.stdout == plain.stdout
    assert "The video ends at 00:05.5, before 01:42; 'w90' is answered at its end." in late.stderr
    assert "is answered at its end" in ask(SOURCE, "w90", "--at", "01:42", "--json").of("note")[0]["text"]


def test_choices_are_scored_as_by_a_session(ask: Callable[..., Done], session: DialogueSession) -> None:
    arguments = (SOURCE, "w90", "--choices", "yes, no,maybe")
    (answer,) = ask(*arguments, "--json").of("answer")
    show(session, 0, 12)
    scored = session.ask_choice("w90", ["yes", "no", "maybe"])
    best = max(scored, key=lambda choice: choice.mean_log_likelihood)
    assert [choice["text"] for choice in answer["choices"]] == ["yes", "no", "maybe"]
    for told, choice in zip(answer["choices"], scored, strict=True):
        assert told["mean_log_likelihood"] == pytest.approx(choice.mean_log_likelihood, abs=1e-5)
    assert answer["text"] == best.text
    plain = ask(*arguments).stdout
    assert plain.startswith(f"{best.text} (yes {scored[0].mean_log_likelihood:.2f}, no ")


def test_question_every_so_often_is_told_with_its_time(ask: Callable[..., Done], session: DialogueSession) -> None:
    done = ask(SOURCE, "--every", "2s", "w90 w91", "--every", "3s w92")
    lines = done.stdout.splitlines()
    assert [line.split(" w")[0] for line in lines] == ["[00:02]", "[00:03]", "[00:04]"]
    show(session, 0, 5)
    assert lines[0] == f"[00:02] w90 w91 {session.ask('w90 w91', FOUR).text}"
    assert lines[1].startswith("[00:03] w92 ")
    answers = ask(SOURCE, "--every", "2s", "w90 w91", "--json").of("answer")
    assert [(answer["kind"], answer["time_s"]) for answer in answers] == [("every", 2.0), ("every", 4.0)]


@pytest.mark.parametrize("waited", rest_in_extra(["no", "yes"], keep=1))
def test_standing_question_is_told_only_when_its_answer_turns(
    waited: str, ask: Callable[..., Done], session: DialogueSession
) -> None:
    question = "w90 w91"
    done = ask(SOURCE, "--when", f"{question}={waited}", "--json")
    turns, before = [], None
    for start in range(0, 12, 2):
        show(session, start, start + 2)
        best = max(session.ask_choice(question, ["yes", "no"]), key=lambda choice: choice.mean_log_likelihood)
        if best.text == waited != before:
            turns.append(session.info.seen_until_s)
        before = best.text
    assert [event["time_s"] for event in done.of("answer")] == turns
    assert all((event["kind"], event["text"]) == ("when", waited) for event in done.of("answer"))


def test_of_an_answer_and_its_opposite_one_turns_first(ask: Callable[..., Done]) -> None:
    """So that the test above does not compare nothing with nothing."""
    done = ask(
        SOURCE, "--when", "w90 w91", "--when", "w90 w91=no", "--when", "w90=w100,w101", "--when", "w90=w101,w100"
    )
    assert sum(line.startswith("[00:00.5] w90 w91 ") for line in done.stdout.splitlines()) == 1
    assert sum(line.startswith("[00:00.5] w90 w10") for line in done.stdout.splitlines()) == 1


@pytest.mark.extra
def test_policy_says_what_stays_when_the_memory_is_full(
    ask: Callable[..., Done], model: Path, load_once: Callable[..., LanguageModel]
) -> None:
    source, budget = "world:3?frames=36&size=112x84&fps=2", 1_200_000
    found = {}
    for name in ("window", "thinned"):
        session = DialogueSession(
            load_once(model), budget_bytes=budget, retaining=segment_policy_named(name), answer_tokens=1024 + 4
        )
        for frame in open_source(source).frames():
            assert frame.image is not None
            session.see(torch.from_numpy(frame.image.transpose(2, 0, 1).copy())[None], [frame.timestamp_s])
        (said,) = ask(source, "w90", "--memory", str(budget), "--policy", name, "--chunk", "1", "--json").of("answer")
        answer = session.ask("w90", FOUR)
        assert session.info.num_forgotten > 0
        assert [span["start_s"] for span in said["evidence"]] == [span.start_s for span in answer.evidence]
        found[name] = min(span.start_s for span in answer.evidence)
        session.close()
    assert found["thinned"] < found["window"]


def test_where_stdin_has_ended_no_video_is_watched_for_no_question(
    run_here: Callable[..., Done], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Path(os.devnull).open() as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)
        done = run_here("ask", "there is no such video")
    assert done.returncode == 2
    assert done.stderr.startswith("longtake: Expected a question, but there is none;")


def test_questions_from_a_pipe_are_answered_one_a_line(ask: Callable[..., Done]) -> None:
    piped = ask(SOURCE, stdin="w90\n\n  w91 w92\n")
    alone = {question: ask(SOURCE, question).stdout for question in ("w90", "w91 w92")}
    assert piped.stdout == "".join(f"[00:05.5] {question} {answer}" for question, answer in alone.items())
    assert len(ask(SOURCE, "--json", stdin="w90\nw91").of("answer")) == 2


def test_typed_questions_are_answered_until_an_empty_line_and_bad_ones_end_nothing(
    ask: Callable[..., Done], monkeypatch: pytest.MonkeyPatch
) -> None:
    typed = iter(["w90", ":info", "w91 " * 9000, "w92", "", "w93"])
    monkeypatch.setattr(builtins, "input", lambda prompt: next(typed))
    done = ask(SOURCE, terminal=True)
    assert done.returncode == 0
    assert len(done.stdout.strip().splitlines()) >= 2
    assert done.stderr.count("12 frames up to 00:05.5") == 2
    assert "no room for the question and its answer; raise --memory" in done.stderr
    assert next(typed) == "w93"


def test_typed_questions_leave_json_lines_alone_on_stdout(ask: Callable[..., Done]) -> None:
    done = ask(SOURCE, "--json", stdin="w90\n:info\n\n", terminal=True)
    assert done.returncode == 0
    assert [event["event"] for event in done.events] == ["start", "watched", "answer", "watched"]
    assert done.stderr == "? " * 3
    plain = ask(SOURCE, stdin="w90\n\n", terminal=True)
    assert plain.stdout == ask(SOURCE, "w90").stdout


def test_prompt_is_drawn_with_what_is_typed_where_all_is_one_terminal(
    ask: Callable[..., Done], monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts = []

    def typed(prompt: str) -> str:
        prompts.append(prompt)
        return "w90" if len(prompts) == 1 else ""

    monkeypatch.setattr(builtins, "input", typed)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    shown = ask(SOURCE, terminal=True)
    assert prompts == ["? ", "? "]
    assert "?" not in shown.stderr


def test_end_of_a_terminal_ends_the_questions(ask: Callable[..., Done], monkeypatch: pytest.MonkeyPatch) -> None:
    def end(prompt: str) -> str:
        raise EOFError

    monkeypatch.setattr(builtins, "input", end)
    assert ask(SOURCE, terminal=True).returncode == 0


def test_progress_is_shown_on_a_terminal_and_gives_way_to_answers(
    ask: Callable[..., Done], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = ask(SOURCE, "w90", "w91", "--at", "1")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    shown = ask(SOURCE, "w90", "w91", "--at", "1")
    assert shown.stdout == plain.stdout
    assert "12/12 up to 00:05.5, 86 tokens in memory" in re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", shown.stderr)
    assert "12/12" not in plain.stderr


def test_frames_that_were_seen_together_count_together(
    ask: Callable[..., Done], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "LINE_EVERY_S", 0.0)
    told = [line for line in ask(SOURCE, "w90", "--chunk", "12").stderr.splitlines() if line.startswith("world 3: ")]
    # how many tokens are in memory depends on whether a question is among them just then
    assert {line.rpartition(", ")[0] for line in told if "tokens" in line} == {"world 3: 12 of 12, up to 00:05.5"}


def test_interrupt_ends_the_watching_and_what_is_left_is_answered(
    ask: Callable[..., Done], interrupt_after: Callable[[int], None]
) -> None:
    interrupt_after(2)
    done = ask("world:3?size=112x84&fps=2", "w90", "--json", "--chunk", "2")
    assert done.returncode == 0
    assert 4 <= done.of("watched")[0]["num_frames"] < 20
    assert done.of("answer")[0]["time_s"] == done.of("watched")[0]["seen_until_s"]


def test_part_rate_and_size_are_those_asked_for(ask: Callable[..., Done], model: Path) -> None:
    done = ask(SOURCE, "w90", "--start", "1", "--end", "00:04", "--fps", "1", "--size", "56", "--json")
    (watched,) = done.of("watched")
    assert (watched["num_frames"], watched["seen_until_s"]) == (3, 3.0)
    whole = ask(SOURCE, "w90", "--start", "1", "--end", "00:04", "--fps", "1", "--json").of("watched")[0]
    assert whole["num_tokens"] - watched["num_tokens"] == 12 - 2  # one grid of 4x3 tokens, and of 2x1


def test_frames_that_cannot_be_read_are_noted_and_left_out(ask: Callable[..., Done], tmp_path: Path) -> None:
    for index, frame in enumerate(open_source(SOURCE).frames()):
        Image.fromarray(np.asarray(frame.image)).save(tmp_path / f"{index}.png")
    (tmp_path / "3.png").write_bytes(b"no picture")
    done = ask(str(tmp_path), "w90", "--picture-fps", "2", "--json")
    assert "3.png" in done.of("unreadable")[0]["problem"]
    assert done.of("watched")[0]["num_frames"] == 11
    assert done.of("watched")[0]["num_unreadable"] == 1


def test_pictures_of_another_size_than_the_first_are_told_and_counted_as_map_does(
    run_here: Callable[..., Done], tmp_path: Path
) -> None:
    for index, size in enumerate([(112, 84), (112, 84), (84, 112), (224, 168), (112, 84), (112, 56)]):
        Image.new("RGB", size, (40 * index, 0, 0)).save(tmp_path / f"{index}.png")
    mapped = run_here("map", str(tmp_path), "--model", "tiny", "--picture-fps", "2", "--out", str(tmp_path / "out"))
    done = run_here("ask", str(tmp_path), "Which room are you in now?")
    assert done.returncode == mapped.returncode == 0
    told = [line for line in done.stderr.splitlines() if line.startswith("frame ")]
    assert told == [line for line in mapped.stdout.splitlines() if line.startswith("frame ")]
    assert [line.partition(" at ")[0] for line in told] == ["frame 2"]
    for done_or_mapped in (done.stderr, mapped.stdout):
        assert "2 more frames up to frame 5 at 2.500 s could not be read" in done_or_mapped
    events = run_here("ask", str(tmp_path), "Which room are you in now?", "--json").of("unreadable")
    assert [event["index"] for event in events] == [2, 3, 5]
    assert ", 3 unreadable;" in mapped.stdout
    assert "3 frames up to 00:02, 3 unreadable, " in done.stderr
    (watched,) = run_here("ask", str(tmp_path), "Which room are you in now?", "--json").of("watched")
    assert (watched["num_frames"], watched["num_unreadable"]) == (3, 3)


def test_every_picture_of_a_folder_is_looked_at_unless_its_rate_is_given(
    ask: Callable[..., Done], tmp_path: Path
) -> None:
    for index in range(5):
        Image.new("RGB", (56, 56), (40 * index, 0, 0)).save(tmp_path / f"{index}.png")
    assert "5 frames up to 00:02" in ask(str(tmp_path), "w90").stderr
    assert "1 frame up to 00:00" in ask(str(tmp_path), "w90", "--picture-fps", "30").stderr


def test_model_of_the_package_says_of_other_video_what_it_knows_and_what_to_type(
    run_here: Callable[..., Done], tmp_path: Path
) -> None:
    Image.new("RGB", (56, 56)).save(tmp_path / "0.png")
    note = "micro-vqa was trained on procedural houses and knows nothing else; for real video type --model Qwen/"
    question = "Which room are you in now?"
    assert note in run_here("ask", str(tmp_path), question).stderr
    assert run_here("ask", str(tmp_path), question, "--json").of("note")[0]["text"].startswith(note)
    assert note not in run_here("ask", WALK, question).stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([SOURCE, "w90", "--model", "/no/model"], "Expected the folder of a model at /no/model"),
        ([SOURCE, "w90", "--model", str(GOLDEN)], "tokenizer.json"),
        (["nowhere.mp4", "w90"], "there is no 'nowhere.mp4'"),
        ([SOURCE, "w90", "--at", "soon"], "Expected a time such as"),
        ([SOURCE, "w90", "--at", "1", "--at", "2"], "a question for each of 2 --at, but got 1"),
        ([SOURCE, "--at", "1"], "a question for each of 1 --at, but got 0"),
        ([SOURCE, " "], "words in it"),
        ([SOURCE, "w90", "--choices", "yes"], "two choices or more"),
        ([SOURCE, "w90", "--choices", "yes,yes"], "all different"),
        ([SOURCE, "w90", "--choices", "yes,"], "two choices or more"),
        ([SOURCE, "--every", "often", "w90"], "Expected a time such as"),
        ([SOURCE, "--every", "10s"], "words in it"),
        ([SOURCE, "--when", "w90=w91"], "other answers to wait for"),
        ([SOURCE, "w90", "--start", "soon"], "Expected a time such as"),
        ([SOURCE, "w90", "--start", "3", "--end", "2"], "an end after the start"),
        ([SOURCE, "w90", "--fps", "0"], "more than 0 frames a second"),
        ([SOURCE, "w90", "--memory", "lots"], "such as 4GB"),
        (
            [SOURCE, "w90", "--policy", "all"],
            "There is no memory policy 'all' for a dialogue; choose one of keep-all, window, thinned, novel",
        ),
        ([SOURCE, "w90", "--memory", "8 frames"], "--memory in bytes"),
        ([SOURCE, "w90", "--memory", "10kB"], "cannot hold"),
        (["world:3?frames=2&size=1120x840&fps=2", "w90", "--memory", "1100000"], "no room for the frames after 00:00"),
        ([SOURCE, "w90", "--size", "20"], "--size from 28"),
        ([SOURCE, "w90", "--chunk", "0"], "--chunk auto, or a number from 1 to 9999, but got '0'"),
        ([SOURCE, "w90", "--chunk", "some"], "but got 'some'"),
        ([SOURCE, "w90", "--device", "tpu"], "no device 'tpu'"),
        ([SOURCE, "w90", "--start", "20"], "ends before"),
        ([SOURCE], "Expected a question"),
    ],
)
def test_bad_input_is_one_sentence(arguments: list[str], sentence: str, ask: Callable[..., Done]) -> None:
    done = ask(*arguments)
    assert done.returncode == (1 if sentence in OF_DATA else 2)
    *earlier, problem = [line for line in done.stderr.splitlines() if "attention by" not in line]
    assert sentence in problem
    assert len(earlier) == (arguments == [SOURCE])  # only questions from a pipe are looked for when all is seen
    assert not done.stdout


def test_without_the_extra_one_sentence_says_what_to_do() -> None:
    start = "import sys; sys.modules['transformers'] = None; from longtake.cli.main import main; main()"
    command = [sys.executable, "-c", start, "ask", SOURCE, "w90"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 1
    assert 'pip install "longtake[qwen]"' in done.stderr
    assert done.stderr.count("\n") == 1


def test_without_a_model_the_bundled_one_answers(run_here: Callable[..., Done]) -> None:
    done = run_here("ask", WALK, "Have you seen a red ball?", "  WHICH room are you in now", "--at", "1", "--json")
    assert done.returncode == 0, done.stderr
    first, last = done.of("answer")
    assert (first["time_s"], last["time_s"]) == (1.0, 3.5)
    for answer in (first, last):
        assert answer["ending"] in ("stop", "length")
        assert answer["text"]
        assert sum(span["weight"] for span in answer["evidence"]) == pytest.approx(1)


def test_strange_question_gets_what_the_model_knows_and_the_next_is_answered(run_here: Callable[..., Done]) -> None:
    done = run_here("ask", WALK, "Is there a dragon?", "which room are you in now?", "--json")
    assert done.returncode == 3, done.stderr
    refused, answered = done.of("answer")
    assert refused["text"].startswith("I only know about walks through longtake's own procedural houses, and 'there',")
    assert (refused["ending"], refused["tokens"], refused["evidence"]) == ("refused", 0, [])
    assert answered["ending"] != "refused"
    plain = run_here("ask", WALK, "Is there a dragon?")
    assert plain.returncode == 3
    assert plain.stdout == "'there', 'dragon' are no words of mine.\n"
    assert "for anything else name another model (DialogueSession.from_pretrained" in plain.stderr


def test_of_several_strange_questions_each_gets_a_line_and_what_the_model_knows_is_told_once(
    run_here: Callable[..., Done],
) -> None:
    done = run_here("ask", WALK, "What is this place?", "Have you seen a dragon?", "where is the red ball?")
    assert done.returncode == 3
    assert [line.partition("? ")[2] for line in done.stdout.splitlines()] == [
        "'this', 'place' are no words of mine.",
        "'dragon' is no word of mine (did you mean 'Have you seen a red ball?').",
        "'where is the red ball' is no question that I was taught (did you mean 'Where is the red ball now?').",
    ]
    (told,) = [line for line in done.stderr.splitlines() if line.startswith("I only know about")]
    assert "What colour was the ball?" in told
    assert "colours: red, orange," in told
    assert "word of mine" not in told


@pytest.mark.parametrize(
    "options",
    [
        ["--when", "is it dark?=yes"],
        ["--when", "which room are you in now?=red,pink"],
        ["have you seen a red ball?", "--choices", "yes,perhaps"],
    ],
)
def test_strange_choices_are_refused_before_the_video_is_watched(
    options: list[str], run_here: Callable[..., Done]
) -> None:
    done = run_here("ask", WALK, *options, "--json")
    assert done.returncode == 3
    assert "I only know about" in done.stderr
    assert not done.stdout


def test_time_is_written_as_people_read_it() -> None:
    assert [format_time(time_s) for time_s in (0.0, 42.5, 59.96, 3723.0)] == ["00:00", "00:42.5", "01:00", "1:02:03"]
