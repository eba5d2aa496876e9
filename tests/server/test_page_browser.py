"""The page in a real browser, with a real server: what is seen, asked, flown to, and said where something is wrong."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from live_page import PATIENCE_MS, ask, open_page, wait_for_answer, wait_for_thumbnails, wait_for_words
from qr_reader import read_qr
from served import until
from server_process import ServerProcess

import longtake

pytest.importorskip("fastapi")
pytestmark = pytest.mark.extra

HOUSE = "world:9?frames=40&size=126x98"
LONG = "world:9?frames=5000&size=126x98"
TOKEN = "a-token-of-some-length"
ROOM = "Which room are you in now?"
NOT_KNOWN = "\N{EN DASH}"
EVIL = '<script>window.hit=1</script><img src=x onerror="window.hit=1"> שלום \u202eabc 🏠 ' + "long" * 300
EARLIER = """async () => {
  const { earlierFrames } = await import("/static/history.js"), { FrameTrack } = await import("/static/frame_track.js");
  const { api, id, state } = longtake.page, { frames } = await earlierFrames(api, id, new FrameTrack());
  return [frames, state.frames].map((frames) => frames.map(({ pose }) => pose));
}"""
LOOKED_AT = """[...document.querySelectorAll("#log .evidence button")]
  .map((button) => button.querySelector("img")?.naturalWidth ? button.dataset.frame : null)"""
BEFORE_THE_FIRST = """async () => {
  const { state, timeline } = longtake.page, { tracks, answers } = state, drawn = timeline.drawnMs;
  tracks.frames = tracks.frames.slice(20);
  answers.set("early", { seen_until_s: 0 });
  state.lastMemory = { dialogue: { spans: [[0, 3]] } };
  timeline.highlight([0, 3]);
  while (timeline.drawnMs === drawn) await new Promise(requestAnimationFrame);
  const { canvas } = timeline, pen = canvas.getContext("2d");
  return [[0, 5], [10, 5]].map(([x, width]) => [...pen.getImageData(x, 0, width, canvas.height).data]);
}"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("paged") / "sessions") as started:
        yield started


@pytest.fixture(scope="module")
def session(server: ServerProcess) -> str:
    """A short walk, watched to its end."""
    record = server.call("POST", "/v1/sessions", {"source": HOUSE, "memory": "40MB"}).record
    return str(record["id"])


def test_a_house_runs_without_a_click_and_evidence_is_flown_to(
    browser: Any, server: ServerProcess, heard: list[str]
) -> None:
    page = open_page(browser, server.url, heard)
    wait_for_words(page, "#log", "first word")
    page.wait_for_selector(".evidence button", timeout=PATIENCE_MS)
    page.click("#pause")
    wait_for_words(page, "#status-words", "Paused after")
    assert page.evaluate("longtake.counts.path") > 10
    moment = page.evaluate("[...longtake.page.state.answers.values()][0].evidence[0]")
    page.hover(".evidence button")
    assert page.evaluate("longtake.viewer.settings.span") == [moment["start_s"], moment["end_s"]]
    page.click(".evidence button")
    page.wait_for_function("() => !longtake.viewer.camera.flight && longtake.viewer.camera.isHeld")
    reached = np.array(page.evaluate("longtake.pose")).reshape(4, 4)
    expected = np.array(moment["pose"]).reshape(4, 4)
    assert np.linalg.norm(reached[:3, 3] - expected[:3, 3]) < 0.01
    turn = np.arccos(np.clip((np.trace(reached[:3, :3].T @ expected[:3, :3]) - 1) / 2, -1, 1))
    assert np.degrees(turn) < 1
    server.call("DELETE", f"/v1/sessions/{page.evaluate('longtake.page.id')}")
    wait_for_words(page, "#status-words", "closed")
    page.close()


def test_texts_are_shown_as_text(browser: Any, server: ServerProcess, session: str, heard: list[str]) -> None:
    page = open_page(browser, server.url, heard, fragment=f"#session={session}")
    wait_for_words(page, "#status-words", "Ended|Live")
    page.fill("#question", EVIL)
    page.press("#question", "Enter")
    page.wait_for_selector(".asked", timeout=PATIENCE_MS)
    assert page.locator(".asked").first.text_content() == EVIL.strip()
    assert page.evaluate("window.hit") is None
    assert page.evaluate("document.querySelectorAll('#log script').length") == 0
    for width in (360, 2560):
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.click("#downloads summary")
        sheet = page.locator("#downloads .sheet").bounding_box()
        assert 0 <= sheet["x"] <= sheet["x"] + sheet["width"] <= width
        page.keyboard.press("Escape")
    page.close()


def test_keys_do_what_buttons_do(browser: Any, server: ServerProcess, session: str, heard: list[str]) -> None:
    page = open_page(browser, server.url, heard, fragment=f"#session={session}")
    wait_for_words(page, "#status-words", "Ended")
    page.keyboard.press("2")
    assert page.get_attribute("[data-mode=follow]", "aria-checked") == "true"
    page.keyboard.press("m")
    assert page.get_attribute("#measure", "aria-pressed") == "true"
    page.keyboard.press("Escape")
    assert page.get_attribute("#measure", "aria-pressed") == "false"
    page.keyboard.press("c")
    assert page.input_value("#colouring") == "height"
    page.keyboard.press("?")
    assert page.locator("#keys").is_visible()
    page.keyboard.press("Escape")
    assert not page.locator("#keys").is_visible()
    page.click("#downloads summary")
    assert page.locator("#downloads .sheet").is_visible()
    page.keyboard.press("Escape")
    assert not page.locator("#downloads .sheet").is_visible()
    page.evaluate("longtake.page.state.arrivals = [1000, 1000.4]")
    assert page.evaluate("longtake.page.state.framesPerS") is None
    page.evaluate("longtake.page.state.arrivals = [1000, 1500, 2000]")
    assert page.evaluate("longtake.page.state.framesPerS") == 2
    page.evaluate("longtake.page.state.apply({ type: 'session.updated', paused: true })")
    assert page.locator("#figures div:has-text('Frames/s') dd").text_content() == NOT_KNOWN
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "question"
    page.focus("#timeline")
    page.keyboard.press("Home")
    assert "0:00.0 · frame 0" in (page.get_attribute("#timeline", "aria-valuetext") or "")
    page.keyboard.press("Enter")
    assert page.evaluate("longtake.viewer.camera.isHeld")
    page.close()


def test_a_wrong_token_and_a_lost_server_are_told_in_words(browser: Any, tmp_path: Path) -> None:
    """What the browser itself says of refused requests is not counted here."""
    folder, environment = tmp_path / "sessions", {"LONGTAKE_TOKEN": TOKEN}
    with ServerProcess(folder, "--save-every", "4", environment=environment) as first:
        made = first.call("POST", "/v1/sessions", {"source": LONG}, headers={"Authorization": f"Bearer {TOKEN}"})
        fragment = f"#session={made.record['id']}&token=not-the-token"
        page = open_page(browser, first.url, [], fragment=fragment)
        wait_for_words(page, "#token-words", r"not the server's.*started with \(LONGTAKE_TOKEN\), or that it printed")
        page.fill("#token-input", TOKEN)
        page.press("#token-input", "Enter")
        wait_for_words(page, "#status-words", r"Live, \d+")
        assert TOKEN not in page.url
        page.fill("#question", ROOM)
        page.press("#question", "Enter")
        wait_for_words(page, "#log", "first word")
        said = page.text_content("#log .answer")
        page.wait_for_function(f"() => {LOOKED_AT}.every(Boolean)", timeout=PATIENCE_MS)
        looked_at = page.evaluate(LOOKED_AT)
        kept = folder / made.record["id"] / "conversation.json"
        until(lambda: kept.is_file() and ROOM in kept.read_text())
        first.kill()
        wait_for_words(page, "#status-words", "Lost the server, trying again in")
        with ServerProcess(folder, port=first.port, environment=environment):
            wait_for_words(page, "#status-words", r"Live, \d+")
            assert page.locator("#log .asked").count() == 1
            page.reload()  # what the page knew is gone; the server has the conversation
            wait_for_words(page, "#log", f"{re.escape(ROOM)}.*{re.escape(said)}.*first word")
            assert page.locator("#log .asked").count() == 1
            page.wait_for_function(
                f"looked_at => JSON.stringify({LOOKED_AT}) === JSON.stringify(looked_at)",
                arg=looked_at,
                timeout=PATIENCE_MS,
            )
    page.close()


def test_a_session_is_deleted_when_that_was_confirmed(browser: Any, server: ServerProcess, heard: list[str]) -> None:
    id = server.call("POST", "/v1/sessions", {"source": "push", "language": None}).record["id"]
    page = open_page(browser, server.url, heard, fragment=f"#session={id}")
    wait_for_words(page, "#status-words", "Waiting for the camera")
    assert page.get_attribute("#question", "placeholder") == "Start one that answers to ask"
    assert "only maps" in page.text_content("#log")
    page.click("[data-source=saved]")
    page.click(f"[aria-label='Delete Live camera {id[:6]}']")
    assert "Delete Live camera" in page.text_content(".sure")
    page.click(".sure >> text=Keep")
    page.click(f"[aria-label='Delete Live camera {id[:6]}']")
    page.click(".sure >> .danger")
    page.wait_for_function("id => !document.getElementById('start-own').textContent.includes(id)", arg=id[:6])
    assert id not in [one["id"] for one in server.call("GET", "/v1/sessions").record["sessions"]]
    wait_for_words(page, "#status-words", "This session was closed")
    page.close()


def test_a_session_for_which_there_is_no_room_leads_to_those_that_take_it(
    browser: Any, server: ServerProcess, session: str
) -> None:
    page = open_page(browser, server.url, [], fragment=f"#session={session}")  # a browser complains of the status
    page.click("[data-source=house]")
    page.click("#settings summary")
    page.fill("[data-setting=memory]", "900GB")
    page.click("#start-button")
    wait_for_words(page, "#start-problem", "Expected room for 900.* Saved sessions$")
    page.click("#start-problem button")
    wait_for_words(page, "#start-heading", "^Saved sessions$")
    wait_for_words(page, "#start-own", session[:6])
    assert page.is_hidden("#start-problem")
    page.close()


def test_an_upload_that_cannot_be_read_says_why(
    browser: Any, server: ServerProcess, session: str, heard: list[str], tmp_path: Path
) -> None:
    page = open_page(browser, server.url, heard, fragment=f"#session={session}")
    (tmp_path / "no.mp4").write_text("no video")
    page.click("[data-source=upload]")
    page.set_input_files("#start-own input", tmp_path / "no.mp4")
    page.click("#start-button")
    wait_for_words(page, "#notice-words", "the uploaded file")
    wait_for_words(page, "#status-words", "Nothing can be read")
    page.wait_for_selector("#suggestions button", timeout=PATIENCE_MS)
    places = page.locator("#session-buttons button, #ask-panel input, #ask-panel button")
    assert places.count() > 8
    assert all(place.is_disabled() for place in places.all())
    id = page.evaluate("longtake.page.id")
    page.reload()
    wait_for_words(page, "#notice-words", "the uploaded file")
    page.click("[data-source=saved]")
    wait_for_words(page, "#start-own", rf"no\.mp4[^·]+· stopped, [^·]+· {id[:6]}.*the uploaded file")
    page.close()


def test_a_session_that_only_answers_shows_the_frames_it_looked_at(
    browser: Any, server: ServerProcess, heard: list[str]
) -> None:
    with longtake.Client(server.url).open_session(map=None, memory="20MB", title="a walk.mp4") as asked:
        for frame in longtake.open_video("world:9?frames=6&size=126x98&fps=2"):
            asked.step(frame)
        page = open_page(browser, server.url, heard, fragment=f"#session={asked.id}")
        wait_for_words(page, "#source-name", "^a walk.mp4$")
        assert page.locator("#sources [aria-current]").count() == 0
        assert "makes no map" in page.text_content("#no-map")
        assert page.locator("#no-map").is_visible()
        assert not page.locator("#depth-image").locator("..").is_visible()
        ask(page, ROOM)
        wait_for_answer(page, ROOM)
        exchanges = server.call("GET", f"/v1/sessions/{asked.id}/conversation").record["exchanges"]
        wait_for_thumbnails(page, asked.id, [span["frame"] for span in exchanges[0]["evidence"][:3]])
        page.click(".evidence button")
        wait_for_words(page, "#notice-words", "does not map")
        page.click("[data-source=saved]")
        wait_for_words(
            page, "#start-own", rf"a walk\.mp4[^·]+· in memory, answers only, 6 frames, [^·]+· {asked.id[:6]}"
        )
        page.close()


def test_an_answer_is_chosen_and_a_webhook_asked_for_where_it_is_allowed(
    browser: Any, server: ServerProcess, session: str, heard: list[str]
) -> None:
    page = open_page(browser, server.url, heard, fragment=f"#session={session}")
    wait_for_words(page, "#status-words", "Ended")
    page.click("#choose-button")
    page.fill("#choose-question", "Have you seen a red ball?")
    page.fill("#choose-choices", "yes")
    page.press("#choose-choices", "Enter")
    wait_for_words(page, "#choose-words", "two answers or more")
    page.fill("#choose-choices", "yes, no")
    page.press("#choose-choices", "Enter")
    page.wait_for_selector("#choose-results li:nth-child(2)", timeout=PATIENCE_MS)
    reply = server.call(
        "POST", f"/v1/sessions/{session}/choose", {"question": "Have you seen a red ball?", "choices": ["no", "yes"]}
    ).record
    assert (page.text_content("#choose-results li") or "").startswith(reply["text"])
    page.keyboard.press("Escape")
    late: list[Any] = []
    page.route("**/choose", lambda route: late.append(route))
    page.click("#choose-button")
    assert (page.locator("#choose-results li").count(), page.input_value("#choose-choices")) == (0, "")
    page.fill("#choose-choices", "yes, no")
    page.press("#choose-choices", "Enter")
    wait_for_words(page, "#choose-words", "Asking")
    page.keyboard.press("Escape")
    page.click("#choose-button")
    with page.expect_response("**/choose"):  # an answer to what was asked before it was closed
        late[0].continue_()
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    assert (page.locator("#choose-results li").count(), page.text_content("#choose-words")) == (0, "")
    page.keyboard.press("Escape")
    offer = "hosts => longtake.page.chat.offer({ language: 'micro-vqa', webhook_hosts: hosts }, [])"
    page.evaluate(offer, [])  # as while a video runs
    page.click("#watch-button")
    assert not page.locator("#watch-webhook").is_visible()
    page.evaluate(offer, ["robot.lan"])
    assert page.locator("#watch-webhook").is_visible()
    assert page.get_attribute("#watch-webhook", "placeholder") == "an address at robot.lan"
    page.close()


def test_without_webgl_the_page_says_so_and_answers(
    launch: Callable[[list[str]], Any], server: ServerProcess, session: str, heard: list[str]
) -> None:
    with launch(["--disable-3d-apis"]) as browser:
        page = open_page(browser, server.url, heard, fragment=f"#session={session}")
        assert page.locator("#no-webgl").is_visible()
        assert not page.locator("#view").is_visible()
        wait_for_words(page, "#status-words", r"(Live|Ended)\D+[1-9]")
        page.fill("#question", ROOM)
        page.press("#question", "Enter")
        wait_for_words(page, "#log", "first word")


def test_codes_for_phones_are_read_back(browser: Any, server: ServerProcess, session: str, heard: list[str]) -> None:
    page = open_page(browser, server.url, heard, fragment=f"#session={session}")
    address = "https://192.168.1.20:8765/#film=0123456789abcdef&token=" + "kü9_" * 60
    for length in (1, 14, 15, 60, 84, 100, 150, 180, 212):
        text = address.encode()[:length].decode(errors="ignore")
        modules = page.evaluate("async text => (await import('/static/qr.js')).qrCode(text)", text)
        assert read_qr(modules) == text
    assert page.evaluate("async text => (await import('/static/qr.js')).qrCode(text)", "x" * 214) is None
    page.close()


def test_poses_that_events_no_longer_tell_come_from_their_file(
    browser: Any, server: ServerProcess, session: str, heard: list[str]
) -> None:
    page = open_page(browser, server.url, heard, fragment=f"#session={session}")
    wait_for_words(page, "#status-words", "Ended")
    filed, told = page.evaluate(EARLIER)
    assert len(filed) == len(told) == 40
    np.testing.assert_allclose(filed, told, atol=1e-5)
    page.set_viewport_size({"width": 360, "height": 800})  # no names stand beside the timeline
    outside, inside = page.evaluate(BEFORE_THE_FIRST)
    assert not any(outside)
    assert any(inside)
    page.close()


def test_a_session_that_is_gone_is_told(browser: Any, server: ServerProcess) -> None:
    page = open_page(browser, server.url, [], fragment="#session=0123456789abcdef")
    wait_for_words(page, "#notice-words", "no longer on the server")
    assert re.search("no longer", page.text_content("#status-words") or "")
    page.close()
