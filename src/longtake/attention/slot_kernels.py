"""Attention over the slots of a slab, and what each slot received of it, in Triton.

Keys are read where they lie, as ranges in the order of attention: of slots one after another, or of a list of slots in
any order. Both add up the same blocks in the same order, so the bits depend on the order of tokens and on nothing else.
Where a slab lies, ranges and lists are numbers on the device: a recording of a launch stays right when they change, for
the slab of another session too. Tiles are fixed by the shape alone, nothing is tuned by timing, and nothing is added
atomically, so another process computes the same bits.

Where queries and keys are normed, no logit exceeds |query| · |longest key|. Softmax may subtract that bound instead of
the running maximum, as long as nothing underflows; `most_key_norm` says when.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Float32, Int32, Int64
from torch import Tensor

from longtake.memory.slots import is_wide

Queries = Float[Tensor, "queries heads head_dim"]
Rows = Float[Tensor, "slots key_heads head_dim"]
Ranges = Int32[Tensor, "ranges 2"]
"""Begin and end of each, in the order of attention."""
Slots = Int32[Tensor, "_"]

_MOST_LOG2 = {torch.bfloat16: 60.0, torch.float16: 5.0}
"""The largest bound, to base 2: weights between the bound and its negative must stay normal numbers of the type."""
_TINY = tl.constexpr(-1.0e30)
_TYPES = {torch.bfloat16: tl.bfloat16, torch.float16: tl.float16, torch.float32: tl.float32}


@dataclass(frozen=True, slots=True)
class Storage:
    """Keys and values of one layer, in the type of the queries that read them."""

    where: Int64[Tensor, " 3"]
    """On the device: the addresses of keys and values, and how many slots there are."""
    key_heads: int
    is_wide: bool
    """Whether an element can lie farther away than 32 bits count."""

    @classmethod
    def of(cls, keys: Rows, values: Rows) -> "Storage":
        assert keys.is_contiguous()
        assert values.is_contiguous()
        where = torch.tensor([keys.data_ptr(), values.data_ptr(), len(keys)]).to(keys.device)
        return cls(where, keys.shape[1], is_wide(keys))


@dataclass(frozen=True, slots=True)
class _Tiles:
    """How a launch is cut: queries and keys of a step, warps of a program, blocks of keys on their way."""

    queries: int
    keys: int
    warps: int
    stages: int


_ATTEND = {64: _Tiles(64, 128, 4, 3), 128: _Tiles(64, 64, 4, 3)}
_ATTEND_MORE = {64: _Tiles(64, 64, 4, 3), 128: _Tiles(64, 64, 4, 3)}
"""Smaller ones, of which more programs fit side by side."""
_SIDE_BY_SIDE, _MORE_SIDE_BY_SIDE = 2, 3
"""Programs of either that a multiprocessor holds."""
_SLOWER = 1.6
"""How much longer smaller ones take, where all places are taken."""
_PROCESSORS = 132
"""Of the GPU that these figures are from; elsewhere it is asked for."""
_RECEIVE = _Tiles(128, 128, 4, 2)
_SUMMED = 1024
"""Keys of a program that adds up what they got by head."""
_PARTS = {torch.bfloat16: (512, 64), torch.float16: (512, 64), torch.float32: (128, 16)}
"""Keys of a program, where keys are shared out, and of them in a step; more would not stay in registers."""
_PARTS_OF_ONE = (256, 32)
"""The same for a single query of a head, which is multiplied without tensor cores."""
_MOST_ROWS = 64
"""Queries of a head of keys that a program takes."""
_MERGED = 16
"""Parts that are merged at once."""
_MOST_PARTS_TOGETHER = 16
"""With more queries there are more programs, and each may take more keys: fewer parts have to be held and merged."""


def most_key_norm(query_norm: float, head_dim: int, dtype: torch.dtype) -> float:
    """The longest key for which logits are safely bounded where no query is longer than this."""
    return _MOST_LOG2[dtype] / max(query_norm * log2_scale(head_dim), 1e-9)


@torch.no_grad()
def write(storage: Storage, slots: Slots, k: Rows, v: Rows) -> None:
    """Put the rows of a clip into these slots."""
    num_rows, key_heads, head_dim = k.shape
    _write[(num_rows, 2)](
        storage.where,
        slots,
        k,
        v,
        k.stride(0),
        v.stride(0),
        WIDTH=key_heads * head_dim,
        ROUND=triton.next_power_of_2(key_heads * head_dim),
        TYPE=triton_type(k.dtype),
        num_warps=4,
    )


@torch.no_grad()
def attend(
    q: Queries,
    storage: Storage,
    ranges: Ranges,
    slots: Slots | None = None,
    *,
    key_norm: float | None = None,
) -> tuple[Queries, Float32[Tensor, "queries heads"]]:
    """Every query over all ranges: the mixed values, and the natural log-sum-exp of its logits.

    Ranges are of slots, or of `slots` where there are any. With `key_norm`, no key is longer, and logits are bounded.
    """
    num_queries, num_heads, head_dim = q.shape
    tiles = _attend_tiles(num_queries, num_heads, head_dim, q.device)
    out, log_sum_exp = torch.empty_like(q), torch.empty(num_queries, num_heads, device=q.device)
    triton.set_allocator(_workspace)
    _attend[(triton.cdiv(num_queries, tiles.queries), num_heads)](
        q,
        storage.where,
        out,
        log_sum_exp,
        ranges,
        ranges if slots is None else slots,
        num_queries,
        log2_scale(head_dim),
        key_norm or 0.0,
        **_reading(q, storage, ranges, slots),
        ROWS=tiles.queries,
        BLOCK=tiles.keys,
        BOUNDED=key_norm is not None,
        num_warps=tiles.warps,
        num_stages=tiles.stages,
    )
    return out, log_sum_exp


@torch.no_grad()
def received(
    q: Queries,
    storage: Storage,
    log_sum_exp: Float32[Tensor, "queries heads"],
    ranges: Ranges,
    most: int,
    slots: Slots | None = None,
    out: Float32[Tensor, " most"] | None = None,
) -> Float32[Tensor, " most"]:
    """What each key of all ranges got of all queries and heads, in the order of attention.

    The ranges hold at most `most` keys together; what stands behind the last one is undefined.
    """
    num_queries, _, head_dim = q.shape
    key_heads, tiles = storage.key_heads, _RECEIVE
    by_head = torch.empty(key_heads, most, device=q.device)
    total = torch.empty(most, device=q.device) if out is None else out
    _receive[(triton.cdiv(most, tiles.keys), key_heads)](
        q,
        storage.where,
        log_sum_exp,
        by_head,
        ranges,
        ranges if slots is None else slots,
        num_queries,
        most,
        log2_scale(head_dim),
        **_reading(q, storage, ranges, slots),
        ROWS=tiles.queries,
        BLOCK=tiles.keys,
        num_warps=tiles.warps,
        num_stages=tiles.stages,
    )
    _sum_heads[(triton.cdiv(most, _SUMMED),)](
        by_head, total, ranges, most, RANGES=len(ranges), KEY_HEADS=key_heads, BLOCK=_SUMMED, num_warps=4
    )
    return total


@torch.no_grad()
def attend_few(
    q: Queries, storage: Storage, ranges: Ranges, most: int, slots: Slots | None = None, *, exact: bool = False
) -> tuple[Queries, Float32[Tensor, "queries heads"]]:
    """The same for fewer queries than keep a GPU busy: keys are shared out, and the parts merged in their order.

    The ranges hold at most `most` keys together. Without any key the values are zero, and weigh nothing. In float32 it
    is for up to 16 queries of a head of keys. What is to be merged with more can be had `exact`, in float32.
    """
    num_queries, num_heads, head_dim = q.shape
    key_heads = storage.key_heads
    num_rows = num_queries * (num_heads // key_heads)
    part, block = _PARTS_OF_ONE if num_rows == 1 else _PARTS[q.dtype]
    rows = 1 if num_rows == 1 else min(_MOST_ROWS, max(16, triton.next_power_of_2(num_rows)))
    part *= min(_MOST_PARTS_TOGETHER, triton.next_power_of_2(triton.cdiv(num_rows, rows)))
    parts = triton.cdiv(max(1, most), part)
    mixed = torch.empty(parts, key_heads, num_rows, head_dim, device=q.device)
    weights = torch.empty(parts, key_heads, num_rows, device=q.device)
    out = torch.empty_like(q, dtype=torch.float32 if exact else q.dtype)
    log_sum_exp = torch.empty(num_queries, num_heads, device=q.device)
    shape = {"HEADS": num_heads, "KEY_HEADS": key_heads, "DIM": head_dim}
    _attend_part[(parts, key_heads, triton.cdiv(num_rows, rows))](
        q,
        storage.where,
        mixed,
        weights,
        ranges,
        ranges if slots is None else slots,
        num_rows,
        log2_scale(head_dim),
        **_reading(q, storage, ranges, slots),
        ROWS=rows,
        PART=part,
        BLOCK=block,
        num_warps=4,
        num_stages=2,
    )
    _merge_parts[(num_rows, key_heads)](
        mixed,
        weights,
        out,
        log_sum_exp,
        ranges,
        num_rows,
        RANGES=len(ranges),
        **shape,
        PART=part,
        TOGETHER=_MERGED,
        num_warps=2,
    )
    return out, log_sum_exp


def _attend_tiles(num_queries: int, num_heads: int, head_dim: int, device: torch.device) -> _Tiles:
    """By shape and GPU alone: where a few programs would be left for a round of their own, smaller ones."""
    tiles, smaller = _ATTEND[head_dim], _ATTEND_MORE[head_dim]
    processors = _PROCESSORS
    if device.type == "cuda":
        processors = torch.cuda.get_device_properties(device).multi_processor_count
    programs = triton.cdiv(num_queries, tiles.queries) * num_heads
    rounds, of_smaller = (triton.cdiv(programs, processors * each) for each in (_SIDE_BY_SIDE, _MORE_SIDE_BY_SIDE))
    return smaller if of_smaller * _SLOWER < rounds else tiles


def _reading(q: Queries, storage: Storage, ranges: Ranges, slots: Slots | None) -> dict[str, Any]:
    """What each kernel that reads keys is compiled for."""
    _, num_heads, head_dim = q.shape
    return {
        "RANGES": len(ranges),
        "HEADS": num_heads,
        "KEY_HEADS": storage.key_heads,
        "DIM": head_dim,
        "LISTED": slots is not None,
        "TYPE": triton_type(q.dtype),
        "WIDE": storage.is_wide,
    }


def log2_scale(head_dim: int) -> float:
    """What makes of a product of query and key a logit to base 2."""
    return math.log2(math.e) / math.sqrt(head_dim)


def triton_type(dtype: torch.dtype) -> Any:
    """As kernels call it."""
    return _TYPES[dtype]


def _workspace(size: int, alignment: int, stream: int | None) -> Tensor:  # noqa: ARG001
    """For the descriptors by which blocks are fetched."""
    return torch.empty(size, dtype=torch.int8, device="cuda")


@triton.jit
def pointer(where_ptr, number: tl.constexpr, TYPE: tl.constexpr):
    """To the first slot of keys or values."""
    return tl.multiple_of(tl.load(where_ptr + number).to(tl.pointer_type(TYPE), bitcast=True), 16)


@triton.jit
def wide(number, WIDE: tl.constexpr):
    """Addresses of narrow numbers take half the registers."""
    return number.to(tl.int64) if WIDE else number


@triton.jit
def _num_keys(ranges_ptr, RANGES: tl.constexpr):
    """Of all ranges."""
    num_keys = 0
    for number in tl.static_range(RANGES):
        num_keys += tl.load(ranges_ptr + 2 * number + 1) - tl.load(ranges_ptr + 2 * number)
    return num_keys


@triton.jit
def _attend(
    q_ptr,
    where_ptr,
    out_ptr,
    lse_ptr,
    ranges_ptr,
    slots_ptr,
    num_queries,
    scale,
    key_norm,
    RANGES: tl.constexpr,
    HEADS: tl.constexpr,
    KEY_HEADS: tl.constexpr,
    DIM: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    BOUNDED: tl.constexpr,
    LISTED: tl.constexpr,
    TYPE: tl.constexpr,
    WIDE: tl.constexpr,
):
    """One block of queries of one head."""
    k_ptr, v_ptr = pointer(where_ptr, 0, TYPE), pointer(where_ptr, 1, TYPE)
    head = tl.program_id(1)
    first_channel = head // (HEADS // KEY_HEADS) * DIM
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    channel, is_query = tl.arange(0, DIM), row < num_queries
    here = (row[:, None] * HEADS + head) * DIM + channel[None, :]
    q = tl.load(q_ptr + here, mask=is_query[:, None], other=0.0)
    mixed, total = tl.zeros((ROWS, DIM), tl.float32), tl.zeros((ROWS,), tl.float32)
    if BOUNDED:
        exact = q.to(tl.float32)
        top = tl.sqrt(tl.sum(exact * exact, 1)) * (key_norm * scale)
    else:
        top = tl.full((ROWS,), _TINY, tl.float32)
    if not LISTED:
        num_slots = tl.load(where_ptr + 2).to(tl.int32)
        key_blocks = tl.make_tensor_descriptor(
            k_ptr, shape=[num_slots, KEY_HEADS * DIM], strides=[KEY_HEADS * DIM, 1], block_shape=[BLOCK, DIM]
        )
        value_blocks = tl.make_tensor_descriptor(
            v_ptr, shape=[num_slots, KEY_HEADS * DIM], strides=[KEY_HEADS * DIM, 1], block_shape=[BLOCK, DIM]
        )
    for number in tl.static_range(RANGES):
        begin, end = tl.load(ranges_ptr + 2 * number), tl.load(ranges_ptr + 2 * number + 1)
        whole = begin + (end - begin) // BLOCK * BLOCK
        at = begin + tl.arange(0, BLOCK)
        if LISTED:
            slot = tl.load(slots_ptr + at, mask=at < end, other=0)
        for start in range(begin, whole, BLOCK):
            if LISTED:
                place = wide(slot, WIDE)[:, None] * (KEY_HEADS * DIM) + first_channel + channel[None, :]
                at = start + BLOCK + tl.arange(0, BLOCK)
                slot = tl.load(slots_ptr + at, mask=at < end, other=0)  # of the next block: no load waits for it
                k = tl.load(k_ptr + place)
            else:
                k = key_blocks.load([start, first_channel])
            logits = tl.dot(q, k.T) * scale
            if not BOUNDED:
                higher = tl.maximum(top, tl.max(logits, 1))
                shrink = tl.math.exp2(top - higher)
                total, mixed, top = total * shrink, mixed * shrink[:, None], higher
            weights = tl.math.exp2(logits - top[:, None])
            total += tl.sum(weights, 1)
            if LISTED:  # asked for where it is used: the first product does not wait for it
                v = tl.load(v_ptr + place)
            else:
                v = value_blocks.load([start, first_channel])
            mixed = tl.dot(weights.to(v.dtype), v, mixed)
        if whole < end:  # the last, incomplete block
            at = whole + tl.arange(0, BLOCK)
            is_key = at < end
            if not LISTED:
                slot = at
            place = wide(slot, WIDE)[:, None] * (KEY_HEADS * DIM) + first_channel + channel[None, :]
            k = tl.load(k_ptr + place, mask=is_key[:, None], other=0.0)
            v = tl.load(v_ptr + place, mask=is_key[:, None], other=0.0)
            logits = tl.where(is_key[None, :], tl.dot(q, k.T) * scale, _TINY)
            if not BOUNDED:
                higher = tl.maximum(top, tl.max(logits, 1))
                shrink = tl.math.exp2(top - higher)
                total, mixed, top = total * shrink, mixed * shrink[:, None], higher
            weights = tl.math.exp2(logits - top[:, None])
            total += tl.sum(weights, 1)
            mixed = tl.dot(weights.to(v.dtype), v, mixed)
    tl.store(out_ptr + here, (mixed / total[:, None]).to(q.dtype), mask=is_query[:, None])
    tl.store(lse_ptr + row * HEADS + head, (top + tl.math.log2(total)) * 0.6931471805599453, mask=is_query)


@triton.jit
def _receive(
    q_ptr,
    where_ptr,
    lse_ptr,
    out_ptr,
    ranges_ptr,
    slots_ptr,
    num_queries,
    most,
    scale,
    RANGES: tl.constexpr,
    HEADS: tl.constexpr,
    KEY_HEADS: tl.constexpr,
    DIM: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    LISTED: tl.constexpr,
    TYPE: tl.constexpr,
    WIDE: tl.constexpr,
):
    """One block of keys of one head, from all queries of the heads that share it."""
    k_ptr = pointer(where_ptr, 0, TYPE)
    place, key_head = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.program_id(1)
    at, before = tl.zeros((BLOCK,), tl.int32), 0
    for number in tl.static_range(RANGES):
        begin, end = tl.load(ranges_ptr + 2 * number), tl.load(ranges_ptr + 2 * number + 1)
        at = tl.where((place >= before) & (place < before + end - begin), begin + place - before, at)
        before += end - begin
    if tl.program_id(0) * BLOCK < before:
        channel, is_key = tl.arange(0, DIM), place < before
        if LISTED:
            slot = wide(tl.load(slots_ptr + at, mask=is_key, other=0), WIDE)
        else:
            slot = wide(at, WIDE)
        from_slot = (slot[:, None] * KEY_HEADS + key_head) * DIM + channel[None, :]
        k = tl.load(k_ptr + from_slot, mask=is_key[:, None], other=0.0)
        got = tl.zeros((BLOCK,), tl.float32)
        for member in range(HEADS // KEY_HEADS):
            head = key_head * (HEADS // KEY_HEADS) + member
            for start in range(0, num_queries, ROWS):
                row = start + tl.arange(0, ROWS)
                is_query = row < num_queries
                from_row = (row[:, None] * HEADS + head) * DIM + channel[None, :]
                q = tl.load(q_ptr + from_row, mask=is_query[:, None], other=0.0)
                lse = tl.load(lse_ptr + row * HEADS + head, mask=is_query, other=1.0e30) * 1.4426950408889634
                got += tl.sum(tl.math.exp2(tl.dot(k, q.T) * scale - lse[None, :]), 1)
        tl.store(out_ptr + key_head * most + place, got, mask=place < tl.minimum(most, before))


@triton.jit
def _sum_heads(
    by_head_ptr, out_ptr, ranges_ptr, most, RANGES: tl.constexpr, KEY_HEADS: tl.constexpr, BLOCK: tl.constexpr
):
    """Some keys, one head after another."""
    key = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    is_key = key < tl.minimum(most, _num_keys(ranges_ptr, RANGES))
    total = tl.zeros((BLOCK,), tl.float32)
    for head in range(KEY_HEADS):
        total += tl.load(by_head_ptr + head * most + key, is_key, 0.0)
    tl.store(out_ptr + key, total, is_key)


@triton.jit
def _attend_part(
    q_ptr,
    where_ptr,
    mixed_ptr,
    weight_ptr,
    ranges_ptr,
    slots_ptr,
    num_rows,
    scale,
    RANGES: tl.constexpr,
    HEADS: tl.constexpr,
    KEY_HEADS: tl.constexpr,
    DIM: tl.constexpr,
    ROWS: tl.constexpr,
    PART: tl.constexpr,
    BLOCK: tl.constexpr,
    LISTED: tl.constexpr,
    TYPE: tl.constexpr,
    WIDE: tl.constexpr,
):
    """A part of the keys of one head, for all queries of the heads that share it."""
    k_ptr, v_ptr = pointer(where_ptr, 0, TYPE), pointer(where_ptr, 1, TYPE)
    part, key_head = tl.program_id(0), tl.program_id(1)
    if part * PART < _num_keys(ranges_ptr, RANGES):
        row, channel = tl.program_id(2) * ROWS + tl.arange(0, ROWS), tl.arange(0, DIM)
        is_row = row < num_rows
        head = key_head * (HEADS // KEY_HEADS) + row % (HEADS // KEY_HEADS)
        query = row // (HEADS // KEY_HEADS)
        q = tl.load(q_ptr + (query[:, None] * HEADS + head[:, None]) * DIM + channel[None, :], is_row[:, None], 0.0)
        mixed, total = tl.zeros((ROWS, DIM), tl.float32), tl.zeros((ROWS,), tl.float32)
        top = tl.full((ROWS,), _TINY, tl.float32)
        before = 0
        for number in tl.static_range(RANGES):
            begin, end = tl.load(ranges_ptr + 2 * number), tl.load(ranges_ptr + 2 * number + 1)
            first = begin + tl.maximum(0, part * PART - before)
            last = tl.minimum(end, begin + (part + 1) * PART - before)
            before += end - begin
            for start in range(first, last, BLOCK):
                at = start + tl.arange(0, BLOCK)
                is_key = at < last
                if LISTED:
                    slot = wide(tl.load(slots_ptr + at, mask=is_key, other=0), WIDE)
                else:
                    slot = wide(at, WIDE)
                place = (slot[:, None] * KEY_HEADS + key_head) * DIM + channel[None, :]
                k = tl.load(k_ptr + place, mask=is_key[:, None], other=0.0)
                v = tl.load(v_ptr + place, mask=is_key[:, None], other=0.0)
                if ROWS == 1:
                    logits = tl.sum(k.to(tl.float32) * q.to(tl.float32), 1)[None, :]
                else:
                    logits = tl.dot(q, k.T, input_precision="ieee")
                logits = tl.where(is_key[None, :], logits * scale, _TINY)
                higher = tl.maximum(top, tl.max(logits, 1))
                shrink = tl.math.exp2(top - higher)
                share = tl.math.exp2(logits - higher[:, None])
                total = total * shrink + tl.sum(share, 1)
                if ROWS == 1:
                    added = tl.sum(tl.trans(share) * v.to(tl.float32), 0)[None, :]
                else:
                    added = tl.dot(share.to(v.dtype), v, input_precision="ieee")
                mixed, top = mixed * shrink[:, None] + added, higher
        here = (part * KEY_HEADS + key_head).to(tl.int64) * num_rows + row  # many parts of many rows
        tl.store(mixed_ptr + here[:, None] * DIM + channel[None, :], mixed / total[:, None], is_row[:, None])
        tl.store(weight_ptr + here, top + tl.math.log2(total), is_row)


@triton.jit
def _merge_parts(
    mixed_ptr,
    weight_ptr,
    out_ptr,
    lse_ptr,
    ranges_ptr,
    num_rows,
    RANGES: tl.constexpr,
    HEADS: tl.constexpr,
    KEY_HEADS: tl.constexpr,
    DIM: tl.constexpr,
    PART: tl.constexpr,
    TOGETHER: tl.constexpr,
):
    """One query of one head: its parts, some together, one after another."""
    row, key_head, channel = tl.program_id(0), tl.program_id(1), tl.arange(0, DIM)
    mixed, total, top = tl.zeros((DIM,), tl.float32), 0.0, -1.0e30
    num_parts = tl.cdiv(_num_keys(ranges_ptr, RANGES), PART)
    for start in range(0, num_parts, TOGETHER):
        part = start + tl.arange(0, TOGETHER)
        here = (part * KEY_HEADS + key_head).to(tl.int64) * num_rows + row
        weight = tl.load(weight_ptr + here, part < num_parts, -1.0e30)
        higher = tl.maximum(top, tl.max(weight))
        shrink, share = tl.math.exp2(top - higher), tl.math.exp2(weight - higher)
        total = total * shrink + tl.sum(share)
        parts = tl.load(mixed_ptr + here[:, None] * DIM + channel[None, :], (part < num_parts)[:, None], 0.0)
        mixed = mixed * shrink + tl.sum(share[:, None] * parts, 0)
        top = higher
    head = key_head * (HEADS // KEY_HEADS) + row % (HEADS // KEY_HEADS)
    place = row // (HEADS // KEY_HEADS) * HEADS + head
    is_any = total > 0.0
    mixed = mixed / tl.where(is_any, total, 1.0)
    lse = tl.where(is_any, (top + tl.math.log2(tl.where(is_any, total, 1.0))) * 0.6931471805599453, float("-inf"))
    tl.store(out_ptr + place * DIM + channel, mixed.to(out_ptr.dtype.element_ty))
    tl.store(lse_ptr + place, lse)


@triton.jit
def _write(
    where_ptr,
    slots_ptr,
    k_ptr,
    v_ptr,
    k_row,
    v_row,
    WIDTH: tl.constexpr,
    ROUND: tl.constexpr,
    TYPE: tl.constexpr,
):
    """One row, of keys or of values."""
    row, channel = tl.program_id(0), tl.arange(0, ROUND)
    if tl.program_id(1) == 0:
        source, target = k_ptr + row * k_row, pointer(where_ptr, 0, TYPE)
    else:
        source, target = v_ptr + row * v_row, pointer(where_ptr, 1, TYPE)
    slot = tl.load(slots_ptr + row).to(tl.int64)
    tl.store(target + slot * WIDTH + channel, tl.load(source + channel, channel < WIDTH, 0.0), channel < WIDTH)
