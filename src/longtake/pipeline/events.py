"""What happens while a source is watched: one small set of records for terminals, programs, servers and tests.

Noted        something to know of the video that is no result
Frame        a frame was looked at; with a map, what is known of it, provisional where a later window may move it
Posed        the same, of a frame that a server mapped: its pose alone
Moved        what earlier frames became
Lost         nothing connects a frame with those before it; Begun: the camera goes on in a sub-map of its own
Found        a place is known again, and the sub-map was joined to an earlier one
Unreadable   a frame gave no picture
Forgotten    frames left the language model's memory to make room
Dropped      frames of a live source came while the sessions were busy
Asking       a question is put; AnswerText: more of its answer; Answered: the whole of it
Saved        a checkpoint or a session is on the disk
Ended        the source has ended, and every question is answered; Exported: files were made of the whole
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jaxtyping import Float
from torch import Tensor

from longtake import __version__
from longtake.exports.frame import MappedFrame, PosedFrame
from longtake.exports.record import ExportRecord
from longtake.exports.sink import Correction
from longtake.exports.tracking import TrackingSummary
from longtake.pipeline.question_schedule import Due, Every
from longtake.runtime.answers import Answer, Choice, DialogueInfo, Evidence
from longtake.types import Tracking, TrackingReason


@dataclass(frozen=True, slots=True)
class Noted:
    """Something to know of the video, or of what the model sees of it: before its first frame is told, or when enough
    of it was seen."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Frame:
    """A frame was looked at."""

    index: int
    """Its place among the frames that were asked for, from 0."""
    timestamp_s: float
    mapped: MappedFrame | None
    """Its result as it is known now; None where there is no map."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Posed:
    """A frame that a server mapped, of which no more came back than its pose as it is known now."""

    index: int
    timestamp_s: float
    world_from_camera: Float[Tensor, "4 4"]
    provisional: bool
    is_keyframe: bool
    window: int
    tracking: Tracking | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Moved:
    """Earlier frames, told as provisional, became others; the last version of a frame is what the map keeps."""

    correction: Correction


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """The first frame of those that nothing connects with earlier ones."""

    index: int
    timestamp_s: float
    reason: TrackingReason


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """The first frame after those that were lost: of a sub-map that lies anywhere until it is joined."""

    index: int
    timestamp_s: float
    sub_map: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The frame with which a place was known again: its sub-map lies where it belongs now."""

    index: int
    timestamp_s: float
    sub_map: int


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A frame that gave no picture."""

    index: int
    timestamp_s: float
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Forgotten:
    """Pieces of the video, or turns of the talk, that left the language model's memory."""

    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Dropped:
    """Frames of a live source that came while the sessions were busy."""

    num_frames: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """A question whose moment has come, before its answer is made."""

    due: Due
    seen_until_s: float | None
    """The time of the last frame that the language model has seen; None where there was none."""


@dataclass(frozen=True, slots=True)
class AnswerText:
    """More text of the answer that is being made."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Answered:
    """An answer, what it is about, and where the camera was."""

    due: Due
    text: str
    seen_until_s: float | None
    """The time of the last frame that the language model had seen; None where there was none."""
    evidence: tuple[Evidence, ...]
    """The spans that were attended to most, strongest first; for a standing question those of one word said to it."""
    pose: PosedFrame | None = None
    """Of the last frame up to `seen_until_s` that had a pose by then, as it was known then; filled in by the run."""
    choices: tuple[Choice, ...] = ()
    """All that were scored, where the answer is one of them."""
    answer: Answer | None = None
    """With ids and times, where it was said freely."""
    total_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """All that is needed to go on is on the disk."""

    path: Path
    num_frames: int
    """Frames of the source that it covers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MapSummary:
    """What came of a run that maps into a folder."""

    source: str
    model: str
    execution: Mapping[str, str]
    """How the model was computed: device, precision, backend, and why these."""
    is_complete: bool
    """Whether the video was mapped to its end."""
    num_frames: int
    statuses: Mapping[str, int]
    num_keyframes: int
    num_dropped: int
    num_windows: int
    provisional: Mapping[str, int | float]
    """How many frames were told before their results were final, and their ages when they became so."""
    unlikeness: float | None = None
    """How far the video is from what the model was trained on; above 1, it is unlike that, and None where that is not
    known of the model."""
    seconds: float
    """Up to the last frame; of the last run, where there were several."""
    frames_per_s: float
    finishing_s: float = 0.0
    """After the last frame: until what a loop moved was made anew, and what was asked for exported."""
    settings: Mapping[str, Any]
    memory_bytes: int
    """Of keys and values."""
    loops: Mapping[str, Any] = field(default_factory=dict)
    """Whether loops are closed and why, how many were, and the bytes that places take beside keys and values."""
    tracking: TrackingSummary | None = None
    """None where places are not known again."""
    peak_resident_bytes: int
    """Of this process, and of the one that writes where there is one."""
    continued: Mapping[str, Any] | None = None
    """Whether the place was known in an earlier take, since which frame, within what; None where none was named."""
    notes: Sequence[str] = ()
    """What a reader should know of the model and the video before trusting the results."""
    longtake: str = __version__


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """No more frames come, and every question is answered."""

    num_dropped: int
    never_due: tuple[Every, ...] = ()
    """Questions asked every so often whose first moment has not come."""
    summary: MapSummary | None = None
    """Of the folder, where there is one."""
    tracking: TrackingSummary | None = None
    """How the camera was tracked, where places are known again."""
    dialogue: DialogueInfo | None = None
    """What the language model has seen and holds, where there is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """Files were made of the whole video when it had ended."""

    record: ExportRecord
    peak_resident_bytes: int
    """The most that the run held, the export included."""
    finishing_s: float
    """After the last frame, the export included."""


Event = (
    Noted
    | Frame
    | Posed
    | Moved
    | Lost
    | Begun
    | Found
    | Unreadable
    | Forgotten
    | Dropped
    | Asking
    | AnswerText
    | Answered
    | Saved
    | Ended
    | Exported
)
