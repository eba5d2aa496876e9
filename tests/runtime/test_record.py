"""What a saved session says of itself, there and back."""

import json
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from longtake import __version__
from longtake.attention.reference import ReferenceBackend
from longtake.errors import SavedSessionError, SettingError
from longtake.geometry.config import GeometryConfig
from longtake.geometry.model import GeometryModel
from longtake.runtime.record import SessionRecord, fingerprint
from longtake.runtime.retention import ContextRetention, MemoryPlan, Trail

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
    assert (record.format, record.longtake, record.torch) == (1, __version__, torch.__version__)


@pytest.mark.parametrize("fields", [{"format": 2, "longtake": "9.9"}, {}, {"format": None}])
def test_other_format_is_refused_with_the_version_that_wrote_it(fields: dict[str, Any]) -> None:
    with pytest.raises(
        SavedSessionError, match=f"format 1, but got .*the longtake that wrote it .{fields.get('longtake')}"
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
    for fields in ({name: value for name, value in whole.items() if name != "size"}, whole | {"mood": "good"}):
        with pytest.raises(SavedSessionError, match="does not fit this longtake"):
            SessionRecord.from_dict(fields)
