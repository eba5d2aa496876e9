"""Attention of a language model over a past in place and a short tail, in Triton.

Clips of several conversations, the entries of a batch, that go on from the same past: they read it together
(`slot_kernels.attend_few`), and each its own tail, which are the tokens since then and those of the clip itself, as a
list of slots. Of the tail a token sees what came before it, and itself. How much of all this there is are numbers on
the device, so that a recording of a launch stays right; nothing is tuned by timing, and nothing is added atomically.
"""

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Float32, Int32
from torch import Tensor

from longtake.attention.slot_kernels import Storage, log2_scale, pointer, triton_type, wide

Rows = Float[Tensor, "entries tokens _"]
Asking = Float[Tensor, "entries tokens heads head_dim"]
Counts = Int32[Tensor, " entries"]
Tails = Int32[Tensor, "entries tail"]
_MOST_ROWS = 64
"""Queries of a head of keys that a program takes."""
_BLOCK = 64
_RECEIVED = 128
"""Keys of a program that adds up what they got."""
_FEWEST_ROWS = 16
"""Of a product on tensor cores."""


@torch.no_grad()
def turn_and_write(
    storage: Storage,
    q: Rows,
    k: Rows,
    v: Rows,
    phases: tuple[Float32[Tensor, "entries tokens half"], Float32[Tensor, "entries tokens half"]],
    slots: Int32[Tensor, "entries tokens"],
    counts: Counts,
) -> Asking:
    """Queries turned by the cosines and sines of their angles; keys turned and values as they are go into their slots.

    Channel i of a head turns with the one half a head away. Tokens beyond an entry's count are not written.
    """
    entries, tokens, _ = q.shape
    cos, sin = phases
    head_dim = 2 * cos.shape[-1]
    heads, key_heads = q.shape[-1] // head_dim, storage.key_heads
    assert all(part.is_contiguous() for part in (q, k, v, cos, sin))
    turned = torch.empty(entries, tokens, heads, head_dim, dtype=q.dtype, device=q.device)
    _turn_and_write[(entries * tokens, heads + 2 * key_heads)](
        q,
        k,
        v,
        cos,
        sin,
        storage.where,
        slots,
        counts,
        turned,
        tokens,
        HEADS=heads,
        KEY_HEADS=key_heads,
        HALF=head_dim // 2,
        TYPE=triton_type(q.dtype),
        num_warps=1,
    )
    return turned


@torch.no_grad()
def attend_tails(
    q: Asking,
    storage: Storage,
    past: tuple[Float32[Tensor, "queries heads head_dim"], Float32[Tensor, "queries heads"]],
    tails: Tails,
    before: Counts,
    counts: Counts,
) -> tuple[Asking, Float32[Tensor, "entries tokens heads"]]:
    """What queries mixed of the past, with its log-sum-exp, and of their tails: of all of it together.

    An entry's tail are the tokens `before` the clip, then the `counts` tokens of it. What is said of tokens beyond an
    entry's count means nothing.
    """
    entries, tokens, heads, head_dim = q.shape
    key_heads = storage.key_heads
    num_rows = tokens * (heads // key_heads)
    rows = min(_MOST_ROWS, max(_FEWEST_ROWS, triton.next_power_of_2(num_rows)))
    out, log_sum_exp = torch.empty_like(q), torch.empty(entries, tokens, heads, device=q.device)
    _attend_tails[(triton.cdiv(num_rows, rows), key_heads, entries)](
        q,
        storage.where,
        *past,
        tails,
        before,
        counts,
        out,
        log_sum_exp,
        tokens,
        tails.shape[1],
        log2_scale(head_dim),
        HEADS=heads,
        KEY_HEADS=key_heads,
        DIM=head_dim,
        ROWS=rows,
        BLOCK=_BLOCK,
        TYPE=triton_type(q.dtype),
        WIDE=storage.is_wide,
        num_warps=4,
        num_stages=2,
    )
    return out, log_sum_exp


@torch.no_grad()
def add_received(
    q: Asking,
    storage: Storage,
    log_sum_exp: Float32[Tensor, "entries tokens heads"],
    counts: Counts,
    ranges: Int32[Tensor, "_ ranges 2"],
    slots: Int32[Tensor, "_ _"] | None,
    mass: Float32[Tensor, "entries most"],
) -> None:
    """Add to `mass` what each key of an entry's ranges got of the last token of the entry, of all heads together.

    Ranges are of slots, or of a list of slots; the same for all entries where there is but one.
    """
    entries, tokens, heads, head_dim = q.shape
    key_heads = storage.key_heads
    _add_received[(triton.cdiv(mass.shape[1], _RECEIVED), entries)](
        q,
        storage.where,
        log_sum_exp,
        counts,
        ranges,
        ranges if slots is None else slots,
        mass,
        tokens,
        ranges.stride(0) if len(ranges) > 1 else 0,
        slots.stride(0) if slots is not None and len(slots) > 1 else 0,
        mass.shape[1],
        log2_scale(head_dim),
        RANGES=ranges.shape[1],
        HEADS=heads,
        KEY_HEADS=key_heads,
        DIM=head_dim,
        ROWS=max(_FEWEST_ROWS, triton.next_power_of_2(heads // key_heads)),
        BLOCK=_RECEIVED,
        LISTED=slots is not None,
        TYPE=triton_type(q.dtype),
        WIDE=storage.is_wide,
        num_warps=4,
        num_stages=2,
    )


@triton.jit
def _turn_and_write(
    q_ptr,
    k_ptr,
    v_ptr,
    cos_ptr,
    sin_ptr,
    where_ptr,
    slots_ptr,
    counts_ptr,
    out_ptr,
    tokens,
    HEADS: tl.constexpr,
    KEY_HEADS: tl.constexpr,
    HALF: tl.constexpr,
    TYPE: tl.constexpr,
):
    """One head of one token: of queries, of keys, or of values."""
    row, head, pair = tl.program_id(0), tl.program_id(1), tl.arange(0, HALF)
    cos, sin = tl.load(cos_ptr + row * HALF + pair), tl.load(sin_ptr + row * HALF + pair)
    if head < HEADS:
        here = (row * HEADS + head) * (2 * HALF) + pair
        a, b = tl.load(q_ptr + here).to(tl.float32), tl.load(q_ptr + here + HALF).to(tl.float32)
        tl.store(out_ptr + here, (a * cos - b * sin).to(TYPE))
        tl.store(out_ptr + here + HALF, (b * cos + a * sin).to(TYPE))
    elif row % tokens < tl.load(counts_ptr + row // tokens):
        key_head = (head - HEADS) % KEY_HEADS
        source = (row * KEY_HEADS + key_head) * (2 * HALF) + pair
        slot = tl.load(slots_ptr + row).to(tl.int64)
        target = (slot * KEY_HEADS + key_head) * (2 * HALF) + pair
        if head < HEADS + KEY_HEADS:
            a, b = tl.load(k_ptr + source).to(tl.float32), tl.load(k_ptr + source + HALF).to(tl.float32)
            keys = pointer(where_ptr, 0, TYPE)
            tl.store(keys + target, (a * cos - b * sin).to(TYPE))
            tl.store(keys + target + HALF, (b * cos + a * sin).to(TYPE))
        else:
            values = pointer(where_ptr, 1, TYPE)
            tl.store(values + target, tl.load(v_ptr + source))
            tl.store(values + target + HALF, tl.load(v_ptr + source + HALF))


@triton.jit
def _attend_tails(
    q_ptr,
    where_ptr,
    past_ptr,
    past_lse_ptr,
    tails_ptr,
    before_ptr,
    counts_ptr,
    out_ptr,
    lse_ptr,
    tokens,
    most,
    scale,
    HEADS: tl.constexpr,
    KEY_HEADS: tl.constexpr,
    DIM: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    TYPE: tl.constexpr,
    WIDE: tl.constexpr,
):
    """Some queries of one head of keys, of one entry; the past is a block that was attended to before the others."""
    k_ptr, v_ptr = pointer(where_ptr, 0, TYPE), pointer(where_ptr, 1, TYPE)
    key_head, entry, channel = tl.program_id(1), tl.program_id(2), tl.arange(0, DIM)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    is_row = row < tokens * (HEADS // KEY_HEADS)
    token = row // (HEADS // KEY_HEADS)
    head = key_head * (HEADS // KEY_HEADS) + row % (HEADS // KEY_HEADS)
    place = (entry * tokens + token) * HEADS + head
    here = place[:, None] * DIM + channel[None, :]
    q = tl.load(q_ptr + here, is_row[:, None], 0.0)
    mixed = tl.load(past_ptr + here, is_row[:, None], 0.0)
    past_lse = tl.load(past_lse_ptr + place, is_row, float("-inf")) * 1.4426950408889634
    has_past = past_lse > -1.0e30
    top, total = tl.where(has_past, past_lse, -1.0e30), tl.where(has_past, 1.0, 0.0)
    before = tl.load(before_ptr + entry)
    last_token = tl.minimum((tl.program_id(0) * ROWS + ROWS - 1) // (HEADS // KEY_HEADS), tokens - 1)
    num_keys = before + tl.minimum(tl.load(counts_ptr + entry), last_token + 1)
    for start in range(0, num_keys, BLOCK):
        at = start + tl.arange(0, BLOCK)
        is_key = at < num_keys
        slot = wide(tl.load(tails_ptr + entry * most + at, is_key, 0), WIDE)
        source = (slot[:, None] * KEY_HEADS + key_head) * DIM + channel[None, :]
        k = tl.load(k_ptr + source, is_key[:, None], 0.0)
        v = tl.load(v_ptr + source, is_key[:, None], 0.0)
        is_seen = is_key[None, :] & (at[None, :] <= before + token[:, None])
        logits = tl.where(is_seen, tl.dot(q, k.T, input_precision="ieee") * scale, -1.0e30)
        higher = tl.maximum(top, tl.max(logits, 1))
        shrink = tl.math.exp2(top - higher)
        share = tl.where(is_seen, tl.math.exp2(logits - higher[:, None]), 0.0)
        total = total * shrink + tl.sum(share, 1)
        mixed = mixed * shrink[:, None] + tl.dot(share.to(v.dtype), v, input_precision="ieee")
        top = higher
    safe = tl.where(total > 0.0, total, 1.0)
    tl.store(out_ptr + here, (mixed / safe[:, None]).to(TYPE), is_row[:, None])
    tl.store(lse_ptr + place, (top + tl.math.log2(safe)) * 0.6931471805599453, is_row)


@triton.jit
def _add_received(
    q_ptr,
    where_ptr,
    lse_ptr,
    counts_ptr,
    ranges_ptr,
    slots_ptr,
    mass_ptr,
    tokens,
    ranges_step,
    slots_step,
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
    """Some keys of one entry, one head of keys after another."""
    k_ptr = pointer(where_ptr, 0, TYPE)
    entry = tl.program_id(1)
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    at, num_keys = tl.zeros((BLOCK,), tl.int32), 0
    for number in tl.static_range(RANGES):
        begin = tl.load(ranges_ptr + entry * ranges_step + 2 * number)
        end = tl.load(ranges_ptr + entry * ranges_step + 2 * number + 1)
        at = tl.where((place >= num_keys) & (place < num_keys + end - begin), begin + place - num_keys, at)
        num_keys += end - begin
    num_keys = tl.minimum(num_keys, most)
    count = tl.load(counts_ptr + entry)
    if (tl.program_id(0) * BLOCK < num_keys) & (count > 0):
        is_key, channel, row = place < num_keys, tl.arange(0, DIM), tl.arange(0, ROWS)
        if LISTED:
            slot = wide(tl.load(slots_ptr + entry * slots_step + at, is_key, 0), WIDE)
        else:
            slot = wide(at, WIDE)
        got = tl.load(mass_ptr + entry * most + place, is_key, 0.0)
        for key_head in range(KEY_HEADS):
            k = tl.load(k_ptr + (slot[:, None] * KEY_HEADS + key_head) * DIM + channel[None, :], is_key[:, None], 0.0)
            is_row = row < HEADS // KEY_HEADS
            asked = (entry * tokens + count - 1) * HEADS + key_head * (HEADS // KEY_HEADS) + row
            q = tl.load(q_ptr + asked[:, None] * DIM + channel[None, :], is_row[:, None], 0.0)
            lse = tl.load(lse_ptr + asked, is_row, 1.0e30) * 1.4426950408889634
            logits = tl.dot(k, q.T, input_precision="ieee") * scale
            got += tl.sum(tl.math.exp2(logits - lse[None, :]), 1)
        tl.store(mass_ptr + entry * most + place, got, is_key)
