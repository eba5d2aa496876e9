"""CUDA graphs: kernels that are recorded once and replayed, and the numbers that change in between."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from longtake.runtime.fused_model import stream_aside

_WARM_UPS = 2


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
