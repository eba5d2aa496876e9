"""A dialogue on disk: what it remembers, and all that its next token depends on."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from longtake import __version__
from longtake.errors import SavedSessionError
from longtake.language.frames import PictureFormat
from longtake.language.prompting import OpenClip, Talk
from longtake.language.retaining import KeepUntilFull, RecentFrames, Retaining, Segment, ThinnedPast
from longtake.memory.saved import Pieces, SavedTensors

KIND = "dialogue"
FORMAT = 1
_RULES: dict[str, type[Retaining]] = {
    "keep-until-full": KeepUntilFull,
    "recent-frames": RecentFrames,
    "thinned-past": ThinnedPast,
}


def talk_pieces(talk: Talk) -> dict[str, Pieces]:
    """The tensors of a talk."""
    pieces = {}
    if talk.held:
        pieces["held"] = Pieces.of(torch.stack(talk.held))
    if talk.last_look is not None:
        pieces["last_look"] = Pieces.of(talk.last_look)
    return pieces


def talk_record(talk: Talk) -> dict[str, Any]:
    """The rest of it, as plain values."""
    return {
        "next_position": talk.next_position,
        "clip": None if talk.clip is None else asdict(talk.clip),
        "size": None if talk.fit is None else [talk.fit.source.height, talk.fit.source.width],
        "held_s": talk.held_s,
        "num_frames": talk.num_frames,
        "num_forgotten": talk.num_forgotten,
        "last_s": talk.last_s,
        "has_look": talk.last_look is not None,
        "segments": [asdict(segment) for segment in talk.segments],
    }


def talk_of(said: dict[str, Any], saved: SavedTensors, picture_format: PictureFormat) -> Talk:
    """The talk that a file tells of."""
    return Talk(
        next_position=said["next_position"],
        clip=None if said["clip"] is None else OpenClip(**said["clip"]),
        fit=None if said["size"] is None else picture_format.fit(*said["size"]),
        held=tuple(saved["held"].clone()) if said["held_s"] else (),
        held_s=tuple(said["held_s"]),
        num_frames=said["num_frames"],
        num_forgotten=said["num_forgotten"],
        last_s=said["last_s"],
        last_look=saved["last_look"].clone() if said["has_look"] else None,
        segments=tuple(Segment(**segment) for segment in said["segments"]),
    )


def rule_record(rule: Retaining) -> dict[str, Any]:
    """What leaves when the memory is full, as plain values."""
    (name,) = [name for name, kind in _RULES.items() if type(rule) is kind]
    return {"name": name, **asdict(rule)}  # type: ignore[call-overload]


def rule_of(said: dict[str, Any]) -> Retaining:
    return _RULES[said["name"]](**{name: value for name, value in said.items() if name != "name"})


def header() -> dict[str, Any]:
    """What a file says of its own kind."""
    return {"kind": KIND, "format": FORMAT, "longtake": __version__}


def require_dialogue(path: Path, said: dict[str, Any]) -> None:
    """Refuse a file of another kind or of a later version."""
    if said.get("kind") != KIND:
        raise SavedSessionError(f"Expected a saved dialogue in {path}, but it is another kind of session; open that.")
    if said.get("format") != FORMAT:
        raise SavedSessionError(
            f"Expected a saved dialogue of format {FORMAT} in {path}, but got {said.get('format')}; resume it with the "
            f"longtake that wrote it ({said.get('longtake')})."
        )
