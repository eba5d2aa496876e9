"""Sessions of a server without its web part, and what they must equal: a local session on the same frames."""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from longtake.api.live_session import LiveSession
from longtake.server.engine import Engine
from longtake.server.machine import PushedFrame
from longtake.server.networks import Networks
from longtake.server.results import answer_record, geometry_bytes
from longtake.server.session import ServedSession
from longtake.server.spec import SessionSpec
from longtake.types import Geometry
from longtake.video.frame import VideoFrame

QUESTION = "Where is the red ball now?"
BOTH = SessionSpec(model="micro-map", language="micro-vqa", memory_bytes=40_000_000, share=0.3, ask_fps=5.0)
MAP = SessionSpec(model="micro-map", memory_bytes=10_000_000)
PLAIN = SessionSpec(model="micro-map", memory_bytes=10_000_000, loops=False)
"""Takes no more bytes than it declares."""
ASK = SessionSpec(language="micro-vqa", memory_bytes=20_000_000)

Start = Callable[..., Engine]


@dataclass(frozen=True)
class Outputs:
    """All that a session said, to the bit: geometry as bytes, the answer without its times."""

    steps: tuple[bytes, ...]
    answer: str


def open_session(engine: Engine, spec: SessionSpec = BOTH) -> ServedSession:
    session = engine.open(spec).result(timeout=60)
    assert isinstance(session, ServedSession)
    return session


def pushed(frame: VideoFrame, sequence: int) -> PushedFrame:
    assert frame.image is not None
    return PushedFrame(sequence, frame.timestamp_s, frame.image)


def push(session: ServedSession, frames: Sequence[VideoFrame], first: int = 0) -> list[bytes]:
    """What each frame made known, numbered from `first`."""
    known = []
    for sequence, frame in enumerate(frames, start=first):
        session.push(pushed(frame, sequence)).result(timeout=120)
        assert session.last is not None
        assert session.last.sequence == sequence
        known.append(_bytes(session.last.geometry))
    return known


def ask(session: ServedSession, question: str = QUESTION, id: str = "q") -> str:
    return without_times(session.ask(id, question).result(timeout=120))


def local_outputs(networks: Networks, frames: Sequence[VideoFrame], spec: SessionSpec = BOTH) -> Outputs:
    """Of a session in this process that maps and answers."""
    session = LiveSession.from_pretrained(
        map=networks.map_named(spec.model),
        ask=networks.language_named(spec.language),
        memory=spec.memory_bytes,
        share=spec.share,
        ask_fps=spec.ask_fps,
    )
    session.map.close_loops_by(networks.loops_of(spec))
    with session:
        steps = tuple(_bytes(session.step(frame)) for frame in frames)
        return Outputs(steps, without_times(answer_record(session.ask(QUESTION))))


def without_times(answer: dict[str, Any]) -> str:
    """An answer as text, all digits of its numbers included; which frames they are of only a server says."""
    moments = [{name: value for name, value in span.items() if name != "frame"} for span in answer["evidence"]]
    plain = {name: value for name, value in answer.items() if name != "timing"} | {"evidence": moments}
    return json.dumps(plain, sort_keys=True)


def events_of(session: ServedSession, type: str) -> list[dict[str, Any]]:
    return [event.fields for event in session.events.after(0) if event.type == type]


def until(is_so: Callable[[], bool], seconds: float = 20.0) -> None:
    """Wait for something to become true."""
    ends_s = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < ends_s, "it did not come to that"
        time.sleep(0.02)


def await_save(session: ServedSession, num_unsaved: int) -> None:
    """Until a save that was begun while frames came has ended, and only so many of them are not on the disk."""

    def is_told() -> bool:
        saved = events_of(session, "session.saved")
        return bool(saved) and saved[-1]["next_sequence"] + num_unsaved == session.record.next_sequence

    until(is_told, seconds=60.0)


def same(one: Geometry, other: Geometry) -> bool:
    """Whether two results are equal to the bit."""
    return geometry_bytes(one) == geometry_bytes(other) and torch.equal(one.depth, other.depth)


def _bytes(geometry: Geometry | None) -> bytes:
    return b"" if geometry is None else geometry_bytes(geometry)
