"""Streaming against golden runs, against the masked whole clip, and against disturbances that must leave no trace."""

import gzip
import json
from collections.abc import Callable, Iterable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from done import Done
from selected import rest_in_extra
from torch import Tensor

from longtake.attention.backend import Backend, ReferenceBackend, SdpaBackend
from longtake.attention.masks import arrivals, clip_mask, clip_ordinals
from longtake.attention.recall import ClipRecall, HostOrdinals, StreamRecall
from longtake.errors import BudgetError, ForkError, InputError, MemoryFullError, SavedSessionError, SettingError
from longtake.geometry.config import CAMERA, TRUNK, GeometryConfig
from longtake.geometry.model import GeometryModel
from longtake.memory.memory import Memory
from longtake.memory.policies.lockstep import ContextRetention, Trail
from longtake.memory.policy import Keep
from longtake.memory.saved import write_tensors
from longtake.memory.shared_pool import ROOT
from longtake.runtime.keyframes import ByFlow, EveryNth
from longtake.runtime.memory_plan import MemoryPlan, trunk_layout
from longtake.runtime.session import SequenceSession
from longtake.spatial.flow import mean_flow_px
from longtake.spatial.pose import decode_pose
from longtake.types import FrameKind, Geometry

SIZE = (42, 70)
GOLDEN = Path(__file__).parent.parent / "golden"
SMALL = ContextRetention(anchors=2, window=3)


def make_plan(model: GeometryModel, **settings: Any) -> MemoryPlan:
    return MemoryPlan(config=model.config, size=SIZE, **{"retention": SMALL, "num_scale_frames": 2, **settings})


def open_session(
    model: GeometryModel, *, interval: int = 1, backend: Backend | None = None, **plan: Any
) -> SequenceSession:
    return SequenceSession(model, make_plan(model, **plan), keyframes=EveryNth(interval), backend=backend)


def join(parts: Iterable[Geometry]) -> dict[str, Tensor]:
    parts = list(parts)
    names = [field.name for field in fields(Geometry) if isinstance(getattr(parts[0], field.name), Tensor)]
    return {name: torch.cat([getattr(part, name) for part in parts]) for name in names}


def equal(a: Geometry, b: Geometry) -> bool:
    tensors_a, tensors_b = join([a]), join([b])
    return tensors_a.keys() == tensors_b.keys() and all(
        torch.equal(tensors_a[key], tensors_b[key]) for key in tensors_a
    )


GOLDEN_RUNS = {
    "stream": {},
    "stream_no_eviction": {"retention": replace(SMALL, window=64)},
    "stream_scale4_cache2": {"num_scale_frames": 4},
    "stream_scale2_cache4": {"retention": replace(SMALL, anchors=4)},
    "stream_scale1": {"num_scale_frames": 1, "retention": replace(SMALL, anchors=1)},
    "retain_camera_only": {"retention": replace(SMALL, trail=Trail.CAMERA)},
    "retain_no_special": {"retention": replace(SMALL, trail=Trail.NONE)},
    "stream_kf3": {"interval": 3},
    "stream_kf2_scale4": {"interval": 2, "num_scale_frames": 4},
}


@pytest.mark.parametrize("backend", rest_in_extra([SdpaBackend(), ReferenceBackend()], keep=1))
@pytest.mark.parametrize("name", GOLDEN_RUNS)
def test_streaming_reproduces_the_golden_run(
    name: str, backend: Backend, golden: Callable[[str], Any], golden_frames: Tensor, tiny_model: GeometryModel
) -> None:
    want = golden(name)
    got = join(open_session(tiny_model, backend=backend, **GOLDEN_RUNS[name]).run(golden_frames[0]))
    want.check("pose_enc", got["pose_encoding"])
    want.check("depth", got["depth"])
    if "world_points" in want.tensors:
        want.check("depth_conf", got["depth_confidence"])
        want.check("world_points", got["points"])
        want.check("world_points_conf", got["points_confidence"])


@pytest.mark.parametrize("backend", [SdpaBackend(), ReferenceBackend()], ids=lambda backend: backend.name)
def test_flow_keyframes_reproduce_the_golden_run(
    backend: Backend, golden: Callable[[str], Any], golden_frames: Tensor, tiny_model: GeometryModel
) -> None:
    want = golden("stream_flow")
    session = SequenceSession(tiny_model, make_plan(tiny_model), keyframes=ByFlow(15.0, max_gap=4), backend=backend)
    parts = list(session.run(golden_frames[0]))
    got = join(parts)
    want.check("pose_enc", got["pose_encoding"])
    want.check("depth", got["depth"])
    flags = [flag for part in parts for flag in part.is_keyframe]
    assert flags[2:] == want["is_keyframe"].tolist()
    last, flows = 1, []
    for index in range(2, 14):
        cameras = [decode_pose(got["pose_encoding"][i], *SIZE) for i in (index, last)]
        flows.append(mean_flow_px(got["depth"][index], *cameras))
        last = index if flags[index] else last
    want.check("flow_mag", torch.stack(flows))


@pytest.mark.parametrize(
    ("name", "trail"),
    [("stream_sdpa", Trail.SPECIAL), ("retain_camera_only", Trail.CAMERA), ("retain_no_special", Trail.NONE)],
)
def test_resident_frames_are_those_of_the_golden_trace(
    name: str, trail: Trail, golden_frames: Tensor, tiny_model: GeometryModel
) -> None:
    trace = json.loads(gzip.decompress((GOLDEN / "gct/traces.json.gz").read_bytes()))["dict_cache"]
    session = open_session(tiny_model, retention=replace(SMALL, trail=trail))
    session.step(golden_frames[0, 0])
    for row, frame in zip(trace[f"{name}_cache_shapes"], golden_frames[0, 1:], strict=True):
        session.step(frame)
        tokens = session._memory.tokens(TRUNK)
        counts = np.unique(np.unique(tokens.frame, return_counts=True)[1], return_counts=True)
        per_frame = dict(zip(*(column.tolist() for column in counts), strict=True))
        assert per_frame.pop(21) == row["k_frames"]
        left = {row["special_tokens_per_frame"]: row["special_frames"]} if row["special_frames"] else {}
        assert per_frame == left
        assert len(session._memory.tokens(CAMERA)) == row["camera_cached_frames"]
        assert session.num_kept == row["total_frames_processed"]


@pytest.mark.parametrize(("name", "interval"), [("stream", 1), ("stream_kf3", 3)])
def test_streaming_trunk_reproduces_the_golden_run(
    name: str, interval: int, golden: Callable[[str], Any], golden_frames: Tensor, tiny_model: GeometryModel
) -> None:
    want = golden(name)
    memory = Memory(make_plan(tiny_model).requirements.plan())
    grid = tiny_model.grid(*SIZE)
    selected = []
    for clip in (golden_frames[:, :2], *golden_frames[:, 2:].split(1, dim=1)):
        since_scale_block = len(selected) - 1
        keep = Keep.YES if since_scale_block < 0 else EveryNth(interval).before(since_scale_block)
        with memory.begin(clip.shape[1], keep) as transaction:
            recall = StreamRecall(transaction, SdpaBackend(), 2)
            features = tiny_model.features(clip, recall, grid, tiny_model.clip_rotation(recall, grid))
            tiny_model.camera_head(features[-1][:, :, 0], recall)
            if keep is Keep.YES:
                transaction.commit()
        selected.append([feature[0] for feature in features])
    want.check("agg3_all", torch.cat([features[3] for features in selected]))
    for level in range(4):
        want.check(f"agg{level}_last", selected[-1][level])


@pytest.mark.parametrize(("anchors", "window"), [(2, 1), (2, 3), (0, 3)])
@pytest.mark.parametrize("trail", Trail)
@pytest.mark.parametrize(("interval", "scale"), rest_in_extra([(3, 2), (1, 4), (1, 1)], keep=1))
def test_streaming_equals_the_masked_whole_clip(
    anchors: int, window: int, trail: Trail, interval: int, scale: int, golden_frames: Tensor, tiny_model: GeometryModel
) -> None:
    retention = ContextRetention(anchors=anchors, window=window, trail=trail, history=7)
    frames = golden_frames[0, :12]
    streamed = join(
        open_session(tiny_model, interval=interval, num_scale_frames=scale, retention=retention).run(frames)
    )
    sequence = arrivals(scale, [EveryNth(interval).before(step) is Keep.YES for step in range(len(frames) - scale)])
    layout = trunk_layout(tiny_model.config, SIZE)
    masks = {
        TRUNK: clip_mask(retention.for_stream(layout), sequence, layout.tokens_per_frame),
        CAMERA: clip_mask(retention.camera(), sequence, 1),
    }
    recall = ClipRecall(masks, clip_ordinals(sequence), scale)
    whole = tiny_model(frames.unsqueeze(0), recall, tiny_model.grid(*SIZE))
    for got, want in ((whole.pose_encoding, streamed["pose_encoding"]), (whole.depth, streamed["depth"])):
        torch.testing.assert_close(got[0], want, rtol=2e-5, atol=2e-5)


@pytest.mark.extra
def test_two_videos_with_one_model_are_two_sessions(golden_frames: Tensor, tiny_model: GeometryModel) -> None:
    videos = golden_frames[0], golden_frames[0].flip(0)
    alone = [join(open_session(tiny_model).run(video)) for video in videos]
    sessions = [open_session(tiny_model) for _ in videos]
    parts: list[list[Geometry]] = [[], []]
    for pair in zip(*videos, strict=True):
        for session, frame, part in zip(sessions, pair, parts, strict=True):
            part.append(session.step(frame))
    for part, want in zip(parts, alone, strict=True):
        got = join(piece for piece in part if len(piece))
        assert all(torch.equal(got[key], want[key]) for key in want)


class Interrupted(GeometryModel):
    """Fails in the middle of the trunk when told to."""

    fail = False

    def forward(self, images: Tensor, recall: Any, grid: Any) -> Any:
        if self.fail:
            recall = FailingRecall(recall)
        return super().forward(images, recall, grid)


class FailingRecall(HostOrdinals):
    def __init__(self, recall: StreamRecall) -> None:
        self._recall = recall
        self.ordinals = recall.ordinals
        self.num_scale_frames = recall.num_scale_frames

    def attend(self, stream: str, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        attended = self._recall.attend(stream, layer, q, k, v)
        if layer == 2:
            raise RuntimeError("the power went out")
        return attended


def test_failing_frame_and_fork_leave_the_next_outputs_bit_identical(
    golden_frames: Tensor, tiny_model: GeometryModel
) -> None:
    failing = Interrupted(tiny_model.config)
    failing.load_state_dict(tiny_model.state_dict())
    plain, disturbed = open_session(tiny_model), open_session(failing.requires_grad_(False), reserve_frames=12)
    for index, frame in enumerate(golden_frames[0, :10]):
        other = golden_frames[0, (index + 5) % 14]
        failing.fail = True
        if index:
            with pytest.raises(RuntimeError, match="power"):
                disturbed.step(other)
        failing.fail = False
        with disturbed.fork() as fork:
            fork.step(other)
            fork.step(frame)
        assert equal(disturbed.step(frame), plain.step(frame))
    assert disturbed.num_kept == plain.num_kept == 10


def test_fork_goes_on_alone_while_its_parent_moves(golden_frames: Tensor, tiny_model: GeometryModel) -> None:
    frames = golden_frames[0]
    still, moving = open_session(tiny_model, reserve_frames=16), open_session(tiny_model, reserve_frames=16)
    for frame in frames[:7]:
        still.step(frame)
        moving.step(frame)
    with still.fork() as quiet, moving.fork() as lasting:
        for frame in frames[7:]:
            moving.step(frame)
        for frame in frames[7:12]:
            assert equal(lasting.step(frame), quiet.step(frame))


@pytest.mark.parametrize("rule", [ByFlow(15.0, max_gap=4), ByFlow(1e6, max_gap=50)])
def test_session_that_keeps_by_flow_resumes_bit_identically(
    rule: ByFlow, tmp_path: Path, golden_frames: Tensor, tiny_model: GeometryModel
) -> None:
    session = SequenceSession(tiny_model, make_plan(tiny_model), keyframes=rule)
    for count, frame in enumerate(golden_frames[0, :12]):
        path = tmp_path / f"{count}.safetensors"
        session.save(path)
        resumed = SequenceSession.resume(path, tiny_model)
        got, want = resumed.step(frame), session.step(frame)
        assert equal(got, want)
        assert (got.kind, got.frame_index) == (want.kind, want.frame_index)


RESUME = """
import sys, torch
from pathlib import Path
from safetensors.torch import load_file, save_file
from longtake.geometry.config import GeometryConfig
from longtake.geometry.model import GeometryModel
from longtake.runtime.session import SequenceSession
torch.set_num_threads(1)
folder = Path(sys.argv[1])
model = GeometryModel(GeometryConfig.from_json((folder / "config.json").read_text()))
model.load_state_dict(load_file(folder / "weights.safetensors"))
session = SequenceSession.resume(folder / "session.safetensors", model.eval().requires_grad_(False))
parts = [part for part in map(session.step, load_file(folder / "rest.safetensors")["frames"]) if len(part)]
parts += [part for part in [session.finish()] if len(part)]
save_file({"pose": torch.cat([p.pose_encoding for p in parts]), "depth": torch.cat([p.depth for p in parts])},
          folder / "out.safetensors")
print([i for part in parts for i in part.frame_index])
"""


@pytest.mark.parametrize("stop_after", rest_in_extra([9, 2, 0, 1], keep=1))
def test_saved_session_resumes_bit_identically_in_a_new_process(
    stop_after: int,
    tmp_path: Path,
    golden_frames: Tensor,
    tiny_model: GeometryModel,
    run_program: Callable[..., Done],
) -> None:
    from safetensors.torch import load_file, save_file

    frames = golden_frames[0]
    session = open_session(tiny_model, interval=2)
    answered = sum(len(session.step(frame)) for frame in frames[:stop_after])
    session.save(tmp_path / "session.safetensors")
    rest = join([part for part in map(session.step, frames[stop_after:]) if len(part)])
    save_file(tiny_model.state_dict(), tmp_path / "weights.safetensors")
    save_file({"frames": frames[stop_after:].clone()}, tmp_path / "rest.safetensors")
    (tmp_path / "config.json").write_text(tiny_model.config.to_json())
    done = run_program(RESUME, str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(list(range(answered, 14)))
    resumed = load_file(tmp_path / "out.safetensors")
    assert torch.equal(resumed["pose"], rest["pose_encoding"])
    assert torch.equal(resumed["depth"], rest["depth"])


def test_saved_session_refuses_other_weights_and_damaged_files(
    tmp_path: Path, golden_frames: Tensor, tiny_model: GeometryModel, tiny_config: GeometryConfig
) -> None:
    session = open_session(tiny_model)
    list(session.run(golden_frames[0, :4]))
    path = tmp_path / "session.safetensors"
    session.save(path)
    with pytest.raises(SavedSessionError, match="load the weights it was made with"):
        SequenceSession.resume(path, GeometryModel(tiny_config))
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(SavedSessionError, match="not a complete saved session"):
        SequenceSession.resume(path, tiny_model)
    with pytest.raises(SavedSessionError, match=r"There is no saved session at .*absent\.safetensors"):
        SequenceSession.resume(tmp_path / "absent.safetensors", tiny_model)
    with session.fork() as fork, pytest.raises(ForkError, match="save the memory it was made from"):
        fork.save(path)


def test_session_of_format_1_resumes(tmp_path: Path, golden_frames: Tensor, tiny_model: GeometryModel) -> None:
    session, path = open_session(tiny_model), tmp_path / "session.safetensors"
    for frame in golden_frames[0, :5]:
        session.step(frame)
    record = session.record().to_dict()
    assert record.pop("windowed") is None
    write_tensors(path, session.contents(), record | {"format": 1})
    assert equal(SequenceSession.resume(path, tiny_model).step(golden_frames[0, 5]), session.step(golden_frames[0, 5]))


SPOILING: tuple[tuple[Callable[[Tensor], Tensor], str], ...] = (
    (lambda frame: frame[:, :28], "Expected a frame of 3 x 42 x 70 .* got 3 x 28 x 70; resize it"),
    (lambda frame: frame[0], "Expected a frame of 3 x 42 x 70"),
    (lambda frame: frame.clone().fill_(float("nan")), "finite pixels"),
    (lambda frame: frame * 255, "from 0 to 1, but they run from .*; divide by"),
    (lambda frame: (frame * 255).int(), "as bytes or floats, but got int32"),
)


def test_bad_frame_is_refused_and_the_session_unchanged(golden_frames: Tensor, tiny_model: GeometryModel) -> None:
    plain, disturbed = open_session(tiny_model), open_session(tiny_model)
    for frame in golden_frames[0, :6]:
        for spoil, sentence in SPOILING:
            with pytest.raises(InputError, match=sentence):
                disturbed.step(spoil(frame))
        assert equal(disturbed.step(frame), plain.step(frame))


def test_zero_one_and_too_few_frames(golden_frames: Tensor, tiny_model: GeometryModel) -> None:
    empty = open_session(tiny_model)
    assert list(empty.run(golden_frames[0, :0])) == []
    assert len(empty.finish()) == 0
    for count in (1, 3):
        short = open_session(tiny_model, num_scale_frames=8)
        assert all(len(short.step(frame)) == 0 for frame in golden_frames[0, :count])
        geometry = short.finish()
        assert geometry.frame_index == tuple(range(count))
        assert all(geometry.is_keyframe)
        exact = join(open_session(tiny_model, num_scale_frames=count).run(golden_frames[0, :count]))
        assert torch.equal(geometry.pose_encoding, exact["pose_encoding"])


def test_bytes_and_floats_are_the_same_frame(
    golden: Callable[[str], Any], golden_frames: Tensor, tiny_model: GeometryModel
) -> None:
    from_bytes = join(open_session(tiny_model).run(golden("frames")["frames_u8"][:4]))
    from_floats = join(open_session(tiny_model).run(golden_frames[0, :4]))
    assert torch.equal(from_bytes["depth"], from_floats["depth"])


def test_bytes_and_floats_that_wait_together_resume_as_they_were(
    tmp_path: Path, golden: Callable[[str], Any], golden_frames: Tensor, tiny_model: GeometryModel
) -> None:
    session = open_session(tiny_model, num_scale_frames=3)
    session.step(golden("frames")["frames_u8"][0])
    session.step(golden_frames[0, 1])
    session.save(tmp_path / "session.safetensors")
    resumed = SequenceSession.resume(tmp_path / "session.safetensors", tiny_model)
    assert equal(resumed.step(golden_frames[0, 2]), session.step(golden_frames[0, 2]))


def test_storage_type_that_could_not_be_resumed_is_refused(tiny_model: GeometryModel) -> None:
    with pytest.raises(SettingError, match=r"stored as one of torch\.float32"):
        make_plan(tiny_model, trunk_dtype=torch.float64)


def test_caller_may_fill_one_buffer_with_every_frame(golden_frames: Tensor, tiny_model: GeometryModel) -> None:
    apart, reused = open_session(tiny_model, num_scale_frames=4), open_session(tiny_model, num_scale_frames=4)
    buffer = torch.empty_like(golden_frames[0, 0])
    for frame in golden_frames[0, :6]:
        buffer.copy_(frame)
        assert equal(reused.step(buffer), apart.step(frame))


def test_more_frames_than_the_published_phase_table_are_fine(golden_frames: Tensor, tiny_model: GeometryModel) -> None:
    session = open_session(tiny_model, retention=ContextRetention(anchors=2, window=1, history=4))
    pool = session._memory._pool
    pool._state.become(pool.state.changed(ROOT, {}, num_kept=1100))
    session._clock.become(replace(session._clock.value, scale_block=2))
    for frame in golden_frames[0, :4]:
        assert bool(torch.isfinite(session.step(frame).depth).all())
    assert session.num_kept == 1104


def test_budget_shrinks_history_first_then_window_then_refuses(tiny_model: GeometryModel) -> None:
    plan = make_plan(tiny_model, retention=ContextRetention(anchors=2, window=6, history=40))
    requirements = plan.requirements
    full = requirements.num_bytes(40)
    assert SequenceSession(tiny_model, plan, budget_bytes=full).plan == plan
    tighter = SequenceSession(tiny_model, plan, budget_bytes=full - 1)
    assert tighter.plan.retention == replace(plan.retention, history=39)
    assert tighter.num_bytes <= full - 1
    tight = SequenceSession(tiny_model, plan, budget_bytes=full // 3)
    assert tight.plan.retention.window < 6
    assert tight.num_bytes <= full // 3
    with pytest.raises(BudgetError, match=r"the smallest that works is .*\((\d+) bytes\)") as refused:
        SequenceSession(tiny_model, plan, budget_bytes=1000)
    smallest = int(str(refused.value).rsplit("(", 1)[1].split(" ")[0])
    assert SequenceSession(tiny_model, plan, budget_bytes=smallest).num_bytes == smallest
    with pytest.raises(BudgetError):
        SequenceSession(tiny_model, plan, budget_bytes=smallest - 1)


def test_memory_larger_than_the_device_is_refused_before_the_first_frame(tiny_model: GeometryModel) -> None:
    plan = make_plan(tiny_model, retention=ContextRetention(anchors=2, window=10**9, history=10**9 + 2))
    with pytest.raises(BudgetError, match="cpu has room for"):
        SequenceSession(tiny_model, plan)


def test_recording_is_refused_without_a_gpu(tiny_model: GeometryModel) -> None:
    with pytest.raises(SettingError, match="needs a CUDA device, but the model is on cpu"):
        SequenceSession(tiny_model, make_plan(tiny_model), capture=True)


def test_unbounded_history_runs_until_its_budget_is_full(golden_frames: Tensor, tiny_model: GeometryModel) -> None:
    plan = make_plan(tiny_model, retention=replace(SMALL, history=None))
    budget = plan.requirements.num_bytes(9)
    session = SequenceSession(tiny_model, plan, budget_bytes=budget)
    assert session.num_bytes <= budget
    frames = golden_frames[0]
    with pytest.raises(MemoryFullError, match="larger budget"):
        list(session.run(frames))
    assert session.num_kept == 10


def test_keyframe_flags_and_indices_follow_the_interval(golden_frames: Tensor, tiny_model: GeometryModel) -> None:
    parts = list(open_session(tiny_model, interval=3).run(golden_frames[0]))
    assert [index for part in parts for index in part.frame_index] == list(range(14))
    kept = [index for part in parts for index, is_key in zip(part.frame_index, part.is_keyframe, strict=True) if is_key]
    assert kept == [0, 1, 2, 5, 8, 11]


def test_cleared_session_is_like_new(golden_frames: Tensor, tiny_model: GeometryModel) -> None:
    used, fresh = open_session(tiny_model), open_session(tiny_model)
    list(used.run(golden_frames[0]))
    used.clear()
    for frame in golden_frames[0, :7]:
        assert equal(used.step(frame), fresh.step(frame))


def test_timestamps_are_those_given_or_else_the_index(
    tmp_path: Path, golden_frames: Tensor, tiny_model: GeometryModel
) -> None:
    frames = golden_frames[0]
    session = open_session(tiny_model, num_scale_frames=3)
    session.step(frames[0], timestamp_s=10.5)
    session.step(frames[1])
    session.save(tmp_path / "session.safetensors")
    for branch in (session, SequenceSession.resume(tmp_path / "session.safetensors", tiny_model)):
        assert branch.step(frames[2], timestamp_s=11.5).timestamp_s == (10.5, 1.0, 11.5)
        assert branch.step(frames[3]).timestamp_s == (3.0,)
        assert branch.step(frames[4], timestamp_s=0.25).timestamp_s == (0.25,)
        assert branch.step(frames[5]).timestamp_s == (5.0,)
    session.clear()
    assert session.step(frames[0]).timestamp_s == ()
    session.step(frames[1])
    assert session.step(frames[2]).timestamp_s == (0.0, 1.0, 2.0)


def test_session_cleared_while_frames_wait_forgets_them(golden_frames: Tensor, tiny_model: GeometryModel) -> None:
    session = open_session(tiny_model)
    session.step(golden_frames[0, 5])
    session.clear()
    got = join(session.run(golden_frames[0, :3]))
    want = join(open_session(tiny_model).run(golden_frames[0, :3]))
    assert torch.equal(got["depth"], want["depth"])


def test_scale_block_cut_short_goes_on_as_a_session_of_that_scale_block(
    golden_frames: Tensor, tiny_model: GeometryModel
) -> None:
    cut, exact = open_session(tiny_model, num_scale_frames=8, interval=3), open_session(tiny_model, interval=3)
    for frame in golden_frames[0, :2]:
        cut.step(frame)
    parts = [cut.finish(), *(cut.step(frame) for frame in golden_frames[0, 2:8])]
    want = list(exact.run(golden_frames[0, :8]))
    assert [part.frame_index for part in parts] == [part.frame_index for part in want]
    assert [part.kind for part in parts] == [part.kind for part in want]
    assert all(equal(got, part) for got, part in zip(parts, want, strict=True))


def test_camera_matrices_are_decoded_for_the_size_of_the_session(
    golden_frames: Tensor, tiny_model: GeometryModel
) -> None:
    for geometry in open_session(tiny_model).run(golden_frames[0, :4]):
        world_from_camera, intrinsics = decode_pose(geometry.pose_encoding, *SIZE)
        assert torch.equal(geometry.world_from_camera, world_from_camera)
        assert torch.equal(geometry.intrinsics, intrinsics)


def test_points_before_the_camera_come_from_checkpoints_that_have_them(
    golden_frames: Tensor, tiny_config: GeometryConfig
) -> None:
    torch.manual_seed(0)
    model = GeometryModel(replace(tiny_config, dense=replace(tiny_config.dense, points=False, camera_points=True)))
    (geometry,) = open_session(model.eval().requires_grad_(False)).run(golden_frames[0, :2])
    assert geometry.points is geometry.points_confidence is None
    assert geometry.camera_points is not None
    assert geometry.camera_points.shape == (2, *SIZE, 3)
    assert geometry.camera_points_confidence is not None
    assert geometry.camera_points_confidence.shape == (2, *SIZE)


def test_closed_session_takes_no_frames(golden_frames: Tensor, tiny_model: GeometryModel) -> None:
    session = open_session(tiny_model, num_scale_frames=1, reserve_frames=2)
    session.step(golden_frames[0, 0])
    with session.fork() as fork:
        fork.step(golden_frames[0, 1])
    with pytest.raises(ForkError, match="ended"):
        fork.step(golden_frames[0, 2])
    assert all(use.live == tokens for use, tokens in zip(session.use().values(), (21, 1), strict=True))


def test_resumed_session_has_the_backend_and_the_memory_it_was_saved_with(
    tmp_path: Path, golden_frames: Tensor, tiny_model: GeometryModel
) -> None:
    plan = make_plan(tiny_model, retention=replace(SMALL, history=None))
    budget = plan.requirements.num_bytes(20)
    session = SequenceSession(tiny_model, plan, backend=ReferenceBackend(), budget_bytes=budget)
    list(session.run(golden_frames[0, :5]))
    session.save(tmp_path / "session.safetensors")
    resumed = SequenceSession.resume(tmp_path / "session.safetensors", tiny_model)
    assert resumed._backend.name == "reference"
    assert resumed.num_bytes == session.num_bytes
    assert resumed.plan == session.plan
    assert resumed.use() == session.use()
    other = SequenceSession.resume(tmp_path / "session.safetensors", tiny_model, backend=SdpaBackend())
    assert other._backend.name == "sdpa"


def test_half_precision_memory_resumes_bit_identically(
    tmp_path: Path, golden_frames: Tensor, tiny_model: GeometryModel
) -> None:
    session = open_session(tiny_model, trunk_dtype=torch.bfloat16)
    for frame in golden_frames[0, :8]:
        session.step(frame)
    session.save(tmp_path / "session.safetensors")
    resumed = SequenceSession.resume(tmp_path / "session.safetensors", tiny_model)
    for frame in golden_frames[0, 8:11]:
        assert equal(resumed.step(frame), session.step(frame))


def test_floats_a_rounding_error_beyond_their_range_are_taken(golden_frames: Tensor, tiny_model: GeometryModel) -> None:
    session = open_session(tiny_model)
    session.step(golden_frames[0, 0].clone().fill_(1.005))
    session.step(golden_frames[0, 0].clone().fill_(-0.005))
    with pytest.raises(InputError, match=r"run from -0\.5 to"):
        session.step(golden_frames[0, 0] - 0.5 - golden_frames[0, 0].min())


def test_frames_say_what_part_they_play(golden_frames: Tensor, tiny_model: GeometryModel) -> None:
    parts = list(open_session(tiny_model, interval=2).run(golden_frames[0, :5]))
    scale, keyframe, passing = FrameKind.SCALE, FrameKind.KEYFRAME, FrameKind.PASSING
    assert [part.kind for part in parts] == [(scale, scale), (keyframe,), (passing,), (keyframe,)]


def test_video_shorter_than_the_scale_block_is_answered_when_it_ends(
    golden_frames: Tensor, tiny_model: GeometryModel
) -> None:
    (geometry,) = open_session(tiny_model, num_scale_frames=8).run(golden_frames[0, :3])
    assert geometry.frame_index == (0, 1, 2)


def test_only_the_first_frame_after_the_scale_block_is_kept_unseen_after_a_resume_too(
    tmp_path: Path, golden_frames: Tensor, tiny_model: GeometryModel
) -> None:
    session = SequenceSession(tiny_model, make_plan(tiny_model), keyframes=ByFlow(1e6, max_gap=100))
    kinds = []
    for count, frame in enumerate(golden_frames[0, :5]):
        session.save(tmp_path / f"{count}.safetensors")
        session = SequenceSession.resume(tmp_path / f"{count}.safetensors", tiny_model)
        kinds += session.step(frame).kind
    assert kinds == ["scale", "scale", "keyframe", "passing", "passing"]
