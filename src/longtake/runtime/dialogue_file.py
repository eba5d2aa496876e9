"""A dialogue on disk: what it remembers, and all that its next token depends on.

Some keys keep the names of earlier versions (`talk` for the state, `retaining` for the policy, `last_look` for the mean
of the last grid), so that files of either are read by both.
"""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from longtake import __version__
from longtake.errors import SavedSessionError
from longtake.language.dialogue_state import ClosedClip, DialogueState, OpenClip
from longtake.language.frames import PictureFormat
from longtake.language.rope_shift import ShiftedRun
from longtake.memory.policy import Segment, SegmentPolicy
from longtake.memory.registry import policy_record
from longtake.memory.saved import Pieces, SavedTensors
from longtake.runtime.record import fingerprint

KIND = "dialogue"
FORMAT = 2


def state_pieces(state: DialogueState) -> dict[str, Pieces]:
    """The tensors of a state."""
    pieces = {}
    if state.held:
        pieces["held"] = Pieces.of(torch.stack(state.held))
    if state.last_grid_mean is not None:
        pieces["last_look"] = Pieces.of(state.last_grid_mean)
    return pieces


def state_record(state: DialogueState) -> dict[str, Any]:
    """The rest of it, as plain values."""
    return {
        "next_position": state.next_position,
        "clip": None if state.clip is None else asdict(state.clip),
        "closed": [asdict(clip) for clip in state.closed],
        "size": None if state.fit is None else [state.fit.source.height, state.fit.source.width],
        "held_s": state.held_s,
        "num_frames": state.num_frames,
        "num_forgotten": state.num_forgotten,
        "last_s": state.last_s,
        "has_look": state.last_grid_mean is not None,
        "segments": [asdict(segment) for segment in state.segments],
        "moved": [asdict(run) for run in state.moved],
    }


def state_from_record(record: dict[str, Any], saved: SavedTensors, picture_format: PictureFormat) -> DialogueState:
    """The state that `state_record` and `state_pieces` wrote."""
    return DialogueState(
        next_position=record["next_position"],
        clip=None if record["clip"] is None else OpenClip(**record["clip"]),
        closed=tuple(ClosedClip(**clip) for clip in record["closed"]),
        fit=None if record["size"] is None else picture_format.fit(*record["size"]),
        held=tuple(saved["held"].clone()) if record["held_s"] else (),
        held_s=tuple(record["held_s"]),
        num_frames=record["num_frames"],
        num_forgotten=record["num_forgotten"],
        last_s=record["last_s"],
        last_grid_mean=saved["last_look"].clone() if record["has_look"] else None,
        segments=tuple(Segment(**segment) for segment in record["segments"]),
        moved=tuple(ShiftedRun(**run) for run in record["moved"]),
    )


def recorded_pictures(record: dict[str, Any], usual: PictureFormat) -> PictureFormat:
    """The format with the limits that a file says; files of earlier versions say none, and keep the usual ones."""
    return replace(
        usual,
        min_pixels=record.get("min_pixels", usual.min_pixels),
        max_pixels=record.get("max_pixels", usual.max_pixels),
    )


def dialogue_record(
    settings: dict[str, Any],
    model: nn.Module,
    pictures: PictureFormat,
    backend: str,
    policy: SegmentPolicy,
    state: DialogueState,
) -> dict[str, Any]:
    """All that a file holds beside its tensors."""
    return {
        "kind": KIND,
        "format": FORMAT,
        "longtake": __version__,
        **settings,
        "weights": fingerprint(model),
        "min_pixels": pictures.min_pixels,
        "max_pixels": pictures.max_pixels,
        "backend": backend,
        "retaining": policy_record(policy),
        "talk": state_record(state),
    }


def require_dialogue(path: Path, record: dict[str, Any], model: nn.Module) -> None:
    """Refuse a file of another kind, of another version, or of other weights."""
    if record.get("kind") != KIND:
        raise SavedSessionError(f"Expected a saved dialogue in {path}, but it is another kind of session; open that.")
    if record.get("format") != FORMAT:
        raise SavedSessionError(
            f"Expected a saved dialogue of format {FORMAT} in {path}, but got {record.get('format')}; resume it with "
            f"the longtake that wrote it ({record.get('longtake')})."
        )
    if record["weights"] != fingerprint(model):
        raise SavedSessionError("The saved dialogue was made with other weights; load those it was made with.")
