"""Token ids of a conversation about a stream, built from ids; only free text is tokenised, and that elsewhere.

open clip   prefix    <|im_start|>system\\n{system}<|im_end|>\\n<|im_start|>user\\n<|vision_start|>
            append    {pads}
            question  <|vision_end|>{question}<|im_end|>\\n<|im_start|>assistant\\n
turns       chunk 0   <|im_start|>system\\n{system}<|im_end|>\\n, then as chunk k
            chunk k   <|im_start|>user\\n{time}<|vision_start|>{pads}<|vision_end|>{text}<|im_end|>\\n
            question  <|im_start|>user\\n{question}<|im_end|>\\n<|im_start|>assistant\\n
after an answer that is remembered    <|im_end|>\\n
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby

from longtake.errors import InputError
from longtake.language.positions import Picture, Piece, Text, VideoSpan


class StreamFormat(StrEnum):
    """How frames that come little by little become a conversation."""

    OPEN_CLIP = "open-clip"
    """One clip that is closed by a question: the prompt of a plain model for the video so far, in true time."""
    TURNS = "turns"
    """A user's turn with a clip of its own for all that came together; time between turns is lost."""
    TIMED_TURNS = "timed-turns"
    """The same, with the time as text before each clip."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecialIds:
    """Ids of what frames the text, as a checkpoint's vocabulary has them."""

    im_start: int
    im_end: int
    vision_start: int
    vision_end: int
    image_pad: int
    video_pad: int
    newline: int
    system: tuple[int, ...]
    user: tuple[int, ...]
    assistant: tuple[int, ...]

    def video(self, num_tokens: int) -> list[int]:
        """Places for this many tokens of a clip."""
        return [self.video_pad] * num_tokens


def system_turn(special: SpecialIds, system: Sequence[int]) -> list[int]:
    """The turn every conversation begins with."""
    return [special.im_start, *special.system, special.newline, *system, *turn_end(special)]


def user_start(special: SpecialIds) -> list[int]:
    """Begins a user's turn."""
    return [special.im_start, *special.user, special.newline]


def assistant_start(special: SpecialIds) -> list[int]:
    """Begins an answer."""
    return [special.im_start, *special.assistant, special.newline]


def turn_end(special: SpecialIds) -> list[int]:
    """Ends a turn of anyone."""
    return [special.im_end, special.newline]


def open_clip(special: SpecialIds, system: Sequence[int]) -> list[int]:
    """All that comes before the first frame of an open clip."""
    return [*system_turn(special, system), *reopen_clip(special)]


def reopen_clip(special: SpecialIds) -> list[int]:
    """All that comes before the first frame of a further open clip, after an answer that is remembered."""
    return [*user_start(special), special.vision_start]


def clip_question(special: SpecialIds, question: Sequence[int]) -> list[int]:
    """Closes an open clip with a question."""
    return [special.vision_end, *question, *turn_end(special), *assistant_start(special)]


def first_chunk(
    special: SpecialIds, num_tokens: int, *, system: Sequence[int], time: Sequence[int] = (), text: Sequence[int] = ()
) -> list[int]:
    """The system's turn and a turn with a clip of this many tokens."""
    return [*system_turn(special, system), *next_chunk(special, num_tokens, time=time, text=text)]


def next_chunk(
    special: SpecialIds,
    num_tokens: int,
    *,
    pad: int | None = None,
    time: Sequence[int] = (),
    text: Sequence[int] = (),
) -> list[int]:
    """A turn with a clip (or by its pad a picture) of this many tokens, tokenised time before it and text after it."""
    clip = [special.vision_start, *[special.video_pad if pad is None else pad] * num_tokens, special.vision_end]
    return [*user_start(special), *time, *clip, *text, *turn_end(special)]


def turn_question(special: SpecialIds, question: Sequence[int]) -> list[int]:
    """A question in a turn of its own."""
    return [*user_start(special), *question, *turn_end(special), *assistant_start(special)]


def time_text(start_s: float, end_s: float) -> str:
    """What stands before a clip in timed turns."""
    return f"Time={start_s:.1f}-{end_s:.1f}s"


def pieces_of(
    ids: Sequence[int], special: SpecialIds, *, pictures: Sequence[Picture] = (), video_spans: Sequence[VideoSpan] = ()
) -> list[Piece]:
    """A prompt's pieces for `positions`; pictures and clips take the pads in order and must fill them."""
    waiting: dict[int, list[Piece]] = {special.image_pad: list(pictures), special.video_pad: list(video_spans)}
    pieces: list[Piece] = []
    for pad, run in groupby(ids, key=lambda token: token if token in waiting else None):
        num_tokens = len(list(run))
        piece = Text(num_tokens) if pad is None else _take(waiting[pad], num_tokens)
        pieces.append(piece)
    if any(waiting.values()):
        raise InputError(
            f"A prompt must have a place for every picture and clip, but {sum(map(len, waiting.values()))} found none; "
            "leave them out or add their tokens."
        )
    return pieces


def _take(waiting: list[Piece], num_tokens: int) -> Piece:
    if not waiting or waiting[0].num_tokens != num_tokens:
        due = f"one of {waiting[0].num_tokens} tokens" if waiting else "none"
        raise InputError(
            f"Each run of picture or video tokens in a prompt must fit its picture or clip, but a run of {num_tokens} "
            f"meets {due}; give the grids the prompt was made with."
        )
    return waiting.pop(0)
