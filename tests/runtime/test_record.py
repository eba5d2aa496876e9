"""What a saved session says of itself, there and back."""

import copy
import json
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from longtake import __version__
from longtake.attention.backend import ReferenceBackend
from longtake.errors import SavedSessionError, SettingError
from longtake.geometry.config import GeometryConfig
from longtake.geometry.model import GeometryModel
from longtake.memory.policies.lockstep import ContextRetention, Trail
from longtake.memory.saved import SavedTensors, write_tensors
from longtake.runtime.alignment import Alignment, Anchoring, ScaleEstimate
from longtake.runtime.memory_plan import MemoryPlan
from longtake.runtime.record import (
    FramesRecord,
    SessionRecord,
    WindowedRecord,
    fingerprint,
    frame_pieces,
    weights_fingerprint,
)
from longtake.runtime.windows import Windows
from longtake.types import FrameKind, Geometry

SESSION: dict[str, Any] = {
    "weights": "0123456789abcdef",
    "keyframes": {"interval": 3},
    "backend": "reference",
    "budget_bytes": 4_000_000,
    "num_answered": 17,
    "scale_block": 2,
    "compute_dtype": "torch.float32",
    "last_kept_index": 16,
    "waiting_timestamps_s": (0.5, 0.75),
}


@pytest.fixture
def plan(tiny_config: GeometryConfig) -> MemoryPlan:
    return MemoryPlan(
        config=tiny_config,
        size=(42, 70),
        retention=ContextRetention(anchors=3, window=5, trail=Trail.CAMERA, history=11),
        num_scale_frames=4,
        reserve_frames=6,
        trunk_dtype=torch.bfloat16,
    )


def through_json(record: SessionRecord) -> SessionRecord:
    return SessionRecord.from_dict(json.loads(json.dumps(record.to_dict())))


def test_record_survives_json(plan: MemoryPlan) -> None:
    record = SessionRecord.of(plan, **SESSION)
    assert through_json(record) == record
    assert SessionRecord.from_dict(record.to_dict()) == record
    assert record.to_dict() | SESSION == record.to_dict()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("trail", Trail)
@pytest.mark.parametrize("history", [11, None])
def test_plan_comes_back_whole(dtype: torch.dtype, trail: Trail, history: int | None, plan: MemoryPlan) -> None:
    retention = replace(plan.retention, trail=trail, history=history)
    wanted = replace(plan, trunk_dtype=dtype, retention=retention)
    restored = through_json(SessionRecord.of(wanted, **SESSION)).plan(plan.config)
    assert restored == wanted
    assert type(restored.retention.trail) is Trail


def test_record_names_the_versions_that_wrote_it(plan: MemoryPlan) -> None:
    record = SessionRecord.of(plan, **SESSION)
    assert (record.format, record.longtake, record.torch) == (4, __version__, torch.__version__)


@pytest.mark.parametrize("fields", [{"format": 5, "longtake": "9.9"}, {}, {"format": None}])
def test_other_format_is_refused_with_the_version_that_wrote_it(fields: dict[str, Any]) -> None:
    with pytest.raises(
        SavedSessionError,
        match=f"format 1 or 2 or 3 or 4, but got .*the longtake that wrote it .{fields.get('longtake')}",
    ):
        SessionRecord.from_dict(fields)


def test_model_of_another_configuration_is_refused(plan: MemoryPlan) -> None:
    record = SessionRecord.of(plan, **SESSION)
    other = replace(plan.config, camera=replace(plan.config.camera, iterations=1))
    with pytest.raises(SavedSessionError, match="another configuration; load that model"):
        record.plan(other)


def test_backend_is_made_by_its_name(plan: MemoryPlan) -> None:
    record = SessionRecord.of(plan, **SESSION)
    assert isinstance(record.make_backend(), ReferenceBackend)
    with pytest.raises(SettingError, match="no attention backend 'magic'"):
        replace(record, backend="magic").make_backend()


def test_other_weights_are_refused_with_both_names(plan: MemoryPlan) -> None:
    record = SessionRecord.of(plan, **SESSION)
    record.require_weights(SESSION["weights"])
    with pytest.raises(SavedSessionError, match="with weights 0123456789abcdef, but the model has ffff"):
        record.require_weights("ffff")


def test_fingerprint_is_that_of_the_weights_alone(tiny_model: GeometryModel) -> None:
    twin = GeometryModel(tiny_model.config)
    assert fingerprint(twin) != fingerprint(tiny_model)
    twin.load_state_dict(tiny_model.state_dict())
    assert fingerprint(twin) == fingerprint(tiny_model)
    assert len(fingerprint(tiny_model)) == 16


def test_the_fingerprint_of_weights_does_not_depend_on_their_number_type(tiny_model: GeometryModel) -> None:
    exact = copy.deepcopy(tiny_model)
    for parameter in exact.parameters():
        parameter.data.uniform_(-1, 1)
    rounded = copy.deepcopy(exact).to(torch.bfloat16)
    assert fingerprint(rounded) != fingerprint(exact)
    assert weights_fingerprint(rounded) == weights_fingerprint(exact)
    next(iter(rounded.parameters())).data.add_(1)
    assert weights_fingerprint(rounded) != weights_fingerprint(exact)


def test_every_tensor_leaves_its_mark_on_the_fingerprint(tiny_model: GeometryModel) -> None:
    twin = GeometryModel(tiny_model.config)
    twin.load_state_dict(tiny_model.state_dict())
    want = fingerprint(twin)
    names = list(twin.state_dict())
    for name in (names[0], names[len(names) // 2], names[-1]):
        tensor = twin.state_dict()[name]
        kept = tensor.clone()
        tensor.mul_(1.5).add_(0.25)
        assert fingerprint(twin) != want
        tensor.copy_(kept)
    assert fingerprint(twin) == want


def silent(config: GeometryConfig) -> GeometryModel:
    """A model whose every number is zero."""
    model = GeometryModel(config).requires_grad_(False)
    for tensor in model.state_dict().values():
        tensor.zero_()
    return model


def test_fingerprint_tells_names_and_shapes_apart_where_all_numbers_are_equal(tiny_config: GeometryConfig) -> None:
    configs = [
        tiny_config,
        replace(tiny_config, encoder=replace(tiny_config.encoder, side=tiny_config.encoder.side + 1)),
        replace(tiny_config, dense=replace(tiny_config.dense, points=False, camera_points=True)),
    ]
    models = [silent(config) for config in configs]
    assert len(models[0].state_dict()) == len(models[1].state_dict()) == len(models[2].state_dict())
    assert len({fingerprint(model) for model in models}) == len(models)


def test_fingerprint_looks_beyond_the_beginning_of_a_tensor(tiny_config: GeometryConfig) -> None:
    model = silent(tiny_config)
    want = fingerprint(model)
    largest = max(model.state_dict().values(), key=Tensor.numel).reshape(-1)
    largest[len(largest) // 2 :] = 1.0
    assert fingerprint(model) != want


def test_record_with_a_field_missing_or_unknown_is_refused(plan: MemoryPlan) -> None:
    whole = SessionRecord.of(plan, **SESSION).to_dict()
    for said in ({name: value for name, value in whole.items() if name != "size"}, whole | {"mood": "good"}):
        with pytest.raises(SavedSessionError, match="does not fit this longtake"):
            SessionRecord.from_dict(said)


def some_frames(first: int, num_frames: int, *, points: bool = True) -> Geometry:
    generator = torch.Generator().manual_seed(first)

    def numbers(*shape: int) -> Tensor:
        return torch.randn(num_frames, *shape, generator=generator)

    return Geometry(
        frame_index=tuple(range(first, first + num_frames)),
        timestamp_s=tuple(0.1 * index for index in range(first, first + num_frames)),
        kind=(FrameKind.SCALE, FrameKind.KEYFRAME, FrameKind.PASSING)[:num_frames],
        window=(first // 3,) * num_frames,
        provisional=(True,) * num_frames,
        pose_encoding=numbers(9),
        world_from_camera=numbers(4, 4),
        intrinsics=numbers(3, 3),
        depth=numbers(2, 5),
        depth_confidence=numbers(2, 5),
        points=numbers(3, 2, 5).permute(0, 2, 3, 1) if points else None,
        points_confidence=numbers(2, 5) if points else None,
    )


WINDOWED = WindowedRecord(
    windows=Windows(size=6, overlap_keyframes=2),
    alignment=Alignment(Anchoring.ROBUST, ScaleEstimate.TRIMMED_MEAN),
    num_kept=4,
    num_released=3,
    num_given=4,
    num_corrections=1,
    recent_timestamps_s=(0.1, 0.2),
    shared=FramesRecord.of([some_frames(0, 2)]),
    unplaced=FramesRecord.of([]),
    held=FramesRecord.of([some_frames(2, 1), some_frames(3, 3)]),
)


def test_record_of_windows_survives_json(plan: MemoryPlan) -> None:
    record = replace(SessionRecord.of(plan, **SESSION), windowed=WINDOWED)
    restored = through_json(record)
    assert restored == record
    assert restored.windowed is not None
    assert type(restored.windowed.alignment.anchoring) is Anchoring
    assert all(type(kind) is FrameKind for kind in restored.windowed.held.kind)


def test_windows_of_format_2_had_given_what_was_final(plan: MemoryPlan) -> None:
    record = replace(SessionRecord.of(plan, **SESSION), windowed=WINDOWED).to_dict() | {"format": 2}
    later = ("num_released", "num_given", "num_corrections")
    record["windowed"] = {name: value for name, value in record["windowed"].items() if name not in later}
    record["windowed"]["num_emitted"] = 3
    read = SessionRecord.from_dict(json.loads(json.dumps(record)))
    assert read.windowed == replace(WINDOWED, num_given=3, num_corrections=0)


def test_record_of_format_1_is_of_a_session_without_windows(plan: MemoryPlan) -> None:
    record = SessionRecord.of(plan, **SESSION)
    older = {name: value for name, value in record.to_dict().items() if name != "windowed"} | {"format": 1}
    assert SessionRecord.from_dict(older) == replace(record, format=1)
    assert SessionRecord.from_dict(older).windowed is None


@pytest.mark.parametrize(
    "change",
    [
        {"windows": {"size": 0}},
        {"windows": {"length": 4}},
        {"alignment": {"anchoring": "by-eye"}},
        {"held": {}},
        {"held": None},
        {"shared": asdict(WINDOWED.shared) | {"kind": ["mystery"]}},
        {"mood": "good"},
    ],
)
def test_record_of_windows_that_means_nothing_is_refused(change: dict[str, Any], plan: MemoryPlan) -> None:
    whole = replace(SessionRecord.of(plan, **SESSION), windowed=WINDOWED).to_dict()
    with pytest.raises(SavedSessionError, match="does not fit this longtake"):
        SessionRecord.from_dict(whole | {"windowed": whole["windowed"] | change})


@pytest.mark.parametrize("points", [True, False])
def test_frames_come_back_joined_and_whole(points: bool, tmp_path: Path) -> None:
    parts = [some_frames(0, 3, points=points), some_frames(3, 1, points=points), some_frames(4, 2, points=points)]
    record = FramesRecord.of(parts)
    write_tensors(tmp_path / "frames.safetensors", frame_pieces("held", parts), {})
    (got,) = record.parts(SavedTensors(tmp_path / "frames.safetensors"), "held", (2, 5), torch.device("cpu"))
    want = Geometry.join(parts)
    for field in fields(Geometry):
        a, b = getattr(got, field.name), getattr(want, field.name)
        assert torch.equal(a, b) if isinstance(b, Tensor) else a == b


def test_frames_are_written_from_where_they_lie() -> None:
    parts = [some_frames(0, 3), some_frames(3, 1)]
    pieces = frame_pieces("held", parts)
    assert pieces["held.depth"].shape == (4, 2, 5)
    assert all(piece is part.depth for piece, part in zip(pieces["held.depth"].pieces, parts, strict=True))
    assert frame_pieces("held", []) == {}


def test_no_frames_are_no_part(tmp_path: Path) -> None:
    write_tensors(tmp_path / "frames.safetensors", {}, {})
    saved = SavedTensors(tmp_path / "frames.safetensors")
    assert FramesRecord.of([]).parts(saved, "held", (2, 5), torch.device("cpu")) == []
