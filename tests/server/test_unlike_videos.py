"""A video that is unlike what a session's models know: told once, by the same number as a local session's."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from served import ASK, BOTH, MAP, Start, events_of, open_session, push

from longtake.api.dialogue_session import DialogueSession
from longtake.api.geometry_session import GeometrySession
from longtake.takes.fields import JsonObject
from longtake.takes.sealed_json import sealed, unsealed
from longtake.video.frame import VideoFrame

pytestmark = pytest.mark.extra
UNLIKE = "knows procedural houses; this video is unlike them"


@pytest.fixture(scope="module")
def noise() -> list[VideoFrame]:
    rng = np.random.default_rng(2)
    pictures = rng.integers(0, 256, (12, 98, 126, 3), dtype=np.uint8)
    return [VideoFrame(index, index / 2, picture) for index, picture in enumerate(pictures)]


def test_noise_is_told_when_it_ends_by_the_number_of_local_sessions(start: Start, noise: Sequence[VideoFrame]) -> None:
    with GeometrySession.from_pretrained("micro-map", memory=MAP.memory_bytes, device="cpu") as mapping:
        for frame in noise:
            mapping.step(frame)
        how_far = mapping.unlikeness
    with DialogueSession.from_pretrained("micro-vqa", memory=ASK.memory_bytes, device="cpu") as dialogue:
        for frame in noise:
            dialogue.see(frame)
        how_far_asked = dialogue.unlikeness
    assert how_far is not None
    assert how_far_asked is not None
    assert min(how_far, how_far_asked) > 1

    session = open_session(start(), replace(BOTH, ask_fps=100.0))
    push(session, noise)
    assert not any(UNLIKE in note for note in session.description["notes"])
    session.finish().result(timeout=60)
    expected = {"model": how_far, "language": how_far_asked}
    assert session.description["unlikeness"] == expected
    told = [event for event in events_of(session, "session.updated") if "unlikeness" in event]
    assert [event["unlikeness"] for event in told] == [expected]
    assert told[0]["notes"] == session.description["notes"]
    about_map, about_answers = (note for note in told[0]["notes"] if UNLIKE in note)
    assert about_map.startswith(f"micro-map {UNLIKE} ({how_far:.1f} times")
    assert "longtake serve --model" in about_map
    assert "its answers may mean nothing" in about_answers


def test_a_judgement_goes_on_where_a_session_was_on_disk(start: Start, noise: Sequence[VideoFrame]) -> None:
    engine = start()
    whole, broken = open_session(engine), open_session(engine)
    push(whole, noise)
    push(broken, noise[:7])
    broken.evict().result(timeout=60)
    push(broken, noise[7:], first=7)
    for session in (whole, broken):
        session.finish().result(timeout=60)
    assert broken.description["unlikeness"] == whole.description["unlikeness"]
    engine.drain()
    again = start().session(broken.id)
    assert again.description["notes"] == whole.description["notes"]


def test_a_house_is_familiar_and_is_told_nothing_of(start: Start, frames: Sequence[VideoFrame]) -> None:
    session = open_session(start(), MAP)
    push(session, frames[:12])
    session.finish().result(timeout=60)
    assert 0 < session.description["unlikeness"]["model"] < 1
    assert not any(UNLIKE in note for note in session.description["notes"])


def test_a_record_of_an_earlier_version_knows_nothing_of_it(start: Start) -> None:
    session = open_session(start(), MAP)
    path = session.shelf.folder / "session.json"
    fields = unsealed(JsonObject.parse(path.read_bytes(), str(path))).fields
    path.write_bytes(sealed({name: value for name, value in fields.items() if name != "unlikeness"}))
    assert session.shelf.read() == session.record
