"""Clips of tokens through a language model as CUDA graphs, for every dialogue of it: words, questions and frames.

A graph is of a shape: so many tokens of so many conversations that go on from the same past. What differs between clips
is numbers that the graph reads on the device, filled in before each replay:

    embeddings │ positions │ where the slab lies │ slots to write │ the past, as ranges or a list │ the tail, as a list

The tail of a fork are its own tokens since it was born, so that all forks of one moment read the same past together. A
shape is recorded when it comes for the second time. The same kernels launched one by one give the same bits.
"""

import math
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float32, Int, Int32, Int64
from torch import Tensor

from longtake.attention.causal import AttentionRecorder
from longtake.attention.triton import why_unsuitable
from longtake.language.fused_network import FusedNetwork, Phases, Projected, Rows, why_not_fused
from longtake.language.load import LanguageModel
from longtake.language.network import TEXT
from longtake.memory.slots import Slab, View, is_wide
from longtake.memory.transaction import Transaction
from longtake.runtime.fused_model import COMPUTING
from longtake.runtime.recording import MostRecent, Recording, Sent, Weights

MOST_TAIL = 2048
"""Tokens since a fork was born that are read as its own; of one that went on for longer, alone, all is past."""
_WORDS = 16
"""A clip of words is filled up to a multiple of so many, that few shapes are recorded."""
_MOST_WORDS = 128
"""Of such a clip; a longer one, as of frames, has a shape of its own."""
_QUERIES_TOGETHER = 1024
"""That are asked of the past at once; results of its parts are held meanwhile, 8 MB for each 8,192 tokens of it in the
published networks."""
_COMMON_HEAD_DIM = 128
"""Of the published networks; `language.fused_network` has more."""


@dataclass(frozen=True, slots=True)
class PastAndTail:
    """Where a staged clip reads and writes: the past, and the tail, whose last ones are the slots of the clip."""

    past: View
    tail: Int[np.ndarray, " tail"]
    num_own: int

    @classmethod
    def of(cls, transaction: Transaction, *, shares_past: bool = False) -> "PastAndTail":
        """Whoever is read with other forks has the past that they share, however long its tail."""
        past, tail = transaction.past_and_tail(TEXT, None if shares_past else MOST_TAIL)
        return cls(past, tail, len(transaction.ordinals))

    def up_to(self, num_own: int) -> Int[np.ndarray, " tail"]:
        """The tail up to so many tokens of the clip."""
        return self.tail[: len(self.tail) - self.num_own + num_own]


@dataclass(frozen=True, slots=True, eq=False)
class TokenClip:
    """Tokens of one conversation that are to be read, staged in its memory."""

    embedded: Float[Tensor, "1 tokens width"]
    rows: Int[np.ndarray, "3 tokens"]
    transaction: Transaction
    recorder: AttentionRecorder | None
    places: PastAndTail
    num_before: int = 0
    """Tokens of what is staged that were read already."""

    @property
    def num_tokens(self) -> int:
        return self.embedded.shape[1]

    @property
    def tail(self) -> Int[np.ndarray, " tail"]:
        """What comes after the past, the slots of these tokens last."""
        return self.places.up_to(self.num_before + self.num_tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadShape:
    """What a recording takes for granted."""

    entries: int
    tokens: int
    num_layers: int
    key_heads: int
    num_ranges: int
    most: int
    """At least as many slots as the past has."""
    is_listed: bool
    is_wide: bool
    most_tail: int
    is_recorded: bool
    """Whether it is to be known what each token of past and tail got of the last one's attention."""

    @classmethod
    def of(
        cls, num_tokens: int, num_entries: int, slab: Slab, past: View, tail: int, *, is_recorded: bool
    ) -> "ReadShape":
        words = -(-num_tokens // _WORDS) * _WORDS if 1 < num_tokens <= _MOST_WORDS else num_tokens
        return cls(
            entries=_power_of_two(num_entries),
            tokens=words,
            num_layers=len(slab.keys),
            key_heads=slab.layout.num_heads,
            num_ranges=past.num_ranges,
            most=_power_of_two(slab.num_slots),
            is_listed=not past.in_place,
            is_wide=is_wide(slab.keys[0]),
            most_tail=max(MOST_TAIL, _power_of_two(tail)),
            is_recorded=is_recorded,
        )


class ClipNumbers:
    """All that a shape's kernels read beside the weights, on the device."""

    def __init__(self, shape: ReadShape, width: int, dtype: torch.dtype, device: torch.device) -> None:
        self.shape = shape
        entries, tokens = shape.entries, shape.tokens
        self.embedded: Rows = torch.zeros(entries, tokens, width, dtype=dtype, device=device)
        self.where: Int64[Tensor, "layers 3"] = torch.zeros(shape.num_layers, 3, dtype=torch.int64, device=device)
        shapes = {
            "positions": (3, entries, tokens),
            "slots": (entries, tokens),
            "before": (entries,),
            "counts": (entries,),
            "past": (1, shape.num_ranges, 2),
            "tail_ranges": (entries, 1, 2),
            "tails": (entries, shape.most_tail),
        }
        self._names = list(shapes)
        self._sizes = [(int(np.prod(each)), each) for each in shapes.values()]
        self._numbers = Sent((sum(size for size, _ in self._sizes),), device)
        self._list = Sent((1, shape.most), device) if shape.is_listed else None
        on_device = dict(zip(self._names, self._cut(self._numbers.on_device), strict=True))
        self.positions, self.slots, self.before, self.counts = (on_device[name] for name in self._names[:4])
        self.past, self.tail_ranges, self.tails = (on_device[name] for name in self._names[4:])
        self.past_mass: Float32[Tensor, "entries most"] | None = None
        self.tail_mass: Float32[Tensor, "entries tail"] | None = None
        if shape.is_recorded:
            self.past_mass = torch.zeros(entries, shape.most, device=device)
            self.tail_mass = torch.zeros(entries, shape.most_tail, device=device)

    @property
    def listed(self) -> Int32[Tensor, "1 most"] | None:
        """Slots of the past where they are scattered."""
        return None if self._list is None else self._list.on_device

    def fill(
        self, clips: Sequence[TokenClip], slab: Slab, past: View, tails: Sequence[Int[np.ndarray, " tail"]]
    ) -> None:
        """With clips that go on from the same past; entries without a clip have no tokens."""
        self.where.copy_(slab.where)
        if all(clip.num_tokens == 1 for clip in clips):
            self.embedded[: len(clips)] = torch.cat([clip.embedded for clip in clips])
        else:
            for entry, clip in enumerate(clips):
                self.embedded[entry, : clip.num_tokens] = clip.embedded[0]
        with self._numbers.changed() as numbers:
            numbers[:] = 0
            of = dict(zip(self._names, self._cut(numbers), strict=True))
            places = past.places if self._list is None else past.listed
            of["past"][0, : len(places.ranges)] = np.array(places.ranges, dtype=np.int32).reshape(-1, 2)
            for entry, (clip, tail) in enumerate(zip(clips, tails, strict=True)):
                count = clip.num_tokens
                of["positions"][:, entry, :count] = clip.rows
                of["slots"][entry, :count] = tail[len(tail) - count :]
                of["before"][entry], of["counts"][entry] = len(tail) - count, count
                of["tail_ranges"][entry, 0, 1] = len(tail)
                of["tails"][entry, : len(tail)] = tail
        if self._list is not None:
            with self._list.changed() as listed:
                slots = past.listed.slots
                assert slots is not None
                listed[0, : len(slots)] = slots

    def _cut(self, numbers: Any) -> list[Any]:
        ends = np.cumsum([size for size, _ in self._sizes]).tolist()
        starts = [0, *ends[:-1]]
        return [
            numbers[start:end].reshape(shape) for start, end, (_, shape) in zip(starts, ends, self._sizes, strict=True)
        ]


class SlotPast:
    """What clips attend to, by numbers on the device."""

    def __init__(self, numbers: ClipNumbers) -> None:
        self._numbers = numbers
        self._slots: Any = import_module("longtake.attention.slot_kernels")
        self._tails: Any = import_module("longtake.attention.tail_kernels")

    def attend(self, layer: int, q: Projected, k: Projected, v: Projected, phases: Phases) -> Projected:
        numbers, shape = self._numbers, self._numbers.shape
        storage = self._slots.Storage(numbers.where[layer], shape.key_heads, shape.is_wide)
        asked = self._tails.turn_and_write(storage, q, k, v, phases, numbers.slots, numbers.counts)
        past = self._of_past(storage, asked.flatten(0, 1))
        mixed, log_sum_exp = self._tails.attend_tails(
            asked, storage, past, numbers.tails, numbers.before, numbers.counts
        )
        if numbers.past_mass is not None:
            asking = (asked, storage, log_sum_exp, numbers.counts)
            self._tails.add_received(*asking, numbers.past, numbers.listed, numbers.past_mass)
            self._tails.add_received(*asking, numbers.tail_ranges, numbers.tails, numbers.tail_mass)
        out: Tensor = mixed.flatten(-2)
        return out

    def _of_past(self, storage: Any, asked: Tensor) -> tuple[Tensor, ...]:
        """What the past gives to each query, and its log-sum-exp; so many at a time, for each part of the past has a
        result of its own for them."""
        numbers = self._numbers
        listed = None if numbers.listed is None else numbers.listed[0]
        some = [
            self._slots.attend_few(queries, storage, numbers.past[0], numbers.shape.most, listed, exact=True)
            for queries in asked.split(_QUERIES_TOGETHER)
        ]
        return some[0] if len(some) == 1 else tuple(map(torch.cat, zip(*some, strict=True)))


class RecordedReader:
    """A language model's passes for all its dialogues; one at a time."""

    def __init__(
        self, network: FusedNetwork, weights: Weights, width: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        self._network, self.weights = network, weights
        self._width, self._dtype, self._device = width, dtype, device
        is_cuda = device.type == "cuda"
        self._pool = torch.cuda.graph_pool_handle() if is_cuda else None
        self._done = torch.cuda.Event() if is_cuda else None
        self._shapes = MostRecent[ReadShape, tuple[ClipNumbers, Recording]]()
        self._grids = MostRecent[tuple[tuple[int, int, int], int], tuple[Tensor, Recording]]()

    @property
    def num_recordings(self) -> int:
        """Shapes of clips that were met."""
        return len(self._shapes)

    def read(self, clips: Sequence[TokenClip]) -> list[Float[Tensor, "1 tokens width"]]:
        """The hidden states of each clip's tokens, whose keys and values are written.

        The clips go on from the same past: of forks of one moment, or there is but one.
        """
        slab, past, tails = clips[0].transaction.slab(TEXT), clips[0].places.past, [clip.tail for clip in clips]
        recorded = clips[0].recorder is not None
        most, tail = max(clip.num_tokens for clip in clips), max(map(len, tails))
        shape = ReadShape.of(most, len(clips), slab, past, tail, is_recorded=recorded)
        for clip in clips:
            clip.transaction.note_overwritten(TEXT)
        with self._alone():
            numbers, recording = self._shapes.of(shape, self._for_shape)
            numbers.fill(clips, slab, past, tails)
            hidden = recording.launch(partial(self._read, numbers)).clone()
            self._record(clips, numbers, past.num_slots, tails)
        for clip in clips:
            clip.transaction.mark_written(TEXT)
        return [hidden[entry : entry + 1, : clip.num_tokens] for entry, clip in enumerate(clips)]

    def see(
        self, pixels: Float[Tensor, "patches values"], grid: tuple[int, int, int]
    ) -> Float[Tensor, "1 tokens width"]:
        """Tokens of whole temporal grids; none attends to another."""
        with self._alone():
            static, recording = self._grids.of((grid, pixels.shape[1]), self._for_grid)
            static.copy_(pixels, non_blocking=True)
            tokens: Tensor = recording.launch(lambda: self._network.see(static, grid)).clone()
            return tokens

    def _for_shape(self, shape: ReadShape) -> tuple[ClipNumbers, Recording]:
        numbers = ClipNumbers(shape, self._width, self._dtype, self._device)
        return numbers, Recording(self._device, self._pool, at_second=True)

    def _for_grid(self, patches: tuple[tuple[int, int, int], int]) -> tuple[Tensor, Recording]:
        grid, num_values = patches
        static = torch.zeros(math.prod(grid), num_values, dtype=self._dtype, device=self._device)
        return static, Recording(self._device, self._pool, at_second=True)

    def _read(self, numbers: ClipNumbers) -> Rows:
        for mass in (numbers.past_mass, numbers.tail_mass):
            if mass is not None:
                mass.zero_()
        return self._network.read(numbers.embedded, numbers.positions, SlotPast(numbers))

    def _record(
        self, clips: Sequence[TokenClip], numbers: ClipNumbers, num_past: int, tails: Sequence[Int[np.ndarray, " tail"]]
    ) -> None:
        if numbers.past_mass is None or numbers.tail_mass is None:
            return
        for entry, (clip, tail) in enumerate(zip(clips, tails, strict=True)):
            assert clip.recorder is not None
            clip.recorder.add(torch.cat((numbers.past_mass[entry, :num_past], numbers.tail_mass[entry, : len(tail)])))

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """One pass at a time uses the numbers, after the one before, on whatever stream that was."""
        self.weights.require_unchanged()
        if self._done is None:
            yield
            return
        with COMPUTING, torch.cuda.device(self._device):
            torch.cuda.current_stream().wait_event(self._done)
            try:
                yield
            finally:
                self._done.record()


_READERS: "weakref.WeakKeyDictionary[Any, RecordedReader]" = weakref.WeakKeyDictionary()
"""Of each model, as long as it lives, of the weights as they were."""
_LOCK = threading.Lock()


def recorded_reader(language: LanguageModel) -> RecordedReader | None:
    """The one that all dialogues of a model share, until its weights move; None where it cannot be computed so."""
    model = language.model
    if why_reading_unrecorded(model) is not None:
        return None
    with _LOCK:
        known = _READERS.get(model)
        if known is None or not known.weights.are_those_of(model):
            width = model.config.text_config.hidden_size
            network = FusedNetwork(model, language.text)
            known = _READERS[model] = RecordedReader(network, Weights(model), width, model.dtype, model.device)
        return known


def why_reading_unrecorded(model: Any) -> str | None:
    """Why the passes of a model cannot be recorded, or None where they can."""
    if model.device.type != "cuda" or torch.version.hip is not None:
        return "recording needs an NVIDIA GPU"
    return why_not_fused(model, model.dtype) or why_unsuitable(model.device, model.dtype, _COMMON_HEAD_DIM)


def _power_of_two(number: int) -> int:
    return 1 << (max(1, number) - 1).bit_length()
