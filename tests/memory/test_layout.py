"""What a slot costs."""

from dataclasses import replace

import pytest
import torch

from longtake.errors import SettingError
from longtake.memory.tokens import StreamLayout

LAYOUT = StreamLayout(num_layers=3, num_heads=2, head_dim=8, tokens_per_frame=5)


@pytest.mark.parametrize(("dtype", "itemsize"), [(torch.float32, 4), (torch.bfloat16, 2), (torch.float16, 2)])
def test_slot_costs_a_key_and_a_value_in_every_layer(dtype: torch.dtype, itemsize: int) -> None:
    layout = replace(LAYOUT, dtype=dtype)
    key = torch.zeros(2, 8, dtype=dtype)
    assert layout.bytes_per_slot_layer == 2 * key.nbytes == 2 * 2 * 8 * itemsize
    assert layout.bytes_per_slot == 3 * layout.bytes_per_slot_layer
    assert layout.bytes_per_frame == 5 * layout.bytes_per_slot


def test_keys_and_values_are_float32_unless_asked_otherwise() -> None:
    assert LAYOUT.dtype is torch.float32


@pytest.mark.parametrize("field", ["num_layers", "num_heads", "head_dim", "tokens_per_frame"])
@pytest.mark.parametrize("size", [0, -1])
def test_size_below_one_is_refused_with_the_layout_it_came_in(field: str, size: int) -> None:
    with pytest.raises(SettingError, match=f"must be at least 1, but .*{field}={size}"):
        replace(LAYOUT, **{field: size})
