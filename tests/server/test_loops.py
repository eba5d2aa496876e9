"""A camera that is lost in the dark and comes back, on a server: loops close as they do in a local session."""

import json
import shutil
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from live_page import PATIENCE_MS, open_page, wait_for_words
from PIL import Image
from served import MAP, Start, await_save, events_of, open_session, push
from server_process import ServerProcess

import longtake
from longtake.exports.saved import saved_frame
from longtake.pipeline.final_moves import FinalMoves
from longtake.server.client import RemoteSession
from longtake.server.downloads import Downloads
from longtake.server.engine import Engine
from longtake.server.networks import Networks
from longtake.server.points import camera_points
from longtake.server.results import geometry_bytes, geometry_of
from longtake.server.session import ServedSession
from longtake.server.settings import ServerSettings
from longtake.server.shelf import TAKE_NAME
from longtake.server.spec import SessionSpec
from longtake.takes.fields import JsonObject
from longtake.takes.header import CORRECTIONS_NAME, ONLINE_POSES_NAME, POSES_NAME
from longtake.takes.take import Take, read_take
from longtake.types import MovedSpan, TrackingState
from longtake.video.frame import VideoFrame
from longtake.world.tour import Tour

pytestmark = pytest.mark.extra
NUM_BEFORE, NUM_DARK, AGAIN = 52, 6, 4
LIGHT = NUM_BEFORE + NUM_DARK
CENTRES = "longtake.page.state.frames.map(({ pose }) => [3, 7, 11].map((at) => pose[at]))"


@pytest.fixture(scope="module")
def walk() -> list[VideoFrame]:
    """A way through a house, darkness, and most of the same way once more."""
    views = [view for view, _ in zip(Tour(seed=8, width=126, height=98).views(), range(NUM_BEFORE), strict=False)]
    seen = [(view.image.movedim(0, -1) * 255).round().byte().numpy() for view in views]
    shown = [*seen, *[np.zeros_like(seen[0])] * NUM_DARK, *seen[AGAIN:]]
    return [VideoFrame(index, index / 10, image) for index, image in enumerate(shown)]


@pytest.fixture(scope="module")
def local(walk: Sequence[VideoFrame]) -> list[bytes]:
    """What a local session of the same model and memory says, with loops, to the end."""
    with longtake.GeometrySession.from_pretrained("micro-map", memory=MAP.memory_bytes, device="cpu") as session:
        return [*(geometry_bytes(session.step(frame)) for frame in walk), geometry_bytes(session.finish())]


@pytest.fixture(scope="module")
def mapped(walk: Sequence[VideoFrame], tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What `map` makes of the same pictures."""
    out, pictures = tmp_path_factory.mktemp("mapped"), tmp_path_factory.mktemp("pictures")
    for frame in walk:
        Image.fromarray(np.asarray(frame.image)).save(pictures / f"{frame.index:04d}.png")
    longtake.map(
        str(pictures),
        out / "out",
        memory=MAP.memory_bytes,
        picture_fps=10.0,
        format="depth,confidence,images",
        device="cpu",
    )
    return {name: (out / "out" / name).read_bytes() for name in (POSES_NAME, ONLINE_POSES_NAME, CORRECTIONS_NAME)}


def finished(session: ServedSession) -> bytes:
    return geometry_bytes(session.finish().result(timeout=60))


def downloaded(session: ServedSession, folder: Path) -> dict[str, bytes]:
    """The files of its take, as who downloads it gets them."""
    folder.mkdir()
    downloads = Downloads(folder)
    made = downloads.make(session, "take")
    try:
        with zipfile.ZipFile(made.path) as archive:
            return {name.removeprefix("take/"): archive.read(name) for name in archive.namelist()}
    finally:
        downloads.remove(made)
        downloads.close()


def test_a_pushed_session_closes_loops_to_the_bit_as_a_local_one(
    start: Start, walk: Sequence[VideoFrame], local: list[bytes], mapped: dict[str, bytes], tmp_path: Path
) -> None:
    """Its events, its poses and its downloads follow, and the take is that of `map`."""
    session = open_session(start(), MAP)
    assert [*push(session, walk), finished(session)] == local
    states = [event["tracking"]["state"] for event in events_of(session, "frame.known")]
    assert states.count("relocalised") == 1
    assert "lost" in states[NUM_BEFORE : LIGHT + 2]
    moves = events_of(session, "window.moved")
    assert max(len(move["spans"]) for move in moves) > 1
    assert session.description["loops"]["num_loops"] >= 1
    assert session.description["version"] == moves[-1]["version"]
    take = downloaded(session, tmp_path / "downloads")
    assert {name: take[name] for name in mapped} == mapped
    lines = session.poses()[1].splitlines()
    known = [line.split() for line in take[POSES_NAME].decode().splitlines()]
    for line, numbers in zip(lines, known, strict=True):
        assert [float(word) for word in line.split()] == pytest.approx([float(word) for word in numbers], abs=2e-6)


def test_saves_evictions_and_a_crash_close_the_same_loops(
    start: Start, walk: Sequence[VideoFrame], local: list[bytes], networks: Networks, tmp_path: Path
) -> None:
    session = open_session(start(save_every_frames=7), MAP)
    said = push(session, walk[: LIGHT - 2])
    session.evict().result(timeout=60)  # in the dark
    said += push(session, walk[LIGHT - 2 : LIGHT + 12], first=LIGHT - 2)
    session.evict().result(timeout=60)  # in a sub-map that is not joined
    said += push(session, walk[LIGHT + 12 : -4], first=LIGHT + 12)
    assert said == local[: len(said)]
    await_save(session, (len(said) - (LIGHT + 12)) % 7)
    session.settle()
    shutil.copytree(tmp_path / "sessions", tmp_path / "crashed")  # as the disk is when the program is killed now
    with Engine(ServerSettings(folder=tmp_path / "crashed"), networks) as engine:
        again = engine.session(session.id)
        first = len(said) if again.lost is None else again.lost[0]
        assert [*push(again, walk[first:], first=first), finished(again)] == local[first:]
        whole = open_session(engine, MAP)
        push(whole, walk)
        finished(whole)
        assert downloaded(again, tmp_path / "one") == downloaded(whole, tmp_path / "other")
        assert again.poses() == whole.poses()


def test_the_parts_of_a_map_are_told_while_it_is_on_disk_and_in_what_is_downloaded(
    start: Start, walk: Sequence[VideoFrame], tmp_path: Path
) -> None:
    engine = start()
    session = open_session(engine, replace(MAP, title="a walk.mp4"))
    push(session, walk[: LIGHT + 12])
    told = session.description["loops"]
    assert (told["num_sub_maps"], told["apart"]) == (2, (1,))
    finished(session)
    told = session.description["loops"]
    take = downloaded(session, tmp_path / "in memory")
    summary = json.loads(take["summary.json"])
    assert summary["tracking"]["apart"] == summary["loops"]["apart"] == list(told["apart"])
    assert summary["tracking"]["states"]["lost"] > 0
    assert (summary["source"], summary["num_frames"], summary["is_complete"]) == ("a walk.mp4", LIGHT + 12, True)
    session.evict().result(timeout=60)
    assert session.description["loops"] == told
    assert downloaded(session, tmp_path / "on disk") == take
    engine.drain()
    again = start().session(session.id)
    assert again.description["loops"] == told
    assert downloaded(again, tmp_path / "after a restart") == take


def test_loops_can_be_declined_and_are_counted_where_they_are_not(
    start: Start, walk: Sequence[VideoFrame], networks: Networks
) -> None:
    engine, declined = start(), replace(MAP, loops=False)
    session, plain = open_session(engine, MAP), open_session(engine, declined)
    for one in (session, plain):
        push(one, walk[:12])
    assert plain.description["loops"] == {"are_closed": False, "why": "as asked for"}
    assert events_of(plain, "frame.known")[0]["tracking"] is None
    assert session.description["loops"]["are_closed"]
    most = session.description["loops"]["most_bytes"]
    more = engine.admission.bytes_of(session.id) - engine.admission.bytes_of(plain.id)
    assert more == networks.loop_bytes(MAP, (98, 126)) >= most
    assert SessionSpec.from_record(JsonObject(json.loads(json.dumps(MAP.to_record())), "here")) == MAP
    older = {name: value for name, value in MAP.to_record().items() if name != "loops"}
    assert not SessionSpec.from_record(JsonObject(older, "a record of an earlier version")).loops


@pytest.mark.by_hand
def test_points_follow_the_map_whether_they_were_here_or_are_read_again(
    start: Start, walk: Sequence[VideoFrame], tmp_path: Path
) -> None:
    """Of a viewer who was there from the start, and of one who comes when the points have been given up."""
    session = open_session(start(), MAP)
    session.view.listen(watching)
    push(session, walk)
    finished(session)
    session.settle()
    assert session._machine.views.wait(60.0)
    take = known_take(session, tmp_path / "known")
    said = read_take(session.shelf.folder / TAKE_NAME)
    assert where_points_lie(session, take) < 0.01 < 0.1 < where_points_lie(session, said)
    session.view.stop_listening(watching)
    session.evict().result(timeout=60)
    assert not session.view.points.num_points
    session.view.listen(watching)
    assert session._machine.views.wait(60.0)
    assert session.view.points.num_points
    assert where_points_lie(session, take) < 0.001 < 0.1 < where_points_lie(session, said)


def watching() -> None:
    """As who looks at it."""


@pytest.mark.by_hand
def test_a_killed_server_that_comes_back_closes_the_same_loops(
    walk: Sequence[VideoFrame], local: list[bytes], tmp_path: Path
) -> None:
    """By kill -9, in the dark and while the sub-map is not joined."""
    pytest.importorskip("fastapi")
    folder, steps, port, session = tmp_path / "sessions", list[bytes](), 0, None
    for stop in (NUM_BEFORE + 4, LIGHT + 20, len(walk)):
        with ServerProcess(folder, "--save-every", "5", port=port) as server:
            port = server.port
            if session is None:
                session = longtake.Client(server.url).open_session(ask=None, memory=MAP.memory_bytes)
            steps += [stepped(session, frame) for frame in walk[len(steps) : stop]]
            if stop < len(walk):
                server.kill()
                continue
            ended = session.finish()
            assert ended is not None
            assert [*steps, geometry_bytes(ended)] == local


@pytest.mark.by_hand
def test_the_page_says_when_the_camera_is_lost_and_found(
    browser: Any, heard: list[str], walk: Sequence[VideoFrame], tmp_path: Path
) -> None:
    """And its way is that of the corrected poses, for who was there and for who comes later."""
    pytest.importorskip("fastapi")
    with (
        ServerProcess(tmp_path / "sessions") as server,
        longtake.Client(server.url).open_session(ask=None, memory=MAP.memory_bytes) as session,
    ):
        page = open_page(browser, server.url, heard, fragment=f"#session={session.id}")
        for frame in walk[: LIGHT - 1]:
            session.step(frame)
        wait_for_words(page, "#status-words", r"^Lost: dark since \d s$")
        known = [geometry_of(stepped(session, frame)) for frame in walk[LIGHT - 1 : -1]]
        assert any(one.state is TrackingState.RELOCALISED for step in known for one in step.tracking or ())
        wait_for_words(page, "#status-words", r"^Live, \d+ frames; found again$")
        session.finish()
        wait_for_words(page, "#status-words", "Ended")
        session.download("poses.tum", tmp_path / "poses.tum")
        centres = np.loadtxt(tmp_path / "poses.tum")[:, 1:4]
        later = open_page(browser, server.url, heard, fragment=f"#session={session.id}")
        wait_for_words(later, "#status-words", "Ended")
        for one in (page, later):
            one.wait_for_function(f"() => longtake.page.state.frames.length === {len(centres)}", timeout=PATIENCE_MS)
            shown = np.array(one.evaluate(CENTRES))
            assert np.abs(shown - centres).max() < 1e-4 * np.abs(centres).max()
            one.close()


def stepped(session: RemoteSession, frame: VideoFrame) -> bytes:
    known = session.step(frame)
    assert known is not None
    return geometry_bytes(known)


def known_take(session: ServedSession, folder: Path) -> Take:
    for name, content in downloaded(session, folder).items():
        path = folder / "take" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return read_take(folder / "take")


def where_points_lie(session: ServedSession, take: Take) -> float:
    """How far, at most, points are from any that the take knows of their frame, over the median depth."""
    places = {record.index: place for place, record in enumerate(take.records)}
    farthest, sequence = 0.0, session.view.points.next_sequence
    while (placed := session.view.points.newest_within(0, sequence)) is not None:
        sequence = placed.sequence
        frame = saved_frame(take, places[placed.chunk.frame])
        pixels = camera_points(frame, np.arange(frame.depth.size))
        pose = frame.world_from_camera.numpy()
        world = pixels @ pose[:3, :3].T + pose[:3, 3]
        shown = placed.chunk.positions @ placed.world_from_chunk[:3, :3].T + placed.world_from_chunk[:3, 3]
        nearest = np.abs(shown[:8, None] - world[None]).max(axis=2).min(axis=1)
        farthest = max(farthest, float(nearest.max()) / float(np.median(frame.depth)))
    return farthest


def test_results_on_the_wire_say_how_frames_were_tracked(local: list[bytes]) -> None:
    tracking = [one for step in local for one in geometry_of(step).tracking or ()]
    assert len(tracking) == LIGHT + NUM_BEFORE - AGAIN
    assert TrackingState.LOST in {one.state for one in tracking}


def test_moves_of_final_frames_are_one_object_until_one_moves() -> None:
    moves = FinalMoves()
    assert moves.corrections is None
    span = MovedSpan(first_frame=0, last_frame=3, now_from_before=torch.eye(4, dtype=torch.float64))
    moves.move([span], num_final=0)
    assert moves.corrections is None
    moves.move([span], num_final=4)
    before = moves.corrections
    assert before is not None
    moves.move([replace(span, first_frame=4, last_frame=9)], num_final=4)
    assert moves.corrections is before
