"""A dialogue on disk: what it remembers, and all that its next token depends on.

Some keys keep the names of earlier versions (`talk` for the state, `retaining` for the policy, `last_look` for the mean
of the last grid), so that files of either are read by both.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from longtake import __version__
from longtake.errors import SavedSessionError, SettingError
from longtake.language.dialogue_state import ClosedClip, DialogueState, OpenClip
from longtake.language.frames import PictureFormat
from longtake.language.prompt_builder import StreamFormat
from longtake.language.rope_shift import ShiftedRun
from longtake.memory.policy import Segment
from longtake.memory.saved import Pieces, SavedTensors
from longtake.records import record_from
from longtake.runtime.record import fingerprint
from longtake.weights.familiarity import UNJUDGED, Judged

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


@dataclass(frozen=True, slots=True, kw_only=True)
class StateRecord:
    """The rest of a state, as plain values."""

    next_position: int
    clip: OpenClip | None
    closed: tuple[ClosedClip, ...]
    size: tuple[int, int] | None
    """Height and width of the pictures."""
    held_s: tuple[float, ...]
    num_frames: int
    num_forgotten: int
    last_s: float | None
    has_look: bool
    segments: tuple[Segment, ...]
    moved: tuple[ShiftedRun, ...]

    def __post_init__(self) -> None:
        clips = (*self.closed, *(() if self.clip is None else (self.clip,)))
        times = (*self.held_s, *(clip.start_s for clip in clips), *(one.time_s for one in self.segments))
        if not all(map(math.isfinite, (*times, self.last_s or 0.0))):
            raise SettingError("Expected finite times of frames, but got others.")
        ends = (0, *(segment.first + segment.num_tokens for segment in self.segments))
        in_order = all(segment.first >= end for segment, end in zip(self.segments, ends, strict=False))
        counts = (self.next_position, self.num_frames, self.num_forgotten, *(one.num_tokens for one in self.segments))
        if not in_order or min(counts) < 0:
            raise SettingError(f"Expected segments in order and counts from 0, but got {counts}.")

    @classmethod
    def of(cls, state: DialogueState) -> "StateRecord":
        return cls(
            next_position=state.next_position,
            clip=state.clip,
            closed=state.closed,
            size=None if state.fit is None else (state.fit.source.height, state.fit.source.width),
            held_s=state.held_s,
            num_frames=state.num_frames,
            num_forgotten=state.num_forgotten,
            last_s=state.last_s,
            has_look=state.last_grid_mean is not None,
            segments=state.segments,
            moved=state.moved,
        )

    def state(self, saved: SavedTensors, pictures: PictureFormat) -> DialogueState:
        """The state, with the tensors that `state_pieces` wrote."""
        if self.held_s and (self.size is None or len(self.held_s) >= pictures.temporal_patch):
            raise SavedSessionError("The saved dialogue holds more frames than can wait; save it again.")
        held = saved.read("held", torch.uint8, (len(self.held_s), 3, *(self.size or ()))) if self.held_s else ()
        return DialogueState(
            next_position=self.next_position,
            clip=self.clip,
            closed=self.closed,
            fit=None if self.size is None else pictures.fit(*self.size),
            held=tuple(frame.clone() for frame in held),
            held_s=self.held_s,
            num_frames=self.num_frames,
            num_forgotten=self.num_forgotten,
            last_s=self.last_s,
            last_grid_mean=saved.read("last_look", None, (None,)).clone() if self.has_look else None,
            segments=self.segments,
            moved=self.moved,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DialogueRecord:
    """All that a file holds beside its tensors."""

    kind: str = KIND
    format: int = FORMAT
    longtake: str = __version__
    budget_bytes: int
    system: str
    stream_format: StreamFormat
    answer_tokens: int
    weights: str
    min_pixels: int | None = None
    """None, as the other limit, in files of earlier versions, which had the usual ones."""
    max_pixels: int | None = None
    backend: str
    retaining: Mapping[str, Any]
    talk: StateRecord
    judged: Judged = UNJUDGED
    """By which pairs of frames the video was found like what the model knows; none in files of earlier versions."""

    @classmethod
    def read(cls, path: Path, values: Mapping[str, Any], model: nn.Module) -> "DialogueRecord":
        """The record of a file, which is refused if it is of another kind, of another version, or of other weights."""
        if values.get("kind") != KIND:
            raise SavedSessionError(
                f"Expected a saved dialogue in {path}, but it is another kind of session; open that."
            )
        if values.get("format") != FORMAT:
            raise SavedSessionError(
                f"Expected a saved dialogue of format {FORMAT} in {path}, but got {values.get('format')}; resume it "
                f"with the longtake that wrote it ({values.get('longtake')})."
            )
        try:
            record = record_from(cls, values)
        except (ValueError, SettingError) as error:
            raise SavedSessionError(
                f"The saved dialogue's record does not fit this longtake ({error}); resume it with "
                f"{values.get('longtake')}, which wrote it."
            ) from error
        if record.weights != fingerprint(model):
            raise SavedSessionError("The saved dialogue was made with other weights; load those it was made with.")
        return record

    def pictures(self, usual: PictureFormat) -> PictureFormat:
        """The format with the limits that the file says."""
        least, most = self.min_pixels, self.max_pixels
        return replace(
            usual,
            min_pixels=usual.min_pixels if least is None else least,
            max_pixels=usual.max_pixels if most is None else most,
        )
