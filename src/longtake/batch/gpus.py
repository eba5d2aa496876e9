"""Which GPUs workers have, and how many of them fit into the memory of one: sizes in closed form against free bytes."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from longtake.api.arguments import one_of
from longtake.api.map_request import CheckedRequest, MapRequest
from longtake.errors import LongtakeError
from longtake.geometry.config import GeometryConfig
from longtake.geometry.heads.dense import FRAMES_AT_ONCE
from longtake.geometry.model import GeometryModel
from longtake.hub.load import skeleton_of
from longtake.runtime.build import memory_bytes, usual_settings
from longtake.runtime.execution import AUTO, Precision, choose_device

_CONTEXT_BYTES = 10**9
"""Of each process beside its tensors: the context of CUDA, kernels, and what an allocator holds and does not use."""
_USED_SHARE = 0.95
"""Of the bytes that are free; the rest is for whoever else draws on that GPU."""
_MOST_UNMEASURED = 4
"""Workers of a GPU where only memory decides, and nobody measures whether a further one pays."""
_ASKING = "import torch; print(torch.cuda.mem_get_info()[0])"
_ANSWER_S = 60.0
_FLOAT_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuShare:
    """How many workers a GPU is to have: so many, or as many as fit."""

    per_gpu: int | None = 1
    worker_bytes: int | None = None
    """That each takes of a GPU; None where that is not known."""

    def most(self, free_bytes: int | None) -> int:
        """Workers that fit; one where nobody can tell."""
        if self.per_gpu is not None:
            return self.per_gpu
        if self.worker_bytes is None or free_bytes is None:
            return 1
        return max(1, int(_USED_SHARE * free_bytes) // self.worker_bytes)

    def most_unmeasured(self, free_bytes: int | None) -> int:
        """The same where a surplus of them would not be noticed."""
        return self.per_gpu or min(_MOST_UNMEASURED, self.most(free_bytes))


def gpu_share(request: MapRequest, per_gpu: int | None, *, of_cluster: bool = False) -> GpuShare | None:
    """What workers that map so claim of GPUs; None where they compute on processors.

    The machine that starts a batch on a cluster may have no GPU itself: there only `cuda` by name claims any.
    """
    if of_cluster and not torch.cuda.is_available():
        has_gpu = request.device.startswith("cuda")
    else:
        has_gpu = choose_device(request.device).type == "cuda"
    if not has_gpu:
        return None
    return GpuShare(per_gpu=per_gpu, worker_bytes=None if per_gpu is not None else worker_bytes(request))


def worker_bytes(request: MapRequest) -> int | None:
    """That one worker takes of a GPU: weights, memory and work space; None where the model is not known here.

    Of videos of the shape that takes most. What is wrong with a request is told by whoever maps a video by it.
    """
    try:
        checked = request.planned()
        model = checked.model if isinstance(checked.model, GeometryModel) else skeleton_of(checked.model)
        if model is None:
            return None
        return _weight_bytes(model, _precision(request)) + _session_bytes(checked, model.config)
    except LongtakeError:
        return None


def _precision(request: MapRequest) -> Precision:
    """As a GPU computes; both half types are of one size."""
    return Precision.BF16 if request.precision == AUTO else Precision(one_of("precision", request.precision, Precision))


def _weight_bytes(model: GeometryModel, precision: Precision) -> int:
    products = model.product_weights()
    return sum(
        weight.numel() * (precision.dtype.itemsize if name in products else _FLOAT_BYTES)
        for name, weight in model.named_parameters()
    )


def _session_bytes(checked: CheckedRequest, config: GeometryConfig) -> int:
    settings = checked.request.adjusted(usual_settings(config), _precision(checked.request))
    sizes = settings.sizes or ((settings.image_size, settings.image_size),)
    return max(
        memory_bytes(config, settings, size)
        + checked.loops.most_bytes(size, config.width)
        + _work_bytes(config, size, settings.num_scale_frames)
        for size in sizes
    )


def _work_bytes(config: GeometryConfig, size: tuple[int, int], first_clip: int) -> int:
    """Of the largest step, a dense head on the first clip: what goes into and comes out of its last convolutions."""
    height, width = size
    frames = min(first_clip, FRAMES_AT_ONCE)
    return _CONTEXT_BYTES + frames * height * width * config.dense.features * _FLOAT_BYTES


def environments() -> Sequence[Mapping[str, str]]:
    """What makes each worker of this machine see its own GPU, one for each."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = visible.split(",") if visible else [str(number) for number in range(torch.cuda.device_count())]
    return tuple({"CUDA_VISIBLE_DEVICES": name} for name in names)


def free_bytes(environment: Mapping[str, str]) -> int | None:
    """Of the GPU that such a worker sees; None where it does not answer.

    Asked by a process of its own: whoever asks takes some hundreds of megabytes of that GPU until it ends.
    """
    command, seen = [sys.executable, "-c", _ASKING], {**os.environ, **environment}
    try:
        asked = subprocess.run(command, env=seen, capture_output=True, check=True, timeout=_ANSWER_S)  # noqa: S603
    except subprocess.SubprocessError:
        return None
    return int(asked.stdout)
