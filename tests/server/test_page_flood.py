"""More points than a page may hold, over a real socket, with text between them: none of that is lost, nor late."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from live_page import PATIENCE_MS, fall_asleep, open_page, wait_for_words
from served import BOTH, Start, open_session
from shown import mapped_frame

from longtake.server.machine import Step
from longtake.server.points import PointChunk, PointMaker
from longtake.server.results import pose_numbers
from longtake.server.session import ServedSession

pytest.importorskip("fastapi")
from longtake.server.access import AccessRules
from longtake.server.app import create_app
from longtake.server.run import http_server, listen

pytestmark = pytest.mark.extra

WANTED, BUDGET = 2_000_000, 2_000_000
BATCH, MOST_CHUNKS = 32, 1_000
WORDS_A_CHUNK = 2
RESPONSE = "a-long-answer"
TEXT = "longtake.page.state.answers.get('a-long-answer')?.text ?? ''"


class Flood:
    """A session into which points and words are poured as if it mapped and answered very fast."""

    def __init__(self, session: ServedSession) -> None:
        self._session = session
        self._frame = mapped_frame()
        chunk = PointMaker().chunk(self._frame)
        assert chunk is not None
        self._chunk: PointChunk = chunk
        self.num_chunks = 0
        self.words: list[str] = []
        session.events.add("response.created", response=RESPONSE, question="What came?")

    def pour(self, num_chunks: int) -> None:
        for index in range(self.num_chunks, self.num_chunks + num_chunks):
            pose = self._frame.world_from_camera.clone()
            pose[0, 3] = index / 50
            self._session.events.add(
                "frame.known", index=index, time_s=index / 10, status="final", pose=pose_numbers(pose), kind="keyframe"
            )
            self._session.view.points.add(replace(self._chunk, frame=index, time_s=index / 10), pose.numpy())
            step = Step(index=index, frame=None, seen=None, geometry=None, num_final=index)
            self._session.view.take(step, [])
            for _ in range(WORDS_A_CHUNK):
                self.words.append(f"w{len(self.words)} ")
                self._session.events.add("response.output_text.delta", response=RESPONSE, text=self.words[-1])
        self.num_chunks += num_chunks

    @property
    def num_points(self) -> int:
        return len(self._chunk) * self.num_chunks

    @property
    def text(self) -> str:
        return "".join(self.words)


@pytest.fixture
def flood(start: Start) -> Iterator[tuple[Flood, str]]:
    """The flood, and the address of the server's page."""
    engine = start()
    session = open_session(engine, BOTH)
    with listen("127.0.0.1", 0) as bound:
        port, is_ready = bound.getsockname()[1], threading.Event()
        server = http_server(create_app(engine, AccessRules.local(port)), is_ready.set)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
        thread.start()
        assert is_ready.wait(60)
        yield Flood(session), f"http://127.0.0.1:{port}/#session={session.id}"
        server.stop()
        thread.join()


def test_two_million_points_drop_no_word_for_who_looks_and_who_sleeps(
    browser: Any, flood: tuple[Flood, str], heard: list[str]
) -> None:
    source, address = flood
    url, _, fragment = address.partition("/#")
    page, sleeper = (open_page(browser, url, heard, fragment=f"#{fragment}") for _ in range(2))
    for one in (page, sleeper):
        wait_for_words(one, "#log", "What came?")
    wake_up = fall_asleep(sleeper)
    received = 0
    while received < WANTED:
        assert source.num_chunks < MOST_CHUNKS, f"of {source.num_points} points {received} came"
        source.pour(BATCH)
        page.wait_for_function(f"count => ({TEXT}).length === count", arg=len(source.text), timeout=PATIENCE_MS)
        assert page.evaluate(TEXT) == source.text
        page.wait_for_function("count => longtake.counts.received > count", arg=received, timeout=PATIENCE_MS)
        counts = page.evaluate("longtake.counts")
        assert counts["points"] <= BUDGET
        received = counts["received"]
    wake_up()
    sleeper.wait_for_function(f"count => ({TEXT}).length === count", arg=len(source.text), timeout=PATIENCE_MS)
    assert sleeper.evaluate(TEXT) == source.text
    sleeper.wait_for_function("count => longtake.counts.path === count", arg=source.num_chunks, timeout=PATIENCE_MS)
    for one in (page, sleeper):
        one.close()
