"""CUDA graphs: kernels that are recorded once and replayed, and the numbers that change in between."""

import warnings
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor

from longtake.errors import InputError
from longtake.runtime.fused_model import stream_aside

MOST_SHAPES = 64
"""That recordings are held of: a stream of ever new shapes, as of questions of any length, must not fill the GPU."""
_WARM_UPS = 2
_Shape = TypeVar("_Shape", bound=Hashable)
_Made = TypeVar("_Made")


class Weights:
    """A model's weights where they lay, and as they were, when something was recorded of them."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._weights = tuple(model.parameters())
        self._were = tuple(map(_address_and_version, self._weights))

    def are_those_of(self, model: torch.nn.Module) -> bool:
        return self._were == tuple(map(_address_and_version, model.parameters()))

    def require_unchanged(self) -> None:
        """Refuse to replay what would read where weights no longer are; a model moves as a whole."""
        if _address_and_version(self._weights[0]) != self._were[0]:
            raise InputError(
                "The weights of this model were moved or changed while a session of it was open; open a new session."
            )


def _address_and_version(weight: Tensor) -> tuple[int, int]:
    """Also how often it was changed in place, as far as torch counts that."""
    return weight.data_ptr(), 0 if weight.is_inference() else weight._version


class MostRecent(Generic[_Shape, _Made]):
    """What was made for each shape, of those that were used last."""

    def __init__(self, most: int = MOST_SHAPES) -> None:
        self._most = most
        self._made: dict[_Shape, _Made] = {}

    def __len__(self) -> int:
        return len(self._made)

    def of(self, shape: _Shape, make: Callable[[_Shape], _Made]) -> _Made:
        """Made now where it is the first of its shape; the one that was not used for longest goes for it."""
        if shape in self._made:
            self._made[shape] = self._made.pop(shape)
            return self._made[shape]
        if len(self._made) == self._most:
            if torch.cuda.is_initialized():
                torch.cuda.synchronize()  # kernels under way, on whatever stream, may still read what goes
            del self._made[next(iter(self._made))]
        with torch.inference_mode(mode=False):  # else its numbers could not be changed outside of it
            return self._made.setdefault(shape, make(shape))


class Sent:
    """Numbers on the device, and page-locked ones on the host from which they are sent without waiting for it."""

    def __init__(self, shape: tuple[int, ...], device: torch.device) -> None:
        self.on_device = torch.zeros(shape, dtype=torch.int32, device=device)
        self._on_host = torch.zeros(shape, dtype=torch.int32, pin_memory=device.type == "cuda")
        self._arrived = torch.cuda.Event() if device.type == "cuda" else None

    @contextmanager
    def changed(self) -> Iterator[np.ndarray]:
        """The numbers on the host, to be sent once they are changed; those sent before have arrived."""
        if self._arrived is not None:
            self._arrived.synchronize()
        yield self._on_host.numpy()
        self.on_device.copy_(self._on_host, non_blocking=True)
        if self._arrived is not None:
            self._arrived.record()


class Recording:
    """Kernels recorded where that is possible; what they compute is written anew by the next launch.

    They are recorded at their first launch, or where they may never be launched again at the second.
    """

    def __init__(self, device: torch.device, pool: Any, *, at_second: bool = False) -> None:
        self._is_recordable = device.type == "cuda"
        self._is_due = not at_second
        self._device, self._pool = device, pool
        self._graph: torch.cuda.CUDAGraph | None = None
        self._result: Any = None

    def launch(self, compute: Callable[[], Any]) -> Any:
        if self._graph is None and self._is_recordable and self._is_due:
            self._try_to_record(compute)
        self._is_due = True
        if self._graph is None:
            return compute()
        self._graph.replay()
        return self._result

    def _try_to_record(self, compute: Callable[[], Any]) -> None:
        before = torch.cuda.current_stream()
        try:
            self._record(compute)
        except RuntimeError as error:
            cause = error.__context__ or error  # the end of a recording may fail for what has broken it off
            if not isinstance(cause, Exception):
                raise cause from None
            self._is_recordable = False
            reason = str(cause).strip().partition("\n")[0]
            warnings.warn(
                f"A step could not be recorded as a CUDA graph ({reason}); its kernels are launched one by one, which "
                "is slower and gives the same numbers.",
                stacklevel=2,
            )
        finally:
            torch.cuda.set_stream(before)  # a recording that fails may not have done so

    def _record(self, compute: Callable[[], Any]) -> None:
        """What is written meanwhile are the slots of the clip under way, which the replay writes again."""
        aside = stream_aside(self._device)
        aside.wait_stream(torch.cuda.current_stream())
        try:
            with torch.cuda.stream(aside):
                for _ in range(_WARM_UPS):
                    compute()
        finally:  # what was launched before an error still writes
            torch.cuda.current_stream().wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        # other threads may use the GPU meanwhile: a world is drawn on it, results are copied from it
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            self._result = compute()
        self._graph = graph
