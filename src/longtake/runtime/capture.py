"""A model whose pure parts are recorded once as CUDA graphs and replayed, so that the host no longer holds up the GPU.

Encoder, frame blocks and dense heads depend on one frame and on nothing remembered: their kernels are the same for
every frame. Global blocks and the camera head, whose memory grows, run as they are. The twin shares all weights with
the model it was made from; its recordings belong to one session and its forks, one step at a time.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from longtake.geometry.heads.dense import DenseMap
from longtake.geometry.model import GeometryModel
from longtake.runtime.fused_model import with_parts

_WARM_UPS = 2


def captured_twin(model: GeometryModel) -> GeometryModel:
    """The same model, with recordings of its pure parts for clips of one frame."""
    pool = torch.cuda.graph_pool_handle()
    frame_blocks = nn.ModuleList(_Captured(block, pool) for block in model.trunk.frame_blocks)
    heads = {name: model._modules.get(name) for name in ("depth_head", "points_head", "camera_points_head")}
    twin: GeometryModel = with_parts(
        model,
        encoder=_Captured(model.encoder, pool),
        trunk=with_parts(model.trunk, frame_blocks=frame_blocks),
        **{name: _CapturedHead(head, pool) for name, head in heads.items() if head is not None},
    )
    return twin


class _Captured(nn.Module):
    """One frame in, one tensor out; what else the part is called with stays the same throughout a session."""

    def __init__(self, part: nn.Module, pool: Any) -> None:
        super().__init__()
        self.part = part
        self._pool = pool
        self._recording: _Recording | None = None

    def forward(self, x: Tensor, *unchanging: Any) -> Tensor:
        if len(x) != 1:
            answer: Tensor = self.part(x, *unchanging)
            return answer
        if self._recording is None:
            self._recording = _Recording(lambda frame: (self.part(frame, *unchanging),), (x,), self._pool)
        return self._recording.replay((x,))[0]


class _CapturedHead(nn.Module):
    """Feature levels of one frame in, a dense map out."""

    def __init__(self, head: nn.Module, pool: Any) -> None:
        super().__init__()
        self.head = head
        self._pool = pool
        self._recording: _Recording | None = None

    def forward(self, levels: Sequence[Tensor], positions: Any) -> DenseMap:
        if levels[0].shape[:2] != (1, 1):
            answer: DenseMap = self.head(levels, positions)
            return answer
        if self._recording is None:

            def run(*frame: Tensor) -> tuple[Tensor, ...]:
                dense: DenseMap = self.head(frame, positions)
                return dense.values, dense.confidence

            self._recording = _Recording(run, levels, self._pool)
        values, confidence = self._recording.replay(levels)
        return DenseMap(values.clone(), confidence.clone())


class _Recording:
    """A function of tensors of fixed shapes as a CUDA graph; its results are overwritten by the next replay."""

    def __init__(self, function: Callable[..., tuple[Tensor, ...]], inputs: Sequence[Tensor], pool: Any) -> None:
        self._inputs = [tensor.clone() for tensor in inputs]
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(_WARM_UPS):
                function(*self._inputs)
        torch.cuda.current_stream().wait_stream(aside)
        self._graph = torch.cuda.CUDAGraph()
        # other threads may use the GPU meanwhile: a world is drawn on it, results are copied from it
        with torch.cuda.graph(self._graph, pool=pool, capture_error_mode="thread_local"):
            self._outputs = function(*self._inputs)

    def replay(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        for kept, tensor in zip(self._inputs, inputs, strict=True):
            kept.copy_(tensor)
        self._graph.replay()
        return self._outputs
