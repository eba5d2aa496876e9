"""Windows against golden runs, their true spans, what is emitted when, and sessions of windows saved and resumed."""

import copy
import gzip
import itertools
import json
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from done import Done
from safetensors.torch import load_file, save_file
from selected import rest_in_extra
from torch import Tensor

from longtake.attention.backend import ReferenceBackend
from longtake.errors import ForkError, InputError, SavedSessionError, SettingError
from longtake.geometry.config import CameraConfig, DenseConfig, EncoderConfig, GeometryConfig, TrunkConfig
from longtake.geometry.model import GeometryModel
from longtake.memory.policies.lockstep import ContextRetention
from longtake.memory.saved import Pieces, SavedTensors, write_tensors
from longtake.runtime.alignment import Alignment, Anchoring, ScaleEstimate
from longtake.runtime.keyframes import ByFlow, EveryNth, KeyframeRule
from longtake.runtime.memory_plan import MemoryPlan
from longtake.runtime.session import SequenceSession
from longtake.runtime.steps import FinalResults
from longtake.runtime.windowed import WindowedSession, WindowSpan, resume_session
from longtake.runtime.windows import WindowRule, Windows
from longtake.types import FrameKind, Geometry, Moved

SIZE = (42, 70)
TRACES = json.loads(gzip.decompress((Path(__file__).parent.parent / "golden/gct/traces.json.gz").read_bytes()))


def open_session(model: GeometryModel, keyframes: KeyframeRule | None = None) -> SequenceSession:
    retention = ContextRetention(anchors=2, window=3)
    plan = MemoryPlan(config=model.config, size=SIZE, retention=retention, num_scale_frames=2)
    return SequenceSession(model, plan, keyframes=keyframes)


GOLDEN_RUNS: dict[str, tuple[KeyframeRule, Windows]] = {
    "windowed_w6_o3": (EveryNth(1), Windows(size=6, overlap_frames=3)),
    "windowed_w5_default": (EveryNth(1), Windows(size=5)),
    "windowed_kf2_okf2": (EveryNth(2), Windows(size=5, overlap_keyframes=2)),
    "windowed_kf3_okf1": (EveryNth(3), Windows(size=4, overlap_keyframes=1)),
    "windowed_single": (EveryNth(1), Windows(size=64)),
    "windowed_flow": (ByFlow(22.0, max_gap=3), Windows(size=5, overlap_frames=2)),
}
KIND_CODES = {FrameKind.SCALE: 0, FrameKind.KEYFRAME: 1, FrameKind.PASSING: 2}


def unit_quaternions(pose_encoding: Tensor) -> Tensor:
    """A first or only window keeps the network's quaternions as they came; golden runs may have normed them."""
    quaternion = torch.nn.functional.normalize(pose_encoding[:, 3:7], dim=1)
    quaternion = torch.where(quaternion[:, 3:] < 0, -quaternion, quaternion)
    return torch.cat([pose_encoding[:, :3], quaternion, pose_encoding[:, 7:]], dim=1)


@pytest.mark.parametrize("name", rest_in_extra(GOLDEN_RUNS, keep=3))
def test_windows_reproduce_the_golden_run(
    name: str, golden: Callable[[str], Any], golden_frames: Tensor, tiny_model: GeometryModel
) -> None:
    want = golden(name)
    keyframes, windows = GOLDEN_RUNS[name]
    session = WindowedSession(open_session(tiny_model, keyframes), windows)
    got = Geometry.join(list(session.run(golden_frames[0])))
    assert got.frame_index == tuple(range(14))
    if name == "windowed_single":
        want.check("pose_enc", got.pose_encoding)
    else:
        want.check("pose_enc", unit_quaternions(got.pose_encoding))
        want.check("chunk_scales", torch.stack([span.world_from_window.scale for span in session.windows]))
        rigid = torch.stack([span.world_from_window.matrix for span in session.windows])
        rigid[:, :3, :3] /= torch.stack([span.world_from_window.scale for span in session.windows])[:, None, None]
        want.check("chunk_transforms", rigid)
    want.check("depth", got.depth)
    assert [KIND_CODES[kind] for kind in got.kind] == want["frame_type"].tolist()
    assert list(got.is_keyframe) == want["is_keyframe"].tolist()
    if name == "windowed_w6_o3":
        want.check("depth_conf", got.depth_confidence)
        want.check("world_points", got.points)
        want.check("world_points_conf", got.points_confidence)


def test_older_alignment_rule_reproduces_the_golden_run(
    golden: Callable[[str], Any], golden_frames: Tensor, tiny_model: GeometryModel
) -> None:
    want = golden("windowed_w6_o3_legacy_align")
    rule = Alignment(Anchoring.FIRST_FRAME)
    session = WindowedSession(open_session(tiny_model), Windows(size=6, overlap_frames=3), rule)
    got = Geometry.join(list(session.run(golden_frames[0])))
    want.check("pose_enc", unit_quaternions(got.pose_encoding))
    want.check("chunk_scales", torch.stack([span.world_from_window.scale for span in session.windows]))


@pytest.mark.parametrize("case", TRACES["windows"], ids=lambda case: "-".join(str(case[key]) for key in list(case)[:6]))
def test_spans_are_those_of_the_published_tool_or_refused_where_it_loses_frames(case: dict[str, Any]) -> None:
    windows = Windows(
        size=case["window_size"], overlap_frames=case["overlap_size"], overlap_keyframes=case["overlap_keyframes"]
    )
    keyframes = EveryNth(max(case["keyframe_interval"], 1))
    if case["merged_frames"] < case["S"]:
        with pytest.raises(SettingError, match=r"no room beside its|frames would be lost"):
            WindowRule.of(windows, case["num_scale_frames"], keyframes)
        return
    rule = WindowRule.of(windows, case["num_scale_frames"], keyframes)
    assert [list(span) for span in rule.spans(case["S"])] == case["windows"]
    if len(case["windows"]) > 1:
        assert rule.overlap == case["overlap"]


@pytest.mark.parametrize("name", rest_in_extra(GOLDEN_RUNS, keep=2))
def test_every_frame_is_emitted_once_in_order_and_as_soon_as_final(
    name: str, golden_frames: Tensor, tiny_model: GeometryModel
) -> None:
    keyframes, windows = GOLDEN_RUNS[name]
    session = WindowedSession(open_session(tiny_model, keyframes), windows)
    rule = WindowRule.of(windows, 2, keyframes)
    emitted: list[int] = []
    for index, frame in enumerate(golden_frames[0]):
        emitted += session.step(frame).frame_index
        behind = index + 1 - len(emitted)
        assert behind <= max(rule.overlap, 2)
    if rule.length is not None:
        spans = list(rule.spans(14))
        assert [(span.first_frame, span.first_frame + span.num_frames) for span in session.windows] == spans
    emitted += session.finish().frame_index
    assert emitted == list(range(14))
    spans_seen = session.windows
    for before, after in itertools.pairwise(spans_seen):
        assert after.first_frame == before.first_frame + before.num_frames - after.num_shared
        assert after.num_shared >= 1


@pytest.mark.parametrize("num_frames", rest_in_extra([5, 1, 11, 2, 3, 4, 6, 7, 8, 9, 10], keep=3))
def test_video_of_any_length_is_answered_whole(
    num_frames: int, golden_frames: Tensor, tiny_model: GeometryModel
) -> None:
    for keyframes, windows in ((EveryNth(1), Windows(size=5, overlap_frames=1)), (ByFlow(22.0), Windows(size=3))):
        session = WindowedSession(open_session(tiny_model, keyframes), windows)
        frames = golden_frames[0, :num_frames]
        assert [i for part in session.run(frames) for i in part.frame_index] == list(range(num_frames))


def test_bad_frame_leaves_a_windowed_session_unchanged(golden_frames: Tensor, tiny_model: GeometryModel) -> None:
    plain = WindowedSession(open_session(tiny_model), Windows(size=5))
    disturbed = WindowedSession(open_session(tiny_model), Windows(size=5))
    for frame in golden_frames[0, :9]:
        with pytest.raises(InputError, match="resize it"):
            disturbed.step(frame[:, :28])
        got, want = disturbed.step(frame), plain.step(frame)
        assert got.frame_index == want.frame_index
        assert torch.equal(got.pose_encoding, want.pose_encoding)
    assert disturbed.finish().frame_index == plain.finish().frame_index


def fail_at_second_call(look: Callable[..., Any]) -> Callable[..., Any]:
    working = iter([look])

    def call(*arguments: Any) -> Any:
        for first in working:
            return first(*arguments)
        raise RuntimeError("the power went out")

    return call


def test_window_that_fails_to_begin_begins_at_the_next_step(
    golden_frames: Tensor, tiny_model: GeometryModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = WindowedSession(open_session(tiny_model), Windows(size=5, overlap_frames=3))
    inner = open_session(tiny_model)
    disturbed = WindowedSession(inner, Windows(size=5, overlap_frames=3))
    for index, frame in enumerate(golden_frames[0, :9]):
        if index == 5:
            with monkeypatch.context() as patch:
                patch.setattr(inner, "look", fail_at_second_call(inner.look))
                with pytest.raises(RuntimeError, match="power"):
                    disturbed.step(frame)
        got, want = disturbed.step(frame), plain.step(frame)
        assert got.frame_index == want.frame_index
        assert torch.equal(got.depth, want.depth)
        assert torch.equal(got.pose_encoding, want.pose_encoding)


def test_video_that_ends_where_a_window_failed_to_begin_is_answered_once(
    golden_frames: Tensor, tiny_model: GeometryModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    for keyframes in (EveryNth(1), ByFlow(1e-3)):
        inner = open_session(tiny_model, keyframes)
        session = WindowedSession(inner, Windows(size=5, overlap_frames=3))
        emitted = [index for frame in golden_frames[0, :5] for index in session.step(frame).frame_index]
        with monkeypatch.context() as patch:
            patch.setattr(inner, "look", fail_at_second_call(inner.look))
            with pytest.raises(RuntimeError, match="power"):
                session.step(golden_frames[0, 5])
        assert [*emitted, *session.finish().frame_index] == list(range(5))


@pytest.mark.parametrize("num_frames", [3, 4, 5])
def test_finished_session_takes_frames_until_it_would_have_to_take_results_back(
    num_frames: int, golden_frames: Tensor, tiny_model: GeometryModel
) -> None:
    session = WindowedSession(open_session(tiny_model), Windows(size=5, overlap_frames=3))
    list(session.run(golden_frames[0, :num_frames]))
    later = [session.step(frame).frame_index for frame in golden_frames[0, num_frames:5]]
    assert later == [(index,) for index in range(num_frames, 5)]
    for _ in range(2):
        with pytest.raises(InputError, match=r"was finished, .* open a new session"):
            session.step(golden_frames[0, 5])
    assert len(session.finish()) == 0
    assert session.num_final == 5


def test_timestamps_and_windows_follow_the_frames(golden_frames: Tensor, tiny_model: GeometryModel) -> None:
    session = WindowedSession(open_session(tiny_model), Windows(size=5))
    results = FinalResults(session.provisional)
    parts = []
    for index, frame in enumerate(golden_frames[0]):
        parts += results.add(session.step(frame, 0.1 * index), session.num_final)
    whole = Geometry.join(parts + results.add(session.finish(), session.num_final))
    assert whole.timestamp_s == tuple(0.1 * index for index in range(14))
    assert whole.window == (0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 3, 3)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: WindowRule.of(Windows(size=2), 2, EveryNth(1)), "no room beside its 2 scale frames; give at least 3"),
        (lambda: WindowRule.of(Windows(size=6, overlap_frames=6), 2, EveryNth(1)), "give an overlap of at most 5"),
        (lambda: WindowRule.of(Windows(size=4, overlap_keyframes=4), 2, EveryNth(2)), "frames would be lost"),
        (lambda: Windows(size=0), "positive window size"),
        (lambda: Windows(size=6, overlap_frames=0), "positive window size"),
        (lambda: Windows(size=6, overlap_frames=3, overlap_keyframes=2), "got both"),
        (lambda: ByFlow(-1.0), "above 0 pixels"),
        (lambda: ByFlow(float("nan")), "above 0 pixels"),
        (lambda: ByFlow(5.0, max_gap=0), "gap of at least 1"),
        (lambda: EveryNth(0), "interval of at least 1"),
    ],
)
def test_settings_that_would_lose_frames_or_mean_nothing_are_refused(make: Callable[[], object], sentence: str) -> None:
    with pytest.raises(SettingError, match=sentence):
        make()


SMALL_SIZE = (28, 28)
SMALL = GeometryConfig(
    width=32,
    patch=14,
    encoder=EncoderConfig(depth=1, heads=2, registers=1, side=2),
    trunk=TrunkConfig(depth=4, heads=2, registers=1, selected=(0, 1, 2, 3)),
    camera=CameraConfig(depth=1, heads=2, iterations=1),
    dense=DenseConfig(features=8, channels=(8, 8, 8, 8), points=True, camera_points=True),
)


@pytest.fixture(scope="module")
def small_model() -> GeometryModel:
    """Quick, and so lively that memory, scale and flow show in every result."""
    torch.manual_seed(0)
    model = GeometryModel(SMALL).eval().requires_grad_(False)
    for name, tensor in model.state_dict().items():
        if name.endswith("gamma"):
            tensor.fill_(1.0)
        elif name.startswith("tokens."):
            tensor.normal_()
        elif name.startswith("depth_head") and tensor.dim() == 4:
            tensor.mul_(1.6)
        elif name.startswith("camera_head.correction.fc2"):
            tensor.mul_(0.3)
    model.camera_head.correction.fc2.bias[7:] = 1.0
    return model


@dataclass(frozen=True, kw_only=True)
class Setting:
    """How a session of windows is opened."""

    windows: Windows
    keyframes: KeyframeRule | None = None
    alignment: Alignment | None = None
    num_scale_frames: int = 2
    reserve_frames: int = 0

    def open(self, model: GeometryModel, **session: Any) -> WindowedSession:
        plan = MemoryPlan(
            config=model.config,
            size=SMALL_SIZE,
            retention=ContextRetention(anchors=2, window=3),
            num_scale_frames=self.num_scale_frames,
            reserve_frames=self.reserve_frames,
        )
        inner = SequenceSession(model, plan, keyframes=self.keyframes, **session)
        return WindowedSession(inner, self.windows, self.alignment)


BY_FLOW = ByFlow(12.0, max_gap=5)
SETTINGS = {
    "overlap-in-frames": Setting(windows=Windows(size=5, overlap_frames=3)),
    "overlap-of-the-scale-block": Setting(windows=Windows(size=4), alignment=Alignment(Anchoring.FIRST_FRAME)),
    "overlap-shorter-than-the-scale-block": Setting(
        windows=Windows(size=6, overlap_frames=2), num_scale_frames=4, alignment=Alignment(Anchoring.ROBUST)
    ),
    "overlap-in-keyframes": Setting(
        windows=Windows(size=5, overlap_keyframes=2),
        keyframes=EveryNth(2),
        alignment=Alignment(Anchoring.KEYFRAME_PAIRS, ScaleEstimate.TRIMMED_MEAN),
    ),
    "every-third": Setting(windows=Windows(size=4, overlap_frames=1), keyframes=EveryNth(3)),
    "flow": Setting(windows=Windows(size=4, overlap_frames=2), keyframes=BY_FLOW),
    "flow-robust": Setting(
        windows=Windows(size=5, overlap_frames=4),
        keyframes=BY_FLOW,
        alignment=Alignment(Anchoring.ROBUST, ScaleEstimate.TRIMMED_MEAN),
    ),
    "one-window": Setting(windows=Windows(size=64)),
}
FLOW = SETTINGS["flow"]


def make_frames(num_frames: int) -> list[Tensor]:
    """Bytes, floats of every width, and pictures whose channels lie last."""
    generator = torch.Generator().manual_seed(1)
    as_bytes = torch.randint(256, (num_frames, *SMALL_SIZE, 3), generator=generator, dtype=torch.uint8)
    dtypes = (torch.uint8, torch.float32, torch.float16, torch.bfloat16, torch.float64)
    frames = []
    for index, picture in enumerate(as_bytes):
        dtype = dtypes[index % len(dtypes)]
        pixels = picture if dtype == torch.uint8 else (picture / 255).to(dtype)
        frames.append(pixels.permute(2, 0, 1) if index % 2 else pixels.permute(2, 0, 1).contiguous())
    return frames


def require_equal(got: Geometry, want: Geometry) -> None:
    """Every field, every bit, corrections of earlier frames included."""
    for field in fields(Geometry):
        a, b = getattr(got, field.name), getattr(want, field.name)
        if isinstance(b, Moved):
            require_equal_correction(a, b)
            continue
        same = torch.equal(a, b) and a.dtype == b.dtype if isinstance(b, Tensor) else a == b
        assert same, f"{field.name} of frames {want.frame_index}"


def require_equal_correction(got: Moved, want: Moved) -> None:
    assert got.version == want.version
    for a, b in zip(got.spans, want.spans, strict=True):
        assert (a.first_frame, a.last_frame) == (b.first_frame, b.last_frame)
        assert torch.equal(a.now_from_before, b.now_from_before)
    require_equal(got.geometry, want.geometry)


def require_equal_spans(got: Sequence[WindowSpan], want: Sequence[WindowSpan]) -> None:
    for a, b in zip(got, want, strict=True):
        frames = [(span.index, span.first_frame, span.num_frames, span.num_shared) for span in (a, b)]
        assert frames[0] == frames[1]
        assert torch.equal(a.world_from_window.scale, b.world_from_window.scale)
        assert torch.equal(a.world_from_window.rotation, b.world_from_window.rotation)
        assert torch.equal(a.world_from_window.translation, b.world_from_window.translation)


def steps(session: WindowedSession, frames: Sequence[Tensor], first: int = 0) -> list[Geometry]:
    """What each frame from `first` on gave, and the end."""
    parts = [session.step(frame, 0.1 * index) for index, frame in enumerate(frames) if index >= first]
    return [*parts, session.finish()]


@pytest.mark.parametrize(
    "name", rest_in_extra(["flow-robust", "overlap-in-frames", "overlap-shorter-than-the-scale-block"], keep=1)
)
def test_last_version_of_every_result_is_the_final_one(name: str, small_model: GeometryModel) -> None:
    setting, frames = SETTINGS[name], make_frames(18)
    newest: dict[int, Geometry] = {}
    final: dict[int, Geometry] = {}
    session, versions = setting.open(small_model), 0
    for frame in [*frames, None]:
        geometry = session.finish() if frame is None else session.step(frame)
        for part in [geometry] if geometry.moved is None else [geometry.moved.geometry, geometry]:
            for place, index in enumerate(part.frame_index):
                assert index not in final, "a result that is final was replaced"
                newest[index] = part.frames(place, place + 1)
                if not part.provisional[place]:
                    final[index] = newest[index]
        if geometry.moved is not None:
            versions += 1
            assert geometry.moved.version == versions
        assert all(index in newest for index in range(session.num_final))
        assert session.provisional.frame_index == tuple(index for index in newest if index >= session.num_final)
    want = Geometry.join(list(setting.open(small_model).run(frames)))
    settled = [replace(newest[index], provisional=(False,), moved=None) for index in range(18)]
    require_equal(Geometry.join(settled), want)
    assert versions == len(session.windows) - 1


@pytest.mark.parametrize(
    "name", rest_in_extra(["flow-robust", "overlap-in-frames", "overlap-of-the-scale-block"], keep=1)
)
def test_every_frame_after_the_scale_block_is_answered_at_once(name: str, small_model: GeometryModel) -> None:
    session = SETTINGS[name].open(small_model)
    given = [session.step(frame).frame_index for frame in make_frames(18)]
    scale = session.session.plan.num_scale_frames
    assert given == [()] * (scale - 1) + [tuple(range(scale))] + [(index,) for index in range(scale, 18)]


def test_correction_says_how_frames_moved_as_a_whole(small_model: GeometryModel) -> None:
    session = SETTINGS["overlap-in-frames"].open(small_model)
    newest: dict[int, Geometry] = {}
    spans = []
    for frame in make_frames(14):
        geometry = session.step(frame)
        if geometry.moved is not None:
            (span,) = geometry.moved.spans
            now = geometry.moved.geometry
            before = Geometry.join([newest[index] for index in now.frame_index])
            assert (span.first_frame, span.last_frame) == (now.frame_index[0], now.frame_index[-1])
            assert torch.equal(span.now_from_before, Alignment(Anchoring.ROBUST).align(now, before).matrix)
            spans.append(span)
            newest |= {index: now.frames(place, place + 1) for place, index in enumerate(now.frame_index)}
        newest |= {index: geometry.frames(place, place + 1) for place, index in enumerate(geometry.frame_index)}
    assert len(spans) == len(session.windows) - 1 > 3


@pytest.mark.parametrize(
    "name", rest_in_extra(["flow", "overlap-in-frames", "overlap-shorter-than-the-scale-block"], keep=1)
)
def test_fork_goes_on_alone_and_leaves_no_trace(name: str, small_model: GeometryModel) -> None:
    frames, setting = make_frames(14), replace(SETTINGS[name], reserve_frames=64)
    plain, forked = setting.open(small_model), setting.open(small_model)
    for index, frame in enumerate(frames):
        if index in (1, 6):
            fork, twin = forked.fork(), setting.open(small_model)
            for earlier in frames[:index]:
                twin.step(earlier)
            for later in [*frames[index : index + 6], None]:
                got, want = (side.finish() if later is None else side.step(later) for side in (fork, twin))
                assert (got.frame_index, got.provisional) == (want.frame_index, want.provisional)
                # a fork reads what it shares and what is its own as two blocks, merged by their log-sum-exp
                torch.testing.assert_close(got.world_from_camera, want.world_from_camera, rtol=1e-4, atol=1e-4)
            fork.close()
        require_equal(forked.step(frame), plain.step(frame))
    require_equal(forked.finish(), plain.finish())


@pytest.mark.parametrize("name", rest_in_extra(SETTINGS, keep=1))
def test_run_saved_and_resumed_after_every_frame_equals_the_unbroken_one(
    name: str, tmp_path: Path, small_model: GeometryModel
) -> None:
    setting, path = SETTINGS[name], tmp_path / "session.safetensors"
    plain, broken = setting.open(small_model), setting.open(small_model)
    for index, frame in enumerate(make_frames(30)):
        broken.save(path)
        broken = WindowedSession.resume(path, small_model)
        require_equal(broken.step(frame, 0.1 * index), plain.step(frame, 0.1 * index))
        if len(plain.windows) > 5:
            break
    broken.save(path)
    broken = WindowedSession.resume(path, small_model)
    require_equal(broken.finish(), plain.finish())
    require_equal_spans(broken.windows, plain.windows)
    assert len(plain.windows) > 4 or name == "one-window"


def require_any_to_go_on(setting: Setting, model: GeometryModel, counts: range, folder: Path) -> None:
    """Save after every frame; sessions resumed after these counts of frames, and the saving one, end as if unbroken."""
    frames = make_frames(counts.stop)
    plain, saving = setting.open(model), setting.open(model)
    want = steps(plain, frames)
    for count, frame in enumerate(frames):
        path = folder / f"{count}.safetensors"
        saving.save(path)
        if count in counts:
            resumed = WindowedSession.resume(path, model)
            require_equal_spans(resumed.windows, saving.windows)
            for got, part in zip(steps(resumed, frames, first=count), want[count:], strict=True):
                require_equal(got, part)
            require_equal_spans(resumed.windows, plain.windows)
        require_equal(saving.step(frame, 0.1 * count), want[count])
    require_equal(saving.finish(), want[-1])


@pytest.mark.parametrize(
    "name", rest_in_extra(["overlap-in-keyframes", "overlap-shorter-than-the-scale-block", "flow"], keep=1)
)
def test_saving_leaves_no_trace_and_resumed_sessions_go_on_to_the_end(
    name: str, tmp_path: Path, small_model: GeometryModel
) -> None:
    require_any_to_go_on(SETTINGS[name], small_model, range(3, 18, 7), tmp_path)


@pytest.mark.extra
@pytest.mark.parametrize("name", ["overlap-in-keyframes", "overlap-shorter-than-the-scale-block", "flow"])
def test_session_resumed_after_any_frame_goes_on_to_the_end(
    name: str, tmp_path: Path, small_model: GeometryModel
) -> None:
    require_any_to_go_on(SETTINGS[name], small_model, range(20), tmp_path)


def test_frames_that_may_be_looked_at_again_keep_their_type_and_timestamp(
    tmp_path: Path, small_model: GeometryModel
) -> None:
    session = Setting(windows=Windows(size=8, overlap_frames=5)).open(small_model)
    frames = make_frames(6)
    for index, frame in enumerate(frames):
        session.step(frame, 100 + 0.1 * index)
    session.save(tmp_path / "session.safetensors")
    recent = WindowedSession.resume(tmp_path / "session.safetensors", small_model)._clock.value.recent
    assert [timestamp_s for _, timestamp_s in recent] == [100 + 0.1 * index for index in range(1, 6)]
    assert [frame.dtype for frame, _ in recent] == [frame.dtype for frame in frames[1:]]
    assert all(torch.equal(frame, want) for (frame, _), want in zip(recent, frames[1:], strict=True))


def test_frames_without_timestamps_go_on_counting(tmp_path: Path, small_model: GeometryModel) -> None:
    session = FLOW.open(small_model)
    frames = make_frames(12)
    results = FinalResults(session.provisional)
    first = [part for frame in frames[:7] for part in results.add(session.step(frame), session.num_final)]
    session.save(tmp_path / "session.safetensors")
    rest = WindowedSession.resume(tmp_path / "session.safetensors", small_model).run(frames[7:])
    whole = Geometry.join([*first, *rest])
    assert whole.frame_index == tuple(range(12))
    assert whole.timestamp_s == tuple(map(float, range(12)))


@pytest.mark.parametrize("points", [False, True])
def test_point_heads_are_saved_where_there_are_any(points: bool, tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = replace(SMALL, dense=replace(SMALL.dense, points=points, camera_points=False))
    model = GeometryModel(config).eval().requires_grad_(False)
    session, frames = FLOW.open(model), make_frames(9)
    for frame in frames[:6]:
        session.step(frame)
    session.save(tmp_path / "session.safetensors")
    held = {name for name in load_file(tmp_path / "session.safetensors") if name.startswith("windowed.held.")}
    assert ("windowed.held.points" in held) is points
    assert "windowed.held.camera_points" not in held
    resumed = WindowedSession.resume(tmp_path / "session.safetensors", model)
    for frame in frames[6:]:
        require_equal(resumed.step(frame), session.step(frame))


def test_finished_session_is_saved_as_finished(tmp_path: Path, small_model: GeometryModel) -> None:
    session = FLOW.open(small_model)
    assert [index for part in session.run(make_frames(9)) for index in part.frame_index] == list(range(9))
    session.save(tmp_path / "session.safetensors")
    resumed = WindowedSession.resume(tmp_path / "session.safetensors", small_model)
    assert len(resumed.finish()) == 0
    require_equal_spans(resumed.windows, session.windows)


def test_session_saved_after_a_window_failed_to_begin_begins_it_when_resumed(
    tmp_path: Path, small_model: GeometryModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting, frames = SETTINGS["overlap-in-frames"], make_frames(14)
    plain, disturbed = setting.open(small_model), setting.open(small_model)
    for frame in frames[:5]:
        require_equal(disturbed.step(frame), plain.step(frame))
    with monkeypatch.context() as patch:
        patch.setattr(disturbed.session, "look", fail_at_second_call(disturbed.session.look))
        with pytest.raises(RuntimeError, match="power"):
            disturbed.step(frames[5])
    disturbed.save(tmp_path / "session.safetensors")
    resumed = WindowedSession.resume(tmp_path / "session.safetensors", small_model)
    for frame in frames[5:]:
        require_equal(resumed.step(frame), plain.step(frame))


def test_frame_whose_window_cannot_be_aligned_leaves_no_trace_and_may_come_again(
    tmp_path: Path, small_model: GeometryModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting, frames = SETTINGS["overlap-shorter-than-the-scale-block"], make_frames(14)
    plain, session = setting.open(small_model), setting.open(small_model)
    for frame in frames[:7]:
        require_equal(session.step(frame), plain.step(frame))

    def fail(*_: Any) -> None:
        raise RuntimeError("no memory for an alignment")

    with monkeypatch.context() as patch:
        patch.setattr(Alignment, "align", fail)
        with pytest.raises(RuntimeError, match="alignment"):
            session.step(frames[7])
    session.save(tmp_path / "session.safetensors")
    resumed = WindowedSession.resume(tmp_path / "session.safetensors", small_model)
    for frame in frames[7:]:
        want = plain.step(frame)
        require_equal(session.step(frame), want)
        require_equal(resumed.step(frame), want)
    require_equal_spans(resumed.windows, plain.windows)


@pytest.mark.extra
@pytest.mark.parametrize("name", ["overlap-shorter-than-the-scale-block", "flow"])
def test_resumed_session_holds_nothing_of_its_file(name: str, tmp_path: Path, small_model: GeometryModel) -> None:
    session, frames, path = SETTINGS[name].open(small_model), make_frames(20), tmp_path / "session.safetensors"
    for frame in frames:
        session.save(path)
        resumed = WindowedSession.resume(path, small_model)
        with path.open("r+b") as file:
            file.write(bytes(path.stat().st_size))
        require_equal_spans(resumed.windows, session.windows)
        require_equal(resumed.step(frame), session.step(frame))


def test_file_grows_by_one_line_a_window(tmp_path: Path, small_model: GeometryModel) -> None:
    session, path = Setting(windows=Windows(size=3, overlap_frames=1)).open(small_model), tmp_path / "it.safetensors"
    sizes = []
    for index, frame in enumerate(make_frames(31)):
        session.step(frame.double() / 255 if frame.dtype == torch.uint8 else frame.double(), float(index))
        if len(session.windows) in (5, 15) and session.windows[-1].num_frames == 2:
            session.save(path)
            sizes.append(path.stat().st_size)
    assert sizes[1] - sizes[0] <= 10 * 100


RESUME = """
import os, signal, sys, torch
from pathlib import Path
from safetensors.torch import load_file, save_file
from longtake.geometry.config import GeometryConfig
from longtake.geometry.model import GeometryModel
from longtake.memory import saved
from longtake.runtime.windowed import resume_session
torch.set_num_threads(1)
folder = Path(sys.argv[1])
model = GeometryModel(GeometryConfig.from_json((folder / "config.json").read_text()))
model.load_state_dict(load_file(folder / "weights.safetensors"))
session = resume_session(folder / "session.safetensors", model.eval().requires_grad_(False))
rest = load_file(folder / "rest.safetensors")
parts = [part for part in session.run(rest[name] for name in sorted(rest)) if len(part)]
names = ("pose_encoding", "depth", "depth_confidence", "points", "camera_points")
save_file({name: torch.cat([getattr(part, name) for part in parts]) for name in names}, folder / "out.safetensors")
written = 0
def dying(piece, raw_bytes=saved._raw_bytes):
    global written
    written += 1
    if written == 20:
        os.kill(os.getpid(), signal.SIGKILL)
    return raw_bytes(piece)
saved._raw_bytes = dying
session.save(folder / "session.safetensors")
"""


def test_resumed_in_a_new_process_and_killed_while_saving_leaves_the_earlier_file_whole(
    tmp_path: Path, small_model: GeometryModel, run_program: Callable[..., Done]
) -> None:
    session, frames, path = FLOW.open(small_model), make_frames(16), tmp_path / "session.safetensors"
    for frame in frames[:10]:
        session.step(frame)
    session.save(path)
    before = path.read_bytes()
    save_file(small_model.state_dict(), tmp_path / "weights.safetensors")
    rest = {f"{index:02d}": frame.contiguous() for index, frame in enumerate(frames[10:])}
    save_file(rest, tmp_path / "rest.safetensors")
    (tmp_path / "config.json").write_text(SMALL.to_json())
    done = run_program(RESUME, str(tmp_path))
    assert done.returncode == -signal.SIGKILL, done.stderr
    unfinished = path.with_name("session.safetensors.unfinished")
    assert unfinished.stat().st_size > 0
    assert path.read_bytes() == before
    want = Geometry.join(list(session.run(frames[10:])))
    for name, tensor in load_file(tmp_path / "out.safetensors").items():
        assert torch.equal(tensor, getattr(want, name))
    again = WindowedSession.resume(path, small_model)
    require_equal(Geometry.join(list(again.run(frames[10:]))), want)
    again.save(path)
    assert not unfinished.exists()


def test_interrupted_save_leaves_the_session_and_the_earlier_file_as_they_were(
    tmp_path: Path, small_model: GeometryModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, session, frames = FLOW.open(small_model), FLOW.open(small_model), make_frames(12)
    path = tmp_path / "session.safetensors"
    session.save(path)
    before = path.read_bytes()

    def interrupt(_: Tensor) -> None:
        raise KeyboardInterrupt

    for frame in frames:
        with monkeypatch.context() as patch:
            patch.setattr("longtake.memory.saved._raw_bytes", interrupt)
            with pytest.raises(KeyboardInterrupt):
                session.save(path)
        require_equal(session.step(frame), plain.step(frame))
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.fixture(scope="module")
def bytes_of_saved_flow(tmp_path_factory: pytest.TempPathFactory, small_model: GeometryModel) -> bytes:
    session, path = FLOW.open(small_model), tmp_path_factory.mktemp("flow") / "session.safetensors"
    for frame in make_frames(9):
        session.step(frame)
    session.save(path)
    return path.read_bytes()


@pytest.fixture
def saved_flow(tmp_path: Path, bytes_of_saved_flow: bytes) -> Path:
    path = tmp_path / "session.safetensors"
    path.write_bytes(bytes_of_saved_flow)
    return path


def test_each_kind_of_session_says_which_the_file_is_of(
    saved_flow: Path, tmp_path: Path, small_model: GeometryModel
) -> None:
    with pytest.raises(
        SavedSessionError, match=r"session.safetensors is a saved session of windows; resume it with `resume_session`"
    ):
        SequenceSession.resume(saved_flow, small_model)
    plain = tmp_path / "plain.safetensors"
    FLOW.open(small_model).session.save(plain)
    with pytest.raises(
        SavedSessionError, match=r"plain.safetensors is a saved session without windows; .*`SequenceSession.resume`"
    ):
        WindowedSession.resume(plain, small_model)


def test_session_of_either_kind_is_resumed_without_asking_which(
    saved_flow: Path, tmp_path: Path, small_model: GeometryModel
) -> None:
    windowed = resume_session(saved_flow, small_model, ReferenceBackend())
    assert isinstance(windowed, WindowedSession)
    assert windowed.session._backend.name == "reference"
    frames, plain = make_frames(6), FLOW.open(small_model).session
    for frame in frames[:4]:
        plain.step(frame)
    plain.save(tmp_path / "plain.safetensors")
    resumed = resume_session(tmp_path / "plain.safetensors", small_model)
    assert isinstance(resumed, SequenceSession)
    for frame in frames[4:]:
        require_equal(resumed.step(frame), plain.step(frame))


def test_resumed_session_has_the_settings_it_was_saved_with(tmp_path: Path, small_model: GeometryModel) -> None:
    for name, setting in SETTINGS.items():
        session = setting.open(small_model, backend=ReferenceBackend(), budget_bytes=4_000_000)
        session.save(tmp_path / f"{name}.safetensors")
        resumed = WindowedSession.resume(tmp_path / f"{name}.safetensors", small_model)
        assert resumed._windows == setting.windows
        assert resumed._alignment == session._alignment
        assert resumed._rule == session._rule
        assert resumed.session.keyframes == session.session.keyframes
        assert resumed.session.plan == session.session.plan
        assert resumed.session.num_bytes == session.session.num_bytes
        assert resumed.session._backend.name == "reference"


def test_other_weights_and_other_models_are_refused(saved_flow: Path) -> None:
    for config in (SMALL, replace(SMALL, camera=replace(SMALL.camera, iterations=2))):
        with pytest.raises(SavedSessionError, match="load the weights it was made with"):
            WindowedSession.resume(saved_flow, GeometryModel(config))
        with pytest.raises(SavedSessionError, match="load the weights it was made with"):
            resume_session(saved_flow, GeometryModel(config))


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.99])
def test_file_cut_short_is_refused(share: float, saved_flow: Path, small_model: GeometryModel) -> None:
    whole = saved_flow.read_bytes()
    saved_flow.write_bytes(whole[: int(share * len(whole))])
    for resume in (WindowedSession.resume, resume_session):
        with pytest.raises(SavedSessionError, match="is not a complete saved session"):
            resume(saved_flow, small_model)


def without_tensor(path: Path, dropped: str) -> None:
    saved = SavedTensors(path)
    tensors = {name: Pieces.of(tensor) for name, tensor in load_file(path).items() if name != dropped}
    write_tensors(path, tensors, saved.record)


@pytest.mark.parametrize("name", ["windowed.spans", "windowed.recent.1", "windowed.held.depth", "windowed.scale"])
def test_missing_tensor_is_refused_by_its_name(name: str, saved_flow: Path, small_model: GeometryModel) -> None:
    without_tensor(saved_flow, name)
    with pytest.raises(SavedSessionError, match=f"no tensor '{name}'"):
        WindowedSession.resume(saved_flow, small_model)


def test_session_of_windows_over_a_fork_cannot_be_saved(tmp_path: Path, small_model: GeometryModel) -> None:
    with FLOW.open(small_model).session.fork() as fork, pytest.raises(ForkError, match="cannot be saved"):
        WindowedSession(fork, FLOW.windows).save(tmp_path / "session.safetensors")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.parametrize("name", ["overlap-shorter-than-the-scale-block", "flow"])
def test_frames_from_host_and_device_resume_bit_identically_on_a_gpu(
    name: str, tmp_path: Path, small_model: GeometryModel
) -> None:
    setting, path, model = SETTINGS[name], tmp_path / "session.safetensors", copy.deepcopy(small_model).cuda()
    from_host, saving, resumed = (setting.open(model) for _ in range(3))
    for index, frame in enumerate(make_frames(24)):
        given = frame if index % 3 else frame.cuda()
        resumed.save(path)
        resumed = WindowedSession.resume(path, model)
        want = saving.step(given)
        require_equal(resumed.step(given), want)
        require_equal(from_host.step(frame.contiguous()), want)
    require_equal(resumed.finish(), saving.finish())
