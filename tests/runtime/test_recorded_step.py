"""Sessions on our own kernels: recorded or launched one by one, forked, rejected, saved and resumed, to the same bits.

On a GPU as they are, elsewhere by Triton's interpreter, where what a graph would replay is launched each time.
"""

import gc
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from longtake.errors import InputError
from longtake.geometry.config import (
    Attention,
    CameraConfig,
    DenseConfig,
    EncoderConfig,
    GeometryConfig,
    TrunkConfig,
)
from longtake.geometry.model import GeometryModel
from longtake.memory import stream
from longtake.memory.books import Books
from longtake.memory.policies.budgeted import KeyDiversity, Managed
from longtake.memory.policies.farthest_frames import FarthestFrames
from longtake.memory.policies.layerwise import Layerwise
from longtake.memory.policies.lockstep import ContextRetention, KeepAll, Window
from longtake.memory.policies.ratio import Ratio
from longtake.memory.policy import Clip, LayerState, StackedPolicy, StreamPolicy
from longtake.memory.tokens import Tokens
from longtake.runtime.keyframes import EveryNth
from longtake.runtime.memory_plan import MemoryPlan
from longtake.runtime.session import SequenceSession
from longtake.types import Geometry

ON_GPU = torch.cuda.is_available()
pytest.importorskip("triton", reason="needs Triton")
pytest.importorskip("longtake.attention.slot_kernels")
from longtake.attention import triton  # noqa: E402
from longtake.runtime import recorded_step  # noqa: E402
from longtake.runtime.recording import Recording  # noqa: E402

pytestmark = pytest.mark.extra
DEVICE = "cuda" if ON_GPU else "cpu"
HALF = torch.bfloat16 if ON_GPU else torch.float16
SIZE = (28, 42)
SMALL = GeometryConfig(
    width=128,
    patch=14,
    encoder=EncoderConfig(depth=1, heads=2, registers=1, side=3),
    trunk=TrunkConfig(depth=4, heads=2, registers=1, selected=(0, 1, 2, 3)),
    camera=CameraConfig(depth=1, heads=2, iterations=2),
    dense=DenseConfig(features=16, channels=(8, 16, 16, 16)),
    attention=Attention.CONTEXT,
)
CAUSAL = replace(
    SMALL,
    trunk=replace(SMALL.trunk, scale_token=False, temporal_rotary=False),
    attention=Attention.CAUSAL,
)
POLICIES: dict[str, StreamPolicy] = {
    "context": ContextRetention(anchors=1, window=2, history=20),
    "window": Window(anchors=1, window=2),
    "keep-all": KeepAll(),
    "managed": Managed(num_frames=3, special_frames=3, camera_frames=5),
    "key-diversity": KeyDiversity(num_frames=3, special_frames=3, camera_frames=5),
    "farthest-frames": FarthestFrames(num_frames=3, camera_frames=5),
    "ratio": Ratio(special_frames=3, camera_frames=5),
    "layerwise": Layerwise(num_frames=40, budget_ratio=0.1, strict=False),
    "one layer": Managed(num_frames=6, special_frames=3, camera_frames=5, temperature=1e-3, smoothing=0.99),
}
KEPT_ON_DEVICE = tuple(name for name, policy in POLICIES.items() if isinstance(policy, StackedPolicy))
HERE = tuple(POLICIES) if ON_GPU else ("context",)  # interpreted, a step takes a second
EVERY_POLICY = pytest.mark.parametrize("name", HERE)
NUM_FRAMES = 9 if ON_GPU else 4
BUDGET = 10**7


@pytest.fixture(autouse=True)
def _kernels_run_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter takes what it is given, and policies decide as on a GPU."""
    if not ON_GPU:
        monkeypatch.setattr(stream, "decides_there", lambda _: True)
        for module in (triton, recorded_step):
            monkeypatch.setattr(module, "why_unsuitable", lambda *_, **__: None)


@pytest.fixture(scope="module")
def models() -> Callable[[GeometryConfig], GeometryModel]:
    made: dict[Attention, GeometryModel] = {}

    def make(config: GeometryConfig) -> GeometryModel:
        if config.attention not in made:
            torch.manual_seed(0)
            model = GeometryModel(config).requires_grad_(False)
            for name, weight in model.named_parameters():
                if name.endswith("gamma"):
                    weight.fill_(0.5)
            made[config.attention] = model.to(DEVICE).cast_products(HALF)
        return made[config.attention]

    return make


def frames(count: int) -> Tensor:
    return torch.rand(count, 3, *SIZE, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def open_session(models: Callable[[GeometryConfig], GeometryModel]) -> Iterator[Callable[..., SequenceSession]]:
    def make(name: str = "context", *, recorded: bool = True, interval: int = 1, **plan: Any) -> SequenceSession:
        policy = POLICIES[name]
        is_context = isinstance(policy, ContextRetention)
        model = models(SMALL if is_context else CAUSAL)
        settings = {"num_scale_frames": 2 if is_context else 1, "trunk_dtype": HALF, **plan}
        session = SequenceSession(
            model,
            MemoryPlan(config=model.config, size=SIZE, retention=policy, **settings),
            keyframes=EveryNth(interval),
            backend=triton.TritonBackend(),
            budget_bytes=BUDGET if name in ("keep-all", "ratio") else None,
            compute_dtype=HALF,
            capture=ON_GPU and recorded,
        )
        if recorded and not ON_GPU:
            record(session)
        return session

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield make


def record(session: SequenceSession) -> None:
    """As a session on a GPU is from the start."""
    recorded = recorded_step.recorded_model(
        session._model, session._grid, HALF, triton.TritonBackend(), session._bounds
    )
    session._recorded = recorded


def assert_same(one: Geometry, other: Geometry) -> None:
    for name in ("pose_encoding", "depth", "depth_confidence"):
        assert torch.equal(getattr(one, name), getattr(other, name)), name


@EVERY_POLICY
def test_recorded_step_is_its_kernels_launched_one_by_one(
    name: str, open_session: Callable[..., SequenceSession]
) -> None:
    recorded, plain = open_session(name), open_session(name, recorded=False)
    assert recorded._recorded is not None
    assert plain._recorded is None
    for frame in frames(NUM_FRAMES):
        assert_same(recorded.step(frame), plain.step(frame))
    assert recorded.num_kept == plain.num_kept
    for layer in range(4):
        assert (recorded.remembered(layer).frame == plain.remembered(layer).frame).all()


@pytest.mark.skipif(not ON_GPU, reason="interpreted, it would take a minute")
@pytest.mark.parametrize("name", ["context", "managed", "layerwise"])
def test_frames_that_pass_and_forks_leave_no_trace(name: str, open_session: Callable[..., SequenceSession]) -> None:
    plain, disturbed = open_session(name, interval=2), open_session(name, interval=2, reserve_frames=4)
    pictures = frames(NUM_FRAMES)
    lasting = None
    for index, frame in enumerate(pictures):
        with disturbed.look(pictures[-index]):
            pass  # rejected
        if index == NUM_FRAMES // 2:
            lasting = disturbed.fork()
        with disturbed.fork() as fork:
            fork.step(pictures[index - 2])
        assert_same(disturbed.step(frame), plain.step(frame))
    assert lasting is not None
    lasting.close()


@pytest.mark.parametrize("name", POLICIES if ON_GPU else ["managed"])
def test_resumed_session_goes_on_to_the_same_bits(
    name: str, open_session: Callable[..., SequenceSession], tmp_path: Path
) -> None:
    session, pictures = open_session(name), frames(NUM_FRAMES)
    for frame in pictures[:-2]:
        session.step(frame)
    session.save(tmp_path / "session.safetensors")
    resumed = SequenceSession.resume(tmp_path / "session.safetensors", session._model)
    if not ON_GPU:
        record(resumed)
    for frame in pictures[-2:]:
        assert_same(resumed.step(frame), session.step(frame))


@pytest.mark.skipif(not ON_GPU, reason="interpreted, it would take a minute")
@pytest.mark.parametrize("name", KEPT_ON_DEVICE)
def test_forks_of_what_is_kept_on_the_device_see_what_the_host_would(
    name: str, open_session: Callable[..., SequenceSession]
) -> None:
    """Before a fork, beside it, while it is born in the middle of a frame, and after it."""
    pictures = frames(10 if ON_GPU else 6)
    sessions = [open_session(name, recorded=recorded, reserve_frames=8) for recorded in (True, False)]

    def assert_steps_alike(branches: list[SequenceSession], frame: Tensor) -> None:
        assert_same(*(branch.step(frame) for branch in branches))

    for frame in pictures[:-4]:
        assert_steps_alike(sessions, frame)
    forks = [session.fork() for session in sessions]
    for branches in (sessions, forks):
        assert_steps_alike(branches, pictures[-4])
    for fork in forks:
        fork.close()
    assert_steps_alike(sessions, pictures[-3])
    born = []
    with sessions[0].look(pictures[-2]) as one, sessions[1].look(pictures[-2]) as other:
        born += [session.fork() for session in sessions]
        assert_same(one.geometry, other.geometry)
        one.take()
        other.take()
    for branches in (born, sessions):
        assert_steps_alike(branches, pictures[-1])
    for layer in range(4):
        one, other = (session.remembered(layer) for session in sessions)
        assert np.array_equal(one.frame * 100 + one.index, other.frame * 100 + other.index)
        assert np.array_equal(one.token_stats, other.token_stats)


@pytest.mark.skipif(not ON_GPU, reason="interpreted, it would take a minute")
@pytest.mark.parametrize("name", KEPT_ON_DEVICE)
@pytest.mark.parametrize("broken", ["place", "decide"])
def test_step_that_fails_on_the_device_leaves_no_trace(
    name: str, broken: str, open_session: Callable[..., SequenceSession], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("out of luck")

    session, plain, pictures = open_session(name), open_session(name), frames(NUM_FRAMES)
    for frame in pictures:
        with monkeypatch.context() as patch:
            patch.setattr(recorded_step._Forgetting, broken, fail)
            if session.num_kept:
                with pytest.raises(RuntimeError, match="out of luck"):
                    session.step(frame.flip(-1))
        assert_same(session.step(frame), plain.step(frame))


@pytest.mark.parametrize("name", KEPT_ON_DEVICE if ON_GPU else ["managed"])
def test_device_decides_as_the_host_would_on_the_same_attention(
    name: str, open_session: Callable[..., SequenceSession], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shares of layers differ in their last bits, which could move one token of thousands from a layer to another where
    a fraction is a tie: none of these is. Scores of tokens are the same bits."""
    compared, decide = [], recorded_step._Forgetting.decide

    def compare(self: recorded_step._Forgetting, before: Books) -> Books:
        after, keeping, mass = decide(self, before), self._bookkeeping, self._numbers.attention_mass
        assert mass is not None
        own = keeping.clip_slots(before.columns).cpu().numpy().astype(np.int64)
        policy, ordinal = keeping.policy, int(self._ordinal)
        tokens_per_frame = keeping.layout.tokens_per_frame
        layers = []
        for part, slot, of_layer in zip(keeping.read(before), own, mass.cpu().numpy(), strict=True):
            new = Tokens.of_frames([ordinal], tokens_per_frame, slot, policy.num_token_stats)
            tokens = part.with_clip(new)
            state = LayerState(
                tokens=tokens, attention_mass=of_layer[: len(tokens)], keys=None, layer_stats=part.layer_stats
            )
            layers.append(state)
        clip = Clip(
            num_kept=ordinal + 1, num_frames=1, tokens_per_frame=tokens_per_frame, num_heads=keeping.layout.num_heads
        )
        for got, state, want in zip(keeping.read(after), layers, policy.decide(layers, clip), strict=True):
            assert np.array_equal(got.retained.slot, state.tokens.slot[want.stays])
            assert np.array_equal(got.retained.token_stats, want.token_stats[want.stays])
            assert got.layer_stats == pytest.approx(want.layer_stats, rel=1e-9)
            compared.append(int((~want.stays).sum()))
        return after

    monkeypatch.setattr(recorded_step._Forgetting, "decide", compare)
    session = open_session(name)
    for frame in frames(24 if ON_GPU else 5):
        session.step(frame)
    assert sum(compared)


@pytest.mark.skipif(not ON_GPU, reason="needs a GPU")
def test_layer_may_take_most_of_the_memory(open_session: Callable[..., SequenceSession]) -> None:
    recorded, plain = open_session("one layer"), open_session("one layer", recorded=False)
    for frame in frames(30):
        assert_same(recorded.step(frame), plain.step(frame))
    sizes = [len(recorded.remembered(layer)) for layer in range(4)]
    assert max(sizes) > 2 * sum(sizes) / 4


@pytest.mark.skipif(not ON_GPU, reason="needs a GPU")
@pytest.mark.parametrize("name", KEPT_ON_DEVICE)
def test_forgetting_on_the_device_waits_for_it_no_more_than_a_window_does(
    name: str, open_session: Callable[..., SequenceSession]
) -> None:
    def waits(name: str) -> list[str]:
        session, pictures = open_session(name), frames(24)
        for frame in pictures[:20]:
            session.step(frame)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode("warn")
            try:
                for frame in pictures[20:]:
                    session.step(frame)
            finally:
                torch.cuda.set_sync_debug_mode("default")
        return [str(each.message) for each in told if "called a synchronizing" in str(each.message)]

    assert waits(name) == waits("window")


def test_sessions_share_a_recording_and_not_its_numbers(open_session: Callable[..., SequenceSession]) -> None:
    one, other, alone = open_session(), open_session(), open_session()
    pictures = frames(NUM_FRAMES - 1)
    want = [alone.step(frame) for frame in pictures]
    for frame, expected in zip(pictures, want, strict=True):
        other.step(frame.flip(-1))
        assert_same(one.step(frame), expected)
    assert one._recorded is other._recorded is not None
    assert one._recorded.num_recordings <= 2


def test_own_kernels_are_as_exact_as_plain_half_precision(
    open_session: Callable[..., SequenceSession], models: Callable[[GeometryConfig], GeometryModel]
) -> None:
    session = open_session()
    model = models(SMALL)
    exact_model = GeometryModel(SMALL).requires_grad_(False).to(DEVICE)
    exact_model.load_state_dict({name: weight.float() for name, weight in model.state_dict().items()})
    plain = SequenceSession(model, replace(session.plan), compute_dtype=HALF, capture=False)
    exact = SequenceSession(exact_model, replace(session.plan, trunk_dtype=torch.float32))
    for frame in frames(NUM_FRAMES):
        got, halved, want = session.step(frame), plain.step(frame), exact.step(frame)
        if len(want.frame_index):
            error, usual = ((each.depth - want.depth).norm() for each in (got, halved))
            assert error <= 1.5 * usual


@pytest.mark.skipif(not ON_GPU, reason="needs a GPU")
def test_step_that_cannot_be_recorded_is_launched_and_says_why(
    open_session: Callable[..., SequenceSession], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: object, compute: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory.\nTried to allocate")

    monkeypatch.setattr(recorded_step, "_RECORDED", {})
    monkeypatch.setattr(Recording, "_record", fail)
    session, plain = open_session(), open_session(recorded=False)
    session.step(frames(2)[0])
    session.step(frames(2)[1])
    with pytest.warns(UserWarning, match=r"could not be recorded as a CUDA graph \(CUDA out of memory\.\); its"):
        got = session.step(frames(3)[2])
    assert_same(got, [plain.step(frame) for frame in frames(3)][-1])


@pytest.mark.skipif(not ON_GPU, reason="needs a GPU")
@pytest.mark.parametrize("name", ["context", "managed"])
def test_sessions_that_are_closed_leave_nothing_behind(name: str, open_session: Callable[..., SequenceSession]) -> None:
    allocated = []
    for _ in range(4):
        session = open_session(name, reserve_frames=2)
        for frame in frames(5):
            session.step(frame)
        with session.fork() as fork:
            fork.step(frames(1)[0])
        session.close()
        del session, fork
        gc.collect()
        torch.cuda.synchronize()
        allocated.append(torch.cuda.memory_allocated())
    assert len(set(allocated[1:])) == 1, allocated


@pytest.mark.skipif(not ON_GPU, reason="needs a GPU")
def test_step_whose_encoder_alone_cannot_be_recorded_reads_the_frame_it_was_given(
    open_session: Callable[..., SequenceSession], monkeypatch: pytest.MonkeyPatch
) -> None:
    record, failed = Recording._record, []

    def fail_once(self: Recording, compute: Callable[[], Any]) -> None:
        if not failed:
            failed.append(True)
            raise torch.OutOfMemoryError("CUDA out of memory.")
        record(self, compute)

    monkeypatch.setattr(recorded_step, "_RECORDED", {})
    monkeypatch.setattr(Recording, "_record", fail_once)
    session, plain = open_session(), open_session(recorded=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for frame in frames(NUM_FRAMES):
            assert_same(session.step(frame), plain.step(frame))
    assert failed


@pytest.mark.skipif(not ON_GPU, reason="needs a GPU")
def test_frame_may_be_filled_anew_as_soon_as_a_step_returns(open_session: Callable[..., SequenceSession]) -> None:
    session, plain = open_session(), open_session()
    buffer = torch.empty(3, *SIZE, pin_memory=True)
    for frame in frames(NUM_FRAMES):
        got = session.step(buffer.copy_(frame))
        buffer.zero_()
        assert_same(got, plain.step(frame))


@pytest.mark.skipif(not ON_GPU, reason="needs a GPU")
def test_recording_ends_with_the_weights_it_was_made_of(open_session: Callable[..., SequenceSession]) -> None:
    before = open_session()
    model = before._model
    saved = {name: value.clone() for name, value in model.state_dict().items()}
    try:
        model.load_state_dict({name: value * 1.01 for name, value in saved.items()})
        after, plain = open_session(), open_session(recorded=False)
        assert after._recorded is not before._recorded
        with pytest.raises(InputError, match="moved or changed"):
            list(map(before.step, frames(NUM_FRAMES)))
        for frame in frames(NUM_FRAMES):
            assert_same(after.step(frame), plain.step(frame))
    finally:
        model.load_state_dict(saved)
