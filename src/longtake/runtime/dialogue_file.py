"""A dialogue on disk: what it remembers, and all that its next token depends on."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import nn

from longtake import __version__
from longtake.errors import SavedSessionError
from longtake.language.frames import PictureFormat
from longtake.language.prompt_builder import ClosedClip, DialogueState, OpenClip
from longtake.language.rope_shift import ShiftedRun
from longtake.memory.policy import Segment, SegmentPolicy
from longtake.memory.registry import policy_record
from longtake.memory.saved import Pieces, SavedTensors
from longtake.runtime.record import fingerprint

KIND = "dialogue"
FORMAT = 2


def state_pieces(dialogue: DialogueState) -> dict[str, Pieces]:
    """The tensors of a talk."""
    pieces = {}
    if dialogue.held:
        pieces["held"] = Pieces.of(torch.stack(dialogue.held))
    if dialogue.last_look is not None:
        pieces["last_look"] = Pieces.of(dialogue.last_look)
    return pieces


def state_record(dialogue: DialogueState) -> dict[str, Any]:
    """The rest of it, as plain values."""
    return {
        "next_position": dialogue.next_position,
        "clip": None if dialogue.clip is None else asdict(dialogue.clip),
        "closed": [asdict(clip) for clip in dialogue.closed],
        "size": None if dialogue.fit is None else [dialogue.fit.source.height, dialogue.fit.source.width],
        "held_s": dialogue.held_s,
        "num_frames": dialogue.num_frames,
        "num_forgotten": dialogue.num_forgotten,
        "last_s": dialogue.last_s,
        "has_look": dialogue.last_look is not None,
        "segments": [asdict(segment) for segment in dialogue.segments],
        "moved": [asdict(run) for run in dialogue.moved],
    }


def state_from_record(said: dict[str, Any], saved: SavedTensors, picture_format: PictureFormat) -> DialogueState:
    """The talk that a file tells of."""
    return DialogueState(
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
        moved=tuple(ShiftedRun(**run) for run in said["moved"]),
    )


def dialogue_record(
    settings: dict[str, Any], model: nn.Module, backend: str, policy: SegmentPolicy, dialogue: DialogueState
) -> dict[str, Any]:
    """All that a file says beside its tensors."""
    return {
        "kind": KIND,
        "format": FORMAT,
        "longtake": __version__,
        **settings,
        "weights": fingerprint(model),
        "backend": backend,
        "retaining": policy_record(policy),
        "talk": state_record(dialogue),
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
