"""Viewers of a real server: late, second, sleeping, back again, and those that mean no good."""

import io
import json
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from PIL import Image
from served import MAP, Outputs, without_times
from server_process import ServerProcess
from shown import Shown

import longtake
from longtake.server.client import RemoteSession
from longtake.server.results import answer_record, geometry_bytes
from longtake.video.frame import VideoFrame

pytest.importorskip("fastapi")
connecting = pytest.importorskip("websockets.sync.client")
pytestmark = pytest.mark.extra
MEGABYTE = 1_000_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("viewed") / "sessions") as started:
        yield started


def step(session: RemoteSession, frames: Sequence[VideoFrame]) -> tuple[bytes, ...]:
    results = [session.step(frame) for frame in frames]
    return tuple(geometry_bytes(geometry) for geometry in results if geometry is not None)


class Page:
    """What a page sees of a session."""

    def __init__(self, server: ServerProcess, session: RemoteSession, query: str = "") -> None:
        live = f"{server.socket_url}/v1/sessions/{session.id}/live{query}"
        self._connecting = connecting.connect(live, proxy=None, compression=None, max_size=None)
        self.events: list[dict[str, Any]] = []
        self.shown: list[Shown] = []
        self.num_bytes = 0

    def __enter__(self) -> "Page":
        self.socket = self._connecting.__enter__()
        return self

    def __exit__(self, *ending: Any) -> None:
        self._connecting.__exit__(*ending)

    def send(self, type: str, **fields: Any) -> None:
        self.socket.send(json.dumps({"type": type, **fields}))

    def read(self, seconds: float = 1.0) -> "Page":
        """All that comes until nothing did for so long."""
        while True:
            try:
                message = self.socket.recv(timeout=seconds)
            except TimeoutError:
                return self
            if isinstance(message, str):
                self.events.append(json.loads(message))
            else:
                self.num_bytes += len(message)
                self.shown.append(Shown.read(message))

    def frames_of(self, kind: int) -> list[int]:
        return [one.fields["frame"] for one in self.shown if one.kind == kind]


@pytest.fixture(scope="module")
def watched(server: ServerProcess, frames: list[VideoFrame]) -> Iterator[RemoteSession]:
    """A session that maps, twelve frames in; somebody watches from its beginning, and pays for nothing."""
    with (
        longtake.Client(server.url).open_session(memory=MAP.memory_bytes, ask=None) as session,
        Page(server, session) as page,
    ):
        page.send("view.budget", points=1000, previews=True)
        page.read(0.2)
        step(session, frames[:12])
        yield session
        assert page.read(0.2).shown == []


def test_a_latecomer_gets_the_points_so_far_and_the_newest_pictures(
    server: ServerProcess, watched: RemoteSession
) -> None:
    with Page(server, watched) as page:
        page.send("view.budget", points=300_000, previews=True, preview_px=100)
        assert page.read().shown == []
        page.send("credit", bytes=8 * MEGABYTE)
        page.read()
    assert sorted(page.frames_of(3)) == list(range(watched.info["num_frames"]))
    previews = {one.fields["of"]: one for one in page.shown if one.kind == 4}
    assert set(previews) == {"image", "depth", "confidence"}
    for one in previews.values():
        with Image.open(io.BytesIO(one.payload)) as picture:
            assert picture.size == (one.fields["width"], one.fields["height"]) == (100, 78)
    assert previews["image"].fields["frame"] == watched.info["num_frames"] - 1


def test_a_small_budget_gets_that_many_points_at_most(server: ServerProcess, watched: RemoteSession) -> None:
    with Page(server, watched) as page:
        page.send("credit", bytes=MEGABYTE)
        page.send("view.budget", points=2000)
        page.read()
    counts = [one.fields["count"] for one in page.shown]
    assert 1500 < sum(counts) <= 2000
    assert len(counts) == watched.info["num_frames"]


def test_no_more_bytes_come_than_were_paid_for_and_text_comes_anyway(
    server: ServerProcess, watched: RemoteSession, frames: list[VideoFrame]
) -> None:
    with Page(server, watched) as asleep, Page(server, watched) as awake:
        for page in (asleep, awake):
            page.send("view.budget", points=300_000, previews=True)
        awake.send("credit", bytes=60 * MEGABYTE)
        asleep.send("credit", bytes=90_000)
        step(watched, frames[12:16])
        for page in (asleep, awake):
            page.read()
            assert [event["index"] for event in page.events if event["type"] == "frame.known"] == [12, 13, 14, 15]
        assert 0 < asleep.num_bytes <= 90_000
        assert set(awake.frames_of(3)) >= set(range(16))
        num_shown = len(asleep.shown)
        asleep.send("credit", bytes=300_000)
        asleep.read()
        pictures = [one for one in asleep.shown[num_shown:] if one.kind == 4 and one.fields["of"] == "image"]
        assert [one.fields["frame"] for one in pictures] in ([15], [])


def test_who_comes_back_goes_on_with_events_and_gets_the_points_again(
    server: ServerProcess, watched: RemoteSession, frames: list[VideoFrame]
) -> None:
    with Page(server, watched) as page:
        page.send("view.budget", points=300_000)
        page.send("credit", bytes=8 * MEGABYTE)
        page.read()
        last = page.events[-1]["id"]
    step(watched, frames[16:18])
    with Page(server, watched, f"?after={last}") as again:
        again.send("view.budget", points=300_000)
        again.send("credit", bytes=8 * MEGABYTE)
        again.read()
    assert [event["index"] for event in again.events if event["type"] == "frame.known"] == [16, 17]
    assert set(again.frames_of(3)) == set(page.frames_of(3)) | {16, 17}


def test_viewers_that_mean_no_good_get_errors_and_change_no_result(
    server: ServerProcess, frames: list[VideoFrame], local: Outputs
) -> None:
    wrong: list[dict[str, Any]] = [
        {"type": "credit"},
        {"type": "credit", "bytes": -5},
        {"type": "credit", "bytes": True},
        {"type": "credit", "bytes": 1e300},
        {"type": "credit", "bytes": "1"},
        {"type": "view.budget", "points": -1},
        {"type": "view.budget", "points": False},
        {"type": "view.budget", "previews": "yes"},
        {"type": "view.budget", "preview_px": 100_000},
        {"type": "response.create", "response": "\udfff", "question": "Where is the red ball now?"},
        {"type": "watch.create", "watch": "\ud800", "question": "Where is the red ball now?", "expected": "left"},
    ]
    with longtake.Client(server.url).open_session(memory=40_000_000, share=0.3, ask_fps=5.0) as session:
        steps: tuple[bytes, ...] = ()
        with Page(server, session) as page, Page(server, session) as flapping:
            for request in wrong:
                page.socket.send(json.dumps(request))
            page.socket.send('{"type": "credit", "bytes": NaN}')
            page.send("credit", bytes=10**30)
            flapping.send("credit", bytes=10**9)
            for number, frame in enumerate(frames):
                steps += step(session, [frame])
                for flap in range(50):
                    points, previews = 1000 * (flap % 3), bool((flap + number) % 2)
                    flapping.send("view.budget", points=points, previews=previews, preview_px=16 + flap)
            assert Outputs(steps, without_times(answer_record(session.ask("Where is the red ball now?")))) == local
            page.read()
            flapping.read()
        errors = [event for event in page.events if event["type"] == "error"]
        assert [event["code"] for event in errors] == ["bad_message"] * (len(wrong) + 1)
        assert all(event["message"].startswith("Expected") for event in errors)
        assert page.shown == []
        assert flapping.num_bytes <= 64 * MEGABYTE


def test_who_pays_and_reads_nothing_harms_nobody(
    server: ServerProcess, watched: RemoteSession, frames: list[VideoFrame]
) -> None:
    with Page(server, watched) as idle:
        idle.send("view.budget", points=10**8, previews=True, preview_px=640)
        idle.send("credit", bytes=10**9)
        started_s = time.monotonic()
        step(watched, frames[18:22])
        assert time.monotonic() - started_s < 20
        idle.socket.socket.close()
    with Page(server, watched) as page:
        page.send("view.budget", points=300_000)
        page.send("credit", bytes=8 * MEGABYTE)
        assert 21 in page.read().frames_of(3)
