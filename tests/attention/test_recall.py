"""The one door: a stream of clips and the whole clip under a mask give the same answers."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from longtake.attention.backend import Attended, Backend, ReferenceBackend, SdpaBackend
from longtake.attention.masks import Arrival, arrivals, clip_mask, clip_ordinals
from longtake.attention.recall import ClipRecall, Recall, StreamRecall
from longtake.errors import InputError, TransactionError
from longtake.memory.budget import MemoryRequirements
from longtake.memory.memory import Memory
from longtake.memory.policies.lockstep import ContextRetention, Window
from longtake.memory.policy import Keep, LockstepPolicy
from longtake.memory.tokens import StreamLayout

LAYOUTS = {
    "wide": StreamLayout(num_layers=2, num_heads=2, head_dim=8, tokens_per_frame=3),
    "narrow": StreamLayout(num_layers=1, num_heads=1, head_dim=4, tokens_per_frame=1),
}


def new_memory(retentions: dict[str, LockstepPolicy], first_clip: int, dtype: torch.dtype = torch.float32) -> Memory:
    streams = {
        name: (
            StreamLayout(
                num_layers=layout.num_layers,
                num_heads=layout.num_heads,
                head_dim=layout.head_dim,
                tokens_per_frame=layout.tokens_per_frame,
                dtype=dtype,
            ),
            retentions[name],
        )
        for name, layout in LAYOUTS.items()
    }
    return Memory(MemoryRequirements(streams=streams, first_clip=first_clip).plan())


def projections(name: str, num_frames: int, seed: int) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Random q, k, v of every layer."""
    layout = LAYOUTS[name]
    generator = torch.Generator().manual_seed(seed)
    shape = (layout.num_layers, 3, 1, num_frames * layout.tokens_per_frame, layout.num_heads, layout.head_dim)
    return [tuple(layer) for layer in torch.randn(shape, generator=generator)]  # type: ignore[misc]


def streamed(
    memory: Memory, sequence: tuple[Arrival, ...], layers: dict[str, list[tuple[Tensor, Tensor, Tensor]]]
) -> dict[tuple[str, int], Tensor]:
    outputs: dict[tuple[str, int], list[Tensor]] = {
        (name, layer): [] for name in LAYOUTS for layer in range(LAYOUTS[name].num_layers)
    }
    start = 0
    for arrival in sequence:
        with memory.begin(arrival.num_frames, arrival.keep) as transaction:
            recall = StreamRecall(transaction, SdpaBackend(), sequence[0].num_frames)
            for name, layer in outputs:
                tokens = LAYOUTS[name].tokens_per_frame
                rows = slice(start * tokens, (start + arrival.num_frames) * tokens)
                outputs[name, layer].append(
                    recall.attend(name, layer, *(part[:, rows] for part in layers[name][layer]))
                )
            if arrival.kept:
                transaction.commit()
        start += arrival.num_frames
    return {key: torch.cat(parts, dim=1) for key, parts in outputs.items()}


@settings(max_examples=30, deadline=None)
@given(
    st.integers(0, 2),
    st.integers(1, 3),
    st.integers(0, 3),
    st.integers(0, 2),
    st.integers(1, 4),
    st.lists(st.booleans(), max_size=8),
    st.booleans(),
)
def test_stream_equals_the_masked_whole_clip(
    anchors: int, window: int, trail: int, extra: int, scale: int, kept: list[bool], judged_later: bool
) -> None:
    history = anchors + window + extra
    retentions: dict[str, LockstepPolicy] = {
        "wide": ContextRetention(anchors=anchors, window=window, trail=trail, history=history),
        "narrow": Window(anchors=anchors, window=window + extra),
    }
    sequence = arrivals(scale, kept, judged_later=judged_later)
    layers = {name: projections(name, scale + len(kept), seed=len(kept)) for name in LAYOUTS}
    got = streamed(new_memory(retentions, scale), sequence, layers)
    masks = {name: clip_mask(retentions[name], sequence, LAYOUTS[name].tokens_per_frame) for name in LAYOUTS}
    whole = ClipRecall(masks, clip_ordinals(sequence), scale)
    for (name, layer), output in got.items():
        want = whole.attend(name, layer, *layers[name][layer])
        torch.testing.assert_close(output, want, rtol=1e-5, atol=1e-6)


RETENTIONS: dict[str, LockstepPolicy] = {
    "wide": ContextRetention(anchors=1, window=2, trail=1, history=5),
    "narrow": Window(anchors=1, window=4),
}


def test_half_precision_memory_answers_in_the_type_of_the_queries() -> None:
    memory = new_memory(RETENTIONS, 1, dtype=torch.bfloat16)
    with memory.begin(1, Keep.NO) as transaction:
        recall = StreamRecall(transaction, SdpaBackend(), 1)
        q, k, v = projections("wide", 1, seed=0)[0]
        attended = recall.attend("wide", 0, q, k, v)
        assert attended.dtype == torch.float32
        rounded = (tensor.bfloat16() for tensor in (q, k, v))
        torch.testing.assert_close(attended, ReferenceBackend().attend(*rounded).values.float(), rtol=2**-7, atol=2**-6)
        assert recall.attend("wide", 0, q.bfloat16(), k, v).dtype == torch.bfloat16


def test_half_precision_memory_is_asked_in_its_own_type() -> None:
    asked: list[tuple[torch.dtype, ...]] = []

    class Listening:
        name = "listening"

        def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Attended:
            asked.append((q.dtype, k.dtype, v.dtype))
            return ReferenceBackend().attend(q, k, v)

    backend = Listening()
    assert isinstance(backend, Backend)
    with new_memory(RETENTIONS, 1, dtype=torch.bfloat16).begin(1, Keep.NO) as transaction:
        StreamRecall(transaction, backend, 1).attend("wide", 0, *projections("wide", 1, seed=0)[0])
    assert asked == [(torch.bfloat16,) * 3]


def test_batch_other_than_one_is_refused_and_leaves_no_trace() -> None:
    memory = new_memory(RETENTIONS, 2)
    for name in LAYOUTS:
        for batch in (2, 3):
            with memory.begin(2, Keep.YES) as transaction:
                recall = StreamRecall(transaction, SdpaBackend(), 2)
                q, k, v = (tensor.repeat(batch, 1, 1, 1) for tensor in projections(name, 2, seed=0)[0])
                with pytest.raises(InputError, match="open a session for each"):
                    recall.attend(name, 0, q, k, v)
                with pytest.raises(TransactionError, match="did not write wide layer 0"):
                    transaction.commit()
    assert memory.num_kept == 0
    assert all(use.free == use.num_slots for use in memory.use().values())


def test_fork_answers_from_several_blocks_as_its_parent_from_one() -> None:
    memory = new_memory(RETENTIONS, 2)
    sequence = arrivals(2, [True] * 6)
    streamed(memory, sequence, {name: projections(name, 8, seed=1) for name in LAYOUTS})
    with memory.fork() as fork:
        for name, layout in LAYOUTS.items():
            for layer in range(layout.num_layers):
                question = projections(name, 1, seed=2)[layer]
                with memory.begin(1, Keep.NO) as of_parent:
                    want = StreamRecall(of_parent, SdpaBackend(), 2).attend(name, layer, *question)
                    assert len(of_parent.staged[name][0].view.blocks) == 1
                with fork.begin(1, Keep.NO) as of_fork:
                    got = StreamRecall(of_fork, SdpaBackend(), 2).attend(name, layer, *question)
                    assert len(of_fork.staged[name][0].view.blocks) == 3
                torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6)


def test_recall_tells_the_ordinals_of_its_clip() -> None:
    memory = new_memory(RETENTIONS, 2)
    for ordinals in ((0, 1), (2,), (3,)):
        with memory.begin(len(ordinals), Keep.YES) as transaction:
            recall = StreamRecall(transaction, SdpaBackend(), 2)
            assert recall.ordinals == ordinals
            assert recall.num_scale_frames == 2
            for name, layout in LAYOUTS.items():
                for layer in range(layout.num_layers):
                    recall.attend(name, layer, *projections(name, len(ordinals), seed=0)[layer])
            transaction.commit()
    with memory.begin(1, Keep.NO) as transaction:
        assert transaction.ordinals == (4,)
        assert isinstance(StreamRecall(transaction, SdpaBackend(), 2), Recall)


def test_clip_without_a_mask_sees_all_of_itself() -> None:
    recall = ClipRecall({"wide": None}, (0, 1), 2)
    assert isinstance(recall, Recall)
    q, k, v = projections("wide", 2, seed=3)[0]
    torch.testing.assert_close(
        recall.attend("wide", 0, q, k, v), ReferenceBackend().attend(q, k, v).values, rtol=1e-5, atol=1e-6
    )
