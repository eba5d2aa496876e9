"""One clip's staged writes, in all streams at once: committed as a whole, or gone without a trace."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType

from jaxtyping import Float
from torch import Tensor

from longtake.errors import TransactionError
from longtake.memory.retention import Keep
from longtake.memory.slab import Slab
from longtake.memory.tokens import Integers
from longtake.memory.view import Block, View

Rows = Float[Tensor, "new heads head_dim"]


@dataclass(frozen=True, slots=True)
class Staged:
    """A clip's place in one stream: the slots it writes, and the view it reads, its own slots included."""

    slab: Slab
    slot: Integers
    block: Block
    view: View


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
        """Store the clip's keys and values of one layer in its staged slots."""
        self._require_open()
        staged = self.staged[stream]
        if len(k) != len(staged.slot):
            raise TransactionError(
                f"Stream '{stream}' has {len(staged.slot)} slots staged for this clip, but {len(k)} tokens came; "
                "begin the transaction with the number of frames the model is given."
            )
        staged.slab.write(layer, staged.block, k, v)
        self._written.add((stream, layer))

    def read(self, stream: str, layer: int) -> Iterator[tuple[Rows, Rows]]:
        """Keys and values the clip may see in one layer, block by block."""
        self._require_open()
        staged = self.staged[stream]
        keys, values = staged.slab.keys[layer], staged.slab.values[layer]
        return zip(staged.view.read(keys), staged.view.read(values), strict=True)

    def commit(self) -> None:
        """Keep the clip: its tokens become part of the memory and the policy's evictions happen."""
        self._require_open()
        if self.keep is Keep.NO:
            raise TransactionError(
                "This clip was declared as not kept; begin it as kept or judged afterwards to commit it."
            )
        missing = [
            f"{stream} layer {layer}"
            for stream, staged in self.staged.items()
            for layer in range(staged.slab.layout.num_layers)
            if (stream, layer) not in self._written
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

    def _require_open(self) -> None:
        if not self._open:
            raise TransactionError("This transaction has ended; begin a new one.")
