"""A model's fingerprint, which every save and resume asks for: computed once while the weights stay as they are."""

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from torch import nn


def once_for_each_state(fingerprint: Callable[[nn.Module], str]) -> Callable[[nn.Module], str]:
    """Tensors that lie where they lay, and were written to as often, have the values they had."""
    known: WeakKeyDictionary[nn.Module, tuple[Any, str]] = WeakKeyDictionary()

    def remembered(model: nn.Module) -> str:
        tensors = model.state_dict().items()
        if any(tensor.is_inference() for _, tensor in tensors):
            return fingerprint(model)  # which do not count how often they were written to
        state = [(name, tensor.data_ptr(), tensor._version) for name, tensor in tensors]
        if model not in known or known[model][0] != state:
            known[model] = (state, fingerprint(model))
        return known[model][1]

    return remembered
