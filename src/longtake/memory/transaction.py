"""One clip's staged writes, in all streams at once: committed as a whole, or gone without a trace."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType

from jaxtyping import Float, Float32
from torch import Tensor

from longtake.errors import TransactionError
from longtake.memory.retention import Keep
from longtake.memory.shared_pool import layer_slots_name
from longtake.memory.slab import Slab
from longtake.memory.tokens import Integers
from longtake.memory.view import Block, View

Rows = Float[Tensor, "new heads head_dim"]


@dataclass(frozen=True, slots=True)
class Staged:
    """A clip's place on one shelf: the slots it writes, and for each pass those of it and the view it reads."""

    slab: Slab
    slot: Integers
    blocks: tuple[Block, ...]
    views: tuple[View, ...]
    wants_attention_mass: bool

    @property
    def view(self) -> View:
        """What the last pass reads: all, the clip's own slots included."""
        return self.views[-1]


class Transaction:
    """The life of one clip. Leaving the `with` block without `commit` leaves no trace."""

    def __init__(
        self,
        ordinals: tuple[int, ...],
        keep: Keep,
        staged: Mapping[str, Staged],
        *,
        commit: Callable[["Transaction"], None],
        abandon: Callable[["Transaction"], None],
    ) -> None:
        self.ordinals = ordinals
        self.keep = keep
        self.staged = staged
        self.attention_mass: dict[str, Float32[Tensor, " tokens"]] = {}
        """By shelf, where a policy wants it: what each key of the view got of the clip's attention."""
        self._commit = commit
        self._abandon = abandon
        self._written: set[tuple[str, int]] = set()
        self._open = True

    def __enter__(self) -> "Transaction":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.abandon()

    def write(self, stream: str, layer: int, k: Rows, v: Rows) -> None:
        """Store the clip's keys and values of one layer in its staged slots.

        Where layers are written in several passes, `layer` counts through all layers of the first, then of the next.
        """
        self._require_open()
        layer_slots, number, layer = self._find(stream, layer)
        staged = self.staged[layer_slots]
        num_expected = len(staged.slot) // len(staged.blocks)
        if len(k) != num_expected:
            raise TransactionError(
                f"Stream '{stream}' has {num_expected} slots staged for this clip, but {len(k)} tokens came; "
                "begin the transaction with the number of frames the model is given."
            )
        staged.slab.write(layer, staged.blocks[number], k, v)
        self._written.add((layer_slots, number * staged.slab.layout.num_layers + layer))

    def read(self, stream: str, layer: int) -> Iterator[tuple[Rows, Rows]]:
        """Keys and values the clip may see in one layer, block by block."""
        self._require_open()
        layer_slots, number, layer = self._find(stream, layer)
        staged = self.staged[layer_slots]
        view, keys, values = staged.views[number], staged.slab.keys[layer], staged.slab.values[layer]
        return zip(view.read(keys), view.read(values), strict=True)

    def wants_attention_mass(self, stream: str, layer: int) -> bool:
        """Whether the stream's policy must know what each key received, should the clip be kept."""
        return self.keep is not Keep.NO and self.staged[self._find(stream, layer)[0]].wants_attention_mass

    def record_attention_mass(self, stream: str, layer: int, attention_mass: Float32[Tensor, " tokens"]) -> None:
        """What each key of the view got of the clip's attention in one layer, in the order of the view."""
        self.attention_mass[self._find(stream, layer)[0]] = attention_mass

    def commit(self) -> None:
        """Keep the clip: its tokens become part of the memory and the policy's evictions happen."""
        self._require_open()
        if self.keep is Keep.NO:
            raise TransactionError(
                "This clip was declared as not kept; begin it as kept or judged afterwards to commit it."
            )
        missing = [
            f"{layer_slots} layer {layer}"
            for layer_slots, staged in self.staged.items()
            for layer in range(staged.slab.layout.num_layers * len(staged.blocks))
            if (layer_slots, layer) not in self._written
        ]
        missing += [
            f"{layer_slots} attention"
            for layer_slots, staged in self.staged.items()
            if staged.wants_attention_mass and layer_slots not in self.attention_mass
        ]
        if missing:
            raise TransactionError(
                f"The model did not write {missing[0]} ({len(missing)} missing in all); nothing is kept."
            )
        self._commit(self)
        self._open = False

    def abandon(self) -> None:
        """Drop the clip, unless it was committed."""
        if self._open:
            self._open = False
            self._abandon(self)

    def _find(self, stream: str, layer: int) -> tuple[str, int, int]:
        """The shelf of a stream's layer, the pass, and the layer's number there."""
        if stream not in self.staged:
            return layer_slots_name(stream, layer), 0, 0
        return stream, *divmod(layer, self.staged[stream].slab.layout.num_layers)

    def _require_open(self) -> None:
        if not self._open:
            raise TransactionError("This transaction has ended; begin a new one.")
