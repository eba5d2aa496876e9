"""A step as CUDA graphs, for every session of a model and size: first the encoder, then trunk and heads.

What differs between frames and sessions is numbers that the graphs read on the device, filled in before each replay:

    pixels │ the frame's ordinal │ where slabs lie │ slots to write │ ranges, or lists of slots, to read

The encoder needs the pixels alone: while it runs, the host finds the rest. Where a policy decides on the device, two
graphs more, before the trunk and after it, find the places and say who stays. The same kernels launched one by one, as
`StreamRecall` does with the triton backend, give the same bits.
"""

import threading
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Float32, Int32, Int64
from torch import Tensor

from longtake.attention.backend import NormBounds
from longtake.attention.triton import TritonBackend, why_unsuitable
from longtake.geometry.model import GeometryModel, Grid, Prediction
from longtake.memory.books import Bookkeeping, Books, Columns
from longtake.memory.memory import Memory
from longtake.memory.slots import FEWEST_RANGES, is_wide
from longtake.memory.stream import Stream
from longtake.memory.transaction import Transaction
from longtake.runtime.fused_model import FusedModel, products_in
from longtake.runtime.recording import MostRecent, Recording, Sent, Weights

Image = Float[Tensor, "1 1 3 height width"]
Bounds = Mapping[str, Sequence[NormBounds | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamShape:
    """What a recording takes for granted of a stream."""

    places: tuple[tuple[int, int, int], ...]
    """Of each layer, those of all passes counted through: its set, its pass, and its layer of the slab."""
    num_sets: int
    num_passes: int
    num_slab_layers: int
    tokens: int
    """That one pass of the clip writes in a set."""
    key_heads: int
    dtype: torch.dtype
    num_ranges: int
    most: int
    """At least as many slots as a set has, and the same for many sizes: of sets that share a slab, twice their share as
    long as none has more."""
    is_listed: bool
    is_wide: bool
    wants_attention_mass: bool

    @classmethod
    def of(cls, stream: Stream, transaction: Transaction) -> "StreamShape":
        layout, slab, num_sets = stream.plan.layout, stream.slab, len(stream.set_names)
        books, tokens = transaction.books.get(stream.name), layout.tokens_per_frame // layout.passes
        views = [view for each in transaction.staged.get(stream.name, ()) for view in each.views]
        usual = slab.num_slots if num_sets == 1 else 2 * slab.num_slots // num_sets
        if books is None:
            is_usual = max(view.num_slots for view in views) <= usual
        else:
            is_usual = books.largest.at_most() + tokens <= usual or books.largest.exactly() + tokens <= usual
        most = usual if is_usual else slab.num_slots
        return cls(
            places=tuple(map(stream.find, range(stream.num_writes))),
            num_sets=num_sets,
            num_passes=layout.passes,
            num_slab_layers=len(slab.keys),
            tokens=tokens,
            key_heads=layout.num_heads,
            dtype=layout.dtype,
            num_ranges=max([FEWEST_RANGES, *(view.num_ranges for view in views)]),
            most=1 << (most - 1).bit_length(),
            is_listed=books is not None or not all(view.in_place for view in views),
            is_wide=is_wide(slab.keys[0]),
            wants_attention_mass=transaction.wants_attention_mass(stream.name, 0),
        )


class StreamNumbers:
    """Of one stream, on the device: where it lies, and for every set of layers and pass what is written and read."""

    def __init__(self, shape: StreamShape, device: torch.device) -> None:
        each = (shape.num_sets, shape.num_passes)
        self.shape = shape
        self.where: Int64[Tensor, "layers 3"] = torch.zeros(shape.num_slab_layers, 3, dtype=torch.int64, device=device)
        self._write = Sent((*each, shape.tokens), device)
        self._ranges = Sent((*each, shape.num_ranges, 2), device)
        self._slots = Sent((*each, shape.most), device) if shape.is_listed else None
        self.attention_mass: Float32[Tensor, "sets most"] | None = None
        if shape.wants_attention_mass:
            self.attention_mass = torch.zeros(shape.num_sets, shape.most, device=device)

    def written(self, group: int, number: int) -> Int32[Tensor, " tokens"]:
        """The slots that a pass writes in a set of layers."""
        return self._write.on_device[group, number]

    @property
    def all_written(self) -> Int32[Tensor, "sets tokens"]:
        """The same of all sets, where there is one pass."""
        return self._write.on_device[:, 0]

    def read(self, group: int, number: int) -> tuple[Int32[Tensor, "ranges 2"], Int32[Tensor, " most"] | None]:
        """Ranges that it reads, and the list that they are of."""
        slots = None if self._slots is None else self._slots.on_device[group, number]
        return self._ranges.on_device[group, number], slots

    def fill(self, stream: Stream, transaction: Transaction) -> None:
        """With the places of a clip."""
        staged = transaction.staged[stream.name]
        with self._write.changed() as written:
            for group, each in enumerate(staged):
                written[group] = each.slot.reshape(-1, self.shape.num_passes).T
        views = [(group, number, view) for group, each in enumerate(staged) for number, view in enumerate(each.views)]
        with self._ranges.changed() as ranges:
            for group, number, view in views:
                of_view = (view.places if self._slots is None else view.listed).ranges
                ranges[group, number, : len(of_view)] = of_view
                ranges[group, number, len(of_view) :] = 0
        if self._slots is not None:
            with self._slots.changed() as slots:
                for group, number, view in views:
                    listed = view.listed.slots
                    assert listed is not None
                    slots[group, number, : len(listed)] = listed

    def fill_on_device(
        self,
        write: Int32[Tensor, "sets tokens"],
        slots: Int32[Tensor, "sets most"],
        sizes: Int64[Tensor, "sets 1"],
    ) -> None:
        """With the places of a clip that is staged there: of each set so many slots of its list are read."""
        assert self._slots is not None
        self._write.on_device[:, 0] = write
        self._slots.on_device[:, 0] = slots
        self._ranges.on_device.zero_()
        self._ranges.on_device[:, 0, 0, 1] = sizes[:, 0]


@dataclass(frozen=True, slots=True)
class RecordedRecall:
    """Recall while a step is recorded: of one frame after the scale block, whose past is numbers on the device."""

    backend: TritonBackend
    numbers: Mapping[str, StreamNumbers]
    ordinal: Int64[Tensor, " 1"]
    bounds: Bounds
    ordinals: tuple[int, ...] = (1,)
    """Of any frame but a first one."""
    num_scale_frames: int = 1

    def when(self, device: torch.device) -> Int64[Tensor, " 1"]:  # noqa: ARG002
        return self.ordinal

    def attend(self, stream: str, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        numbers, kernels, bounds = self.numbers[stream], self.backend.kernels, self.bounds.get(stream)
        shape = numbers.shape
        group, number, slab_layer = shape.places[layer]
        storage = kernels.Storage(numbers.where[slab_layer], shape.key_heads, shape.is_wide)
        kernels.write(storage, numbers.written(group, number), k[0].to(shape.dtype), v[0].to(shape.dtype))
        ranges, slots = numbers.read(group, number)
        asked = q[0].to(shape.dtype).contiguous()
        mixed, log_sum_exp = self.backend.launch(
            asked, storage, ranges, slots, shape.most, None if bounds is None else bounds[layer]
        )
        if numbers.attention_mass is not None:
            kernels.received(asked, storage, log_sum_exp, ranges, shape.most, slots, numbers.attention_mass[group])
        return mixed.unsqueeze(0).to(q.dtype)


class _Forgetting:
    """A stream that is kept on the device: what books say of a clip before the trunk, and of who stays after it."""

    def __init__(
        self, bookkeeping: Bookkeeping, numbers: StreamNumbers, ordinal: Int64[Tensor, " 1"], pool: Any
    ) -> None:
        self._bookkeeping, self._numbers, self._ordinal = bookkeeping, numbers, ordinal
        self._columns = bookkeeping.nothing(ordinal.device)
        self._placing, self._deciding = Recording(ordinal.device, pool), Recording(ordinal.device, pool)

    def place(self, books: Books) -> None:
        """Find the clip's places."""
        for mine, theirs in zip(self._columns, books.columns, strict=True):
            mine.copy_(theirs)
        self._placing.launch(self._place)

    def decide(self, books: Books) -> Books:
        """What is remembered once the clip is kept, by what its attention gave to each token."""
        columns = self._deciding.launch(self._decide)
        return Books.kept(columns, bound=books.largest.at_most() + self._numbers.shape.tokens)

    def _place(self) -> None:
        own = self._bookkeeping.clip_slots(self._columns)
        slots = self._bookkeeping.slots_read(self._columns, own, self._numbers.shape.most)
        self._numbers.fill_on_device(own, slots, self._bookkeeping.sizes(self._columns))

    def _decide(self) -> Columns:
        assert self._numbers.attention_mass is not None
        own = self._numbers.all_written
        return self._bookkeeping.after(self._columns, own, self._numbers.attention_mass, self._ordinal[0])


class RecordedModel:
    """One frame after the scale block through a model, for all its sessions of one size; one at a time."""

    def __init__(
        self,
        model: FusedModel,
        weights: Weights,
        grid: Grid,
        dtype: torch.dtype,
        backend: TritonBackend,
        bounds: Bounds,
    ) -> None:
        device = grid.positions.device
        self.weights = weights
        self._model, self._grid, self._dtype, self._backend, self._bounds = model, grid, dtype, backend, bounds
        is_cuda = device.type == "cuda"
        self._pool = torch.cuda.graph_pool_handle() if is_cuda else None
        self._done = torch.cuda.Event() if is_cuda else None
        with torch.inference_mode(mode=False):  # else these numbers could not be changed outside of it
            self._image = torch.zeros(1, 1, 3, grid.height, grid.width, device=device)
            self._ordinal = torch.zeros(1, dtype=torch.int64, device=device)
        self._encoder = Recording(device, self._pool)
        self._patches: Tensor | None = None
        self._trunks = MostRecent[tuple[tuple[str, StreamShape], ...], tuple[RecordedRecall, Recording]]()
        self._forgetting = MostRecent[tuple[Bookkeeping, StreamNumbers], _Forgetting]()

    def encode(self, image: Image) -> None:
        """Begin with a frame; nobody else may until `predict` has returned."""
        self.weights.require_unchanged()
        if self._done is not None:
            torch.cuda.current_stream().wait_event(self._done)  # the last one's, on whatever stream
        self._image.copy_(image, non_blocking=True)
        patches = self._encoder.launch(self._encode)
        with torch.inference_mode(mode=False):
            if self._patches is None:
                self._patches = torch.empty_like(patches)
        self._patches.copy_(patches)  # from where the trunk reads it, however it was computed

    def predict(self, memory: Memory, transaction: Transaction) -> Prediction:
        """What the model says of the frame, whose keys and values are written."""
        recall, recording = self._trunk(memory, transaction)
        try:
            self._ordinal.fill_(transaction.ordinals[0])
            for name, numbers in recall.numbers.items():
                transaction.note_overwritten(name)
                numbers.where.copy_(memory.streams[name].slab.where)
                if name in transaction.books:
                    self._forget(memory.streams[name], numbers).place(transaction.books[name])
                else:
                    numbers.fill(memory.streams[name], transaction)
            prediction = _cloned(recording.launch(partial(self._predict, recall)))
            for name, numbers in recall.numbers.items():
                transaction.mark_written(name)
                if numbers.attention_mass is None:
                    continue
                if name in transaction.books:
                    after = self._forget(memory.streams[name], numbers).decide(transaction.books[name])
                    transaction.record_books(name, after)
                else:
                    for layer, staged in enumerate(transaction.staged[name]):
                        mass = numbers.attention_mass[layer, : staged.view.num_slots].clone()
                        transaction.record_attention_mass(name, layer, mass)
        finally:
            if self._done is not None:
                self._done.record()
        return prediction

    @property
    def num_recordings(self) -> int:
        """Of trunk and heads: one for each shape of memory that was met."""
        return len(self._trunks)

    def _trunk(self, memory: Memory, transaction: Transaction) -> "tuple[RecordedRecall, Recording]":
        shapes = tuple((name, StreamShape.of(stream, transaction)) for name, stream in memory.streams.items())
        return self._trunks.of(shapes, self._for_shapes)

    def _for_shapes(self, shapes: "tuple[tuple[str, StreamShape], ...]") -> "tuple[RecordedRecall, Recording]":
        device = self._image.device
        numbers = {name: StreamNumbers(shape, device) for name, shape in shapes}
        return RecordedRecall(self._backend, numbers, self._ordinal, self._bounds), Recording(device, self._pool)

    def _forget(self, stream: Stream, numbers: StreamNumbers) -> _Forgetting:
        assert stream.bookkeeping is not None
        return self._forgetting.of((stream.bookkeeping, numbers), self._for_books)

    def _for_books(self, of: tuple[Bookkeeping, StreamNumbers]) -> _Forgetting:
        return _Forgetting(*of, self._ordinal, self._pool)

    def _encode(self) -> Tensor:
        with torch.no_grad(), products_in(self._dtype, self._image.device):
            return self._model.encode(self._image, self._grid)

    def _predict(self, recall: RecordedRecall) -> Prediction:
        assert self._patches is not None
        with torch.no_grad(), products_in(self._dtype, self._image.device):
            return self._model.predict(self._patches, recall, self._grid)


_RECORDED: "weakref.WeakKeyDictionary[GeometryModel, dict[object, RecordedModel]]"
_RECORDED = weakref.WeakKeyDictionary()
"""Of each model, as long as it lives: by size and number type, of the weights as they were."""
_LOCK = threading.Lock()


def recorded_model(
    model: GeometryModel, grid: Grid, dtype: torch.dtype, backend: TritonBackend, bounds: Bounds
) -> RecordedModel:
    """The one that all sessions of a model share, until its weights change or move."""
    key = (grid.height, grid.width, dtype)
    with _LOCK:
        of_model = _RECORDED.setdefault(model, {})
        known = of_model.get(key)
        if known is None or not known.weights.are_those_of(model):
            fused = FusedModel(model, dtype)
            known = of_model[key] = RecordedModel(fused, Weights(model), grid, dtype, backend, bounds)
        return known


def why_step_unrecorded(memory: Memory, device: torch.device) -> str | None:
    """Why the steps of a session with this memory cannot be recorded as a whole, or None where they can."""
    for stream in memory.streams.values():
        layout = stream.plan.layout
        rows = layout.tokens_per_frame // layout.passes
        why = why_unsuitable(device, layout.dtype, layout.head_dim, num_rows=rows)
        if why is not None:
            return why
    return None


def _cloned(prediction: Prediction) -> Prediction:
    """The next replay writes over what this one said."""
    values = {field.name: getattr(prediction, field.name) for field in fields(Prediction)}
    return replace(prediction, **{name: value.clone() for name, value in values.items() if value is not None})
