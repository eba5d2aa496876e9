"""Policies side by side: the figures are those of the sessions, and keeping all disagrees with nothing."""

import itertools
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from longtake.bench.contenders import POLICIES, EvenAttention, contenders, even_attention_twin
from longtake.bench.eviction import EvictionFigures, EvictionRow, EvictionSettings, measure_eviction
from longtake.cli.bench_policies import DEFAULT_POLICIES, MAP_PICTURE, bench_policies
from longtake.errors import SettingError
from longtake.evaluation.agreement import ClipGeometry, Mean, agreement, mean_over_worlds
from longtake.geometry.config import TRUNK, Attention
from longtake.geometry.model import GeometryModel
from longtake.hub.load import random_model
from longtake.memory.policies.budgeted import Managed
from longtake.memory.policies.layerwise import Layerwise
from longtake.memory.policies.lockstep import ContextRetention, KeepAll
from longtake.memory.policies.ratio import Ratio
from longtake.runtime.memory_plan import MemoryPlan
from longtake.runtime.session import SequenceSession
from longtake.weights.load import save_geometry
from longtake.weights.presets import TINY, TINY_CAUSAL
from longtake.world.tour import Tour

SIZE = (28, 42)
TOKENS, LAYERS, FRAMES = 8, 4, 5
NOTHING = Mean(mean=0.0, low=None, high=None)
LINEUP = ("none", "ratio", "layerwise-0.5", "managed", "window")
OPTIONS = {
    "model": "tiny",
    "language": "none",
    "frames": 4,
    "size": "42x28",
    "budgets": "1,18",
    "policy": "none,managed,ratio",
    "device": "cpu",
}


def settings(**changes: object) -> EvictionSettings:
    usual = {
        "policies": LINEUP,
        "budgets": (2, 18),
        "num_frames": FRAMES,
        "num_worlds": 1,
        "size": SIZE,
        "is_trained": False,
    }
    return EvictionSettings(**usual | changes)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def model() -> GeometryModel:
    return random_model(TINY_CAUSAL, torch.device("cpu"))


@pytest.fixture(scope="module")
def rows(model: GeometryModel) -> list[EvictionRow]:
    ticks: list[int] = []
    found = measure_eviction(model, settings(), ticks.append)
    assert len(ticks) == FRAMES
    return found


def figures_of(rows: list[EvictionRow], policy: str, budget: int | None = None) -> EvictionFigures:
    (found,) = [row.figures for row in rows if (row.policy, row.budget_frames) == (policy, budget)]
    assert found is not None
    return found


def test_every_policy_has_a_row_and_those_with_a_size_one_for_each_budget(rows: list[EvictionRow]) -> None:
    named = [(row.policy, row.budget_frames) for row in rows]
    assert named == [
        ("none", None),
        ("ratio", None),
        ("layerwise-0.5", None),
        *(("managed", 2), ("managed", 18)),
        *(("window", 2), ("window", 18)),
    ]


def test_full_cache_agrees_with_itself_and_holds_everything(rows: list[EvictionRow]) -> None:
    full = figures_of(rows, "none")
    assert full.tokens_by_layer == (FRAMES * TOKENS,) * LAYERS
    assert full.tokens_by_frame == (TOKENS * LAYERS,) * FRAMES
    assert full.tokens_over_time == tuple(count * TOKENS * LAYERS for count in range(1, FRAMES + 1))
    assert full.statistics_ratio is None
    differences = (full.depth_median, full.depth_p95, full.rotation_deg, full.centre_share)
    assert all(value == NOTHING for value in differences)


def test_budget_that_holds_all_agrees_with_the_full_cache(rows: list[EvictionRow]) -> None:
    full, managed = figures_of(rows, "none"), figures_of(rows, "managed", 18)
    assert managed.tokens_by_layer == full.tokens_by_layer
    assert managed.depth_p95 == managed.rotation_deg == managed.centre_share == NOTHING
    assert managed.live_bytes == full.live_bytes


def test_budget_that_holds_less_is_kept_and_changes_something(rows: list[EvictionRow]) -> None:
    window = figures_of(rows, "window", 2)
    assert window.tokens_by_layer == (2 * TOKENS,) * LAYERS
    assert window.tokens_by_frame == (TOKENS * LAYERS, 0, 0, 0, TOKENS * LAYERS)
    assert window.centre_share is not None
    assert window.centre_share.mean > 0


def test_budget_that_a_policy_refuses_is_a_row_that_says_so(rows: list[EvictionRow]) -> None:
    (refused,) = [row for row in rows if row.figures is None]
    assert (refused.policy, refused.budget_frames) == ("managed", 2)
    assert refused.refused is not None
    assert "the smallest that works is 18 frames" in refused.refused


def test_bytes_are_those_of_a_session_that_watched_the_same_frames(
    model: GeometryModel, rows: list[EvictionRow]
) -> None:
    rule = Layerwise(num_frames=FRAMES, strict=False)
    session = SequenceSession(
        model, MemoryPlan(config=TINY_CAUSAL, size=SIZE, retention=rule, num_scale_frames=1), budget_bytes=None
    )
    most = 0
    for view, _ in zip(Tour(seed=9, width=SIZE[1], height=SIZE[0]).views(), range(FRAMES), strict=False):
        session.step(view.image)
        most = max(most, sum(use.live_bytes for use in session.use().values()))
    figures = figures_of(rows, "layerwise-0.5")
    assert figures.declared_bytes == session.num_bytes
    assert figures.live_bytes == sum(use.live_bytes for use in session.use().values())
    assert figures.most_live_bytes == most <= figures.declared_bytes
    assert figures.tokens_by_layer == tuple(len(session.remembered(layer)) for layer in range(LAYERS))


@pytest.mark.extra
def test_managed_memory_is_never_above_its_bound(model: GeometryModel) -> None:
    wanted = settings(policies=("managed",), budgets=(18,), num_frames=24)
    managed = figures_of(measure_eviction(model, wanted, lambda _: None), "managed", 18)
    assert max(managed.tokens_over_time) == 18 * TOKENS * LAYERS == sum(managed.tokens_by_layer)
    assert managed.live_bytes <= managed.most_live_bytes <= managed.declared_bytes
    assert managed.statistics_ratio is not None
    assert managed.statistics_ratio > 0
    assert managed.step_ms > 0


def test_accuracy_is_measured_of_trained_models_only(model: GeometryModel, rows: list[EvictionRow]) -> None:
    assert all(row.figures is None or row.figures.ate_share is None for row in rows)
    wanted = settings(policies=("none",), num_worlds=2, is_trained=True)
    (row,) = measure_eviction(model, wanted, lambda _: None)
    assert row.figures is not None
    for value in (row.figures.ate_share, row.figures.true_rotation_deg, row.figures.depth_abs_rel):
        assert value is not None
        assert value.low is not None
        assert value.high is not None
        assert value.low <= value.mean <= value.high
        assert value.mean > 0


def test_network_with_scale_frames_is_compared_too() -> None:
    tiny = random_model(TINY, torch.device("cpu"))
    wanted = settings(policies=("none", "farthest-frames"), budgets=(4,), num_frames=6)
    found = measure_eviction(tiny, wanted, lambda _: None)
    tokens = TINY.tokens_per_frame(*SIZE)
    assert figures_of(found, "none").tokens_by_layer == (6 * tokens,) * LAYERS
    assert figures_of(found, "farthest-frames", 4).tokens_by_layer == (4 * tokens,) * LAYERS


def seen(num_frames: int = 4) -> ClipGeometry:
    generator = torch.Generator().manual_seed(0)
    poses = torch.eye(4, dtype=torch.float64).repeat(num_frames, 1, 1)
    poses[:, :3, 3] = torch.randn(num_frames, 3, generator=generator, dtype=torch.float64)
    return ClipGeometry(1 + torch.rand(num_frames, 3, 5, generator=generator), poses)


def test_disagreement_is_what_was_put_in() -> None:
    full = seen()
    turned = full.world_from_camera.clone()
    angle = math.radians(3)
    turned[:, :2, :2] = torch.tensor([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
    turned[:, 0, 3] += 0.5
    found = agreement(ClipGeometry(full.depth * 1.1, turned), full)
    steps = full.world_from_camera[1:, :3, 3] - full.world_from_camera[:-1, :3, 3]
    assert found.depth_median == pytest.approx(0.1, rel=1e-5)
    assert found.depth_p95 == pytest.approx(0.1, rel=1e-5)
    assert found.rotation_deg == pytest.approx(3)
    assert found.centre_share == pytest.approx(0.5 / float(steps.norm(dim=-1).sum()))


def test_run_that_stands_still_has_no_path_to_compare_with() -> None:
    full = seen()
    still = ClipGeometry(full.depth, torch.eye(4, dtype=torch.float64).repeat(4, 1, 1))
    assert agreement(full, still).centre_share is None


def test_interval_is_that_of_means_of_worlds_drawn_again() -> None:
    values = [1.0, 2.0, 4.0, 5.5, 9.0]
    every = [np.mean(drawn) for drawn in itertools.product(values, repeat=5)]
    found = mean_over_worlds(values)
    assert found is not None
    assert found.mean == pytest.approx(4.3)
    assert found.low == pytest.approx(np.quantile(every, 0.025), abs=0.1)
    assert found.high == pytest.approx(np.quantile(every, 0.975), abs=0.1)
    assert found == mean_over_worlds(values)


def test_interval_needs_two_worlds_and_a_mean_one_that_has_a_value() -> None:
    assert mean_over_worlds([3.0]) == mean_over_worlds([3.0, None]) == Mean(mean=3.0, low=None, high=None)
    assert mean_over_worlds([None]) is None


def test_twin_keeps_as_many_tokens_without_asking_for_attention(model: GeometryModel) -> None:
    rule = Managed(num_frames=3, special_frames=2, camera_frames=8)
    twin = even_attention_twin(rule)
    assert isinstance(twin, EvenAttention)
    assert isinstance(twin.policy, Managed)
    assert not twin.wants_attention_mass
    session = SequenceSession(model, MemoryPlan(config=TINY_CAUSAL, size=SIZE, retention=twin, num_scale_frames=1))
    for image in torch.rand(6, 3, *SIZE, generator=torch.Generator().manual_seed(0)):
        session.step(image)
    assert session.use()[TRUNK].live == 3 * TOKENS * LAYERS


def test_policy_that_asks_for_no_attention_has_no_twin() -> None:
    assert even_attention_twin(KeepAll()) is None


def test_camera_memory_has_no_room_for_frames_that_do_not_come() -> None:
    (entry,) = contenders(["ratio"], [], TINY_CAUSAL, SIZE, 7)
    assert entry.rule == Ratio(camera_frames=7)


@pytest.mark.parametrize("name", ["lots", "layerwise", "strict-", "layerwise-half", ""])
def test_policy_that_does_not_exist_is_refused_with_the_choices(name: str) -> None:
    with pytest.raises(SettingError, match=f"no policy '{name}'.*none, ratio, layerwise-R.*managed"):
        contenders([name], [4], TINY_CAUSAL, SIZE, 7)


def test_table_says_what_was_refused_and_that_weights_are_random(capsys: pytest.CaptureFixture[str]) -> None:
    bench_policies(**OPTIONS)
    said = capsys.readouterr().out
    assert "tiny network, random weights, 4 frames of 1 world at 42x28, CPU, 1 thread" in said
    assert "refused" in said
    assert "managed, 1 frames: A memory of 1 frames cannot hold" in said
    assert "The weights are random" in said
    assert all(name in said for name in ("none", "ratio", "managed"))


def test_json_and_plot_are_written(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    bench_policies(**OPTIONS, as_json=True, plots=tmp_path / "plots")
    (said,) = json.loads(capsys.readouterr().out).values()
    assert (said["weights"], said["is_random"], said["num_frames"]) == ("tiny", True, 4)
    assert (said["width"], said["height"]) == (42, 28)
    assert [row["policy"] for row in said["rows"]] == ["none", "managed", "managed", "ratio"]
    assert said["rows"][0]["figures"]["depth_median"] == {"mean": 0.0, "low": None, "high": None}
    assert (tmp_path / "plots" / MAP_PICTURE).read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("budgets", ["", "0", "four", "4,,8", "-1"])
def test_budgets_that_are_no_counts_of_frames_are_refused(budgets: str) -> None:
    with pytest.raises(SettingError, match="such as 4,8,16"):
        bench_policies(**OPTIONS | {"budgets": budgets}, as_json=True)


def test_default_lineup_has_every_policy_and_begins_with_the_full_cache() -> None:
    assert tuple(DEFAULT_POLICIES.split(",")) == POLICIES
    assert contenders(POLICIES, [18], TINY_CAUSAL, SIZE, 40)[0].rule == KeepAll()


def test_model_from_a_file_is_compared_with_the_truth_and_no_figure_is_cut(
    model: GeometryModel, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "model.safetensors"
    save_geometry(model, path)
    monkeypatch.setenv("COLUMNS", "60")
    bench_policies(**OPTIONS | {"model": str(path), "worlds": 2, "policy": "none,farthest-frames"})
    said = capsys.readouterr().out
    assert "…" not in said
    assert "model.safetensors, 4 frames of 2 worlds" in said
    assert "ATE % of path" in said
    assert "Against the truth" in said
    assert "random" not in said


def test_network_that_cannot_stream_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "full.safetensors"
    save_geometry(random_model(replace(TINY_CAUSAL, attention=Attention.FULL), torch.device("cpu")), path)
    with pytest.raises(SettingError, match="cannot watch frame by frame"):
        bench_policies(**OPTIONS | {"model": str(path)}, as_json=True)


def test_rule_with_scale_frames_has_its_anchors_within_the_budget() -> None:
    small, fitting, whole = contenders(["context"], [8, 12, 60], TINY, (98, 126), 50)
    assert small.rule is None
    assert small.refused is not None
    assert "smallest that works is 9 frames" in small.refused
    assert fitting.rule == ContextRetention(anchors=8, window=4, history=60)
    assert whole.rule == ContextRetention(anchors=8, window=52, history=60)
