"""The published page manager's names: its recorded traces, its numbers, and the faults it no longer has."""

import gzip
import importlib.util
import inspect
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from selected import rest_in_extra
from torch import Tensor

from longtake.attention.backend import Keys, Queries, ReferenceBackend, SdpaBackend
from longtake.attention.masks import Arrival, clip_mask, clip_ordinals
from longtake.attention.recall import ClipRecall, HostOrdinals, Recall, StreamRecall
from longtake.compat.flashinfer_cache import FlashInferKVCacheManager
from longtake.errors import (
    BudgetError,
    InputError,
    LongtakeError,
    MemoryFullError,
    RecallError,
    SettingError,
    TransactionError,
)
from longtake.geometry.config import CAMERA, TRUNK
from longtake.geometry.model import GeometryModel
from longtake.memory.budget import MemoryRequirements
from longtake.memory.memory import Memory
from longtake.memory.policies.lockstep import ContextRetention, KeepAll
from longtake.memory.policy import Keep
from longtake.memory.tokens import StreamLayout
from longtake.runtime.keyframes import EveryNth

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


def labelled(number: int, tokens: int) -> Tensor:
    """A frame whose entries say which frame and which token they are, both counted from 1."""
    token = torch.arange(1.0, tokens + 1)
    return torch.stack((torch.full_like(token, number + 1), token), dim=-1).unsqueeze(1)


def labels_in_pages(manager: FlashInferKVCacheManager, block: int, pages: list[int]) -> list[tuple[int, int]]:
    """Frame and token of every slot of these pages that holds anything, counted from 0; keys and values alike."""
    keys, values = manager.kv_caches[block][pages].flatten(3).transpose(0, 1).flatten(1, 2)
    assert torch.equal(keys, values)
    return [(int(number) - 1, int(token) - 1) for number, token in keys.tolist() if number]


def play(manager: FlashInferKVCacheManager, block: int, operation: str, number: int = 0) -> None:
    match operation:
        case "append":
            k = labelled(number, manager.tokens_per_frame)
            manager.append_frame(block, k, k)
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
    num_appends = 0
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
            play(manager, block, step["op"], num_appends)
            patch_pages = step["scale_pages"] + step["live_pages"]
            assert manager.build_visible_page_table(block) == patch_pages + step["special_pages"]
            patches, specials = range(params["num_special"], manager.tokens_per_frame), range(params["num_special"])
            if step["frame_count"]:
                assert labels_in_pages(manager, block, patch_pages) == [
                    (number, token) for number in step["visible_patch_frames"] for token in patches
                ]
                assert labels_in_pages(manager, block, step["special_pages"]) == [
                    (number, token) for number in step["special_frames"] for token in specials
                ]
            assert manager.get_cache_stats(block) == {
                "frame_count": step["frame_count"],
                "scale_pages": len(step["scale_pages"]),
                "live_pages": len(step["live_pages"]),
                "free_pages": step["free_patch"],
                "special_tokens": step["special_tokens"],
            }
            if step["frame_count"]:
                assert manager.compute_last_page_len(block) == step["last_page_len"]
        num_appends += step["op"] == "append"
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


def test_a_hundred_frames_leave_what_the_published_pages_hold() -> None:
    manager = make_manager(
        1, tokens_per_frame=262, num_heads=1, head_dim=2, scale_frames=8, sliding_window=64, max_total_frames=200
    )
    for number in range(100):
        play(manager, 0, "append", number)
        play(manager, 0, "evict")
    table = manager.build_visible_page_table(0)
    assert (len(table), manager.compute_last_page_len(0)) == (75, 88)
    assert len(labels_in_pages(manager, 0, table)) == 72 * 256 + 600


def what_the_rule_shows(rule: ContextRetention, stored: list[int], resident: int) -> list[tuple[int, int]]:
    """Frame and token that are visible, from the frames stored and how many of them are there whole."""
    num_anchors = min(rule.anchors, len(stored))
    first_live = len(stored) - (resident - num_anchors)
    whole = stored[:num_anchors] + stored[first_live:]
    specials = [
        (number, token)
        for at, number in enumerate(stored)
        for token in range(3 if at < num_anchors or at >= first_live else rule.trail_tokens)
    ]
    return [(number, token) for number in whole for token in range(3, 7)] + specials


@pytest.mark.extra
@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 3),
    st.integers(1, 3),
    st.sampled_from([0, 1, 3]),
    st.booleans(),
    st.lists(st.sampled_from(["append", "append", "append", "evict", "rollback", "reset"]), max_size=40),
)
def test_any_order_of_operations_shows_what_the_rule_says_and_holds_no_more(
    anchors: int, window: int, trail: int, padded: bool, played: list[str]
) -> None:
    manager = make_small(anchors, window, fa3=padded, num_heads=1, head_dim=2)
    rule = ContextRetention(anchors=anchors, window=window, trail=trail, history=None)
    stored: list[int] = []
    for number, operation in enumerate(played):
        try:
            if operation == "evict":
                evict(manager, 0, rule)
            elif operation == "reset":
                manager.reset()
            else:
                play(manager, 0, operation, number)
        except RecallError:
            continue
        if operation == "append":
            stored.append(number)
        elif operation == "rollback":
            stored.pop()
        elif operation == "reset":
            stored.clear()
        stats, table = manager.get_cache_stats(), manager.build_visible_page_table(0)
        resident = stats["scale_pages"] + stats["live_pages"]
        seen = labels_in_pages(manager, 0, table) if table else []
        assert seen == what_the_rule_shows(rule, stored, resident)
        assert stats["free_pages"] + resident == anchors + window + 16
        assert manager.num_frames == len(stored)


def make_small(anchors: int, window: int, num_blocks: int = 1, **changes: Any) -> FlashInferKVCacheManager:
    """3 special tokens and 4 patches a frame."""
    small = {"tokens_per_frame": 7, "num_special_tokens": 3, "head_dim": 8}
    return make_manager(num_blocks, scale_frames=anchors, sliding_window=window, **{**small, **changes})


def evict(manager: FlashInferKVCacheManager, block: int, rule: ContextRetention) -> None:
    """By the published options that say this rule."""
    options = {"camera_only": rule.trail_tokens == 1, "cross_frame_special": rule.trail_tokens > 0}
    manager.evict_frames(block, rule.anchors, rule.window, **options)


@dataclass(frozen=True)
class ManagerRecall(HostOrdinals):
    """One clip through the published calls: several frames attend to each other before they are stored, a single
    frame is stored and attends to all; `others` remembers the other streams."""

    manager: FlashInferKVCacheManager
    rule: ContextRetention
    keep: Keep
    ordinals: tuple[int, ...]
    num_scale_frames: int = 1
    others: StreamRecall | None = None

    def attend(self, stream: str, layer: int, q: Queries, k: Keys, v: Keys) -> Queries:
        if self.others is not None and stream != TRUNK:
            return self.others.attend(stream, layer, q, k, v)
        self.manager._defer_eviction = self.keep is not Keep.YES
        for keys, values in zip(*(part[0].split(self.manager.tokens_per_frame) for part in (k, v)), strict=True):
            self.manager.append_frame(layer, keys, values)
            evict(self.manager, layer, self.rule)
        if len(self.ordinals) > 1:
            return ReferenceBackend().attend(q, k, v).values
        return self.manager.compute_attention(layer, q[0]).unsqueeze(0)

    def end(self, *, kept: bool) -> None:
        """Keep the clip, or take it back frame by frame."""
        self.manager._defer_eviction = False
        for block in range(self.manager.num_blocks):
            if kept:
                evict(self.manager, block, self.rule)
            else:
                for _ in self.ordinals:
                    self.manager.rollback_last_frame(block)


SMALL = StreamLayout(num_layers=2, num_heads=2, head_dim=8, tokens_per_frame=7)


def random_layers(num_frames: int) -> list[tuple[Tensor, Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(num_frames)
    shape = (SMALL.num_layers, 3, 1, num_frames * SMALL.tokens_per_frame, SMALL.num_heads, SMALL.head_dim)
    return [tuple(layer) for layer in torch.randn(shape, generator=generator)]  # type: ignore[misc]


def through_manager(
    manager: FlashInferKVCacheManager,
    rule: ContextRetention,
    sequence: list[Arrival],
    layers: list[tuple[Tensor, Tensor, Tensor]],
) -> list[Tensor]:
    outputs: list[list[Tensor]] = [[] for _ in layers]
    start = 0
    for arrival in sequence:
        rows = slice(start, start + arrival.num_frames * SMALL.tokens_per_frame)
        start = rows.stop
        ordinals = tuple(range(manager.num_frames, manager.num_frames + arrival.num_frames))
        recall = ManagerRecall(manager, rule, arrival.keep, ordinals)
        for layer, projections in enumerate(layers):
            outputs[layer].append(recall.attend("s", layer, *(tensor[:, rows] for tensor in projections)))
        if arrival.keep is not Keep.YES:
            recall.end(kept=arrival.kept)
    return [torch.cat(parts, dim=1) for parts in outputs]


def through_memory(
    rule: ContextRetention, sequence: list[Arrival], layers: list[tuple[Tensor, Tensor, Tensor]]
) -> list[Tensor]:
    memory = Memory(MemoryRequirements(streams={"s": (SMALL, rule)}, first_clip=1, reserve=5).plan(10**6))
    outputs: list[list[Tensor]] = [[] for _ in layers]
    start = 0
    for arrival in sequence:
        rows = slice(start, start + arrival.num_frames * SMALL.tokens_per_frame)
        start = rows.stop
        with memory.begin(arrival.num_frames, arrival.keep) as transaction:
            recall = StreamRecall(transaction, SdpaBackend(), 1)
            for layer, projections in enumerate(layers):
                outputs[layer].append(recall.attend("s", layer, *(tensor[:, rows] for tensor in projections)))
            if arrival.kept:
                transaction.commit()
    return [torch.cat(parts, dim=1) for parts in outputs]


def arrivals(num_frames: int) -> st.SearchStrategy[Arrival]:
    return st.builds(
        lambda keep, kept: Arrival(num_frames, keep, kept=keep is Keep.YES or (keep is Keep.DEFERRED and kept)),
        st.sampled_from(list(Keep)),
        st.booleans(),
    )


sequences = st.builds(
    lambda first, rest: [first, *rest],
    st.sampled_from([1, 1, 2, 5]).flatmap(arrivals),
    st.lists(arrivals(1), max_size=8),
)


@pytest.mark.extra
@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2), st.integers(1, 3), st.sampled_from([0, 1, 3]), st.booleans(), sequences)
def test_manager_equals_the_memory_under_its_rule_and_the_masked_whole_clip(
    anchors: int, window: int, trail: int, padded: bool, sequence: list[Arrival]
) -> None:
    rule = ContextRetention(anchors=anchors, window=window, trail=trail, history=None)
    layers = random_layers(sum(arrival.num_frames for arrival in sequence))
    got = through_manager(make_small(anchors, window, SMALL.num_layers, fa3=padded), rule, sequence, layers)
    whole = ClipRecall({"s": clip_mask(rule, sequence, SMALL.tokens_per_frame)}, clip_ordinals(sequence), 1)
    for layer, memorised in enumerate(through_memory(rule, sequence, layers)):
        torch.testing.assert_close(got[layer], memorised, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(got[layer], whole.attend("s", layer, *layers[layer]), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_keys_and_values_are_rounded_to_the_type_asked_for(dtype: torch.dtype) -> None:
    rule = ContextRetention(anchors=1, window=2, trail=3, history=None)
    layers, sequence = random_layers(5), [Arrival(1, Keep.YES, kept=True)] * 5
    got = through_manager(make_small(1, 2, 2, dtype=dtype), rule, sequence, layers)
    exact = through_manager(make_small(1, 2, 2), rule, sequence, layers)
    tolerance = {torch.float32: 0.0, torch.bfloat16: 2**-5, torch.float16: 2**-8}[dtype]
    assert got[0].dtype == torch.float32
    torch.testing.assert_close(got[0], exact[0], rtol=tolerance, atol=tolerance)


def test_refused_operations_leave_no_trace() -> None:
    manager = make_manager()
    q, _ = frame(99)
    for at in range(21):
        manager.append_frame(0, *frame(at))
    for at in range(20):
        manager.append_frame(1, *frame(at))
    want = [manager.compute_attention(block, q) for block in range(2)]
    with pytest.raises(MemoryFullError, match="patch pages are taken"):
        manager.append_frame(0, *frame(21))
    with pytest.raises(TransactionError, match="out of step"):
        manager.rollback_last_frame(1)
    with pytest.raises(TransactionError, match="out of step"):
        manager.evict_frames(1, SCALE, WINDOW)
    assert all(torch.equal(manager.compute_attention(block, q), want[block]) for block in range(2))
    assert manager.frame_count == [21, 20]


def test_manager_is_refused_where_there_is_no_room_or_no_block() -> None:
    with pytest.raises(BudgetError, match="has room for"):
        make_manager(max_total_frames=10**12)
    with pytest.raises(SettingError, match="at least 1 block"):
        make_manager(num_blocks=0)


@pytest.mark.parametrize(("fa3", "kernel"), [(False, "fa2"), (True, "fa3")])
def test_flashinfer_attends_where_it_is_installed(fa3: bool, kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def prefill(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> tuple[Tensor, Tensor]:
        kernels.add(options["backend"])
        attended = ReferenceBackend().attend(q[None], k[None], v[None])
        return attended.values[0], attended.log_sum_exp[0] / torch.log(torch.tensor(2.0))

    kernels: set[str] = set()
    package = ModuleType("flashinfer")
    vars(package)["single_prefill_with_kv_cache"] = prefill
    monkeypatch.setitem(sys.modules, "flashinfer", package)
    monkeypatch.setattr("longtake.attention.flashinfer.why_unsuitable", lambda *_: None)
    with_kernel = make_manager(num_blocks=1, fa3=fa3)
    monkeypatch.setitem(sys.modules, "flashinfer", None)
    without = make_manager(num_blocks=1, fa3=fa3)
    q, _ = frame(99)
    for manager in (with_kernel, without):
        for at in range(8):
            manager.append_frame(0, *frame(at))
            manager.evict_frames(0, SCALE, WINDOW)
    got, want = (manager.compute_attention(0, q) for manager in (with_kernel, without))
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)
    assert kernels == {kernel}


@pytest.mark.skipif(
    not torch.cuda.is_available() or importlib.util.find_spec("flashinfer") is None,
    reason="needs a CUDA device and FlashInfer",
)
@pytest.mark.parametrize("options", [{}, {"camera_only": True}], ids=str)
def test_attention_on_a_gpu_equals_float32(options: dict[str, bool]) -> None:
    half = make_manager(num_blocks=1, dtype=torch.bfloat16, device="cuda")
    exact = make_manager(num_blocks=1, dtype=torch.bfloat16, device="cuda", force_fp32=True)
    for at in range(10):
        q, (k, v) = frame(50 + at)[0].cuda().bfloat16(), (part.cuda().bfloat16() for part in frame(at))
        for manager in (half, exact):
            manager.append_frame(0, k, v)
            manager.evict_frames(0, SCALE, WINDOW, **options)
        got, want = (manager.compute_attention(0, q) for manager in (half, exact))
        torch.testing.assert_close(got, want, rtol=2**-7, atol=2**-6)


SIZE = (42, 70)
GOLDEN_RUNS: dict[str, dict[str, Any]] = {
    "stream": {},
    "stream_kf3": {"interval": 3, "fa3": True},
    "stream_scale4_cache2": {"num_scale_frames": 4},
    "retain_camera_only": {"trail_tokens": 1},
    "retain_no_special": {"trail_tokens": 0},
}


def run_over_manager(
    model: GeometryModel,
    frames: Tensor,
    *,
    num_scale_frames: int = 2,
    interval: int = 1,
    trail_tokens: int = 6,
    fa3: bool = False,
) -> dict[str, Tensor]:
    """The whole network with its trunk's stream in the manager; the scale block first, then frame by frame."""
    config = model.config
    rule = ContextRetention(anchors=2, window=3, trail=trail_tokens, history=None)
    manager = make_manager(
        config.trunk.depth,
        tokens_per_frame=config.tokens_per_frame(*SIZE),
        num_heads=config.trunk.heads,
        head_dim=config.head_dim,
        num_special_tokens=config.special_tokens,
        fa3=fa3,
    )
    camera = StreamLayout(
        num_layers=config.camera_layers,
        num_heads=config.camera.heads,
        head_dim=config.camera_head_dim,
        tokens_per_frame=1,
    )
    memory = Memory(MemoryRequirements(streams={CAMERA: (camera, KeepAll())}, first_clip=num_scale_frames).plan(10**7))
    grid = model.grid(*SIZE)
    predictions = []
    for clip in (frames[:, :num_scale_frames], *frames[:, num_scale_frames:].split(1, dim=1)):
        since_scale_block = len(predictions) - 1
        keep = Keep.YES if since_scale_block < 0 else EveryNth(interval).before(since_scale_block)
        with memory.begin(clip.shape[1], keep) as transaction:
            others = StreamRecall(transaction, SdpaBackend(), num_scale_frames)
            recall = ManagerRecall(manager, rule, keep, others.ordinals, num_scale_frames, others)
            assert isinstance(recall, Recall)
            predictions.append(model(clip, recall, grid))
            if keep is Keep.YES:
                transaction.commit()
            else:
                recall.end(kept=False)
    return {
        "pose_enc": torch.cat([prediction.pose_encoding[0] for prediction in predictions]),
        "depth": torch.cat([prediction.depth[0] for prediction in predictions]),
    }


@pytest.mark.parametrize("name", rest_in_extra(GOLDEN_RUNS, keep=2))
def test_whole_network_over_the_manager_reproduces_the_golden_run(
    name: str, golden: Callable[[str], Any], golden_frames: Tensor, tiny_model: GeometryModel
) -> None:
    want = golden(name)
    for output, got in run_over_manager(tiny_model, golden_frames, **GOLDEN_RUNS[name]).items():
        want.check(output, got)
