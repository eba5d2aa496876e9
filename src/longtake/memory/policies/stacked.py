"""Allocation on tensors, for all layers at once: nothing waits for the host, and no shape depends on what is computed.

Numbers are added up half to half, so that the bits of a sum depend on the numbers alone: not on the padding behind
them, nor on how a device shares out the work.
"""

import torch
from jaxtyping import Bool, Float32, Float64, Int64
from torch import Tensor

from longtake.memory.policies.allocation import FRACTIONS, SMALLEST_SHARE

Counts = Int64[Tensor, " layers"]
Shares = Float64[Tensor, " layers"]
_LAST = 2**31 - 1
"""Sorts behind every score, as whose bits it is read."""


def sum_of(numbers: Float64[Tensor, "*rows numbers"]) -> Float64[Tensor, "*rows"]:
    """The last axis added up; zeros behind it change nothing."""
    while (count := numbers.shape[-1]) > 1:
        half = 1 << ((count - 1).bit_length() - 1)
        lower, upper = numbers.split((half, count - half), dim=-1)
        joined = lower[..., : count - half] + upper
        numbers = joined if count == 2 * half else torch.cat((joined, lower[..., count - half :]), dim=-1)
    return numbers[..., 0]


def moments(
    numbers: Float32[Tensor, "layers places"], among: Bool[Tensor, "layers places"]
) -> tuple[Float64[Tensor, " layers"], Float64[Tensor, " layers"]]:
    """Mean and population variance of some numbers of each layer; zero where there are none."""
    count = among.sum(1).clamp(min=1)
    exact = torch.where(among, numbers, 0.0).double()
    mean = sum_of(exact) / count
    deviations = torch.where(among, exact - mean[:, None], 0.0)
    return mean, sum_of(deviations * deviations) / count


def softmax_shares(statistics: Float64[Tensor, " layers"], temperature: float) -> Shares:
    """Shares that sum to 1: the lower a layer's statistic, the larger its share."""
    weights = ((statistics.min() - statistics) / temperature).exp()
    return weights / sum_of(weights)


def fill(total: int, shares: Shares, *, floors: Counts, sizes: Counts) -> Counts:
    """How many tokens each layer keeps of `total`; the sum of the floors is no more."""
    room, rest = sizes - floors, total - floors.sum()
    served = shares > SMALLEST_SHARE
    served_room = torch.where(served, room, 0)
    spills = served_room.sum() <= rest  # what the served cannot hold goes to the others, by their room
    sure = torch.where(spills, served_room, 0)
    open_room = torch.where(spills, room - served_room, served_room)
    weights = torch.where(spills, open_room.double(), torch.where(served, shares, 0.0))
    extra = sure + _pour(rest - sure.sum(), open_room, weights)
    return torch.where(sizes.sum() <= total, sizes, torch.where(rest <= 0, floors, floors + extra))


def _pour(amount: Int64[Tensor, ""], room: Counts, shares: Shares) -> Counts:
    """`amount` in whole units, by shares, into vessels that hold `room` and together at least as much."""
    full = _fills_up(amount, room, shares)
    left = amount - torch.where(full, room, 0).sum()
    level = left / sum_of(torch.where(full, 0.0, shares)).clamp(min=SMALLEST_SHARE)
    exact = torch.where(full, room.double(), level * shares)
    whole = exact.floor().long()
    has_room = whole < room
    missing = amount - whole.sum()
    behind = ((whole - exact) * FRACTIONS).round().where(has_room, torch.inf)  # the largest fraction is the lowest
    number = torch.arange(len(room), device=room.device)
    is_before = (behind < behind[:, None]) | ((behind == behind[:, None]) & (number < number[:, None]))
    return whole + (has_room & (is_before.sum(1) < missing))


def _fills_up(amount: Int64[Tensor, ""], room: Counts, shares: Shares) -> Bool[Tensor, " layers"]:
    """Which vessels the level reaches the brim of, when all that fill up before them have."""
    is_earlier = room * shares[:, None] < room[:, None] * shares
    left = amount - torch.where(is_earlier, room, 0).sum(1)
    beside = sum_of(torch.where(is_earlier, 0.0, shares))
    return (room == 0) | ((shares > 0) & (left * shares >= room * beside))


def without_lowest(
    scores: Float32[Tensor, "layers places"], num_leaving: Counts, *, may_leave: Bool[Tensor, "layers places"]
) -> Bool[Tensor, "layers places"]:
    """Who stays when the lowest scores of those who may leave go; of equals the earlier in attention order goes."""
    num_layers, width = scores.shape
    bits = (scores + 0.0).view(torch.int32)  # zero has one sign
    ordered = torch.where(may_leave, torch.where(bits < 0, bits ^ _LAST, bits), _LAST)
    layer = torch.arange(num_layers, device=scores.device)[:, None]
    order = ((layer << 32) + ordered).flatten().sort(stable=True).indices
    is_low = torch.arange(width, device=scores.device) < num_leaving[:, None]
    leaves = torch.empty_like(is_low.flatten()).scatter_(0, order, is_low.flatten()).view_as(is_low)
    return ~(leaves & may_leave)
