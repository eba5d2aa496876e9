"""What somebody who opens the page for the first time reads, in a real browser: whose session it is, what it means."""

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from live_page import ask, open_page, wait_for_answer, wait_for_words
from server_process import ServerProcess

import longtake
from longtake.hub.bundled import model_notes, unlike_note

pytest.importorskip("fastapi")
pytestmark = pytest.mark.extra
FORGET_MEMORY = """() => {
  const { state } = longtake.page;
  Object.assign(state, { lastMemory: null });
  Object.assign(state.memory, { samples: [] });
  Object.assign(state.speed, { samples: [] });
}"""
ROOM = "Which room are you in now?"
NOT_KNOWN = "\N{EN DASH}"
DASHED = """() => {  // whether all rows of curves begin with a small dash, and hold nothing else
  const { canvas } = longtake.page.timeline, pen = canvas.getContext("2d"), ratio = window.devicePixelRatio;
  const isDrawn = (...place) => pen.getImageData(...place.map((number) => number * ratio)).data.some(Boolean);
  return [[36, 30], [73, 14]].every(([top, tall]) => isDrawn(70, top, 16, tall) && !isDrawn(100, top, 900, tall));
}"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("newcomer") / "sessions") as started:
        yield started


@pytest.fixture(scope="module")
def session(server: ServerProcess) -> str:
    """A short walk that has ended."""
    walk = longtake.Client(server.url).open_session(memory="40MB", title="a short walk")
    for frame in longtake.open_video("world:9?frames=12&size=126x98"):
        walk.step(frame)
    walk.finish()
    walk.detach()
    return str(walk.id)


def open_ended(browser: Any, server: ServerProcess, session: str, heard: list[str], **options: Any) -> Any:
    page = open_page(browser, server.url, heard, fragment=f"#session={session}", **options)
    wait_for_words(page, "#status-words", "Ended after 12 frames")
    return page


def test_what_somebody_else_runs_is_shown_and_no_house_is_begun_beside_it(
    browser: Any, server: ServerProcess, session: str, heard: list[str]
) -> None:
    with longtake.Client(server.url).open_session(memory="40MB", title="my robot") as robot:
        for frame in longtake.open_video("world:19?frames=2&size=126x98"):
            robot.step(frame)
        page = open_page(browser, server.url, heard)
        wait_for_words(page, "#source-name", "^my robot$")
        assert page.evaluate("longtake.page.id") == robot.id
        titles = [one["title"] for one in server.call("GET", "/v1/sessions").record["sessions"]]
        assert sorted(titles) == ["a short walk", "my robot"]
        page.close()


def test_the_newest_that_frames_come_into_is_shown_and_what_has_ended_is_not(
    browser: Any, server: ServerProcess, session: str, heard: list[str]
) -> None:
    page = open_ended(browser, server, session, heard)
    sessions = [
        {"id": "old", "state": "open", "created_s": 1},
        {"id": "new", "state": "open", "created_s": 2},
        {"id": "paused", "state": "open", "created_s": 3, "paused": True},
        {"id": "waiting", "state": "waiting", "created_s": 4},
        {"id": "ended", "state": "open", "created_s": 5, "finished": True},
        {"id": "on disk", "state": "saved", "created_s": 6},
        {"id": "no video", "state": "waiting", "created_s": 7, "problem": "It cannot be read."},
    ]
    found = """async (sessions) => {
      const { newestRunning } = await import("/static/status.js"), order = [];
      let left = sessions;
      for (let next; (next = newestRunning(left)); left = left.filter((one) => one !== next)) order.push(next.id);
      return order;
    }"""
    assert page.evaluate(found, sessions) == ["new", "old", "waiting", "paused"]
    page.close()


def test_a_map_in_parts_is_told_while_it_runs_and_at_its_end(
    browser: Any, server: ServerProcess, heard: list[str]
) -> None:
    here, elsewhere = (list(longtake.open_video(f"world:{seed}?frames=52&size=126x98")) for seed in (8, 19))
    dark = [replace(frame, image=np.zeros_like(frame.image)) for frame in here[:6]]
    frames = [replace(frame, index=at, timestamp_s=at / 10) for at, frame in enumerate([*here, *dark, *elsewhere[:14]])]
    with longtake.Client(server.url).open_session(ask=None, memory="40MB") as session:
        page = open_page(browser, server.url, heard, fragment=f"#session={session.id}")
        wait_for_words(page, "#status-words", "Waiting for the camera")
        for frame in frames:
            session.step(frame)
        told = server.call("GET", f"/v1/sessions/{session.id}").record["loops"]
        assert (told["num_sub_maps"], told["apart"]) == (2, [1])
        wait_for_words(page, "#status-words", "^Live, 72 frames; .*; the map is in 2 parts, 1 not joined to the first$")
        status, modes = (page.locator(place).bounding_box() for place in ("#status", "#view-modes"))
        assert status["x"] + status["width"] <= modes["x"]
        server.call("POST", f"/v1/sessions/{session.id}/evict")
        asleep = (
            "^Asleep on disk after 72 frames; the map is in 2 parts, 1 not joined to the first; a question wakes it$"
        )
        later = open_page(browser, server.url, heard, fragment=f"#session={session.id}")
        wait_for_words(later, "#status-words", asleep)
        later.close()
        session.finish()
        ended = "^Ended after 72 frames; the map is in 2 parts, 1 not joined to the first$"
        wait_for_words(page, "#status-words", ended)
        server.call("POST", f"/v1/sessions/{session.id}/evict")
        later = open_page(browser, server.url, heard, fragment=f"#session={session.id}")
        wait_for_words(later, "#status-words", ended)
        page.wait_for_timeout(100)
        wait_for_words(page, "#status-words", ended)
        for one in (page, later):
            one.close()


def test_memory_that_nobody_told_of_is_a_dash(
    browser: Any, server: ServerProcess, session: str, heard: list[str]
) -> None:
    page = open_ended(browser, server, session, heard)
    wait_for_words(page, "#figures", r"Memory[\d.]+ [kM]B of 40 MB")
    page.evaluate(FORGET_MEMORY)  # as of a session that nobody told of since a restart, or of a fresh fork
    for unknown in (0, None):
        page.evaluate("held => longtake.page.state.apply({ type: 'session.updated', resident_bytes: held })", unknown)
        assert page.locator("#figures div:has-text('Memory') dd").text_content() == f"{NOT_KNOWN} of 40 MB"
        page.wait_for_function(DASHED, timeout=10_000)
    page.evaluate("longtake.page.state.apply({ type: 'session.updated', resident_bytes: 7e6 })")
    assert page.locator("#figures div:has-text('Memory') dd").text_content() == "7.0 MB of 40 MB"
    page.close()


def said_of_a_film(how_far: float | None) -> list[str]:
    """The notes of a session of both models, once it was measured how far the film is from what they know."""
    notes: list[str] = []
    for name, option, what in (("micro-map", "--model", "its map"), ("micro-vqa", "--language", "its answers")):
        command = f"longtake serve {option} {{}}"
        notes += model_notes(name, shows_world=False, naming=command)
        notes += [] if how_far is None else [f"{unlike_note(name, command, what).format(f'{how_far:.1f}')}."]
    return notes


def test_a_video_unlike_what_the_models_know_is_told_in_a_sentence_with_the_rest_folded(
    browser: Any, server: ServerProcess, session: str, heard: list[str]
) -> None:
    fresh, judged = said_of_a_film(None), said_of_a_film(3.21)
    page = open_ended(browser, server, session, heard, viewport={"width": 360, "height": 780})
    tell = "event => longtake.page.state.apply({ type: 'session.updated', ...event })"
    page.evaluate(tell, {"notes": fresh, "unlikeness": {"model": None, "language": None}})
    said, fold = page.locator("#model-notes > p"), page.locator("#model-notes details")
    assert said.text_content() == "micro-map was trained on procedural scenes and knows nothing else."
    assert not page.locator("#model-notes.unlike").count()
    page.evaluate(tell, {"notes": judged, "unlikeness": {"model": 3.21, "language": 3.21}})
    assert page.locator("#model-notes.unlike").is_visible()
    assert said.text_content() == (
        "This video is unlike what micro-map and micro-vqa know: its map and answers may mean nothing."
    )
    assert not page.locator("#model-notes code").is_visible()
    page.click("#model-notes summary")
    assert page.locator("#model-notes code").text_content() == (
        "longtake serve --model lingbot-map-long --language Qwen/Qwen2.5-VL-3B-Instruct"
    )
    words = fold.text_content()
    assert words.count("3.2 times as far") == 2
    assert "trained on" not in words
    assert words.count("longtake serve") == words.lower().count("for real video") == 1
    page.evaluate(tell, {"notes": judged})
    assert page.locator("#model-notes code").is_visible()  # what was opened stays so
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    page.evaluate(tell, {"notes": ["One <b>sentence</b>."], "unlikeness": {"model": None, "language": None}})
    assert (page.text_content("#model-notes"), fold.count()) == ("One <b>sentence</b>.", 0)
    page.close()


def test_a_session_is_stopped_when_that_was_confirmed_and_its_dead_buttons_go(
    browser: Any, server: ServerProcess, heard: list[str]
) -> None:
    id = server.call("POST", "/v1/sessions", {"source": "world:9?frames=5000&size=126x98", "memory": "40MB"}).record[
        "id"
    ]
    page = open_page(browser, server.url, heard, fragment=f"#session={id}")
    wait_for_words(page, "#status-words", "Live")
    assert "for good" in (page.get_attribute("#stop", "title") or "")
    assert page.get_attribute("#stop", "aria-describedby") == "stop-words"
    page.click("#stop")
    assert "No more frames can come" in page.text_content("#stop-sure")
    assert page.evaluate("document.activeElement.id") == "stop-keep"
    page.click("#stop-keep")
    assert (page.is_hidden("#stop-sure"), page.evaluate("document.activeElement.id")) == (True, "stop")
    page.click("#stop")
    page.keyboard.press("Escape")
    assert page.is_hidden("#stop-sure")
    assert not server.call("GET", f"/v1/sessions/{id}").record["finished"]
    page.click("#stop")
    page.click("#stop-now")
    wait_for_words(page, "#status-words", "Ended after")
    assert page.is_hidden("#pause")
    assert page.is_hidden("#stop")
    assert page.is_visible("#fork")
    server.call("DELETE", f"/v1/sessions/{id}")
    page.close()


def test_a_standing_question_that_fired_is_named_and_goes_with_the_end_of_the_video(
    browser: Any, server: ServerProcess, heard: list[str]
) -> None:
    frames = list(longtake.open_video("world:9?frames=12&size=126x98&fps=2"))
    with longtake.Client(server.url).open_session(map=None, memory="20MB", title="watched") as session:
        for frame in frames[:6]:
            session.step(frame)
        expected = session.ask(ROOM).text
        page = open_page(browser, server.url, heard, fragment=f"#session={session.id}")
        wait_for_words(page, "#source-name", "^watched$")
        before = page.locator("#figures div:has-text('First word') dd").text_content()
        ask(page, "Is there a unicorn?")
        wait_for_words(page, "#log", "unicorn.*no words? of mine")
        assert page.locator("#figures div:has-text('First word') dd").text_content() == before
        assert page.locator("#log li:has-text('unicorn') .about").count() == 0
        page.click("#watch-button")
        page.fill("#watch-question", ROOM)
        page.fill("#watch-expected", expected)
        page.press("#watch-expected", "Enter")
        wait_for_words(page, "#watches", f"until “{expected}”")
        for frame in frames[6:]:
            session.step(frame)
        fired = f"It is “{expected}” since [^W]*{re.escape(ROOM)}{expected}"
        wait_for_words(page, "#log", fired)
        session.finish()
        wait_for_words(page, "#watches", "^$")
        assert page.is_disabled("#watch-button")
        page.reload()
        wait_for_words(page, "#log", fired)
        assert page.text_content("#watches") == ""
        page.close()


def test_suggestions_are_of_all_kinds_and_answers_about_rooms_are_explained(
    browser: Any, server: ServerProcess, session: str, heard: list[str]
) -> None:
    (known,) = (one for one in server.call("GET", "/v1/models").record["data"] if one["kind"] == "language")
    page = open_ended(browser, server, session, heard)
    offered = page.locator("#suggestions button:not(.others)")
    page.wait_for_selector("#suggestions .others")
    first = offered.all_text_contents()
    assert first[0] == known["questions"][0]
    assert len({question.split()[0] for question in first}) >= 3
    page.click("#suggestions .others")
    others = offered.all_text_contents()
    assert sorted([*first, *others]) == sorted(known["questions"])
    page.click(f"#suggestions button:has-text('{ROOM}')")
    wait_for_answer(page, ROOM)
    assert page.text_content("#log .meaning") == "Rooms are told by the colour of their walls."
    page.click("#suggestions .others")
    page.click(f"#suggestions button:has-text('{first[0]}')")
    wait_for_answer(page, first[0])
    assert page.locator("#log .meaning").count() == 1
    page.close()


def test_the_time_of_the_network_is_that_of_many_frames(
    browser: Any, server: ServerProcess, session: str, heard: list[str]
) -> None:
    page = open_ended(browser, server, session, heard)
    steps = [0.5] * 64 + [0.0805] * 40 + [0.004]
    page.evaluate(
        "steps => steps.forEach((step_s) => longtake.page.state.apply({ type: 'input_frame.ack', step_s }))", steps
    )
    wait_for_words(page, "#figures", "Network81 ms a frame")
    assert page.evaluate("longtake.page.state.steps.length") == 64
    page.close()


def test_walks_through_the_same_house_are_told_apart(
    browser: Any, server: ServerProcess, session: str, heard: list[str]
) -> None:
    house = {"source": "world:9?frames=5000&size=126x98", "memory": "40MB"}
    ids = [server.call("POST", "/v1/sessions", house).record["id"] for _ in range(2)]
    for id in ids:
        server.call("POST", f"/v1/sessions/{id}/pause")
    page = open_page(browser, server.url, heard, fragment=f"#session={ids[0]}")
    wait_for_words(page, "#source-name", "House 9")
    page.click("[data-source=saved]")
    wait_for_words(page, "#start-own", ids[1][:6])
    rows = [page.locator(f".session .open:has-text('{id[:6]}')") for id in ids]
    shown, other = (row.text_content() for row in rows)
    about = r".*\d:\d\d:\d\d.* · .*\d* of 5,000 frames, used [^·]+ · "
    assert re.match(r"House 9 \(shown now\)" + about + ids[0][:6], shown)
    assert re.match("House 9" + about + ids[1][:6], other)
    assert rows[0].get_attribute("aria-current") == "true"
    page.click("#start [aria-label=Close]")
    page.click("[data-source=house]")
    assert page.input_value("#start-own label:nth-child(2) input") == "600"  # as many as the one that begins by itself
    first = page.evaluate("async () => (await import('/static/sources.js')).FIRST_HOUSE")
    assert first == "world:9?frames=600&size=126x98"
    for id in ids:
        server.call("DELETE", f"/v1/sessions/{id}")
    page.close()


def test_a_fork_says_what_it_is_a_fork_of(browser: Any, server: ServerProcess, session: str, heard: list[str]) -> None:
    fork = server.call("POST", f"/v1/sessions/{session}/fork").record["id"]
    page = open_ended(browser, server, session, heard)
    page.click("[data-source=saved]")
    wait_for_words(page, "#start-own", f"· {fork[:6]}, fork of a short walk {session[:6]}")
    own = page.locator(".session .open[aria-current=true]").text_content()
    assert own.endswith(f"· {session[:6]}")
    server.call("DELETE", f"/v1/sessions/{fork}")
    page.close()
