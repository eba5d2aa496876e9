"""The published page manager's names: its recorded traces, its numbers, and the faults it no longer has."""

import gzip
import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from longtake.compat.flashinfer_cache import FlashInferKVCacheManager
from longtake.errors import InputError, LongtakeError, MemoryFullError, SettingError, TransactionError

TRACES = json.loads(gzip.decompress((Path(__file__).parent.parent / "golden/gct/traces.json.gz").read_bytes()))
SCALE, WINDOW = 2, 3


def make_manager(num_blocks: int = 2, **changes: Any) -> FlashInferKVCacheManager:
    settings = {
        "num_blocks": num_blocks,
        "max_num_frames": 21,
        "tokens_per_frame": 21,
        "num_heads": 2,
        "head_dim": 64,
        "dtype": torch.float32,
        "device": "cpu",
        "scale_frames": SCALE,
        "sliding_window": WINDOW,
        "max_total_frames": 64,
    }
    return FlashInferKVCacheManager(**{**settings, **changes})


def frame(seed: int = 0, tokens: int = 21, heads: int = 2, head_dim: int = 64) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    k, v = torch.randn(2, tokens, heads, head_dim, generator=generator)
    return k, v


def play(manager: FlashInferKVCacheManager, block: int, operation: str) -> None:
    match operation:
        case "append":
            k, v = frame(tokens=manager.tokens_per_frame, heads=1, head_dim=2)
            manager.append_frame(block, k, v)
        case "evict":
            manager.evict_frames(block, manager.scale_frames, manager.sliding_window)
        case "run_deferred":
            manager.execute_deferred_eviction(block, manager.scale_frames, manager.sliding_window)
        case "rollback":
            manager.rollback_last_frame(block)


@pytest.mark.parametrize("trace", TRACES["paged_manager"], ids=lambda trace: trace["name"])
def test_traces_of_the_published_manager_replay_in_every_block(trace: dict[str, Any]) -> None:
    params = trace["params"]
    manager = make_manager(
        tokens_per_frame=params["patches_per_frame"] + params["num_special"],
        num_special_tokens=params["num_special"],
        scale_frames=params["scale_frames"],
        sliding_window=params["sliding_window"],
        max_total_frames=params["max_total_frames"],
        fa3=params["fa3"],
        num_heads=1,
        head_dim=2,
    )
    sizes = (manager.page_size, manager.max_patch_pages, manager.max_num_pages)
    assert sizes == (trace["page_size"], trace["patch_pool"], trace["total_pages"])
    for step in trace["steps"]:
        match step["op"]:
            case "defer_on" | "defer_off":
                manager._defer_eviction = step["op"] == "defer_on"
            case "reset":
                manager.reset()
        for block in range(2):
            if "error" in step:
                with pytest.raises(LongtakeError):
                    play(manager, block, step["op"])
                continue
            play(manager, block, step["op"])
            patch_pages = len(step["scale_pages"]) + len(step["live_pages"])
            assert len(manager.build_visible_page_table(block)) == patch_pages + len(step["special_pages"])
            assert manager.get_cache_stats(block) == {
                "frame_count": step["frame_count"],
                "scale_pages": len(step["scale_pages"]),
                "live_pages": len(step["live_pages"]),
                "free_pages": step["free_patch"],
                "special_tokens": step["special_tokens"],
            }
            if step["frame_count"]:
                assert manager.compute_last_page_len(block) == step["last_page_len"]
    assert manager.frame_count == [manager.num_frames] * 2


@pytest.mark.parametrize("settings", [{}, {"fa3": True}, {"force_fp32": True, "dtype": torch.bfloat16}], ids=str)
@pytest.mark.parametrize("name", ["out_all_keyframes", "out_skip"])
def test_golden_attention_also_over_padded_pages(
    name: str, settings: dict[str, Any], golden: Callable[[str], Any]
) -> None:
    want = golden("paged_attention")
    manager = make_manager(num_blocks=1, **settings)
    left_out = want.settings["skip"] if name == "out_skip" else []
    outputs = []
    for at, (q, k, v) in enumerate(zip(want["q"], want["k"], want["v"], strict=True)):
        manager._defer_eviction = at in left_out
        manager.append_frame(0, k, v)
        manager.evict_frames(0, SCALE, WINDOW)
        outputs.append(manager.compute_attention(0, q))
        if at in left_out:
            manager.rollback_last_frame(0)
    want.check(name, torch.stack(outputs), tolerance=1e-5)


def test_signature_is_the_published_one() -> None:
    parameters = inspect.signature(FlashInferKVCacheManager).parameters
    assert list(parameters) == [
        "num_blocks",
        "max_num_frames",
        "tokens_per_frame",
        "num_heads",
        "head_dim",
        "dtype",
        "device",
        "num_special_tokens",
        "scale_frames",
        "sliding_window",
        "max_total_frames",
        "force_fp32",
        "fa3",
    ]
    defaults = [parameter.default for parameter in parameters.values() if parameter.default is not parameter.empty]
    assert defaults == [6, 8, 64, 2048, False, False]


def test_block_after_block_gives_what_frame_after_frame_gives() -> None:
    by_frame, by_block = make_manager(), make_manager()
    for at in range(8):
        for block in range(2):
            by_frame.append_frame(block, *frame(10 * block + at))
            by_frame.evict_frames(block, SCALE, WINDOW)
    for block in range(2):
        for at in range(8):
            by_block.append_frame(block, *frame(10 * block + at))
            by_block.evict_frames(block, SCALE, WINDOW)
    q, _ = frame(99)
    for block in range(2):
        assert by_frame.build_visible_page_table(block) == by_block.build_visible_page_table(block)
        assert torch.equal(by_frame.compute_attention(block, q), by_block.compute_attention(block, q))


def test_frame_tried_and_rolled_back_block_by_block_leaves_no_trace() -> None:
    calm, tried = make_manager(), make_manager()
    q, _ = frame(99)
    for at in range(8):
        tried._defer_eviction = True
        for block in range(2):
            tried.append_frame(block, *frame(50 + at))
            tried.compute_attention(block, q)
            tried.rollback_last_frame(block)
        tried._defer_eviction = False
        for manager in (calm, tried):
            for block in range(2):
                manager.append_frame(block, *frame(at))
                manager.evict_frames(block, SCALE, WINDOW)
        for block in range(2):
            assert torch.equal(calm.compute_attention(block, q), tried.compute_attention(block, q))


def test_block_out_of_step_is_refused_and_stays_where_it_was() -> None:
    manager = make_manager()
    with pytest.raises(TransactionError, match=r"Block 1 is out of step: it would hold 1 frames, .* has not moved on"):
        manager.append_frame(1, *frame())
    for _ in range(6):
        manager.append_frame(0, *frame())
        manager.append_frame(1, *frame())
    manager.evict_frames(0, SCALE, WINDOW)
    with pytest.raises(TransactionError, match=r"would hold 7 frames, 7 of them whole, .* went on to 6, 5 of them"):
        manager.append_frame(1, *frame())
    manager.evict_frames(1, SCALE, WINDOW)
    assert manager.frame_count == [6, 6]


@pytest.mark.parametrize(
    ("variant", "visible_specials"),
    [
        ({}, 8 * 6),
        ({"camera_only": True}, 5 * 6 + 3),
        ({"cross_frame_special": False}, 5 * 6),
        ({"include_scale_frames": False}, 8 * 6),
    ],
    ids=str,
)
def test_retention_options_are_followed(variant: dict[str, bool], visible_specials: int) -> None:
    manager = make_manager(num_blocks=1)
    whole = [5, 6, 7] if variant.get("include_scale_frames") is False else [0, 1, 5, 6, 7]
    for at in range(8):
        manager.append_frame(0, *frame(at))
        manager.evict_frames(0, SCALE, WINDOW, **variant)
    num_trail = (visible_specials - 6 * len(whole)) // (8 - len(whole))
    rows = [(at, slice(None) if at in whole else slice(num_trail)) for at in range(8)]
    k, v = (torch.cat([frame(at)[part][tokens] for at, tokens in rows]).transpose(0, 1) for part in (0, 1))
    q, _ = frame(99)
    want = torch.nn.functional.scaled_dot_product_attention(q.transpose(0, 1), k, v).transpose(0, 1)
    torch.testing.assert_close(manager.compute_attention(0, q), want, rtol=1e-5, atol=1e-5)


def test_retention_options_cannot_change_midway() -> None:
    manager = make_manager(num_blocks=1)
    for at in range(6):
        manager.append_frame(0, *frame(at))
        manager.evict_frames(0, SCALE, WINDOW)
    with pytest.raises(SettingError, match="go on with it, or reset"):
        manager.evict_frames(0, SCALE, WINDOW, camera_only=True)


@pytest.mark.parametrize(
    ("asked", "force_fp32", "stored"),
    [
        (torch.float32, False, torch.float32),
        (torch.bfloat16, False, torch.bfloat16),
        (torch.float16, False, torch.float16),
        (torch.bfloat16, True, torch.float32),
    ],
)
def test_storage_has_the_type_asked_for(asked: torch.dtype, force_fp32: bool, stored: torch.dtype) -> None:
    manager = make_manager(dtype=asked, force_fp32=force_fp32)
    assert manager.dtype == stored
    assert [cache.dtype for cache in manager.kv_caches] == [stored] * 2
    assert manager.kv_caches[0].shape == (manager.max_num_pages, 2, 15, 2, 64)
    manager.append_frame(0, *frame())
    assert manager.compute_attention(0, frame()[0].bfloat16()).dtype == torch.bfloat16


def test_reset_clears_frames_and_deferral() -> None:
    manager = make_manager(num_blocks=1)
    manager._defer_eviction = True
    manager.append_frame(0, *frame())
    manager.reset()
    assert manager.num_frames == 0
    assert not manager._defer_eviction
    q, _ = frame(99)
    assert torch.equal(manager.compute_attention(0, q), torch.zeros_like(q))


def test_exhausted_pool_is_an_error_that_says_what_to_raise() -> None:
    manager = make_manager(num_blocks=1, max_total_frames=1)
    for _ in range(42):
        manager.append_frame(0, *frame())
        manager.evict_frames(0, SCALE, WINDOW)
    with pytest.raises(MemoryFullError, match=r"All 17 special pages .* raise max_total_frames, now 1"):
        manager.append_frame(0, *frame())
    assert manager.num_frames == 42


def test_wrong_sizes_and_blocks_are_refused() -> None:
    manager = make_manager()
    with pytest.raises(InputError, match="a cache serves one image size"):
        manager.append_frame(0, *frame(tokens=30))
    with pytest.raises(InputError, match="there is no block 2"):
        manager.compute_attention(2, frame()[0])
    with pytest.raises(SettingError, match="Expected patches besides 6 special tokens"):
        make_manager(tokens_per_frame=6)
