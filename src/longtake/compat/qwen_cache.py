"""What the published code calls a cache: a conversation about a video that takes prompts, and can be put back."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from longtake.errors import InputError
from longtake.language.dialogue_state import DialogueState, with_frames
from longtake.language.frames import pixel_rows
from longtake.language.load import LanguageModel
from longtake.language.positions import Picture, VideoSpan
from longtake.language.prompt_builder import StreamFormat, VisionInput, prompt_inputs
from longtake.memory.policy import Segment
from longtake.runtime.answers import DialogueInfo
from longtake.runtime.dialogue import DialogueSession


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Vision:
    """A picture or a clip of a prompt: rows of patches, how many along time, height and width, and where it stands."""

    pixels: Float[Tensor, "patches values"]
    grid: tuple[int, int, int]
    piece: Picture | VideoSpan


@dataclass(frozen=True, slots=True)
class _Level:
    """A session, and how many chunks with frames it was given."""

    session: DialogueSession
    num_chunks: int = 0


class StreamCache:
    """A dialogue in turns. A call of `show` or `take` is a chunk, evicted as a whole when the memory is full.

    Since `snapshot` all happens on a fork: going back drops it, going on makes it the conversation.
    """

    def __init__(self, language: LanguageModel, session: DialogueSession, system: str, num_chunks: int = 0) -> None:
        """Over a session in turns; `allocate` makes one."""
        self._language, self._system = language, system
        self._network, self._family = language.network, language.family
        self._levels = [_Level(session, num_chunks)]

    @classmethod
    def allocate(cls, language: LanguageModel, *, budget_bytes: int, system: str) -> "StreamCache":
        """An empty one of this size."""
        session = DialogueSession(language, budget_bytes=budget_bytes, system=system, stream_format=StreamFormat.TURNS)
        return cls(language, session, system)

    @property
    def session(self) -> DialogueSession:
        """The conversation, on the fork of the last snapshot where there is one."""
        return self._levels[-1].session

    @property
    def info(self) -> DialogueInfo:
        return self.session.info

    @property
    def next_position(self) -> int:
        """Where the next token will stand."""
        return self.session.state.next_position

    @next_position.setter
    def next_position(self, value: int) -> None:
        self.session.move_to(value)

    @property
    def stream_state(self) -> dict[str, int | Tensor | None]:
        """The last position used, and how far the next one is from the number of tokens remembered."""
        length = self.get_seq_length()
        deltas = torch.tensor([[self.next_position - length]]) if length else None
        return {"last_cache_position": self.next_position - 1, "rope_deltas": deltas}

    @property
    def num_chunks(self) -> int:
        """Chunks with frames so far."""
        return self._levels[-1].num_chunks

    @property
    def num_live_chunks(self) -> int:
        """Those that are still remembered."""
        return len(self.session.state.segments)

    @property
    def start_s(self) -> float | None:
        """Time of the oldest frame that is still remembered."""
        segments = self.session.state.segments
        return segments[0].time_s if segments else None

    def get_seq_length(self) -> int:
        """Tokens remembered."""
        return self.session.context_length

    def show(
        self,
        frames: UInt8[Tensor, "frames 3 height width"],
        timestamps_s: Sequence[float],
        text: str,
        *,
        still: bool = False,
    ) -> None:
        """Frames as a turn of their own with a text after them; the last of an odd number is shown twice.

        One that stands `still` is a picture to the model, not a clip.
        """
        picture_format, before = self._language.picture_format, self.session.state
        state = replace(with_frames(before, frames, timestamps_s, picture_format), held=(), held_s=())
        assert state.fit is not None
        rows = pixel_rows(frames, state.fit, pad=True)
        since = [time_s - timestamps_s[0] for time_s in timestamps_s[:: picture_format.temporal_patch]]
        size = (state.fit.rows, state.fit.columns)
        piece = Picture(*size) if still else VideoSpan(self._family.grid_times(since), *size)
        tokenizer = self._language.required_tokenizer
        sink = self._family.system_turn(tokenizer.encode(self._system)) if state.next_position == 0 else []
        ids = [*sink, *self._family.vision_turn(piece, text=tokenizer.encode(text))]
        self._append(state, ids, [Vision(pixels=rows.values, grid=rows.grid, piece=piece)], timestamps_s[0])

    @torch.no_grad()
    def take(
        self, ids: Sequence[int], visions: Sequence[Vision], *, seconds: float, num_logits: int = 0
    ) -> Float[Tensor, "1 tokens vocabulary"]:
        """Any tokens as the next of the conversation, and what may follow the last of them (0: each of them)."""
        state = self.session.state
        start_s = state.last_s or 0.0
        clips = [vision for vision in visions if isinstance(vision.piece, VideoSpan)]
        num_frames = sum(vision.grid[0] for vision in clips) * self._language.picture_format.temporal_patch
        num_frames += len(visions) - len(clips)
        last_s = start_s + seconds if visions else state.last_s
        state = replace(state, num_frames=state.num_frames + num_frames, last_s=last_s)
        return self._network.logits(self._append(state, ids, visions, start_s)[:, -num_logits:])

    def snapshot(self) -> None:
        """From now on, until `restore` or `discard_snapshot`, all can be undone; costs nothing, and nests."""
        self._levels.append(replace(self._levels[-1], session=self.session.fork()))

    def restore(self) -> None:
        """Be as before the last snapshot; without one nothing happens."""
        if len(self._levels) > 1:
            self._levels.pop().session.close()

    def discard_snapshot(self) -> None:
        """Keep all since the last snapshot; without one nothing happens."""
        if len(self._levels) > 1:
            self.session.commit_fork()
            level = self._levels.pop()
            self._levels[-1] = replace(level, session=self.session)

    def clone(self) -> "StreamCache":
        """The same conversation, to go on with apart; what both remember is stored once."""
        return StreamCache(self._language, self.session.fork(), self._system, self.num_chunks)

    def reset(self) -> None:
        """Forget the video and the conversation; a snapshot still goes back to them."""
        self.session.reset()
        self._levels[-1] = _Level(self.session)

    def close(self) -> None:
        """Give its memory back, and that of every snapshot."""
        for level in reversed(self._levels):
            level.session.close()

    def _append(
        self, state: DialogueState, ids: Sequence[int], visions: Sequence[Vision], start_s: float
    ) -> Float[Tensor, "1 tokens width"]:
        """Read a prompt after this state; with pictures or clips it is a chunk that begins at `start_s`."""
        seen = [VisionInput(vision.piece, self._network.see(vision.pixels, vision.grid)) for vision in visions]
        inputs = prompt_inputs(self._family, self._network, state, ids, seen)
        if visions:
            inputs = replace(inputs, segments=(self._chunk(ids, start_s, is_first=state.next_position == 0),))
        hidden = self.session.append(inputs)
        self._levels[-1] = replace(self._levels[-1], num_chunks=self.num_chunks + len(inputs.segments))
        return hidden

    def _chunk(self, ids: Sequence[int], start_s: float, *, is_first: bool) -> Segment:
        """All tokens, but for those before the turn with the first frame, which are the sink."""
        start = self._family.first_vision_turn(ids) if is_first else 0
        return Segment(first=start, num_tokens=len(ids) - start, time_s=start_s, novelty=math.inf)


def require_cache(cache: object) -> StreamCache:
    """A cache that longtake made."""
    if not isinstance(cache, StreamCache):
        raise InputError(
            f"Expected a cache that a StreamQwenModel returned, but got a {type(cache).__name__}; begin with "
            "past_key_values=None."
        )
    return cache
