"""Attention over pages: golden numbers for any page size, and equality with the memory and the masked whole clip."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from longtake.attention.backend import Attended
from longtake.attention.masks import Arrival, clip_mask, clip_ordinals
from longtake.attention.paged import PagedCache, PagedRecall, PageKernel, PageReading
from longtake.attention.recall import ClipRecall, Recall, StreamRecall
from longtake.attention.reference import ReferenceBackend
from longtake.attention.sdpa import SdpaBackend
from longtake.errors import BudgetError, MemoryFullError, SettingError, TransactionError
from longtake.geometry.config import CAMERA, TRUNK
from longtake.geometry.model import GeometryModel
from longtake.memory.budget import MemoryRequirements
from longtake.memory.layout import StreamLayout
from longtake.memory.memory import Memory
from longtake.memory.pages import PagePlan, padded_page_size
from longtake.memory.policies.context import ContextRetention
from longtake.memory.policies.keep_all import KeepAll
from longtake.memory.policy import Keep
from longtake.runtime.keyframes import EveryNth

PAGE_SIZES = [None, 16, 4, 7, 64]
RULE = ContextRetention(anchors=2, window=3, trail=6, history=None)
KEPT = ContextRetention(anchors=1, window=2, trail=3, history=None)
LAYOUT = StreamLayout(num_layers=1, num_heads=2, head_dim=64, tokens_per_frame=21)
SMALL = StreamLayout(num_layers=2, num_heads=2, head_dim=8, tokens_per_frame=7)


class PlainKernel:
    """Reads pages as a kernel would, in plain torch, and counts how often it was told what to read."""

    def __init__(self) -> None:
        self.readings: list[PageReading] = []

    def why_unsuitable(self, layout: StreamLayout, device: torch.device) -> str | None:
        return "it is a Tuesday" if layout.dtype == torch.float16 else None

    def plan(self, reading: PageReading, layout: StreamLayout, num_queries: int) -> None:
        self.readings.append(reading)

    def run(self, q: Tensor, keys: Tensor, values: Tensor) -> Attended:
        reading = self.readings[-1]
        assert keys.shape[1] == values.shape[1] == reading.page_size
        pages = torch.from_numpy(reading.pages)
        unused = reading.page_size - reading.last_page_len
        k, v = (part[pages].flatten(0, 1)[: len(pages) * reading.page_size - unused] for part in (keys, values))
        return ReferenceBackend().attend(q, k.unsqueeze(0), v.unsqueeze(0))


def make_cache(
    layout: StreamLayout, retention: ContextRetention, page_size: int | None, kernel: PageKernel | None = None
) -> PagedCache:
    specials = 6 if layout is LAYOUT else 3
    plan = PagePlan(
        patches=layout.tokens_per_frame - specials,
        specials=specials,
        retention=retention,
        max_total_frames=64,
        page_size=page_size,
    )
    return PagedCache(layout, plan, kernel=kernel)


@pytest.mark.parametrize("in_place", [False, True], ids=["gathered", "in place"])
@pytest.mark.parametrize("page_size", PAGE_SIZES)
@pytest.mark.parametrize("name", ["out_all_keyframes", "out_skip"])
def test_golden_attention_holds_for_any_page_size(
    name: str, page_size: int | None, in_place: bool, golden: Callable[[str], Any]
) -> None:
    want = golden("paged_attention")
    cache = make_cache(LAYOUT, RULE, page_size, PlainKernel() if in_place else None)
    left_out = want.settings["skip"] if name == "out_skip" else []
    outputs = []
    for frame, projections in enumerate(zip(want["q"], want["k"], want["v"], strict=True)):
        keep = Keep.NO if frame in left_out else Keep.YES
        with cache.begin(1, keep) as step:
            outputs.append(step.attend(0, *(tensor.unsqueeze(0) for tensor in projections)).squeeze(0))
            if keep is Keep.YES:
                step.commit()
    want.check(name, torch.stack(outputs), tolerance=1e-5)
    assert cache.pages.num_frames == 12 - len(left_out)


arrivals = st.lists(
    st.builds(
        lambda num_frames, keep, kept: Arrival(
            num_frames, keep, kept=keep is Keep.YES or (keep is Keep.DEFERRED and kept)
        ),
        st.sampled_from([1, 1, 1, 2, 5]),
        st.sampled_from(list(Keep)),
        st.booleans(),
    ),
    min_size=1,
    max_size=9,
)


def random_layers(num_frames: int) -> list[tuple[Tensor, Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(num_frames)
    shape = (SMALL.num_layers, 3, 1, num_frames * SMALL.tokens_per_frame, SMALL.num_heads, SMALL.head_dim)
    return [tuple(layer) for layer in torch.randn(shape, generator=generator)]  # type: ignore[misc]


def through_pages(
    cache: PagedCache, sequence: list[Arrival], layers: list[tuple[Tensor, Tensor, Tensor]]
) -> list[Tensor]:
    outputs: list[list[Tensor]] = [[] for _ in layers]
    start = 0
    for arrival in sequence:
        rows = slice(start, start + arrival.num_frames * SMALL.tokens_per_frame)
        start = rows.stop
        with cache.begin(arrival.num_frames, arrival.keep) as step:
            for layer, projections in enumerate(layers):
                outputs[layer].append(step.attend(layer, *(tensor[:, rows] for tensor in projections)))
            if arrival.kept:
                step.commit()
    return [torch.cat(parts, dim=1) for parts in outputs]


def through_memory(
    retention: ContextRetention, sequence: list[Arrival], layers: list[tuple[Tensor, Tensor, Tensor]]
) -> list[Tensor]:
    memory = Memory(MemoryRequirements(streams={"s": (SMALL, retention)}, first_clip=1, reserve=5).plan(10**6))
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


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2),
    st.integers(1, 3),
    st.integers(0, 3),
    st.one_of(st.none(), st.integers(1, 9)),
    arrivals,
    st.booleans(),
)
def test_pages_equal_the_memory_and_the_masked_whole_clip(
    anchors: int, window: int, trail: int, page_size: int | None, sequence: list[Arrival], in_place: bool
) -> None:
    retention = ContextRetention(anchors=anchors, window=window, trail=trail, history=None)
    layers = random_layers(sum(arrival.num_frames for arrival in sequence))
    got = through_pages(make_cache(SMALL, retention, page_size, PlainKernel() if in_place else None), sequence, layers)
    whole = ClipRecall({"s": clip_mask(retention, sequence, SMALL.tokens_per_frame)}, clip_ordinals(sequence), 1)
    for layer, memorised in enumerate(through_memory(retention, sequence, layers)):
        torch.testing.assert_close(got[layer], memorised, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(got[layer], whole.attend("s", layer, *layers[layer]), rtol=1e-5, atol=1e-5)


def test_long_clip_that_outlives_all_it_could_see_attends_to_itself() -> None:
    cache = make_cache(SMALL, ContextRetention(anchors=0, window=1, trail=0, history=None), None)
    layers = random_layers(3)
    got = through_pages(cache, [Arrival(1, Keep.YES, kept=True), Arrival(2, Keep.YES, kept=True)], layers)
    q, k, v = (tensor[:, SMALL.tokens_per_frame :] for tensor in layers[0])
    want = ReferenceBackend().attend(q, k, v).values
    torch.testing.assert_close(got[0][:, SMALL.tokens_per_frame :], want, rtol=1e-5, atol=1e-5)


def test_kernel_is_told_once_a_step_what_all_layers_read() -> None:
    kernel = PlainKernel()
    cache = make_cache(SMALL, replace(RULE, trail=3), None, kernel)
    through_pages(cache, [Arrival(1, Keep.YES, kept=True)] * 4, random_layers(4))
    assert cache.gathers_because is None
    assert [len(reading.pages) for reading in kernel.readings] == [2, 4, 6, 7]
    assert [reading.last_page_len for reading in kernel.readings] == [3, 2, 1, 4]


def test_kernel_reads_row_by_row_where_pages_are_padded_or_hide_something() -> None:
    for page_size, trail in ((5, 3), (None, 1)):
        kernel = PlainKernel()
        cache = make_cache(SMALL, ContextRetention(anchors=0, window=1, trail=trail, history=None), page_size, kernel)
        through_pages(cache, [Arrival(1, Keep.YES, kept=True)] * 3, random_layers(3))
        assert kernel.readings[-1].page_size == 1
        assert len(kernel.readings[-1].pages) == 2 * trail + SMALL.tokens_per_frame


def test_cache_says_why_it_gathers() -> None:
    assert make_cache(SMALL, KEPT, None).gathers_because == "no kernel was chosen"
    half = replace(SMALL, dtype=torch.float16)
    assert make_cache(half, KEPT, None, PlainKernel()).gathers_because == "it is a Tuesday"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_keys_and_values_are_stored_in_the_type_asked_for(dtype: torch.dtype) -> None:
    cache = make_cache(replace(SMALL, dtype=dtype), KEPT, None)
    layers = random_layers(5)
    got = through_pages(cache, [Arrival(1, Keep.YES, kept=True)] * 5, layers)
    assert all(tensor.dtype == dtype for tensor in cache.storage)
    assert cache.num_bytes == cache.plan.num_slots * cache.layout.bytes_per_slot
    exact = through_pages(make_cache(SMALL, KEPT, None), [Arrival(1, Keep.YES, kept=True)] * 5, layers)
    tolerance = {torch.float32: 0.0, torch.bfloat16: 2**-5, torch.float16: 2**-8}[dtype]
    assert got[0].dtype == torch.float32
    torch.testing.assert_close(got[0], exact[0], rtol=tolerance, atol=tolerance)


def test_clip_left_in_any_way_leaves_no_trace() -> None:
    def fail_midway(keep: Keep) -> None:
        with disturbed.begin(2, keep) as step:
            step.attend(0, *random_layers(2)[0])
            raise ZeroDivisionError

    calm, disturbed = make_cache(SMALL, KEPT, 5), make_cache(SMALL, KEPT, 5)
    layers = random_layers(8)
    sequence = [Arrival(1, Keep.YES, kept=True)] * 8
    want = through_pages(calm, sequence, layers)
    got = []
    for frame in range(8):
        for keep in (Keep.DEFERRED, Keep.YES, Keep.NO):
            with pytest.raises(ZeroDivisionError):
                fail_midway(keep)
        rows = slice(frame * SMALL.tokens_per_frame, (frame + 1) * SMALL.tokens_per_frame)
        got.append(through_pages(disturbed, sequence[:1], [tuple(part[:, rows] for part in layer) for layer in layers]))  # type: ignore[misc]
    for layer in range(SMALL.num_layers):
        assert torch.equal(torch.cat([parts[layer] for parts in got], dim=1), want[layer])


def test_commit_needs_every_layer_and_a_clip_that_may_be_kept() -> None:
    cache = make_cache(SMALL, KEPT, None)
    with cache.begin(1, Keep.YES) as step:
        step.attend(1, *random_layers(1)[1])
        with pytest.raises(TransactionError, match="did not write layer 0"):
            step.commit()
        with pytest.raises(TransactionError, match="staged already"):
            cache.begin(1, Keep.YES)
    with pytest.raises(TransactionError, match="has ended"):
        step.attend(0, *random_layers(1)[0])
    with cache.begin(1, Keep.NO) as step:
        for layer, projections in enumerate(random_layers(1)):
            step.attend(layer, *projections)
        with pytest.raises(TransactionError, match="declared as not kept"):
            step.commit()
        with pytest.raises(TransactionError, match="7 tokens staged for this clip, but 14 came"):
            step.attend(0, *random_layers(2)[0])
    assert cache.pages == cache.plan.empty()


def test_reset_forgets_frames_and_staged_clips() -> None:
    cache = make_cache(SMALL, KEPT, None)
    through_pages(cache, [Arrival(1, Keep.YES, kept=True)] * 4, random_layers(4))
    step = cache.begin(1, Keep.YES)
    cache.reset()
    assert cache.pages.num_frames == 0
    with pytest.raises(TransactionError, match="has ended"):
        step.commit()
    cache.begin(1, Keep.YES).abandon()


def test_long_clip_into_full_pages_is_refused_and_nothing_changes() -> None:
    cache = make_cache(SMALL, KEPT, None)
    through_pages(cache, [Arrival(1, Keep.YES, kept=True)] * 5, random_layers(5))
    before = cache.pages
    with pytest.raises(MemoryFullError, match="patch pages are taken"):
        cache.begin(17, Keep.YES)
    assert cache.pages == before
    cache.begin(16, Keep.YES).abandon()


def test_cache_is_refused_where_sizes_disagree_or_there_is_no_room() -> None:
    plan = PagePlan(patches=4, specials=3, retention=KEPT, max_total_frames=9)
    with pytest.raises(SettingError, match="9 tokens in a frame, but the plan has 3 special tokens and 4 patches"):
        PagedCache(replace(SMALL, tokens_per_frame=9), plan)
    with pytest.raises(BudgetError, match="has room for"):
        PagedCache(SMALL, replace(plan, max_total_frames=10**12))


SIZE = (42, 70)
GOLDEN_RUNS: dict[str, dict[str, Any]] = {
    "stream": {},
    "stream_kf3": {"interval": 3, "page_size": padded_page_size(15)},
    "stream_scale4_cache2": {"num_scale_frames": 4, "page_size": 4},
    "retain_camera_only": {"retention": replace(RULE, trail=1)},
    "retain_no_special": {"retention": replace(RULE, trail=0)},
}


def run_over_pages(model: GeometryModel, frames: Tensor, **run: Any) -> dict[str, Tensor]:
    """The whole network with its trunk's stream in pages; the scale block first, then frame by frame."""
    config, num_scale_frames = model.config, run.get("num_scale_frames", 2)
    tokens = config.tokens_per_frame(*SIZE)
    trunk, camera = (
        StreamLayout(num_layers=layers, num_heads=heads, head_dim=head_dim, tokens_per_frame=per_frame)
        for layers, heads, head_dim, per_frame in (
            (config.trunk.depth, config.trunk.heads, config.head_dim, tokens),
            (config.camera_layers, config.camera.heads, config.camera_head_dim, 1),
        )
    )
    plan = PagePlan(
        patches=tokens - config.special_tokens,
        specials=config.special_tokens,
        retention=run.get("retention", RULE),
        max_total_frames=64,
        page_size=run.get("page_size"),
    )
    cache = PagedCache(trunk, plan)
    memory = Memory(MemoryRequirements(streams={CAMERA: (camera, KeepAll())}, first_clip=num_scale_frames).plan(10**7))
    grid = model.grid(*SIZE)
    predictions = []
    for clip in (frames[:, :num_scale_frames], *frames[:, num_scale_frames:].split(1, dim=1)):
        since_scale_block = len(predictions) - 1
        keep = Keep.YES if since_scale_block < 0 else EveryNth(run.get("interval", 1)).before(since_scale_block)
        with cache.begin(clip.shape[1], keep) as step, memory.begin(clip.shape[1], keep) as transaction:
            recall = PagedRecall(TRUNK, step, StreamRecall(transaction, SdpaBackend(), num_scale_frames))
            assert isinstance(recall, Recall)
            predictions.append(model(clip, recall, grid))
            if keep is Keep.YES:
                recall.commit()
    return {
        "pose_enc": torch.cat([prediction.pose_encoding[0] for prediction in predictions]),
        "depth": torch.cat([prediction.depth[0] for prediction in predictions]),
    }


@pytest.mark.parametrize("name", GOLDEN_RUNS)
def test_whole_network_over_pages_reproduces_the_golden_run(
    name: str, golden: Callable[[str], Any], golden_frames: Tensor, tiny_model: GeometryModel
) -> None:
    want = golden(name)
    for output, got in run_over_pages(tiny_model, golden_frames, **GOLDEN_RUNS[name]).items():
        want.check(output, got)


def test_recall_refuses_streams_that_are_at_different_frames() -> None:
    cache = make_cache(SMALL, KEPT, None)
    memory = Memory(MemoryRequirements(streams={"other": (SMALL, KeepAll())}, first_clip=1).plan(10**6))
    through_pages(cache, [Arrival(1, Keep.YES, kept=True)], random_layers(1))
    step, others = cache.begin(1, Keep.YES), StreamRecall(memory.begin(1, Keep.YES), SdpaBackend(), 1)
    with pytest.raises(TransactionError, match=r"pages are at frames \(1,\) and the other streams at \(0,\)"):
        PagedRecall("s", step, others)


@pytest.mark.parametrize(("written_first", "written_last"), [("s", "other"), ("other", "s")])
def test_recall_keeps_a_clip_in_all_streams_or_in_none(written_first: str, written_last: str) -> None:
    cache = make_cache(SMALL, KEPT, None)
    memory = Memory(MemoryRequirements(streams={"other": (SMALL, KeepAll())}, first_clip=1).plan(10**6))
    with cache.begin(1, Keep.DEFERRED) as step, memory.begin(1, Keep.DEFERRED) as transaction:
        recall = PagedRecall("s", step, StreamRecall(transaction, SdpaBackend(), 1))
        for layer, projections in enumerate(random_layers(1)):
            recall.attend(written_first, layer, *projections)
        with pytest.raises(TransactionError, match="The model did not write"):
            recall.commit()
        assert (cache.pages.num_frames, memory.num_kept) == (0, 0)
        for layer, projections in enumerate(random_layers(1)):
            recall.attend(written_last, layer, *projections)
        recall.commit()
    assert (cache.pages.num_frames, memory.num_kept) == (1, 1)
