"""Pages that watch one session, in a real browser on a real server: two at once, one that sleeps, a fork, a pause."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from live_page import (
    PATIENCE_MS,
    ask,
    fall_asleep,
    frames_looked_at,
    open_page,
    wait_for_answer,
    wait_for_thumbnails,
    wait_for_words,
)
from served import until
from server_process import ServerProcess

pytest.importorskip("fastapi")
pytestmark = pytest.mark.extra

NUM_FRAMES = 48
QUESTIONS = ("Which room are you in now?", "Where is the red ball now?", "Where is the green chair now?")
SEEN = """() => {
  const { state } = longtake.page, { chunks } = longtake.viewer.scene.points;
  return {
    poses: state.frames.map(({ index, time, pose }) => [index, time, pose]),
    answers: [...state.answers.values()].map(({ question, text, evidence }) => [question, text, evidence]),
    points: chunks.map(({ number, frame, count, origin }) => [number, frame, count, origin]).sort(([a], [b]) => a - b),
  };
}"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("viewers") / "sessions") as started:
        yield started


def begin(server: ServerProcess, num_frames: int = NUM_FRAMES) -> str:
    source = f"world:9?frames={num_frames}&size=126x98"
    return str(server.call("POST", "/v1/sessions", {"source": source, "memory": "40MB"}).record["id"])


def begin_paused(server: ServerProcess) -> str:
    """One that waits for its viewers."""
    session = begin(server)
    assert server.call("POST", f"/v1/sessions/{session}/pause").record["paused"]
    return session


def wait_for_all(page: Any, *questions: str) -> Any:
    """What a page shows of a session that has ended, once these were answered."""
    wait_for_words(page, "#status-words", f"Ended after {NUM_FRAMES} frames")
    for question in questions:
        wait_for_answer(page, question)
    page.wait_for_function("count => longtake.counts.path === count", arg=NUM_FRAMES, timeout=PATIENCE_MS)
    return page.evaluate(SEEN)


def test_a_second_viewer_sees_the_same_and_one_that_sleeps_loses_nothing_and_holds_up_nobody(
    browser: Any, server: ServerProcess, heard: list[str]
) -> None:
    session = begin_paused(server)
    pages = [open_page(browser, server.url, heard, fragment=f"#session={session}") for _ in range(3)]
    first, second, sleeper = pages
    for page in pages:
        wait_for_words(page, "#status-words", "Paused after")
    wake_up = fall_asleep(sleeper)
    first.click("#pause")
    wait_for_words(second, "#status-words", "Live|Ended")
    for page, question in zip((first, second, first), QUESTIONS, strict=True):
        ask(page, question)
        wait_for_words(page, "#log", re.escape(question))  # the server has it: pages ask side by side, in no order
    seen = wait_for_all(first, *QUESTIONS)
    wake_up()
    assert [question for question, _, _ in seen["answers"]] == [*QUESTIONS]
    assert all(text for _, text, _ in seen["answers"])
    for page in (second, sleeper):
        others = wait_for_all(page, *QUESTIONS)
        assert (others["poses"], others["answers"]) == (seen["poses"], seen["answers"])
    until(lambda: len({json.dumps(page.evaluate(SEEN)["points"]) for page in pages}) == 1, 60)
    assert len(first.evaluate(SEEN)["points"]) > NUM_FRAMES // 2
    for page in pages:
        page.close()


def test_a_paused_session_answers_and_its_fork_goes_on_to_the_same_end(
    browser: Any, server: ServerProcess, heard: list[str]
) -> None:
    session = begin_paused(server)
    page = open_page(browser, server.url, heard, fragment=f"#session={session}")
    wait_for_words(page, "#status-words", "Paused after")
    page.click("#pause")
    page.wait_for_function("() => longtake.page.state.frames.length", timeout=PATIENCE_MS)
    page.click("#pause")
    wait_for_words(page, "#status-words", "Paused after")
    assert page.text_content("#pause") == "Go on"
    page.click("#watch-button")
    page.fill("#watch-question", QUESTIONS[1])
    page.fill("#watch-expected", "yes")
    page.press("#watch-expected", "Enter")
    wait_for_words(page, "#watches", "until “yes”")
    assert page.is_hidden("#watch")
    page.click("#watches button")
    wait_for_words(page, "#watches", "^$")
    ask(page, QUESTIONS[0])
    wait_for_answer(page, QUESTIONS[0])
    looked_at = frames_looked_at(page, server, session)
    wait_for_thumbnails(page, session, looked_at)
    page.click("#fork")  # behind the frame that the worker had when it was paused
    page.wait_for_function("id => longtake.page.id !== id", arg=session, timeout=PATIENCE_MS)
    fork = page.evaluate("longtake.page.id")
    wait_for_thumbnails(page, fork, looked_at)
    num_frames = server.call("GET", f"/v1/sessions/{session}").record["num_frames"]
    assert num_frames < NUM_FRAMES
    wait_for_words(page, "#status-words", f"Paused after {num_frames} frames")
    page.click("#pause")
    forked = wait_for_all(page)
    wait_for_thumbnails(page, fork, looked_at)
    page.reload()  # events begin after the frames that were looked at
    wait_for_all(page)
    wait_for_thumbnails(page, fork, looked_at)
    assert server.call("GET", f"/v1/sessions/{session}").record["paused"]
    page.goto("about:blank")
    page.goto(f"{server.url}/#session={session}")
    wait_for_words(page, "#status-words", f"Paused after {num_frames} frames")
    page.click("#pause")
    seen = wait_for_all(page)
    for (index, time, pose), other in zip(seen["poses"], forked["poses"], strict=True):
        assert other[:2] == [index, pytest.approx(time)]
        assert other[2] == pytest.approx(pose, abs=1e-5)  # the fork's past comes from a file with fewer digits
    page.close()


def test_the_same_question_is_answered_three_ways_side_by_side(
    browser: Any, server: ServerProcess, heard: list[str]
) -> None:
    session = begin(server, 16)
    page = open_page(browser, server.url, heard, fragment=f"#session={session}")
    wait_for_words(page, "#status-words", "Ended after 16 frames")
    ask(page, QUESTIONS[0])
    wait_for_answer(page, QUESTIONS[0])
    page.click("#compare-button")
    page.fill("#compare-question", QUESTIONS[0])
    page.press("#compare-question", "Enter")
    page.wait_for_selector("#compare-results .way", timeout=PATIENCE_MS)
    ways = page.locator("#compare-results .way")
    assert page.locator("#compare-results h2").all_text_contents() == ["Streaming", "All anew", "Last frame"]
    answers = ways.locator(".answer").all_text_contents()
    assert answers[:2] == [page.text_content("#log .answer")] * 2
    assert answers[2]
    figures = [ways.nth(place).locator("dd").all_text_contents() for place in range(3)]
    assert all(figure[0].isdigit() for way in figures for figure in way)
    assert figures[0][3] == figures[1][3] != figures[2][3] == "1"
    page.keyboard.press("Escape")
    assert not page.locator("#compare").is_visible()
    page.close()
