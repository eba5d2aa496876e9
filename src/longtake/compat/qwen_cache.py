"""What the published code calls a cache: a conversation about a video that takes prompts, and can be put back."""

import copy
import math
import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from longtake.errors import InputError
from longtake.language.formats import SpecialIds, StreamFormat, first_chunk, next_chunk, pieces_of
from longtake.language.frames import pixel_rows
from longtake.language.load import LanguageModel
from longtake.language.network import TEXT
from longtake.language.positions import Picture, VideoSpan, grid_times, positions
from longtake.language.prompt_builder import DialogueState, TokenInputs, with_frames
from longtake.memory.memory import Memory
from longtake.memory.policy import Segment
from longtake.runtime.dialogue import DialogueSession


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Vision:
    """A picture or a clip of a prompt: rows of patches, how many along time, height and width, and where it stands."""

    pixels: Float[Tensor, "patches values"]
    grid: tuple[int, int, int]
    piece: Picture | VideoSpan


class StreamCache(DialogueSession):
    """A dialogue in turns. A call of `show` or `take` is a chunk, forgotten as a whole when the memory is full.

    Since `snapshot` all happens on a fork: going back drops it, going on makes it the conversation.
    """

    def __init__(self, language: LanguageModel, *, budget_bytes: int, system: str) -> None:
        super().__init__(language, budget_bytes=budget_bytes, system=system, stream_format=StreamFormat.TURNS)
        self._system_ids = language.words.encode(system)
        self._num_chunks = 0
        self._earlier: list[tuple[Memory, DialogueState, int]] = []

    @property
    def next_position(self) -> int:
        """Where the next token will stand."""
        return self._state.next_position

    @next_position.setter
    def next_position(self, value: int) -> None:
        self._state = replace(self._state, next_position=value)

    @property
    def stream_state(self) -> dict[str, int | Tensor | None]:
        """The last position used, and how far the next one is from the number of tokens remembered."""
        length = self.get_seq_length()
        deltas = torch.tensor([[self.next_position - length]]) if length else None
        return {"last_cache_position": self.next_position - 1, "rope_deltas": deltas}

    @property
    def num_chunks(self) -> int:
        """Chunks with frames so far."""
        return self._num_chunks

    @property
    def num_live_chunks(self) -> int:
        """Those that are still remembered."""
        return len(self._state.segments)

    @property
    def start_s(self) -> float | None:
        """Time of the oldest frame that is still remembered."""
        return self._state.segments[0].time_s if self._state.segments else None

    def get_seq_length(self) -> int:
        """Tokens remembered."""
        return len(self._memory.tokens(TEXT))

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
        state = replace(
            with_frames(self._state, frames, timestamps_s, self._language.picture_format), held=(), held_s=()
        )
        assert state.fit is not None
        rows = pixel_rows(frames, state.fit, pad=True)
        since = [time_s - timestamps_s[0] for time_s in timestamps_s[:: self._language.picture_format.temporal_patch]]
        times = grid_times(since, self._language.tokens_per_second)
        size = (state.fit.rows, state.fit.columns)
        piece = Picture(*size) if still else VideoSpan(times, *size)
        ids = self._turn_ids(piece, text)
        self._read(ids, [Vision(pixels=rows.values, grid=rows.grid, piece=piece)], state, timestamps_s[0])

    @torch.no_grad()
    def take(
        self, ids: Sequence[int], visions: Sequence[Vision], *, seconds: float, num_logits: int = 0
    ) -> Float[Tensor, "1 tokens words"]:
        """Any tokens as the next of the conversation, and what may follow the last of them (0: each of them)."""
        start_s = self._state.last_s or 0.0
        films = [vision for vision in visions if isinstance(vision.piece, VideoSpan)]
        num_frames = sum(vision.grid[0] for vision in films) * self._language.picture_format.temporal_patch
        num_frames += len(visions) - len(films)
        last_s = start_s + seconds if visions else self._state.last_s
        state = replace(self._state, num_frames=self._state.num_frames + num_frames, last_s=last_s)
        return self._network.logits(self._read(ids, visions, state, start_s)[:, -num_logits:])

    def snapshot(self) -> None:
        """From now on, until `restore` or `discard_snapshot`, all can be undone; costs nothing, and nests."""
        with self._lock:
            self._earlier.append((self._memory, self._state, self._num_chunks))
            self._memory = self._memory.fork()

    def restore(self) -> None:
        """Be as before the last snapshot; without one nothing happens."""
        if self._earlier:
            with self._lock:
                self._memory.close()
                self._memory, self._state, self._num_chunks = self._earlier.pop()

    def discard_snapshot(self) -> None:
        """Keep all since the last snapshot; without one nothing happens."""
        if self._earlier:
            with self._lock:
                self._memory.commit_fork()
                self._memory, *_ = self._earlier.pop()

    def clone(self) -> "StreamCache":
        """The same conversation, to go on with apart; what both remember is stored once."""
        twin = copy.copy(self)
        with self._lock:
            twin._memory, twin._state = self._memory.fork(), self._state
        twin._lock, twin._changing, twin._earlier = threading.Lock(), threading.Lock(), []
        # published scripts drop a copy without a word
        weakref.finalize(twin, twin._memory.close)
        return twin

    def reset(self) -> None:
        """Forget the video and the conversation; a snapshot still goes back to them."""
        super().reset()
        self._num_chunks = 0

    def close(self) -> None:
        while self._earlier:
            self.restore()
        super().close()

    def _turn_ids(self, piece: Picture | VideoSpan, text: str) -> list[int]:
        special, said = self._language.special_ids, self._language.words.encode(text)
        if self.next_position == 0:
            ids = first_chunk(special, piece.num_tokens, system=self._system_ids, text=said)
        else:
            ids = next_chunk(special, piece.num_tokens, text=said)
        if isinstance(piece, VideoSpan):
            return ids
        return [special.image_pad if token == special.video_pad else token for token in ids]

    def _read(
        self, ids: Sequence[int], visions: Sequence[Vision], state: DialogueState, start_s: float
    ) -> Float[Tensor, "1 tokens width"]:
        special = self._language.special_ids
        kinds: dict[int, list[Vision]] = {special.image_pad: [], special.video_pad: []}
        for vision in visions:
            kinds[special.image_pad if isinstance(vision.piece, Picture) else special.video_pad].append(vision)
        pictures = [vision.piece for vision in visions if isinstance(vision.piece, Picture)]
        films = [vision.piece for vision in visions if isinstance(vision.piece, VideoSpan)]
        place = positions(pieces_of(ids, special, pictures=pictures, films=films), state.next_position)
        embedded = self._network.embed(ids)
        for pad, seen in kinds.items():
            if seen:
                features = [self._network.see(vision.pixels, vision.grid)[0] for vision in seen]
                embedded[0, [token == pad for token in ids]] = torch.cat(features)
        segments = _segments(ids, special, start_s, is_first=state.next_position == 0) if visions else ()
        inputs = TokenInputs(embedded, place.rows, replace(state, next_position=place.next_position), segments)
        hidden = self._take_in(self._memory, self._with_room(inputs), keep_state=True)
        self._num_chunks += len(segments)
        return hidden


def _segments(ids: Sequence[int], special: SpecialIds, start_s: float, *, is_first: bool) -> tuple[Segment, ...]:
    """All tokens, but for those before the turn with the first frame, which are the sink."""
    first_frame = next(place for place, token in enumerate(ids) if token in (special.image_pad, special.video_pad))
    starts = [place for place, token in enumerate(ids[:first_frame]) if token == special.im_start]
    start = starts[-1] if is_first and starts else 0
    return (Segment(first=start, num_tokens=len(ids) - start, time_s=start_s, novelty=math.inf),)


def require_cache(cache: object) -> StreamCache:
    """A cache that longtake made."""
    if not isinstance(cache, StreamCache):
        raise InputError(
            f"Expected a cache that a StreamQwenModel returned, but got a {type(cache).__name__}; begin with "
            "past_key_values=None."
        )
    return cache
