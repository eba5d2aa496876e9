"""Sessions with loops, opened and taken up again."""

from pathlib import Path

from longtake.attention.backend import Backend
from longtake.geometry.model import GeometryModel
from longtake.memory.saved import SavedTensors
from longtake.places.loop_card import LoopCard
from longtake.places.loop_rule import LoopRule
from longtake.places.looped_session import LoopedSession
from longtake.places.verification import Verifier
from longtake.runtime.record import SessionRecord
from longtake.runtime.steps import VideoSession
from longtake.runtime.windowed import restored_session as restored_without_loops


def with_loops(session: VideoSession, card: LoopCard | None, rule: LoopRule | None = None) -> VideoSession:
    """The session, which closes loops if there is a card that says how."""
    return session if card is None else LoopedSession(session, Verifier(card), rule)


def resume_session(path: Path, model: GeometryModel, backend: Backend | None = None) -> VideoSession:
    """Go on with a saved session, with or without windows, with or without loops."""
    saved = SavedTensors(path)
    return restored_session(saved, SessionRecord.from_dict(saved.record), model, backend)


def restored_session(
    saved: SavedTensors, record: SessionRecord, model: GeometryModel, backend: Backend | None = None
) -> VideoSession:
    """The session of a file that is open already."""
    session = restored_without_loops(saved, record, model, backend)
    return session if record.loops is None else LoopedSession.restored(saved, record.loops, session)
