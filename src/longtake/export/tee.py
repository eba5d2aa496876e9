"""One sink that is several."""

from collections.abc import Mapping
from contextlib import ExitStack

import numpy as np

from longtake.export.frame import MappedFrame
from longtake.export.sink import OpenSink, Sink, SinkState


class Tee(Sink):
    """Hands each frame to all its sinks, in the order they are named."""

    def __init__(self, sinks: Mapping[str, OpenSink], *, state: SinkState | None = None) -> None:
        """Opens them all; where one cannot be opened, those before it are closed again."""
        with ExitStack() as opened:
            self._sinks: dict[str, Sink] = {}
            for name, open_sink in sinks.items():
                self._sinks[name] = open_sink(None if state is None else _part(state, name))
                opened.callback(self._sinks[name].close)
            self._closing = opened.pop_all()

    def __getitem__(self, name: str) -> Sink:
        return self._sinks[name]

    def write(self, frame: MappedFrame) -> None:
        for sink in self._sinks.values():
            sink.write(frame)

    def checkpoint(self) -> SinkState:
        states = {name: sink.checkpoint() for name, sink in self._sinks.items()}
        arrays = {f"{name}/{array}": values for name, state in states.items() for array, values in state.arrays.items()}
        return SinkState(values={name: state.values for name, state in states.items()}, arrays=arrays)

    def close(self) -> None:
        """Close all, also where one fails."""
        self._closing.close()


def _part(state: SinkState, name: str) -> SinkState | None:
    """The state of one sink; none for one that was not there at the checkpoint."""
    if name not in state.values:
        return None
    arrays: dict[str, np.ndarray] = {
        array.removeprefix(f"{name}/"): values for array, values in state.arrays.items() if array.startswith(f"{name}/")
    }
    return SinkState(values=state.values[name], arrays=arrays)
