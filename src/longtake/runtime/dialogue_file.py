"""A dialogue on disk: what it remembers, and all that its next token depends on."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import nn

from longtake import __version__
from longtake.errors import SavedSessionError
from longtake.language.closing_up import Run
from longtake.language.frames import PictureFormat
from longtake.language.prompting import ClosedClip, OpenClip, Talk
from longtake.language.retaining import KeepUntilFull, RecentFrames, Retaining, Segment, ThinnedPast
from longtake.memory.saved import Pieces, SavedTensors
from longtake.runtime.record import fingerprint

KIND = "dialogue"
FORMAT = 2
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
        "closed": [asdict(clip) for clip in talk.closed],
        "size": None if talk.fit is None else [talk.fit.source.height, talk.fit.source.width],
        "held_s": talk.held_s,
        "num_frames": talk.num_frames,
        "num_forgotten": talk.num_forgotten,
        "last_s": talk.last_s,
        "has_look": talk.last_look is not None,
        "segments": [asdict(segment) for segment in talk.segments],
        "moved": [asdict(run) for run in talk.moved],
    }


def talk_of(said: dict[str, Any], saved: SavedTensors, picture_format: PictureFormat) -> Talk:
    """The talk that a file tells of."""
    return Talk(
        next_position=said["next_position"],
        clip=None if said["clip"] is None else OpenClip(**said["clip"]),
        closed=tuple(ClosedClip(**clip) for clip in said["closed"]),
        fit=None if said["size"] is None else picture_format.fit(*said["size"]),
        held=tuple(saved["held"].clone()) if said["held_s"] else (),
        held_s=tuple(said["held_s"]),
        num_frames=said["num_frames"],
        num_forgotten=said["num_forgotten"],
        last_s=said["last_s"],
        last_look=saved["last_look"].clone() if said["has_look"] else None,
        segments=tuple(Segment(**segment) for segment in said["segments"]),
        moved=tuple(Run(**run) for run in said["moved"]),
    )


def rule_record(rule: Retaining) -> dict[str, Any]:
    """What leaves when the memory is full, as plain values."""
    (name,) = [name for name, kind in _RULES.items() if type(rule) is kind]
    return {"name": name, **asdict(rule)}  # type: ignore[call-overload]


def rule_of(said: dict[str, Any]) -> Retaining:
    return _RULES[said["name"]](**{name: value for name, value in said.items() if name != "name"})


def dialogue_record(
    settings: dict[str, Any], model: nn.Module, backend: str, rule: Retaining, talk: Talk
) -> dict[str, Any]:
    """All that a file says beside its tensors."""
    return {
        "kind": KIND,
        "format": FORMAT,
        "longtake": __version__,
        **settings,
        "weights": fingerprint(model),
        "backend": backend,
        "retaining": rule_record(rule),
        "talk": talk_record(talk),
    }


def require_dialogue(path: Path, said: dict[str, Any], model: nn.Module) -> None:
    """Refuse a file of another kind, of another version, or of other weights."""
    if said.get("kind") != KIND:
        raise SavedSessionError(f"Expected a saved dialogue in {path}, but it is another kind of session; open that.")
    if said.get("format") != FORMAT:
        raise SavedSessionError(
            f"Expected a saved dialogue of format {FORMAT} in {path}, but got {said.get('format')}; resume it with the "
            f"longtake that wrote it ({said.get('longtake')})."
        )
    if said["weights"] != fingerprint(model):
        raise SavedSessionError("The saved dialogue was made with other weights; load those it was made with.")
