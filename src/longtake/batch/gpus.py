"""Which GPUs workers have: one each, or a part of one."""

import os
from collections.abc import Mapping, Sequence

import torch

from longtake.runtime.execution import choose_device


def share_of_gpu(device: str, per_gpu: int, *, of_cluster: bool = False) -> float:
    """The part of a GPU that each worker claims; 0 where they compute on processors.

    The machine that starts a batch on a cluster may have no GPU itself: there only `cuda` by name claims any.
    """
    if of_cluster and not torch.cuda.is_available():
        return 1 / per_gpu if device.startswith("cuda") else 0.0
    return 1 / per_gpu if choose_device(device).type == "cuda" else 0.0


def environments(device: str) -> Sequence[Mapping[str, str]]:
    """What makes each worker of this machine see its own GPU."""
    if choose_device(device).type != "cuda":
        return ({},)
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = visible.split(",") if visible else [str(number) for number in range(torch.cuda.device_count())]
    return tuple({"CUDA_VISIBLE_DEVICES": name} for name in names)
