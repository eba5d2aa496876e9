"""Sessions whose layers forget on their own: as published, within bounds, saved, forked, and equal to keeping all."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from selected import rest_in_extra
from torch import Tensor

from longtake.errors import BudgetError, SettingError
from longtake.geometry.config import Attention
from longtake.geometry.model import GeometryModel
from longtake.memory.budget import Budget
from longtake.memory.policies.budgeted import Budgeted, KeyDiversity, Managed
from longtake.memory.policies.farthest_frames import FarthestFrames
from longtake.memory.policies.layerwise import Layerwise
from longtake.memory.policies.lockstep import KeepAll, Window
from longtake.memory.policies.ratio import Ratio
from longtake.memory.policy import StreamPolicy
from longtake.memory.registry import stream_policy_named
from longtake.runtime.build import CAUSAL, open_session
from longtake.runtime.memory_plan import MemoryPlan, trunk_layout
from longtake.runtime.session import SequenceSession
from longtake.runtime.windowed import resume_session
from longtake.spatial.pose import invert_encoding
from longtake.types import Geometry

GOLDEN = Path(__file__).parent.parent / "golden" / "stream3r"
SIZE = (56, 70)
TOKENS, SPECIAL, LAYERS, FRAMES = 25, 5, 4, 8
WALKED = 12
PLENTY = 10**7
MANAGED = Managed(num_frames=4, special_frames=3, camera_frames=5)
RULES_HERE: dict[str, StreamPolicy] = {
    "managed": MANAGED,
    "managed decay": replace(MANAGED, decay=0.8, recent=2),
    "key diversity": KeyDiversity(num_frames=4, special_frames=3, camera_frames=5),
    "farthest frames": FarthestFrames(num_frames=3, camera_frames=5),
    "ratio": Ratio(special_frames=3, camera_frames=5),
    "layerwise": Layerwise(num_frames=40, budget_ratio=0.1, strict=False),
    "strict": Layerwise(num_frames=40, budget_ratio=0.1),
}


def session_of(
    model: GeometryModel, rule: StreamPolicy, budget_bytes: int | None = None, **plan: Any
) -> SequenceSession:
    settings = {"config": model.config, "size": SIZE, "retention": rule, "num_scale_frames": 1, **plan}
    return SequenceSession(model, MemoryPlan(**settings), budget_bytes=budget_bytes)


def walk(num_frames: int, seed: int = 0) -> Tensor:
    """Pictures that change slowly."""
    generator = torch.Generator().manual_seed(seed)
    wide = torch.rand(3, 60, 80 + num_frames, generator=generator)
    smooth = torch.nn.functional.avg_pool2d(wide, 5, stride=1)
    return torch.stack([smooth[:, :, index : index + 70] for index in range(num_frames)])


def ids(session: SequenceSession, layer: int) -> list[int]:
    tokens = session.remembered(layer)
    return sorted((tokens.frame * TOKENS + tokens.index).tolist())


def same(one: Geometry, other: Geometry) -> bool:
    names = ("pose_encoding", "depth", "depth_confidence", "points", "points_confidence")
    return all(torch.equal(getattr(one, name), getattr(other, name)) for name in names)


def alike(one: Geometry, other: Geometry) -> bool:
    """A fork reads its parent's tokens and its own as two blocks, which rounds differently."""
    return torch.allclose(one.pose_encoding, other.pose_encoding, atol=1e-5) and torch.allclose(one.depth, other.depth)


@pytest.mark.parametrize(
    "name",
    [
        "stream3r_p50_t0.5",
        "stream3r_p60_t2",
        "stream3r_p70_t0.2",
        "stream3r_strict_p20_t0.5",
        "stream3r_strict_p40_t0.05",
        "streamvggt_p50_t0.5",
        "streamvggt_strict_p30_t0.5",
    ],
)
def test_published_eviction_is_reproduced_token_for_token(
    name: str, load_vggt: Callable[[str], GeometryModel], vggt_frames: Tensor
) -> None:
    want = np.load(GOLDEN / f"eviction_{name}.npz")
    said = json.loads(str(want["settings"]))
    rule = Layerwise(
        num_frames=FRAMES, budget_ratio=said["budget_ratio"], temperature=said["temp"], strict=said["strict"]
    )
    session = session_of(load_vggt(name.split("_")[0]), rule)
    for frame, image in enumerate(vggt_frames[0]):
        geometry = session.step(image)
        got = {
            "pose_enc": invert_encoding(geometry.pose_encoding)[0],
            "depth": geometry.depth[0, ::7, ::7],
            "depth_conf": geometry.depth_confidence[0, ::7, ::7],
        }
        for field, value in got.items():
            expected = want[field][frame]
            if field == "pose_enc":  # a quaternion and its opposite turn alike
                expected = expected * np.sign((expected[3:7] * value.numpy()[3:7]).sum()) ** _is_quaternion()
            assert np.all(np.abs(value.numpy() - expected) <= 5e-5), (field, frame)
        for layer in range(LAYERS):
            assert ids(session, layer) == sorted(token for token in want["kept_ids"][frame, layer] if token >= 0)


def _is_quaternion() -> np.ndarray:
    return np.array([0, 0, 0, 1, 1, 1, 1, 0, 0])


@pytest.fixture(scope="module")
def keeping_all(load_vggt: Callable[[str], GeometryModel], vggt_frames: Tensor) -> Callable[[str], list[Geometry]]:
    """What a network says of the golden frames when it forgets nothing."""

    @cache
    def run(name: str) -> list[Geometry]:
        return list(map(session_of(load_vggt(name), KeepAll(), PLENTY).step, vggt_frames[0]))

    return run


@dataclass(frozen=True, slots=True)
class Unbroken:
    """A run that nothing disturbed."""

    results: list[Geometry]
    ids: list[list[int]]


@pytest.fixture(scope="module")
def unbroken(load_vggt: Callable[[str], GeometryModel]) -> Callable[[StreamPolicy], Unbroken]:
    """What a rule's session says of `walk(WALKED)`, and what it remembers in the end."""

    @cache
    def run(rule: StreamPolicy) -> Unbroken:
        session = session_of(load_vggt("stream3r"), rule)
        results = list(map(session.step, walk(WALKED)))
        return Unbroken(results, [ids(session, layer) for layer in range(LAYERS)])

    return run


@pytest.mark.parametrize("name", ["stream3r", "streamvggt"])
@pytest.mark.parametrize(
    "rule",
    [
        Managed(num_frames=FRAMES, special_frames=FRAMES),
        KeyDiversity(num_frames=FRAMES, special_frames=FRAMES),
        FarthestFrames(num_frames=FRAMES),
        Layerwise(num_frames=FRAMES, budget_ratio=4.0),
    ],
    ids=["managed", "key diversity", "farthest frames", "layerwise"],
)
def test_budget_that_holds_all_equals_keeping_all(
    name: str,
    rule: StreamPolicy,
    load_vggt: Callable[[str], GeometryModel],
    vggt_frames: Tensor,
    keeping_all: Callable[[str], list[Geometry]],
) -> None:
    evicting = session_of(load_vggt(name), rule)
    for image, want in zip(vggt_frames[0], keeping_all(name), strict=True):
        assert same(evicting.step(image), want)


def test_published_streams_share_the_camera_memory_of_all_iterations(
    load_vggt: Callable[[str], GeometryModel], vggt_frames: Tensor, vggt_golden: Callable[[str], Any]
) -> None:
    want = vggt_golden("streamvggt_stream")
    session = session_of(load_vggt("streamvggt"), KeepAll(), PLENTY)
    poses = torch.cat([session.step(image).pose_encoding for image in vggt_frames[0]])
    world_from_camera = invert_encoding(poses)
    expected = want["pose_enc"].reshape(-1, 9)
    sign = torch.sign((expected[:, 3:7] * world_from_camera[:, 3:7]).sum(dim=1, keepdim=True))
    assert torch.allclose(world_from_camera[:, :3], expected[:, :3], atol=5e-5)
    assert torch.allclose(world_from_camera[:, 3:7] * sign, expected[:, 3:7], atol=5e-5)
    assert torch.allclose(world_from_camera[:, 7:], expected[:, 7:], atol=5e-5)


@pytest.mark.parametrize("rule", RULES_HERE.values(), ids=RULES_HERE.keys())
def test_resumed_session_goes_on_as_if_it_had_never_stopped(
    rule: StreamPolicy,
    load_vggt: Callable[[str], GeometryModel],
    unbroken: Callable[[StreamPolicy], Unbroken],
    tmp_path: Path,
) -> None:
    model, frames, want = load_vggt("stream3r"), walk(WALKED), unbroken(rule)
    session = session_of(model, rule)
    for image in frames[:8]:
        session.step(image)
    session.save(tmp_path / "session.safetensors")
    resumed = resume_session(tmp_path / "session.safetensors", model)
    assert isinstance(resumed, SequenceSession)
    for going_on in (session, resumed):
        for image, result in zip(frames[8:], want.results[8:], strict=True):
            assert same(going_on.step(image), result)
        assert [ids(going_on, layer) for layer in range(LAYERS)] == want.ids


@pytest.mark.parametrize("rule", rest_in_extra(RULES_HERE.values(), keep=3), ids=RULES_HERE.keys())
def test_fork_goes_on_alone_and_leaves_no_trace(rule: StreamPolicy, load_vggt: Callable[[str], GeometryModel]) -> None:
    model, frames, other = load_vggt("stream3r"), walk(14), walk(14, seed=1)
    alone, disturbed = (session_of(model, rule, reserve_frames=12) for _ in range(2))
    for image in frames[:8]:
        alone.step(image)
        disturbed.step(image)
    with disturbed.fork() as fork:
        branch = session_of(model, rule)
        for image in frames[:8]:
            branch.step(image)
        for image in other[:4]:
            assert alike(fork.step(image), branch.step(image))
        for image in frames[8:11]:
            assert same(disturbed.step(image), alone.step(image))
        assert alike(fork.step(other[4]), branch.step(other[4]))
    for image in frames[11:]:
        assert same(disturbed.step(image), alone.step(image))
    assert all(ids(disturbed, layer) == ids(alone, layer) for layer in range(LAYERS))


@pytest.mark.parametrize("rule", RULES_HERE.values(), ids=RULES_HERE.keys())
def test_frame_that_fails_leaves_the_notes_as_they_were(
    rule: StreamPolicy,
    load_vggt: Callable[[str], GeometryModel],
    unbroken: Callable[[StreamPolicy], Unbroken],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, frames, want = load_vggt("stream3r"), walk(WALKED), unbroken(rule)
    disturbed = session_of(model, rule)
    for index, image in enumerate(frames):
        if index == 7:
            with monkeypatch.context() as patch:
                patch.setattr(model.depth_head, "forward", _fail)
                with pytest.raises(RuntimeError, match="broken"):
                    disturbed.step(frames[0])
        assert same(disturbed.step(image), want.results[index])
    assert [ids(disturbed, layer) for layer in range(LAYERS)] == want.ids


def _fail(*_: object) -> None:
    raise RuntimeError("broken")


@pytest.mark.parametrize("rule", rest_in_extra(RULES_HERE.values(), keep=3), ids=RULES_HERE.keys())
def test_memory_stays_within_what_was_allocated_and_protected_tokens_stay(
    rule: StreamPolicy, load_vggt: Callable[[str], GeometryModel]
) -> None:
    session = session_of(load_vggt("stream3r"), rule)
    declared = session.num_bytes
    for index, image in enumerate(walk(40 if isinstance(rule, Layerwise) else 20)):
        session.step(image)
        use = session.use()["trunk"]
        assert use.live + use.free == use.num_slots
        assert session.num_bytes == declared
        if not (isinstance(rule, Layerwise) and not rule.strict):
            assert all(set(range(TOKENS)) <= set(ids(session, layer)) for layer in range(LAYERS))
        if isinstance(rule, Budgeted):
            newest = set(range(index * TOKENS, (index + 1) * TOKENS))
            assert all(newest <= set(ids(session, layer)) for layer in range(LAYERS))


def test_half_the_budget_makes_the_cache_a_third_to_a_half_smaller(load_vggt: Callable[[str], GeometryModel]) -> None:
    session = session_of(load_vggt("stream3r"), Layerwise(num_frames=10, budget_ratio=0.5, strict=False))
    for image in walk(10):
        session.step(image)
    kept = sum(len(session.remembered(layer)) for layer in range(LAYERS))
    assert 0.30 <= 1 - kept / (10 * TOKENS * LAYERS) <= 0.50


def test_budget_in_bytes_is_filled_and_never_passed(load_vggt: Callable[[str], GeometryModel]) -> None:
    model = load_vggt("stream3r")
    budget = 400_000
    session = session_of(model, MANAGED, budget)
    rule = session.plan.retention
    assert isinstance(rule, Budgeted)
    assert rule.num_tokens is not None
    one_more = replace(session.plan, retention=replace(rule, num_tokens=rule.num_tokens + 1))
    assert full_bytes(session.plan) <= budget < full_bytes(one_more)
    assert session.num_bytes == full_bytes(session.plan)


def full_bytes(plan: MemoryPlan) -> int:
    requirements = plan.requirements
    assert requirements.full_after is not None
    return requirements.num_bytes(requirements.full_after)


def test_budget_below_what_is_protected_is_refused_with_the_smallest_that_works(
    load_vggt: Callable[[str], GeometryModel],
) -> None:
    model = load_vggt("stream3r")
    with pytest.raises(BudgetError, match=r"the smallest that works is .*\((\d+) bytes\)") as refused:
        session_of(model, MANAGED, 20_000)
    least = int(str(refused.value).rpartition("(")[2].split()[0])
    session_of(model, MANAGED, least)
    with pytest.raises(BudgetError, match="smallest that works"):
        session_of(model, MANAGED, least - 1)
    with pytest.raises(BudgetError, match="the smallest that works is 3 frames"):
        MANAGED.of_frames(2, trunk_layout(model.config, SIZE))


@pytest.mark.parametrize("name", ["managed", "window", "farthest-frames", "key-diversity", "context"])
def test_memory_counted_in_frames(name: str, load_vggt: Callable[[str], GeometryModel]) -> None:
    rule = stream_policy_named(name)
    if isinstance(rule, Budgeted):
        rule = replace(rule, special_frames=2)
    settings = replace(CAUSAL, retention=rule, budget=Budget(num_frames=10))
    session = open_session(load_vggt("stream3r"), settings, SIZE)
    assert isinstance(session, SequenceSession)
    trunk = session.plan.requirements.streams["trunk"][1]
    for image in walk(14):
        session.step(image)
    counts = [len(session.remembered(layer)) for layer in range(LAYERS)]
    whole = 10 * TOKENS * LAYERS + (4 * SPECIAL * LAYERS if name == "context" else 0)
    assert sum(counts) == whole, trunk


@pytest.mark.parametrize("name", rest_in_extra(["stream3r", "tiny"], keep=1))
@pytest.mark.parametrize("rule", RULES_HERE.values(), ids=RULES_HERE.keys())
def test_every_rule_runs_on_every_network(
    name: str, rule: StreamPolicy, unbroken: Callable[[StreamPolicy], Unbroken], tiny_model: GeometryModel
) -> None:
    """The geometric context transformer has scale frames, which come as one clip."""
    if name == "tiny":
        parts = list(session_of(tiny_model, rule, num_scale_frames=3).run(walk(WALKED)))
    else:
        parts = unbroken(rule).results
    assert sum(map(len, parts)) == WALKED
    assert all(torch.isfinite(part.depth).all() for part in parts)


def test_network_that_sees_all_frames_at_once_cannot_stream(load_vggt: Callable[[str], GeometryModel]) -> None:
    model = load_vggt("vggt")
    assert model.config.attention is Attention.FULL
    with pytest.raises(SettingError, match="cannot watch frame by frame"):
        open_session(model, CAUSAL, SIZE)


@pytest.mark.parametrize("window", [5, 6])
def test_streaming_window_equals_the_batch_window_and_its_published_off_by_one(
    window: int,
    load_vggt: Callable[[str], GeometryModel],
    vggt_frames: Tensor,
    vggt_golden: Callable[[str], Any],
) -> None:
    want = vggt_golden("batch_window" if window == 5 else "stream_window")
    session = session_of(load_vggt("stream3r"), Window(window=window))
    poses = torch.cat([session.step(image).pose_encoding for image in vggt_frames[0]])
    got, expected = invert_encoding(poses), want["pose_enc"].reshape(-1, 9)
    sign = torch.sign((expected[:, 3:7] * got[:, 3:7]).sum(dim=1, keepdim=True))
    turned = torch.cat([got[:, :3], got[:, 3:7] * sign, got[:, 7:]], dim=1)
    assert torch.allclose(turned, expected, atol=5e-5)
