"""Recording where there is no GPU: what must hold when it fails half-way."""

from contextlib import nullcontext

import pytest
import torch

from longtake.runtime import recording
from longtake.runtime.recording import Recording


class _Stream:
    def __init__(self) -> None:
        self.waited_for: list[object] = []

    def wait_stream(self, other: object) -> None:
        self.waited_for.append(other)


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_kernels_launched_aside_are_waited_for_when_the_next_one_fails(
    error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, aside = _Stream(), _Stream()
    monkeypatch.setattr(recording, "stream_aside", lambda _: aside)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: here)
    monkeypatch.setattr(torch.cuda, "stream", lambda _: nullcontext())

    def compute() -> None:
        raise error

    with pytest.raises(error):
        Recording(torch.device("cuda"), None)._record(compute)
    assert here.waited_for == [aside]
