"""A session that knows places again: what it said moves when a loop closes."""

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import torch

from longtake.memory.change import Changing
from longtake.memory.saved import Pieces, SavedTensors, TensorFile
from longtake.places.loop_card import LoopCard
from longtake.places.loop_rule import LoopRule
from longtake.places.saved_walk import rule_of, walk_of, walk_tensors
from longtake.places.verification import Verifier
from longtake.places.walk import Held, Seen, Walk
from longtake.runtime.steps import Frame, Look, LoopUse, Progress, VideoSession
from longtake.types import Geometry
from longtake.weights.familiarity import UNJUDGED, Judged

_LOOPS = "loops."


class LoopedSession(VideoSession):
    """Takes frames like the session inside it, and moves what it said where places are known again.

    `num_final` counts frames that no window will look at again; loops move such frames, too, in spans.
    """

    def __init__(self, session: VideoSession, verifier: Verifier, rule: LoopRule | None = None) -> None:
        self._session, self._verifier = session, verifier
        self._walk = Changing(Walk.begun(rule))

    @property
    def session(self) -> VideoSession:
        """The one inside, which knows of no loops."""
        return self._session

    @property
    def walk(self) -> Walk:
        return self._walk.value

    @property
    def num_final(self) -> int:
        return self._session.num_final

    @property
    def progress(self) -> Progress:
        """With what it knows of places."""
        inner, walk = self._session.progress, self.walk
        loops = None if walk.graph is None else walk.graph.loops
        return replace(
            inner,
            loops=LoopUse(
                num_loops=0 if loops is None else len(loops),
                num_withdrawn=0 if loops is None else int(loops.is_withdrawn.sum()),
                num_sub_maps=len(walk.nodes.sub_maps),
                apart=walk.apart,
                num_bytes=walk.num_bytes,
                most_bytes=walk.most_bytes(inner.size),
            ),
        )

    @property
    def num_bytes(self) -> int:
        """Of the session inside it; what is known of places lies on the host, beside them."""
        return self._session.num_bytes

    @property
    def live_bytes(self) -> int:
        return self._session.live_bytes

    @property
    def provisional(self) -> Geometry:
        return self._walk.value.corrected(self._session.provisional)

    @contextmanager
    def look(self, frame: Frame, timestamp_s: float | None = None) -> Iterator[Look]:
        """As the session inside does; a frame that is lost is the last one of its sequence."""
        held = self._held()
        self._session.check(frame)
        picture = _bytes_of(frame)
        tracker = self._walk.value.tracker.seeing(picture)
        if not tracker.is_lost:
            with self._session.look(frame, timestamp_s) as look:
                told = tracker.told(look.geometry)
                if not told.is_lost:
                    yield self._looked(look, Seen(picture, told), held)
                    return
            tracker = told
        with self._session.look_last(frame, timestamp_s) as look:
            yield self._looked(look, Seen(picture, tracker.lost(look.geometry)), held)

    @contextmanager
    def look_last(self, frame: Frame, timestamp_s: float | None = None) -> Iterator[Look]:
        """What follows is another sub-map, whatever it looks like."""
        held = self._held()
        self._session.check(frame)
        picture = _bytes_of(frame)
        tracker = self._walk.value.tracker.seeing(picture).cut_off()
        with self._session.look_last(frame, timestamp_s) as look:
            yield self._looked(look, Seen(picture, tracker.lost(look.geometry)), held)

    @contextmanager
    def look_at_rest(self) -> Iterator[Look]:
        held = Held(self._session.num_final, self._session.provisional)
        with self._session.look_at_rest() as look:
            yield self._looked(look, None, held)

    def check(self, frame: Frame) -> None:
        self._session.check(frame)

    def _held(self) -> Held:
        """Before a frame; results are put together only where they may be needed."""
        return Held(self._session.num_final, self._session.provisional if self._walk.value.may_adopt else None)

    def _looked(self, look: Look, seen: Seen | None, held: Held) -> Look:
        after, geometry = self._walk.value.stepped(seen, look.geometry, held, self._verifier)
        return Look(geometry, look.num_kept, (partial(self._walk.become_with, after), *look.parts))

    def fork(self) -> "LoopedSession":
        branch = copy.copy(self)
        branch._session, branch._walk = self._session.fork(), Changing(self._walk.value)
        return branch

    def hold(self) -> "LoopedSession | None":
        session = self._session.hold()
        if session is None:
            return None
        held = copy.copy(self)
        held._session, held._walk = session, Changing(self._walk.value)
        return held

    def close(self) -> None:
        self._session.close()

    def as_file(
        self, *, fit: str | None = None, source_size: tuple[int, int] | None = None, judged: Judged = UNJUDGED
    ) -> TensorFile:
        """With all that is known of places, and by what they are known."""
        inner = self._session.as_file(fit=fit, source_size=source_size, judged=judged)
        loops = {f"{_LOOPS}{name}": Pieces.of(tensor) for name, tensor in walk_tensors(self.walk).items()}
        rule, card = asdict(self.walk.rule), self._verifier.card.to_record()
        return TensorFile({**inner.tensors, **loops}, {**inner.record, "loops": {"rule": rule, "card": card}})

    @classmethod
    def restored(cls, saved: SavedTensors, loops: Mapping[str, Any], session: VideoSession) -> "LoopedSession":
        """The session that an opened file tells of, around the one inside it."""
        tensors = {name.removeprefix(_LOOPS): saved[name] for name in saved.names if name.startswith(_LOOPS)}
        looped = cls(session, Verifier(LoopCard.from_record(dict(loops["card"]))), rule_of(loops["rule"]))
        looped._walk.become(walk_of(tensors, looped.walk.rule))
        return looped


def _bytes_of(frame: Frame) -> torch.Tensor:
    """On the host, as bytes."""
    frame = frame.detach().cpu()
    return frame.clone() if frame.dtype == torch.uint8 else (frame.float() * 255).round().clamp(0, 255).byte()
